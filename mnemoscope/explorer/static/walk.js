// The walk: every matrix of a forward pass, in the order of the computation.
//
// A step is {title, lines}. A line is {name, formula, values, rows, columns, derive}: a matrix, the
// labels of its rows and columns (null: none), and how a cell came about, as in derivation.js.
// Matrices that were learned have no formula.

import {
  deriveByNote,
  deriveNorm,
  deriveProduct,
  deriveSoftmax,
  deriveSum,
  nameCell,
} from "derivation.js";
import { biasRow, parameterRows } from "forward.js";
import { transpose } from "matrix.js";

const ABLATED = "Ablated by you.";
const FORCED = "Forced by you.";
const LEARNED = "Learned: training put this number here.";
const MASKED = "Masked: a position does not see what comes after it.";

const numbered = (values) => values.map((_, i) => String(i));

/** A learned matrix. */
function learn(name, values, rows = numbered(values), columns = null) {
  return { name, formula: "", values, rows, columns, derive: deriveByNote(LEARNED) };
}

/** A computed matrix with one row a position. */
function compute(walk, name, formula, values, derive, columns = null) {
  return { name, formula, values, rows: walk.positions, columns, derive };
}

function normalize(walk, name, input, inputName, values, site) {
  return compute(walk, name, `norm(${inputName})`, values, deriveNorm(input, inputName, site));
}

/** A matrix times a learned one, plus a bias where there is one. */
function project(walk, name, input, inputName, weight, weightName, bias, values, columns = null) {
  const product = `${inputName} ${weightName}`;
  const formula = bias ? `${product} + ${bias.name}` : product;
  const derive = deriveProduct(input, inputName, weight, weightName, bias);
  return compute(walk, name, formula, values, derive, columns);
}

function namedBias(walk, name, site, index = 0) {
  const values = biasRow(walk.model.params, site, index);
  return values ? { name, values } : null;
}

/** Models of several layers number them in names and titles. */
function layerTag(walk, layer) {
  return walk.model.config.n_layers > 1 ? `_${layer}` : "";
}

function headTag(walk, layer, head) {
  return layerTag(walk, layer) + (walk.model.config.n_heads > 1 ? `_h${head}` : "");
}

function layerTitle(walk, title, layer) {
  return walk.model.config.n_layers > 1 ? `${title}, layer ${layer}` : title;
}

function walkEmbedding(walk) {
  const { embed, position, start, tokens } = walk.trace;
  const lookUp = (table, values, rowOf) => (i, j) =>
    ({ terms: [], addends: [[nameCell(table, rowOf(i), j), values[i][j]]] });
  const fromTokens = lookUp("W_E", embed, (i) => walk.names[tokens[i]]);
  const fromPositions = lookUp("W_pos", position, (i) => i);
  const lines = [
    learn("W_E", parameterRows(walk.model.params["embed.W_E"]), walk.names),
    compute(walk, "E", "rows of W_E", embed, fromTokens),
    compute(walk, "P", "rows of W_pos", position, fromPositions),
    compute(walk, "X", "E + P", start, deriveSum([["E", embed], ["P", position]])),
  ];
  return { title: "Look up tokens and positions", lines };
}

function deriveScores(head, tag, dHead) {
  const product = deriveProduct(head.Q, `Q${tag}`, transpose(head.K), `K${tag}ᵀ`);
  const note = `The sum over √${dHead} = ${Math.sqrt(dHead).toFixed(4)}.`;
  return (i, j) => ({ ...product(i, j), note });
}

function derivePattern(head, forced) {
  const attend = deriveSoftmax(head.scores, (i) => `the ${i + 1} positions it sees`);
  return (i, j) => {
    if (forced?.[i]) return deriveByNote(FORCED)();
    return j > i ? deriveByNote(MASKED)() : attend(i, j);
  };
}

function walkHead(walk, layer, head, input, inputName) {
  const { config, params } = walk.model;
  const values = walk.trace.layers[layer].heads[head];
  const site = `blocks.${layer}.attn`;
  const tag = headTag(walk, layer, head);
  const key = `${layer}.${head}`;
  const dHead = config.d_model / config.n_heads;
  const lines = [];
  for (const name of ["Q", "K", "V"]) {
    const weight = parameterRows(params[`${site}.W_${name}`], head);
    const weightName = `W_${name}${tag}`;
    const bias = namedBias(walk, `b_${name}${tag}`, `${site}.b_${name}`, head);
    lines.push(learn(weightName, weight));
    lines.push(project(
      walk, `${name}${tag}`, input, inputName, weight, weightName, bias, values[name]));
  }
  const scores = deriveScores(values, tag, dHead);
  const pattern = derivePattern(values, walk.edits.patterns?.[key]);
  const z = walk.edits.heads?.[key]
    ? deriveByNote(ABLATED)
    : deriveProduct(values.pattern, `A${tag}`, values.V, `V${tag}`);
  const { positions } = walk;
  lines.push(compute(
    walk, `S${tag}`, `Q${tag} K${tag}ᵀ / √${dHead}`, values.scores, scores, positions));
  lines.push(compute(
    walk, `A${tag}`, `softmax(mask(S${tag}))`, values.pattern, pattern, positions));
  lines.push(compute(walk, `Z${tag}`, `A${tag} V${tag}`, values.z, z));
  const output = parameterRows(params[`${site}.W_O`], head);
  lines.push(learn(`W_O${tag}`, output));
  lines.push(project(
    walk, `O${tag}`, values.z, `Z${tag}`, output, `W_O${tag}`, null, values.result));
  return lines;
}

