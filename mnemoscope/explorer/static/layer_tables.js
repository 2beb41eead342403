// The kinds of layers that a model can be made of, by the names that its config has for them, as in
// mnemoscope/models/activations.py, attention_kinds.py, norms.py and positions.py:
//
//   ACTIVATIONS   what stands in the feed-forward layer: apply
//   ATTENTION     how scores become weights: isScaled (by the root of the head's size), hidden (the
//                 score of what may not be seen), pattern (from a row of scores to its weights),
//                 sumsToOne (whether these do)
//   NORMS         what a norm does before its weights: subtractsMean
//   POSITIONS     how a model knows where a token stands: vectors (what is added to the embedding,
//                 null for nothing), isTurned (whether queries and keys are turned)
//
// To add one, add it here, and list it in SUPPORT of pack.py, which refuses all others. An entry
// also has what the walk writes: `explain` or `explanation`, how one number came about, and
// `written`, a formula.

import { softmax } from "matrix.js";
import { parameterRows } from "parameters.js";
import { waveAt, waves } from "positions.js";
import { erf } from "special.js";

const relu = (x) => Math.max(x, 0);
const gelu = (x) => x * (1 + erf(x / Math.SQRT2)) / 2;
const bend = (x) => Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3);
const geluNew = (x) => x * (1 + Math.tanh(bend(x))) / 2;
const silu = (x) => x / (1 + Math.exp(-x));

export const ACTIVATIONS = {
  relu: { apply: relu, explanation: "Nothing below zero passes." },
  linear: { apply: (x) => x, explanation: "Everything passes as it is." },
  gelu: { apply: gelu, explanation: "gelu(x) = x (1 + erf(x / √2)) / 2." },
  gelu_new: {
    apply: geluNew,
    explanation: "gelu_new(x) = x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2.",
  },
  silu: { apply: silu, explanation: "silu(x) = x / (1 + exp(−x))." },
};

const clip = (row) => row.map(relu);
const explainShare = (score, seen) =>
  `exp(${score}) / sum of exp over the ${seen} positions it sees.`;
const explainScore = (score) => `The score ${score} itself.`;
const explainClipped = (score) => `The score ${score} if it is above zero, else zero.`;

export const ATTENTION = {
  softmax: {
    isScaled: true,
    hidden: -Infinity,
    pattern: softmax,
    sumsToOne: true,
    explain: explainShare,
  },
  linear: {
    isScaled: false,
    hidden: 0,
    pattern: (row) => row,
    sumsToOne: false,
    explain: explainScore,
  },
  relu: {
    isScaled: true,
    hidden: 0,
    pattern: clip,
    sumsToOne: false,
    explain: explainClipped,
  },
};

export const NORMS = {
  layer: { subtractsMean: true, written: "norm" },
  rms: { subtractsMean: false, written: "rms" },
};

const learned = ({ params }, length) => parameterRows(params["pos_embed.W_pos"]).slice(0, length);
const fixed = ({ config }, length) => waves(config.d_model, length);

function explainWave({ d_model: dModel }, i, j) {
  const { isSine, angle } = waveAt(dModel, i, j);
  const wave = isSine ? "sin" : "cos";
  return `${wave}(${angle.toFixed(4)}): position ${i} as a wave. It is fixed, not learned.`;
}

export const POSITIONS = {
  learned: {
    isTurned: false,
    vectors: learned,
    written: "rows of W_pos",
    explain: (_, i, j) => `W_pos[${i},${j}]: training put it there.`,
  },
  none: { isTurned: false, vectors: () => null },
  rotary: { isTurned: true, vectors: () => null },
  sinusoidal: {
    isTurned: false,
    vectors: fixed,
    written: "sines and cosines of positions",
    explain: explainWave,
  },
};
