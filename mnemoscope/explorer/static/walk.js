// The walk: every matrix of a forward pass, in the order of the computation.
//
// A step is {title, part, lines}, with parts as in parts.js (none for what no part does), and lines
// as in walk_lines.js.

import { deriveByNote, deriveLookup, deriveSoftmax, deriveSum, nameCell } from "derivation.js";
import { POSITIONS } from "layer_tables.js";
import { parameterRows } from "parameters.js";
import { walkAttention } from "walk_attention.js";
import {
  compute,
  headTag,
  layerTag,
  layerTitle,
  learn,
  namedBias,
  normalized,
  numbered,
  projected,
} from "walk_lines.js";
import { walkMlp } from "walk_mlp.js";

function walkEmbedding(walk) {
  const { embed, position, start, tokens } = walk.trace;
  const { config, params } = walk.model;
  const table = learn("W_E", parameterRows(params["embed.W_E"]), walk.names);
  const fromTable = deriveLookup(embed, (i, j) => nameCell("W_E", walk.names[tokens[i]], j));
  if (!position) {
    const lines = [table, compute(walk, "X", "rows of W_E", start, fromTable)];
    return { title: "Look up tokens", part: "embed", lines };
  }
  const { written, explain } = POSITIONS[config.positions];
  const fromPosition = deriveByNote((i, j) => explain(config, i, j));
  const lines = [
    table,
    compute(walk, "E", "rows of W_E", embed, fromTable),
    compute(walk, "P", written, position, fromPosition),
    compute(walk, "X", "E + P", start, deriveSum([["E", embed], ["P", position]])),
  ];
  return { title: "Look up tokens and positions", part: "embed", lines };
}

/** A sum of parts, each [name, values], and perhaps a bias. */
function walkSum(walk, name, parts, bias, values) {
  const names = parts.map(([part]) => part);
  if (bias) names.push(bias.name);
  return compute(walk, name, names.join(" + "), values, deriveSum(parts, bias));
}

/** The norm of a sum, where the model has it there: its lines and the stream's new name. */
function walkSumAndNorm(walk, sum, normName, normValues, site) {
  if (walk.model.config.norm !== "post") return { lines: [sum], stream: sum.name };
  const norm = normalized(walk, normName, sum.values, sum.name, normValues, site);
  return { lines: [sum, norm], stream: normName };
}

/** What a layer's heads say, each [name, values], and the bias of them all. */
function listResults(walk, layer) {
  const { heads } = walk.trace.layers[layer];
  const parts = heads.map((head, k) => [`O${headTag(walk, layer, k)}`, head.result]);
  const bias = namedBias(walk, `b_O${layerTag(walk, layer)}`, `blocks.${layer}.attn.b_O`);
  return { parts, bias };
}

/** What attention does to the residual stream. */
function walkResidual(walk, layer, stream) {
  const { attn_residual: isAdded } = walk.model.config;
  const values = walk.trace.layers[layer];
  const tag = layerTag(walk, layer);
  const { parts, bias } = listResults(walk, layer);
  if (isAdded) parts.unshift([stream, values.residPre]);
  const sum = walkSum(walk, `R${tag}`, parts, bias, values.attnSum);
  const title = `${isAdded ? "Add to" : "Replace"} the residual stream`;
  const site = `blocks.${layer}.ln1`;
  const { lines, stream: next } = walkSumAndNorm(walk, sum, `NR${tag}`, values.residMid, site);
  return { step: { title: layerTitle(walk, title, layer), lines }, stream: next };
}

/** The feed-forward part, which is added to the residual stream. */
function walkFeedForward(walk, layer, stream) {
  const values = walk.trace.layers[layer];
  const tag = layerTag(walk, layer);
  const lines = walkMlp(walk, layer, stream);
  const parts = [[stream, values.residMid], [`F${tag}`, values.mlpOut]];
  const sum = walkSum(walk, `Y${tag}`, parts, null, values.mlpSum);
  const site = `blocks.${layer}.ln2`;
  const added = walkSumAndNorm(walk, sum, `NY${tag}`, values.residPost, site);
  lines.push(...added.lines);
  const title = layerTitle(walk, "Feed forward", layer);
  return { step: { title, part: `mlp${layer}`, lines }, stream: added.stream };
}

/** Attention and feed-forward after each other: the steps and the stream's new name. */
function walkSerialLayer(walk, layer, stream) {
  const values = walk.trace.layers[layer];
  const steps = walkAttention(walk, layer, stream);
  let now = { stream };
  if (values.attnOut) {
    now = walkResidual(walk, layer, now.stream);
    steps.push(now.step);
  }
  if (values.mlpOut) {
    now = walkFeedForward(walk, layer, now.stream);
    steps.push(now.step);
  }
  return { steps, stream: now.stream };
}

/** Attention and feed-forward side by side: the steps and the stream's new name. */
function walkParallelLayer(walk, layer, stream) {
  const values = walk.trace.layers[layer];
  const tag = layerTag(walk, layer);
  const steps = walkAttention(walk, layer, stream);
  const { parts, bias } = listResults(walk, layer);
  if (values.mlpOut) {
    const title = layerTitle(walk, "Feed forward, beside attention", layer);
    steps.push({ title, part: `mlp${layer}`, lines: walkMlp(walk, layer, stream) });
    parts.push([`F${tag}`, values.mlpOut]);
  }
  if (!parts.length) return { steps, stream };
  const all = [[stream, values.residPre], ...parts];
  const sum = walkSum(walk, `Y${tag}`, all, bias, values.residPost);
  steps.push({ title: layerTitle(walk, "Add both to the residual stream", layer), lines: [sum] });
  return { steps, stream: sum.name };
}

function walkUnembedding(walk, stream) {
  const { final, unembed, logits, probabilities, layers } = walk.trace;
  const { names } = walk;
  const { config } = walk.model;
  const lines = [];
  let inputName = stream;
  if (config.norm === "pre") {
    inputName = "N_final";
    const { residPost } = layers.at(-1);
    lines.push(normalized(walk, inputName, residPost, stream, final, "ln_final"));
  }
  const bias = namedBias(walk, "b_U", "unembed.b_U");
  const softmax = deriveSoftmax(logits, (i) => `row ${i} of L`);
  const matrix = learn("W_U", unembed, numbered(unembed), names);
  if (config.tied) {
    matrix.formula = "W_Eᵀ";
    matrix.derive = deriveLookup(unembed, (i, j) => nameCell("W_E", names[j], i));
  }
  lines.push(matrix);
  lines.push(projected(walk, "L", final, inputName, unembed, "W_U", bias, logits, names));
  lines.push(compute(walk, "Pr", "softmax(L)", probabilities, softmax, names));
  return { title: "Unembed", part: "unembed", lines };
}

/** The steps of a forward pass; `trace` is what `forward` gave for the same model and edits. */
export function buildWalk(model, trace, names, edits = {}) {
  const positions = trace.tokens.map((token, i) => `${i} ${names[token]}`);
  const walk = { model, trace, names, edits, positions };
  const walkLayer = model.config.parallel_attn_mlp ? walkParallelLayer : walkSerialLayer;
  const steps = [walkEmbedding(walk)];
  let stream = "X"; // the name of the residual stream as it stands
  trace.layers.forEach((_, layer) => {
    const walked = walkLayer(walk, layer, stream);
    steps.push(...walked.steps);
    stream = walked.stream;
  });
  steps.push(walkUnembedding(walk, stream));
  return steps;
}