/** One step a head; the norm before attention, where there is one, opens the first. */
function walkAttention(walk, layer, stream) {
  const { config } = walk.model;
  const values = walk.trace.layers[layer];
  const isPre = config.norm === "pre";
  const inputName = isPre ? `N${layerTag(walk, layer)}` : stream;
  return values.heads.map((_, head) => {
    const lines = walkHead(walk, layer, head, values.attnIn, inputName);
    if (isPre && head === 0) {
      const site = `blocks.${layer}.ln1`;
      lines.unshift(normalize(walk, inputName, values.residPre, stream, values.attnIn, site));
    }
    const title = layerTitle(walk, "Attend", layer);
    return { title: config.n_heads > 1 ? `${title}, head ${head}` : title, lines };
  });
}

/** Attention's output is added to the residual stream. Gives the step and the stream's new name. */
function walkResidual(walk, layer, stream) {
  const values = walk.trace.layers[layer];
  const tag = layerTag(walk, layer);
  const bias = namedBias(walk, `b_O${tag}`, `blocks.${layer}.attn.b_O`);
  const results = values.heads.map((head, k) => [`O${headTag(walk, layer, k)}`, head.result]);
  const parts = [[stream, values.residPre], ...results];
  const names = parts.map(([name]) => name);
  if (bias) names.push(bias.name);
  const sum = compute(walk, `R${tag}`, names.join(" + "), values.attnSum, deriveSum(parts, bias));
  const title = layerTitle(walk, "Add to the residual stream", layer);
  if (walk.model.config.norm !== "post") return [{ title, lines: [sum] }, sum.name];
  const site = `blocks.${layer}.ln1`;
  const norm = normalize(walk, `NR${tag}`, values.attnSum, sum.name, values.residMid, site);
  return [{ title, lines: [sum, norm] }, norm.name];
}

/** The feed-forward layer. Gives the step and the stream's new name. */
function walkMlp(walk, layer, stream) {
  const { config, params } = walk.model;
  const values = walk.trace.layers[layer];
  const tag = layerTag(walk, layer);
  const block = `blocks.${layer}`;
  const lines = [];
  let inputName = stream;
  if (config.norm === "pre") {
    inputName = `N2${tag}`;
    const site = `${block}.ln2`;
    lines.push(normalize(walk, inputName, values.residMid, stream, values.mlpIn, site));
  }
  const weightIn = parameterRows(params[`${block}.mlp.W_in`]);
  const weightOut = parameterRows(params[`${block}.mlp.W_out`]);
  const biasIn = namedBias(walk, `b_in${tag}`, `${block}.mlp.b_in`);
  const biasOut = namedBias(walk, `b_out${tag}`, `${block}.mlp.b_out`);
  const isLinear = config.act === "linear";
  const activate = (i, j) => ({
    terms: [],
    addends: [[nameCell(`H${tag}`, i, j), values.pre[i][j]]],
    note: isLinear ? "" : "Nothing below zero passes.",
  });
  lines.push(learn(`W_in${tag}`, weightIn));
  lines.push(project(
    walk, `H${tag}`, values.mlpIn, inputName, weightIn, `W_in${tag}`, biasIn, values.pre));
  lines.push(compute(
    walk, `G${tag}`, isLinear ? `H${tag}` : `relu(H${tag})`, values.post, activate));
  lines.push(learn(`W_out${tag}`, weightOut));
  const output = project(
    walk, `F${tag}`, values.post, `G${tag}`, weightOut, `W_out${tag}`, biasOut, values.mlpOut);
  if (walk.edits.mlps?.[layer]) output.derive = deriveByNote(ABLATED);
  lines.push(output);
  const parts = [[stream, values.residMid], [output.name, values.mlpOut]];
  const formula = `${stream} + ${output.name}`;
  lines.push(compute(walk, `Y${tag}`, formula, values.mlpSum, deriveSum(parts)));
  if (config.norm === "post") {
    const site = `${block}.ln2`;
    const input = `Y${tag}`;
    lines.push(normalize(walk, `NY${tag}`, values.mlpSum, input, values.residPost, site));
  }
  return [{ title: layerTitle(walk, "Feed forward", layer), lines }, lines.at(-1).name];
}

function walkUnembedding(walk, stream) {
  const { final, unembed, logits, probabilities, layers } = walk.trace;
  const { names } = walk;
  const lines = [];
  let inputName = stream;
  if (walk.model.config.norm === "pre") {
    inputName = "N_final";
    const { residPost } = layers.at(-1);
    lines.push(normalize(walk, inputName, residPost, stream, final, "ln_final"));
  }
  const bias = namedBias(walk, "b_U", "unembed.b_U");
  const softmax = deriveSoftmax(logits, (i) => `row ${i} of L`);
  lines.push(learn("W_U", unembed, numbered(unembed), names));
  lines.push(project(walk, "L", final, inputName, unembed, "W_U", bias, logits, names));
  lines.push(compute(walk, "Pr", "softmax(L)", probabilities, softmax, names));
  return { title: "Unembed", lines };
}

/** The steps of a forward pass; `trace` is what `forward` gave for the same model and edits. */
export function buildWalk(model, trace, names, edits = {}) {
  const positions = trace.tokens.map((token, i) => `${i} ${names[token]}`);
  const walk = { model, trace, names, edits, positions };
  const steps = [walkEmbedding(walk)];
  let stream = "X"; // the name of the residual stream as it stands
  let step = null;
  trace.layers.forEach((values, layer) => {
    steps.push(...walkAttention(walk, layer, stream));
    [step, stream] = walkResidual(walk, layer, stream);
    steps.push(step);
    if (!values.mlpOut) return;
    [step, stream] = walkMlp(walk, layer, stream);
    steps.push(step);
  });
  steps.push(walkUnembedding(walk, stream));
  return steps;
}
