// The lines of the walk. A line is {name, formula, values, rows, columns, derive}: a matrix, the
// labels of its rows and columns (null: none), and how a cell came about, as in derivation.js.
// Matrices that were learned have no formula.

import { deriveByNote, deriveNorm, deriveProduct } from "derivation.js";
import { NORMS } from "layer_tables.js";
import { biasRow } from "parameters.js";

export const ABLATED = "Ablated by you.";
export const FORCED = "Forced by you.";
export const LEARNED = "Learned: training put this number here.";
export const MASKED = "Masked: a position does not see what comes after it.";

export const numbered = (values) => values.map((_, i) => String(i));

/** A learned matrix. */
export function learn(name, values, rows = numbered(values), columns = null) {
  return { name, formula: "", values, rows, columns, derive: deriveByNote(LEARNED) };
}

/** A computed matrix with one row a position. */
export function compute(walk, name, formula, values, derive, columns = null) {
  return { name, formula, values, rows: walk.positions, columns, derive };
}

export function normalized(walk, name, input, inputName, values, site) {
  const formula = `${NORMS[walk.model.config.norm_type].written}(${inputName})`;
  return compute(walk, name, formula, values, deriveNorm(walk.model, input, inputName, site));
}

/** A matrix times a learned one, plus a bias where there is one. */
export function projected(
  walk, name, input, inputName, weight, weightName, bias, values, columns = null,
) {
  const product = `${inputName} ${weightName}`;
  const formula = bias ? `${product} + ${bias.name}` : product;
  const derive = deriveProduct(input, inputName, weight, weightName, bias);
  return compute(walk, name, formula, values, derive, columns);
}

/** A function of each number, as a formula; what is linear is left as it is. */
export function applied(kind, inputName) {
  return kind === "linear" ? inputName : `${kind}(${inputName})`;
}

export function namedBias(walk, name, site, index = 0) {
  const values = biasRow(walk.model.params, site, index);
  return values ? { name, values } : null;
}

/** Models of several layers number them in names and titles. */
export function layerTag(walk, layer) {
  return walk.model.config.n_layers > 1 ? `_${layer}` : "";
}

export function headTag(walk, layer, head) {
  return layerTag(walk, layer) + (walk.model.config.n_heads > 1 ? `_h${head}` : "");
}

export function layerTitle(walk, title, layer) {
  return walk.model.config.n_layers > 1 ? `${title}, layer ${layer}` : title;
}
