// The steps of the walk through a layer's attention, one a head.

import {
  deriveAfter,
  deriveByNote,
  deriveProduct,
  deriveTurn,
} from "derivation.js";
import { groupSize } from "forward.js";
import { ATTENTION, POSITIONS } from "layer_tables.js";
import { transpose } from "matrix.js";
import { parameterRows } from "parameters.js";
import {
  ABLATED,
  applied,
  compute,
  FORCED,
  headTag,
  layerTag,
  layerTitle,
  learn,
  MASKED,
  namedBias,
  normalized,
  projected,
} from "walk_lines.js";

/** Which keys and values a head reads, and the tag of their names; groups of heads share some. */
function keyValueHead(walk, layer, head) {
  const group = groupSize(walk.model);
  const index = Math.floor(head / group);
  const isFirst = head % group === 0;
  const tag = group === 1 ? headTag(walk, layer, head) : `${layerTag(walk, layer)}_kv${index}`;
  return { index, isFirst, isShared: group > 1, firstHead: index * group, tag };
}

/** What a head makes of its input: queries, keys or values, and the learned matrix. */
function walkProjection(walk, site, letter, index, tag, input, values) {
  const weight = parameterRows(walk.model.params[`${site}.W_${letter}`], index);
  const weightName = `W_${letter}${tag}`;
  const bias = namedBias(walk, `b_${letter}${tag}`, `${site}.b_${letter}`, index);
  const name = `${letter}${tag}`;
  return [
    learn(weightName, weight),
    projected(walk, name, input.values, input.name, weight, weightName, bias, values),
  ];
}

/** Queries or keys as they are compared: turned by their positions, where the model does that. */
function walkTurn(walk, letter, tag, values, turned) {
  const { config } = walk.model;
  const name = `${letter}${tag}`;
  if (!POSITIONS[config.positions].isTurned) return { name, lines: [] };
  const turnedName = `${letter}rot${tag}`;
  const derive = deriveTurn(config, values, name);
  const line = compute(walk, turnedName, `rotate(${name})`, turned, derive);
  return { name: turnedName, lines: [line] };
}

function walkScores(walk, tag, values, queries, keys) {
  const { config } = walk.model;
  const root = `√${config.d_head}`;
  const product = deriveProduct(values.turnedQ, queries, transpose(values.turnedK), `${keys}ᵀ`);
  const { isScaled } = ATTENTION[config.attention];
  const formula = `${queries} ${keys}ᵀ${isScaled ? ` / ${root}` : ""}`;
  const scale = Math.sqrt(config.d_head);
  const derive = isScaled ? deriveAfter(product, `sum / ${root}`, (sum) => sum / scale) : product;
  return compute(walk, `S${tag}`, formula, values.scores, derive, walk.positions);
}

function derivePattern({ config }, { scores }, forced) {
  const { explain } = ATTENTION[config.attention];
  return deriveByNote((i, j) => {
    if (forced?.[i]) return FORCED;
    if (config.causal && j > i) return MASKED;
    return explain(scores[i][j].toFixed(4), config.causal ? i + 1 : scores.length);
  });
}

function walkPattern(walk, tag, values, forced) {
  const { config } = walk.model;
  const formula = applied(config.attention, config.causal ? `mask(S${tag})` : `S${tag}`);
  const derive = derivePattern(walk.model, values, forced);
  return compute(walk, `A${tag}`, formula, values.pattern, derive, walk.positions);
}

function walkHead(walk, layer, head, input) {
  const values = walk.trace.layers[layer].heads[head];
  const site = `blocks.${layer}.attn`;
  const tag = headTag(walk, layer, head);
  const part = `${layer}.${head}`;
  const keyValue = keyValueHead(walk, layer, head);
  const query = walkTurn(walk, "Q", tag, values.Q, values.turnedQ);
  const key = walkTurn(walk, "K", keyValue.tag, values.K, values.turnedK);
  const z = walk.edits.heads?.[part]
    ? deriveByNote(ABLATED)
    : deriveProduct(values.pattern, `A${tag}`, values.V, `V${keyValue.tag}`);
  const output = parameterRows(walk.model.params[`${site}.W_O`], head);
  const shared = (letter) =>
    walkProjection(walk, site, letter, keyValue.index, keyValue.tag, input, values[letter]);
  const lines = [...walkProjection(walk, site, "Q", head, tag, input, values.Q), ...query.lines];
  if (keyValue.isFirst) lines.push(...shared("K"), ...key.lines, ...shared("V"));
  lines.push(
    walkScores(walk, tag, values, query.name, key.name),
    walkPattern(walk, tag, values, walk.edits.patterns?.[part]),
    compute(walk, `Z${tag}`, `A${tag} V${keyValue.tag}`, values.z, z),
    learn(`W_O${tag}`, output),
    projected(walk, `O${tag}`, values.z, `Z${tag}`, output, `W_O${tag}`, null, values.result),
  );
  return lines;
}

function headTitle(walk, layer, head) {
  const title = layerTitle(walk, "Attend", layer);
  if (walk.model.config.n_heads === 1) return title;
  const { isShared, isFirst, firstHead } = keyValueHead(walk, layer, head);
  const borrowed = isShared && !isFirst ? `, with the keys and values of head ${firstHead}` : "";
  return `${title}, head ${head}${borrowed}`;
}

/** One step a head; the norm before attention, where there is one, opens the first. */
export function walkAttention(walk, layer, stream) {
  const values = walk.trace.layers[layer];
  const isPre = walk.model.config.norm === "pre";
  const name = isPre ? `N${layerTag(walk, layer)}` : stream;
  const input = { name, values: values.attnIn };
  return values.heads.map((_, head) => {
    const lines = walkHead(walk, layer, head, input);
    if (isPre && head === 0) {
      const site = `blocks.${layer}.ln1`;
      lines.unshift(normalized(walk, name, values.residPre, stream, values.attnIn, site));
    }
    return { title: headTitle(walk, layer, head), part: `${layer}.${head}`, lines };
  });
}
