// How far two models are apart that read the same prompt, place by place, in the order of the
// computation.
//
// Numbers of the stream mean something else in every model, so they are not compared: a place of
// the stream is compared by the answer that the model's own unembedding reads there, a head by
// where its last row attends. Heads have no order: each is paired with the one of its layer that is
// most like it.

import { ATTENTION } from "layer_tables.js";
import { addBias, multiply, softmax } from "matrix.js";
import { normalize } from "norm.js";
import { biasRow } from "parameters.js";

export const DIFFERENT = 0.25; // of 1: from here on two answers are called different

/** How far two distributions are apart: the share of probability that moved. */
export function totalVariation(p, q) {
  return p.reduce((total, x, i) => total + Math.abs(x - q[i]), 0) / 2;
}

/** The answer that the unembedding reads at the last position of the stream. */
function readAnswer({ model, trace }, stream) {
  const last = stream.slice(-1);
  const final = model.config.norm === "pre" ? normalize(model, "ln_final", last) : last;
  return softmax(addBias(multiply(final, trace.unembed), biasRow(model.params, "unembed.b_U"))[0]);
}

function compareStream(name, one, other, pick) {
  const [a, b] = [one, other].map((each) => pick(each.trace));
  if (!a || !b) return [];
  const distance = totalVariation(readAnswer(one, a), readAnswer(other, b));
  return [{ name, distance, heads: null }];
}

/** Pairs of heads, the most alike first; without a second head left, one stays alone. */
function pairHeads(ones, others) {
  const distance = (i, j) => totalVariation(ones[i].pattern.at(-1), others[j].pattern.at(-1));
  const every = ones.flatMap((_, i) => others.map((__, j) => ({ i, j, distance: distance(i, j) })));
  every.sort((a, b) => a.distance - b.distance);
  const pairs = [];
  for (const pair of every) {
    if (!pairs.some(({ i, j }) => i === pair.i || j === pair.j)) pairs.push(pair);
  }
  return pairs.sort((a, b) => a.i - b.i);
}

const hasShares = ({ model }) => ATTENTION[model.config.attention].sumsToOne;

function compareHeads(where, one, other, layer) {
  if (!hasShares(one) || !hasShares(other)) return [];
  const [a, b] = [one, other].map((each) => each.trace.layers[layer].heads);
  return pairHeads(a, b).map(({ i, j, distance }) => ({
    name: i === j ? `${where}head ${i}` : `${where}head ${i}, beside head ${j}`,
    distance,
    heads: [a[i].pattern, b[j].pattern],
  }));
}

/** Places as {name, distance, heads}: heads are the two patterns, or null for the stream. */
export function listDifferences(one, other) {
  const nLayers = Math.min(one.trace.layers.length, other.trace.layers.length);
  const layers = Array.from({ length: nLayers }, (_, layer) => {
    const where = nLayers > 1 ? `layer ${layer}, ` : "";
    const hasMlp = [one, other].every((each) => each.trace.layers[layer].mlpOut);
    const mid = (trace) => hasMlp && trace.layers[layer].residMid;
    const end = (trace) => trace.layers[layer].residPost;
    return [
      compareHeads(where, one, other, layer),
      compareStream(`stream after ${where}attention`, one, other, mid),
      compareStream(`stream at the end of layer ${layer}`, one, other, end),
    ];
  });
  const [p, q] = [one, other].map((each) => each.trace.probabilities.at(-1));
  return [
    ...compareStream("stream after the embedding", one, other, (trace) => trace.start),
    ...layers.flat(2),
    { name: "answer", distance: totalVariation(p, q), heads: null },
  ];
}
