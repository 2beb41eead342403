// The forward pass of mnemoscope/models/forward_pass.py for one sequence, in doubles.
//
// `model` is {config, params}, with params as in parameters.js. `edits` say what parts give instead
// of what they compute; each of its keys may be left out:
//
//   heads     {"layer.head": rows}             a head's z, by position
//   mlps      {layer: rows}                    a feed-forward layer's output, by position
//   patterns  {"layer.head": {row: weights}}   rows of a head's attention pattern
//
// The result, a trace, holds every value on the way, so that nothing is computed twice to be shown.
// What a layer does not have its trace does not have either; without attention it has no heads.

import { ACTIVATIONS, ATTENTION, POSITIONS } from "layer_tables.js";
import { add, addBias, multiply, softmax, transpose } from "matrix.js";
import { normalize } from "norm.js";
import { biasRow, parameterRows } from "parameters.js";
import { turn } from "positions.js";

/** Whether a layer has attention. */
export function hasAttention({ params }, layer) {
  return `blocks.${layer}.attn.W_Q` in params;
}

/** Whether a layer has a feed-forward part. */
export function hasMlp({ params }, layer) {
  return `blocks.${layer}.mlp.W_in` in params;
}

/** How many heads read the keys and values of one. */
export function groupSize({ config }) {
  return config.n_heads / config.n_key_value_heads;
}

/** A linear map; its bias where it has one. `index` picks a head out of a stack. */
function project(model, x, part, letter, index = null) {
  const { params } = model;
  const weight = parameterRows(params[`${part}.W_${letter}`], index);
  return addBias(multiply(x, weight), biasRow(params, `${part}.b_${letter}`, index ?? 0));
}

function turnIfRotary({ config }, x) {
  return POSITIONS[config.positions].isTurned ? turn(config, x) : x;
}

/** Keys and values of every head that has some of its own. */
function computeKeysAndValues(model, attnIn, attn) {
  return Array.from({ length: model.config.n_key_value_heads }, (_, index) => {
    const K = project(model, attnIn, attn, "K", index);
    const V = project(model, attnIn, attn, "V", index);
    return { K, turnedK: turnIfRotary(model, K), V };
  });
}

/** The weights of a row of scores; a position that is not seen has the score that hides it. */
function weigh({ config }, scores, i) {
  const kind = ATTENTION[config.attention];
  const isSeen = (j) => !config.causal || j <= i;
  return kind.pattern(scores.map((score, j) => (isSeen(j) ? score : kind.hidden)));
}

function attendWithHead(model, attnIn, keysAndValues, layer, head, edits) {
  const { config, params } = model;
  const attn = `blocks.${layer}.attn`;
  const key = `${layer}.${head}`;
  const { K, turnedK, V } = keysAndValues[Math.floor(head / groupSize(model))];
  const Q = project(model, attnIn, attn, "Q", head);
  const turnedQ = turnIfRotary(model, Q);
  const scale = ATTENTION[config.attention].isScaled ? Math.sqrt(config.d_head) : 1;
  const scores = multiply(turnedQ, transpose(turnedK)).map((row) => row.map((v) => v / scale));
  const pattern = scores.map((row, i) => edits.patterns?.[key]?.[i] ?? weigh(model, row, i));
  const z = edits.heads?.[key]?.slice(0, attnIn.length) ?? multiply(pattern, V);
  const result = multiply(z, parameterRows(params[`${attn}.W_O`], head));
  return { Q, K, V, turnedQ, turnedK, scores, pattern, z, result };
}

function attend(model, x, layer, edits) {
  if (!hasAttention(model, layer)) return { heads: [] };
  const { config, params } = model;
  const block = `blocks.${layer}`;
  const attnIn = config.norm === "pre" ? normalize(model, `${block}.ln1`, x) : x;
  const keysAndValues = computeKeysAndValues(model, attnIn, `${block}.attn`);
  const heads = Array.from({ length: config.n_heads }, (_, head) =>
    attendWithHead(model, attnIn, keysAndValues, layer, head, edits));
  const summed = heads.map((head) => head.result).reduce(add);
  return { attnIn, heads, attnOut: addBias(summed, biasRow(params, `${block}.attn.b_O`)) };
}

