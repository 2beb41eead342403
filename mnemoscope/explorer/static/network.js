// A transformer for a batch of sequences: its loss, and the gradient of the loss in every
// parameter, by hand. The forward pass is that of forward.js; a test compares both with JAX.
//
//   loss = mean over sequences and positions that are read of -log softmax(logits)[target]
//
// The first layer works on distinct rows, one for each token at each position; the last one only at
// positions that are read.

import { createAttention } from "attention_gradient.js";
import { addOuter, addRows, applyMatrix, applyTransposed } from "kernels.js";
import { createMlp, createNorm } from "layer_gradients.js";

const count = (shape) => shape.reduce((product, n) => product * n, 1);

/** How many numbers a model has; `parameters` are [name, shape]. */
export function countNumbers(parameters) {
  return parameters.reduce((total, [, shape]) => total + count(shape), 0);
}

/** Views of one vector by the names of parameters. */
export function nameParts(parameters, vector) {
  let start = 0;
  const parts = {};
  for (const [name, shape] of parameters) {
    parts[name] = vector.subarray(start, start + count(shape));
    start += count(shape);
  }
  return parts;
}

/** One layer of attention and feed-forward, or of one of them, as in layer_gradients.js. */
function createLayer(model, layer, sizes, rowOf, read) {
  const { config, params } = model;
  const { batch, length, rows } = sizes;
  const d = config.d_model;
  const block = `blocks.${layer}`;
  const nOut = batch * read.length;
  const hasAttention = `${block}.attn.W_Q` in params;
  const hasMlp = `${block}.mlp.W_in` in params;
  const isPre = config.norm === "pre";
  const isPost = config.norm === "post";
  const attention = hasAttention
    ? createAttention(model, `${block}.attn`, sizes, rowOf, read) : null;
  const attentionNorm = hasAttention && config.norm !== "none"
    ? createNorm(model, `${block}.ln1`, isPre ? rows : nOut) : null;
  const mlp = hasMlp ? createMlp(model, `${block}.mlp`, nOut) : null;
  const mlpNorm = hasMlp && config.norm !== "none"
    ? createNorm(model, `${block}.ln2`, nOut) : null;
  const passes = !hasAttention || config.attn_residual; // whether the stream goes past attention
  const attended = new Float32Array(nOut * d);
  const fed = new Float32Array(nOut * d);
  const dx = new Float32Array(rows * d);
  const dMid = new Float32Array(nOut * d);

  /** The row of a place where the layer is read. */
  const rowAt = (sequence, p) => rowOf[sequence * length + read[p]];

  function addStream(x) {
    for (let sequence = 0; sequence < batch; sequence++) {
      for (let p = 0; p < read.length; p++) {
        const to = (sequence * read.length + p) * d;
        const from = rowAt(sequence, p) * d;
        for (let i = 0; i < d; i++) attended[to + i] += x[from + i];
      }
    }
  }

  function addStreamBackward(dAttended) {
    for (let sequence = 0; sequence < batch; sequence++) {
      for (let p = 0; p < read.length; p++) {
        const from = (sequence * read.length + p) * d;
        const to = rowAt(sequence, p) * d;
        for (let i = 0; i < d; i++) dx[to + i] += dAttended[from + i];
      }
    }
  }

  function attend(x) {
    if (attention) attended.set(attention.forward(isPre ? attentionNorm.forward(x) : x));
    else attended.fill(0);
    if (passes) addStream(x);
    return isPost && attention ? attentionNorm.forward(attended) : attended;
  }

  function forward(x) {
    const mid = attend(x);
    if (!mlp) return mid;
    const out = mlp.forward(isPre ? mlpNorm.forward(mid) : mid);
    for (let i = 0; i < fed.length; i++) fed[i] = mid[i] + out[i];
    return isPost ? mlpNorm.forward(fed) : fed;
  }

  function feedBackward(dOut) {
    if (!mlp) return dOut;
    const dFed = isPost ? mlpNorm.backward(dOut) : dOut;
    const dIn = mlp.backward(dFed);
    const through = isPre ? mlpNorm.backward(dIn) : dIn;
    for (let i = 0; i < dMid.length; i++) dMid[i] = dFed[i] + through[i];
    return dMid;
  }

  function backward(dOut) {
    const dAfter = feedBackward(dOut);
    const dAttended = isPost && attention ? attentionNorm.backward(dAfter) : dAfter;
    dx.fill(0);
    if (attention) {
      const dIn = attention.backward(dAttended);
      dx.set(isPre ? attentionNorm.backward(dIn) : dIn);
    }
    if (passes) addStreamBackward(dAttended);
    return dx;
  }

  return { forward, backward };
}

