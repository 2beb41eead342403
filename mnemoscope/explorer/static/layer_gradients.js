// The parts of a layer, forward and backward, for many rows at once.
//
// A part is made once for a number of rows: its buffers are there then, and a step allocates
// nothing. `forward` returns the part's output, `backward` takes the gradient in it, adds that of
// the parameters to `grads`, and returns the gradient in the input. Both return the part's own
// buffer, which holds until the next call.
//
// `params` and `grads` are {name: Float32Array}, each in row-major order.

import { addOuter, addRows, applyMatrix, applyTransposed } from "kernels.js";

/** A norm of every row: to a length of its own, then a learned weight and perhaps a bias. */
export function createNorm({ config, params, grads }, name, rows) {
  const d = config.d_model;
  const hasMean = config.norm_type === "layer";
  const weight = params[`${name}.w`];
  const bias = params[`${name}.b`];
  const dWeight = grads[`${name}.w`];
  const dBias = grads[`${name}.b`];
  const scaled = new Float32Array(rows * d);
  const inverseSize = new Float32Array(rows);
  const out = new Float32Array(rows * d);
  const dx = new Float32Array(rows * d);

  function forward(x) {
    for (let i = 0; i < rows; i++) {
      const at = i * d;
      let mean = 0;
      if (hasMean) for (let j = 0; j < d; j++) mean += x[at + j] / d;
      let square = 0;
      for (let j = 0; j < d; j++) square += (x[at + j] - mean) ** 2;
      const inverse = 1 / Math.sqrt(square / d + config.norm_eps);
      inverseSize[i] = inverse;
      for (let j = 0; j < d; j++) {
        const value = (x[at + j] - mean) * inverse;
        scaled[at + j] = value;
        out[at + j] = value * weight[j] + (bias ? bias[j] : 0);
      }
    }
    return out;
  }

  function backward(dOut) {
    for (let i = 0; i < rows; i++) {
      const at = i * d;
      let mean = 0;
      let along = 0;
      for (let j = 0; j < d; j++) {
        const gradient = dOut[at + j];
        dWeight[j] += gradient * scaled[at + j];
        if (dBias) dBias[j] += gradient;
        mean += gradient * weight[j];
        along += gradient * weight[j] * scaled[at + j];
      }
      mean = hasMean ? mean / d : 0;
      along /= d;
      for (let j = 0; j < d; j++) {
        const across = dOut[at + j] * weight[j] - mean - scaled[at + j] * along;
        dx[at + j] = across * inverseSize[i];
      }
    }
    return dx;
  }

  return { forward, backward };
}

/** The feed-forward part: post = act(x W_in + b_in), out = post W_out + b_out. */
export function createMlp({ config, params, grads }, name, rows) {
  const d = config.d_model;
  const width = config.d_mlp;
  const isRelu = config.act === "relu";
  const hidden = new Float32Array(rows * width);
  const dHidden = new Float32Array(rows * width);
  const out = new Float32Array(rows * d);
  const dx = new Float32Array(rows * d);
  const wIn = params[`${name}.W_in`];
  const bIn = params[`${name}.b_in`];
  const wOut = params[`${name}.W_out`];
  const bOut = params[`${name}.b_out`];
  const dwIn = grads[`${name}.W_in`];
  const dbIn = grads[`${name}.b_in`];
  const dwOut = grads[`${name}.W_out`];
  const dbOut = grads[`${name}.b_out`];
  let input = null;

  function forward(x) {
    input = x;
    applyMatrix(hidden, x, wIn, bIn, rows, d, width);
    if (isRelu) {
      for (let i = 0; i < hidden.length; i++) if (hidden[i] < 0) hidden[i] = 0;
    }
    applyMatrix(out, hidden, wOut, bOut, rows, width, d);
    return out;
  }

  function backward(dOut) {
    addOuter(dwOut, hidden, dOut, rows, width, d);
    if (dbOut) addRows(dbOut, dOut, rows, d);
    applyTransposed(dHidden, dOut, wOut, rows, width, d);
    if (isRelu) {
      for (let i = 0; i < hidden.length; i++) if (hidden[i] === 0) dHidden[i] = 0;
    }
    addOuter(dwIn, input, dHidden, rows, d, width);
    if (dbIn) addRows(dbIn, dHidden, rows, width);
    applyTransposed(dx, dHidden, wIn, rows, d, width);
    return dx;
  }

  return { forward, backward };
}
