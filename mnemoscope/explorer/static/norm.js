// Norms: each row of a matrix to a length of its own, then a learned weight and perhaps a bias.

import { NORMS } from "layer_tables.js";
import { addBias, sum } from "matrix.js";
import { biasRow, parameterRows } from "parameters.js";

/** What a norm takes away from a row, and by what it then divides: {mean, size}. */
export function measureRow(config, row) {
  const mean = NORMS[config.norm_type].subtractsMean ? sum(row) / row.length : 0;
  const meanSquare = sum(row.map((x) => (x - mean) ** 2)) / row.length;
  return { mean, size: Math.sqrt(meanSquare + config.norm_eps) };
}

/** The norm of this name, of every row. */
export function normalize({ config, params }, name, x) {
  const weight = parameterRows(params[`${name}.w`])[0];
  const scaled = x.map((row) => {
    const { mean, size } = measureRow(config, row);
    return row.map((v, j) => (v - mean) / size * weight[j]);
  });
  return addBias(scaled, biasRow(params, `${name}.b`));
}
