// The lines of the walk through a layer's feed-forward part.

import { deriveAfter, deriveByNote, deriveSum, nameCell } from "derivation.js";
import { ACTIVATIONS } from "layer_tables.js";
import { parameterRows } from "parameters.js";
import {
  ABLATED,
  applied,
  compute,
  layerTag,
  learn,
  namedBias,
  normalized,
  projected,
} from "walk_lines.js";

/** Hidden units: the activation of H. */
function walkPlainHidden(walk, values, input, tag, mlp) {
  const { config, params } = walk.model;
  const kind = ACTIVATIONS[config.act];
  const weight = parameterRows(params[`${mlp}.W_in`]);
  const bias = namedBias(walk, `b_in${tag}`, `${mlp}.b_in`);
  const formula = applied(config.act, `H${tag}`);
  const cell = deriveSum([[`H${tag}`, values.pre]]);
  const derive = deriveAfter(cell, applied(config.act, "sum"), kind.apply, kind.explanation);
  return [
    learn(`W_in${tag}`, weight),
    projected(walk, `H${tag}`, input.values, input.name, weight, `W_in${tag}`, bias, values.pre),
    compute(walk, `G${tag}`, formula, values.post, derive),
  ];
}

/** Hidden units: the activation of H opens or closes U, number by number. */
function walkGatedHidden(walk, values, input, tag, mlp) {
  const { config, params } = walk.model;
  const kind = ACTIVATIONS[config.act];
  const gate = parameterRows(params[`${mlp}.W_gate`]);
  const weight = parameterRows(params[`${mlp}.W_in`]);
  const bias = namedBias(walk, `b_in${tag}`, `${mlp}.b_in`);
  const product = `${applied(config.act, `H${tag}`)} ⊙ U${tag}`;
  const formula = bias ? `${product} + ${bias.name}` : product;
  const derive = (i, j) => {
    const opened = applied(config.act, nameCell(`H${tag}`, i, j));
    const label = `${opened} · ${nameCell(`U${tag}`, i, j)}`;
    return {
      terms: [[label, kind.apply(values.pre[i][j]), values.linear[i][j]]],
      addends: bias ? [[`${bias.name}[${j}]`, bias.values[j]]] : [],
      note: `${nameCell(`H${tag}`, i, j)} = ${values.pre[i][j].toFixed(4)}. ${kind.explanation}`,
    };
  };
  const project = (name, matrix, weightName, rows) =>
    projected(walk, name, input.values, input.name, matrix, weightName, null, rows);
  return [
    learn(`W_gate${tag}`, gate),
    project(`H${tag}`, gate, `W_gate${tag}`, values.pre),
    learn(`W_in${tag}`, weight),
    project(`U${tag}`, weight, `W_in${tag}`, values.linear),
    compute(walk, `G${tag}`, formula, values.post, derive),
  ];
}

/** The lines from the stream to what the layer adds to it, which is the last one. */
export function walkMlp(walk, layer, stream) {
  const { config, params } = walk.model;
  const values = walk.trace.layers[layer];
  const tag = layerTag(walk, layer);
  const block = `blocks.${layer}`;
  const mlp = `${block}.mlp`;
  const isPre = config.norm === "pre";
  const input = { name: isPre ? `N2${tag}` : stream, values: values.mlpIn };
  const lines = [];
  if (isPre) {
    const before = values.residMid ?? values.residPre;
    lines.push(normalized(walk, input.name, before, stream, values.mlpIn, `${block}.ln2`));
  }
  const walkHidden = config.gated_mlp ? walkGatedHidden : walkPlainHidden;
  lines.push(...walkHidden(walk, values, input, tag, mlp));
  const weight = parameterRows(params[`${mlp}.W_out`]);
  const bias = namedBias(walk, `b_out${tag}`, `${mlp}.b_out`);
  const output = projected(
    walk, `F${tag}`, values.post, `G${tag}`, weight, `W_out${tag}`, bias, values.mlpOut);
  if (walk.edits.mlps?.[layer]) output.derive = deriveByNote(ABLATED);
  lines.push(learn(`W_out${tag}`, weight), output);
  return lines;
}