/** Hidden units; `linear` is what a gated layer multiplies them by. */
function computeHidden(model, mlpIn, mlp) {
  const { config, params } = model;
  const { apply } = ACTIVATIONS[config.act];
  const activate = (rows) => rows.map((row) => row.map(apply));
  if (!config.gated_mlp) {
    const pre = project(model, mlpIn, mlp, "in");
    return { pre, post: activate(pre) };
  }
  const pre = multiply(mlpIn, parameterRows(params[`${mlp}.W_gate`]));
  const linear = multiply(mlpIn, parameterRows(params[`${mlp}.W_in`]));
  const gated = activate(pre).map((row, i) => row.map((v, j) => v * linear[i][j]));
  return { pre, linear, post: addBias(gated, biasRow(params, `${mlp}.b_in`)) };
}

function feedForward(model, x, layer, edits) {
  if (!hasMlp(model, layer)) return {};
  const block = `blocks.${layer}`;
  const mlpIn = model.config.norm === "pre" ? normalize(model, `${block}.ln2`, x) : x;
  const hidden = computeHidden(model, mlpIn, `${block}.mlp`);
  const edited = edits.mlps?.[layer]?.slice(0, x.length);
  const mlpOut = edited ?? project(model, hidden.post, `${block}.mlp`, "out");
  return { mlpIn, ...hidden, mlpOut };
}

/** Attention and feed-forward receive the same stream, and both are added to it. */
function runParallelLayer(model, residPre, layer, edits) {
  const attention = attend(model, residPre, layer, edits);
  const mlp = feedForward(model, residPre, layer, edits);
  const added = [attention.attnOut, mlp.mlpOut].filter(Boolean);
  return { residPre, ...attention, ...mlp, residPost: added.reduce(add, residPre) };
}

/** The norm after a sum, where the model has it there. */
function normalizeSum(model, name, x) {
  return model.config.norm === "post" ? normalize(model, name, x) : x;
}

function runLayer(model, residPre, layer, edits) {
  const { config } = model;
  if (config.parallel_attn_mlp) return runParallelLayer(model, residPre, layer, edits);
  const block = `blocks.${layer}`;
  const values = { residPre, ...attend(model, residPre, layer, edits), residMid: residPre };
  if (values.attnOut) {
    values.attnSum = config.attn_residual ? add(residPre, values.attnOut) : values.attnOut;
    values.residMid = normalizeSum(model, `${block}.ln1`, values.attnSum);
  }
  Object.assign(values, feedForward(model, values.residMid, layer, edits));
  if (!values.mlpOut) return { ...values, residPost: values.residMid };
  const mlpSum = add(values.residMid, values.mlpOut);
  return { ...values, mlpSum, residPost: normalizeSum(model, `${block}.ln2`, mlpSum) };
}

export function forward(model, tokens, edits = {}) {
  const { config, params } = model;
  const table = parameterRows(params["embed.W_E"]);
  const embed = tokens.map((token) => table[token]);
  const position = POSITIONS[config.positions].vectors(model, tokens.length);
  const start = position ? add(embed, position) : embed;
  const layers = [];
  let resid = start;
  for (let layer = 0; layer < config.n_layers; layer++) {
    layers.push(runLayer(model, resid, layer, edits));
    resid = layers.at(-1).residPost;
  }
  const final = config.norm === "pre" ? normalize(model, "ln_final", resid) : resid;
  const unembed = config.tied ? transpose(table) : parameterRows(params["unembed.W_U"]);
  const logits = addBias(multiply(final, unembed), biasRow(params, "unembed.b_U"));
  const probabilities = logits.map(softmax);
  return { tokens, embed, position, start, layers, final, unembed, logits, probabilities };
}