/**
 * The network of a model for batches of one size.
 *
 * `model` is {config, params, grads}, the latter two by name and kept up by whoever trains;
 * `sizes` is {batch, length, tokens}; `read` the positions whose answers count.
 */
export function createNetwork(model, { batch, length, tokens: nTokens }, read) {
  const { config, params, grads } = model;
  const d = config.d_model;
  const nRead = batch * read.length;
  const nFirst = nTokens * length;
  const everywhere = Array.from({ length }, (_, position) => position);
  const firstRowOf = new Int32Array(batch * length);
  const ownRowOf = Int32Array.from({ length: batch * length }, (_, i) => i);
  const layers = Array.from({ length: config.n_layers }, (_, layer) => createLayer(
    model,
    layer,
    { batch, length, rows: layer === 0 ? nFirst : batch * length },
    layer === 0 ? firstRowOf : ownRowOf,
    layer === config.n_layers - 1 ? read : everywhere,
  ));
  const finalNorm = config.norm === "pre" ? createNorm(model, "ln_final", nRead) : null;
  const stream = new Float32Array(nFirst * d);
  const logits = new Float32Array(nRead * nTokens);
  const dLogits = new Float32Array(nRead * nTokens);
  const dFinal = new Float32Array(nRead * d);
  const table = params["embed.W_E"];
  const positions = params["pos_embed.W_pos"];
  let final = null;

  function embed() {
    for (let token = 0; token < nTokens; token++) {
      for (let position = 0; position < length; position++) {
        const at = (token * length + position) * d;
        for (let i = 0; i < d; i++) {
          stream[at + i] = table[token * d + i] + (positions ? positions[position * d + i] : 0);
        }
      }
    }
  }

  function embedBackward(dStream) {
    const dTable = grads["embed.W_E"];
    const dPositions = grads["pos_embed.W_pos"];
    for (let token = 0; token < nTokens; token++) {
      for (let position = 0; position < length; position++) {
        const at = (token * length + position) * d;
        for (let i = 0; i < d; i++) {
          dTable[token * d + i] += dStream[at + i];
          if (dPositions) dPositions[position * d + i] += dStream[at + i];
        }
      }
    }
  }

  /** The logits at the places that are read, of a batch's tokens. */
  function forward(tokens) {
    for (let i = 0; i < firstRowOf.length; i++) firstRowOf[i] = tokens[i] * length + (i % length);
    embed();
    let x = stream;
    for (let layer = 0; layer < layers.length; layer++) x = layers[layer].forward(x);
    final = finalNorm ? finalNorm.forward(x) : x;
    if (config.tied) applyTransposed(logits, final, table, nRead, nTokens, d);
    else applyMatrix(logits, final, params["unembed.W_U"], null, nRead, d, nTokens);
    const bias = params["unembed.b_U"];
    if (bias) for (let i = 0; i < logits.length; i++) logits[i] += bias[i % nTokens];
    return logits;
  }

  /** The loss, and its gradient in the logits. */
  function compare(targets) {
    let loss = 0;
    for (let row = 0; row < nRead; row++) {
      const at = row * nTokens;
      let top = -Infinity;
      for (let token = 0; token < nTokens; token++) top = Math.max(top, logits[at + token]);
      let total = 0;
      for (let token = 0; token < nTokens; token++) total += Math.exp(logits[at + token] - top);
      for (let token = 0; token < nTokens; token++) {
        dLogits[at + token] = Math.exp(logits[at + token] - top) / total / nRead;
      }
      dLogits[at + targets[row]] -= 1 / nRead;
      loss += top + Math.log(total) - logits[at + targets[row]];
    }
    return loss / nRead;
  }

  function unembedBackward() {
    if (grads["unembed.b_U"]) addRows(grads["unembed.b_U"], dLogits, nRead, nTokens);
    if (config.tied) {
      addOuter(grads["embed.W_E"], dLogits, final, nRead, nTokens, d);
      applyMatrix(dFinal, dLogits, table, null, nRead, nTokens, d);
    } else {
      addOuter(grads["unembed.W_U"], final, dLogits, nRead, d, nTokens);
      applyTransposed(dFinal, dLogits, params["unembed.W_U"], nRead, d, nTokens);
    }
    return finalNorm ? finalNorm.backward(dFinal) : dFinal;
  }

  /** The loss of a batch; `targets` are those at the places that are read. */
  function computeLoss(tokens, targets) {
    forward(tokens);
    return compare(targets);
  }

  /** The loss of a batch; its gradient is added to `grads`. */
  function addGradient(tokens, targets) {
    const loss = computeLoss(tokens, targets);
    let dx = unembedBackward();
    for (let layer = layers.length - 1; layer >= 0; layer--) dx = layers[layer].backward(dx);
    embedBackward(dx);
    return loss;
  }

  return { forward, computeLoss, addGradient };
}
