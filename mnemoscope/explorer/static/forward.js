// The forward pass of mnemoscope/models/forward.py for one sequence, in doubles.
//
// `model` is {config, params} with params[name] = {shape, data}, data in row-major order. `edits`
// say what parts give instead of what they compute; each of its keys may be left out:
//
//   heads     {"layer.head": rows}             a head's z, by position
//   mlps      {layer: rows}                    a feed-forward layer's output, by position
//   patterns  {"layer.head": {row: weights}}   rows of a head's attention pattern
//
// The result, a trace, holds every value on the way, so that nothing is computed twice to be shown.

import { add, addBias, multiply, softmax, standardize, transpose } from "matrix.js";

const cutRows = new WeakMap(); // a parameter is cut into rows once, not once for every forward pass

/** One block of a parameter as rows; `index` picks a head out of a stack. */
export function parameterRows(parameter, index = null) {
  if (!cutRows.has(parameter)) cutRows.set(parameter, new Map());
  const known = cutRows.get(parameter);
  if (!known.has(index)) known.set(index, cut(parameter, index ?? 0));
  return known.get(index);
}

function cut({ shape, data }, index) {
  const [height, width] = shape.length === 1 ? [1, shape[0]] : shape.slice(-2);
  const start = index * height * width;
  const row = (i) => Array.from(data.subarray(start + i * width, start + (i + 1) * width));
  return Array.from({ length: height }, (_, i) => row(i));
}

/** A bias, or null where the model has none; `index` picks a head's row out of a stack. */
export function biasRow(params, name, index = 0) {
  return params[name] ? parameterRows(params[name])[index] : null;
}

function applyNorm(params, name, x) {
  const weight = parameterRows(params[`${name}.w`])[0];
  const scaled = standardize(x).map((row) => row.map((v, j) => v * weight[j]));
  return addBias(scaled, biasRow(params, `${name}.b`));
}

function attendWithHead(model, attnIn, layer, head, edits) {
  const { config, params } = model;
  const site = `blocks.${layer}.attn`;
  const key = `${layer}.${head}`;
  const project = (name) => {
    const weight = parameterRows(params[`${site}.W_${name}`], head);
    return addBias(multiply(attnIn, weight), biasRow(params, `${site}.b_${name}`, head));
  };
  const Q = project("Q");
  const K = project("K");
  const V = project("V");
  const scale = Math.sqrt(config.d_model / config.n_heads);
  const scores = multiply(Q, transpose(K)).map((row) => row.map((v) => v / scale));
  const masked = scores.map((row, i) => row.map((v, j) => (j > i ? -Infinity : v)));
  const pattern = masked.map((row, i) => edits.patterns?.[key]?.[i] ?? softmax(row));
  const z = edits.heads?.[key]?.slice(0, attnIn.length) ?? multiply(pattern, V);
  const result = multiply(z, parameterRows(params[`${site}.W_O`], head));
  return { Q, K, V, scores, pattern, z, result };
}

function feedForward(model, residMid, layer, edits) {
  const { config, params } = model;
  const block = `blocks.${layer}`;
  const affine = (x, weight, bias) =>
    addBias(multiply(x, parameterRows(params[weight])), biasRow(params, bias));
  const mlpIn = config.norm === "pre" ? applyNorm(params, `${block}.ln2`, residMid) : residMid;
  const pre = affine(mlpIn, `${block}.mlp.W_in`, `${block}.mlp.b_in`);
  const relu = (row) => row.map((v) => Math.max(v, 0));
  const post = config.act === "linear" ? pre : pre.map(relu);
  const edited = edits.mlps?.[layer]?.slice(0, residMid.length);
  const mlpOut = edited ?? affine(post, `${block}.mlp.W_out`, `${block}.mlp.b_out`);
  const mlpSum = add(residMid, mlpOut);
  const residPost = config.norm === "post" ? applyNorm(params, `${block}.ln2`, mlpSum) : mlpSum;
  return { mlpIn, pre, post, mlpOut, mlpSum, residPost };
}

function runLayer(model, residPre, layer, edits) {
  const { config, params } = model;
  const block = `blocks.${layer}`;
  const attnIn = config.norm === "pre" ? applyNorm(params, `${block}.ln1`, residPre) : residPre;
  const heads = Array.from({ length: config.n_heads }, (_, head) =>
    attendWithHead(model, attnIn, layer, head, edits));
  const zeros = residPre.map((row) => row.map(() => 0));
  const summed = heads.reduce((total, head) => add(total, head.result), zeros);
  const attnOut = addBias(summed, biasRow(params, `${block}.attn.b_O`));
  const attnSum = add(residPre, attnOut);
  const residMid = config.norm === "post" ? applyNorm(params, `${block}.ln1`, attnSum) : attnSum;
  const attention = { residPre, attnIn, heads, attnOut, attnSum, residMid };
  if (!params[`${block}.mlp.W_in`]) return { ...attention, residPost: residMid };
  return { ...attention, ...feedForward(model, residMid, layer, edits) };
}

export function forward(model, tokens, edits = {}) {
  const { config, params } = model;
  const table = parameterRows(params["embed.W_E"]);
  const embed = tokens.map((token) => table[token]);
  const position = parameterRows(params["pos_embed.W_pos"]).slice(0, tokens.length);
  const start = add(embed, position);
  const layers = [];
  let resid = start;
  for (let layer = 0; layer < config.n_layers; layer++) {
    layers.push(runLayer(model, resid, layer, edits));
    resid = layers.at(-1).residPost;
  }
  const final = config.norm === "pre" ? applyNorm(params, "ln_final", resid) : resid;
  const unembed = config.tied ? transpose(table) : parameterRows(params["unembed.W_U"]);
  const logits = addBias(multiply(final, unembed), biasRow(params, "unembed.b_U"));
  const probabilities = logits.map(softmax);
  return { tokens, embed, position, start, layers, final, unembed, logits, probabilities };
}

/** The mean over sequences of every head's z and every feed-forward output, by position. */
export function meanActivations(model, sequences) {
  const totals = {};
  const counts = {};
  const count = (key, values) => values.forEach((row, i) => {
    totals[key] ??= [];
    counts[key] ??= [];
    totals[key][i] = totals[key][i]?.map((x, j) => x + row[j]) ?? row.slice();
    counts[key][i] = (counts[key][i] ?? 0) + 1;
  });
  for (const tokens of sequences) {
    forward(model, tokens).layers.forEach((layer, l) => {
      layer.heads.forEach((head, k) => count(`${l}.${k}`, head.z));
      if (layer.mlpOut) count(`mlp${l}`, layer.mlpOut);
    });
  }
  const means = {};
  for (const [key, rows] of Object.entries(totals)) {
    means[key] = rows.map((row, i) => row.map((x) => x / counts[key][i]));
  }
  return means;
}
