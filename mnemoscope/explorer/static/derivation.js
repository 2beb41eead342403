// How one number came about: the products and sums that made a cell of a matrix.
//
// A derivation is a function (i, j) -> {terms, addends, note}: terms are [label, factor, factor],
// addends [label, value]. Together they are the cell, unless the note says what was done to them.

import { moments } from "matrix.js";

export function nameCell(name, i, j) {
  return `${name}[${i},${j}]`;
}

/** A cell that no sum explains, only words. */
export function deriveByNote(note) {
  return () => ({ terms: [], addends: [], note });
}

/** A cell of a product of two matrices; `bias` is {name, values} or null. */
export function deriveProduct(a, aName, b, bName, bias = null) {
  return (i, j) => ({
    terms: a[i].map((x, k) => [`${nameCell(aName, i, k)} · ${nameCell(bName, k, j)}`, x, b[k][j]]),
    addends: bias ? [[`${bias.name}[${j}]`, bias.values[j]]] : [],
  });
}

/** A cell of a sum of matrices, each [name, values]; `bias` is {name, values} or null. */
export function deriveSum(parts, bias = null) {
  return (i, j) => {
    const addends = parts.map(([name, values]) => [nameCell(name, i, j), values[i][j]]);
    if (bias) addends.push([`${bias.name}[${j}]`, bias.values[j]]);
    return { terms: [], addends };
  };
}

/** A cell of a norm; `site` names its weight and bias. */
export function deriveNorm(input, inputName, site) {
  return (i) => {
    const { mean, deviation } = moments(input[i]);
    const note = `Row ${i} of ${inputName}, minus its mean ${mean.toFixed(4)}, over its standard `
      + `deviation ${deviation.toFixed(4)}, times the weight and plus the bias of ${site}.`;
    return { terms: [], addends: [], note };
  };
}

/** A cell of a softmax over a row; `over` says over what. */
export function deriveSoftmax(scores, over) {
  return (i, j) => {
    const note = `exp(${scores[i][j].toFixed(4)}) / sum of exp over ${over(i)}.`;
    return { terms: [], addends: [], note };
  };
}
