// What parts of a model give on average.

import { forward } from "forward.js";

/** The mean over sequences of every head's z and every feed-forward output, by position. */
export function meanActivations(model, sequences) {
  const totals = {};
  const counts = {};
  const count = (key, values) => values.forEach((row, i) => {
    totals[key] ??= [];
    counts[key] ??= [];
    totals[key][i] = totals[key][i]?.map((x, j) => x + row[j]) ?? row.slice();
    counts[key][i] = (counts[key][i] ?? 0) + 1;
  });
  for (const tokens of sequences) {
    forward(model, tokens).layers.forEach((layer, l) => {
      layer.heads.forEach((head, k) => count(`${l}.${k}`, head.z));
      if (layer.mlpOut) count(`mlp${l}`, layer.mlpOut);
    });
  }
  const means = {};
  for (const [key, rows] of Object.entries(totals)) {
    means[key] = rows.map((row, i) => row.map((x) => x / counts[key][i]));
  }
  return means;
}
