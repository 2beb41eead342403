// Attention of a batch of sequences, forward and backward.
//
// Queries, keys and values are computed for distinct rows alone: `rowOf` says which row stands at a
// position of a sequence. In the first layer all that a row knows is its token and its position, so
// there are fewer rows than positions. Attention is read at the positions `read` of each sequence.
// Parts are as in layer_gradients.js.

import { addOuter, addRows, applyMatrix, applyTransposed } from "kernels.js";

const LETTERS = ["Q", "K", "V"];

/**
 * `sizes` is {batch, length, rows}: sequences, positions of each, and distinct rows;
 * `rowOf[sequence * length + position]` is a row.
 */
export function createAttention({ config, params, grads }, name, sizes, rowOf, read) {
  const { batch, length, rows } = sizes;
  const { d_model: d, d_head: dHead, n_heads: nHeads } = config;
  const inner = nHeads * dHead; // all heads side by side
  const three = 3 * inner; // queries, keys and values side by side
  const scale = 1 / Math.sqrt(dHead);
  const nOut = batch * read.length;
  const weights = new Float32Array(d * three);
  const dWeights = new Float32Array(d * three);
  const bias = new Float32Array(three);
  const dBias = new Float32Array(three);
  const qkv = new Float32Array(rows * three);
  const dQkv = new Float32Array(rows * three);
  const pattern = new Float32Array(nOut * nHeads * length);
  const dScores = new Float32Array(length);
  const z = new Float32Array(nOut * inner);
  const dz = new Float32Array(nOut * inner);
  const out = new Float32Array(nOut * d);
  const dx = new Float32Array(rows * d);
  const wO = params[`${name}.W_O`]; // (head, d_head, d): rows of heads side by side
  const bO = params[`${name}.b_O`];
  const dwO = grads[`${name}.W_O`];
  const dbO = grads[`${name}.b_O`];
  let input = null;

  /** W_Q, W_K and W_V, each (head, d, d_head), as one matrix (d, three). */
  function gather() {
    for (let letter = 0; letter < 3; letter++) {
      const matrix = params[`${name}.W_${LETTERS[letter]}`];
      const shift = params[`${name}.b_${LETTERS[letter]}`];
      for (let head = 0; head < nHeads; head++) {
        const column = letter * inner + head * dHead;
        for (let i = 0; i < d; i++) {
          const from = (head * d + i) * dHead;
          for (let j = 0; j < dHead; j++) weights[i * three + column + j] = matrix[from + j];
        }
        if (shift) for (let j = 0; j < dHead; j++) bias[column + j] = shift[head * dHead + j];
      }
    }
  }

  /** The gradients of that matrix, back to where they belong. */
  function scatter() {
    for (let letter = 0; letter < 3; letter++) {
      const matrix = grads[`${name}.W_${LETTERS[letter]}`];
      const shift = grads[`${name}.b_${LETTERS[letter]}`];
      for (let head = 0; head < nHeads; head++) {
        const column = letter * inner + head * dHead;
        for (let i = 0; i < d; i++) {
          const to = (head * d + i) * dHead;
          for (let j = 0; j < dHead; j++) matrix[to + j] += dWeights[i * three + column + j];
        }
        if (shift) for (let j = 0; j < dHead; j++) shift[head * dHead + j] += dBias[column + j];
      }
    }
  }

  /** One row of the pattern of the head whose part of a row begins at `column`, and its z. */
  function attend(sequence, position, column, atPattern, atZ) {
    const query = rowOf[sequence * length + position] * three + column;
    let top = -Infinity;
    for (let j = 0; j <= position; j++) {
      const key = rowOf[sequence * length + j] * three + column + inner;
      let score = 0;
      for (let i = 0; i < dHead; i++) score += qkv[query + i] * qkv[key + i];
      score *= scale;
      pattern[atPattern + j] = score;
      if (score > top) top = score;
    }
    let total = 0;
    for (let j = 0; j <= position; j++) {
      const share = Math.exp(pattern[atPattern + j] - top);
      pattern[atPattern + j] = share;
      total += share;
    }
    for (let i = 0; i < dHead; i++) z[atZ + i] = 0;
    for (let j = 0; j <= position; j++) {
      const share = pattern[atPattern + j] / total;
      pattern[atPattern + j] = share;
      const value = rowOf[sequence * length + j] * three + column + 2 * inner;
      for (let i = 0; i < dHead; i++) z[atZ + i] += share * qkv[value + i];
    }
  }

  function forward(x) {
    input = x;
    gather();
    applyMatrix(qkv, x, weights, bias, rows, d, three);
    for (let sequence = 0; sequence < batch; sequence++) {
      for (let p = 0; p < read.length; p++) {
        const row = sequence * read.length + p;
        for (let head = 0; head < nHeads; head++) {
          const atPattern = (row * nHeads + head) * length;
          attend(sequence, read[p], head * dHead, atPattern, row * inner + head * dHead);
        }
      }
    }
    applyMatrix(out, z, wO, bO, nOut, inner, d);
    return out;
  }

  /** The gradients of one row of a pattern: in its values, its query and its keys. */
  function attendBackward(sequence, position, column, atPattern, atZ) {
    const query = rowOf[sequence * length + position] * three + column;
    let mean = 0;
    for (let j = 0; j <= position; j++) {
      const value = rowOf[sequence * length + j] * three + column + 2 * inner;
      const share = pattern[atPattern + j];
      let gradient = 0;
      for (let i = 0; i < dHead; i++) {
        gradient += dz[atZ + i] * qkv[value + i];
        dQkv[value + i] += share * dz[atZ + i];
      }
      dScores[j] = gradient;
      mean += share * gradient;
    }
    for (let j = 0; j <= position; j++) {
      const key = rowOf[sequence * length + j] * three + column + inner;
      const gradient = pattern[atPattern + j] * (dScores[j] - mean) * scale;
      for (let i = 0; i < dHead; i++) {
        dQkv[query + i] += gradient * qkv[key + i];
        dQkv[key + i] += gradient * qkv[query + i];
      }
    }
  }

  function backward(dOut) {
    addOuter(dwO, z, dOut, nOut, inner, d);
    if (dbO) addRows(dbO, dOut, nOut, d);
    applyTransposed(dz, dOut, wO, nOut, inner, d);
    dQkv.fill(0);
    for (let sequence = 0; sequence < batch; sequence++) {
      for (let p = 0; p < read.length; p++) {
        const row = sequence * read.length + p;
        for (let head = 0; head < nHeads; head++) {
          const atPattern = (row * nHeads + head) * length;
          const atZ = row * inner + head * dHead;
          attendBackward(sequence, read[p], head * dHead, atPattern, atZ);
        }
      }
    }
    dWeights.fill(0);
    dBias.fill(0);
    addOuter(dWeights, input, dQkv, rows, d, three);
    addRows(dBias, dQkv, rows, three);
    scatter();
    applyTransposed(dx, dQkv, weights, rows, d, three);
    return dx;
  }

  return { forward, backward };
}
