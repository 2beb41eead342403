// How one number came about: the products and sums that made a cell of a matrix.
//
// A derivation is a function (i, j) -> {terms, addends, after, note}: terms are [label, factor,
// factor], addends [label, value]. Their sum is the cell; `after`, {label, apply}, is what was done
// to the sum, where anything was. Without terms and addends the note says what the cell is.

import { NORMS } from "layer_tables.js";
import { measureRow } from "norm.js";
import { biasRow, parameterRows } from "parameters.js";
import { turnAt } from "positions.js";

export function nameCell(name, i, j) {
  return `${name}[${i},${j}]`;
}

function addBiasTo(addends, bias, j) {
  return bias ? [...addends, [`${bias.name}[${j}]`, bias.values[j]]] : addends;
}

/** A cell that no sum explains, only words: a text, or a function (i, j) that gives one. */
export function deriveByNote(note) {
  const tell = typeof note === "function" ? note : () => note;
  return (i, j) => ({ terms: [], addends: [], note: tell(i, j) });
}

/** A cell that was found elsewhere; `label` is a function (i, j) that says where. */
export function deriveLookup(values, label) {
  return (i, j) => ({ terms: [], addends: [[label(i, j), values[i][j]]] });
}

/** A cell of a product of two matrices; `bias` is {name, values} or null. */
export function deriveProduct(a, aName, b, bName, bias = null) {
  return (i, j) => ({
    terms: a[i].map((x, k) => [`${nameCell(aName, i, k)} · ${nameCell(bName, k, j)}`, x, b[k][j]]),
    addends: addBiasTo([], bias, j),
  });
}

/** A cell of a sum of matrices, each [name, values]; `bias` is {name, values} or null. */
export function deriveSum(parts, bias = null) {
  return (i, j) => {
    const addends = parts.map(([name, values]) => [nameCell(name, i, j), values[i][j]]);
    return { terms: [], addends: addBiasTo(addends, bias, j) };
  };
}

/** A derivation whose sum something is done to. */
export function deriveAfter(derive, label, apply, note = "") {
  return (i, j) => ({ ...derive(i, j), after: { label, apply }, note });
}

/** What a norm does to a row, in words. */
function describeNorm(config, inputName, i, { mean, size }) {
  const row = `row ${i} of ${inputName}`;
  const root = `root mean square ${size.toFixed(4)}`;
  const eps = `${config.norm_eps} is added to the mean square`;
  if (!NORMS[config.norm_type].subtractsMean) return `The size of ${row} is its ${root}; ${eps}.`;
  return `The mean of ${row} is ${mean.toFixed(4)}, the size of what is left its ${root}; ${eps}.`;
}

/** A cell of a norm; `site` names its weight and bias. */
export function deriveNorm({ config, params }, input, inputName, site) {
  const weight = parameterRows(params[`${site}.w`])[0];
  const bias = biasRow(params, `${site}.b`);
  const { subtractsMean } = NORMS[config.norm_type];
  return (i, j) => {
    const found = measureRow(config, input[i]);
    const cell = nameCell(inputName, i, j);
    const standard = subtractsMean ? `(${cell} − mean) / size` : `${cell} / size`;
    const factor = (input[i][j] - found.mean) / found.size;
    return {
      terms: [[`${standard} · ${site}.w[${j}]`, factor, weight[j]]],
      addends: addBiasTo([], bias && { name: `${site}.b`, values: bias }, j),
      note: describeNorm(config, inputName, i, found),
    };
  };
}

/** A cell of queries or keys that are turned by the angle of their position. */
export function deriveTurn(config, values, name) {
  return (i, j) => {
    const cell = nameCell(name, i, j);
    const found = turnAt(config, i, j);
    if (!found) return { terms: [], addends: [[cell, values[i][j]]], note: "Not turned." };
    const { partner, angle, cos, sin } = found;
    const sign = partner > j ? "−" : "";
    return {
      terms: [
        [`${cell} · cos`, values[i][j], cos],
        [`${nameCell(name, i, partner)} · ${sign}sin`, values[i][partner], sin],
      ],
      addends: [],
      note: `Dimensions ${j} and ${partner} are turned by ${angle.toFixed(4)}, at position ${i}.`,
    };
  };
}

/** A cell of a softmax over a row; `over` says over what. */
export function deriveSoftmax(scores, over) {
  return deriveByNote((i, j) => `exp(${scores[i][j].toFixed(4)}) / sum of exp over ${over(i)}.`);
}
