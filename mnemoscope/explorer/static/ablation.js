// Knock-outs: a view's ablated parts and forced rows as edits of the forward pass.
//
// A head's z or a feed-forward layer's output becomes zero, or its mean over prompts drawn at
// random.

import { worldOf } from "data.js";
import { meanActivations } from "means.js";
import { createRandom } from "random.js";
import { createAdapter } from "tasks.js";

const MEAN_SEQUENCES = 24; // that a mean is taken over

const lastMeans = { key: "", means: null }; // of the model that was asked for last

function loadMeans(model, { run, seed, at }) {
  const key = `${run.id}/${seed}/${at}`;
  if (lastMeans.key !== key) {
    const random = createRandom(1);
    const task = createAdapter(run, worldOf(run, seed));
    const sequences = Array.from({ length: MEAN_SEQUENCES }, () => task.draw(random));
    lastMeans.key = key;
    lastMeans.means = meanActivations(model, sequences);
  }
  return lastMeans.means;
}

function zeroRows(length, width) {
  return Array.from({ length }, () => new Array(width).fill(0));
}

/** A row of a pattern that attends to one position alone, or evenly to all that it sees. */
function forcedRow({ config }, length, row, target) {
  const seen = config.causal ? row + 1 : length;
  const weight = (j) => {
    if (target === "even") return j < seen ? 1 / seen : 0;
    return Number(j === target);
  };
  return Array.from({ length }, (_, j) => weight(j));
}

/** The edits of a view, as `forward` takes them. */
export function buildEdits(model, view) {
  const { off, force, tokens, run } = view;
  const { d_model: dModel, d_head: dHead } = model.config;
  const edits = { heads: {}, mlps: {}, patterns: {} };
  for (const [part, how] of Object.entries(off)) {
    const isMlp = part.startsWith("mlp");
    const zeros = zeroRows(run.n_ctx, isMlp ? dModel : dHead);
    const values = how === "mean" ? loadMeans(model, view)[part] : zeros;
    if (isMlp) edits.mlps[part.slice(3)] = values;
    else edits.heads[part] = values;
  }
  for (const [part, rows] of Object.entries(force)) {
    edits.patterns[part] = {};
    for (const [row, target] of Object.entries(rows)) {
      edits.patterns[part][row] = forcedRow(model, tokens.length, Number(row), target);
    }
  }
  return edits;
}

/** Ablations with one part set to "on", "zero" or "mean". */
export function switchPart(off, part, how) {
  const next = { ...off };
  if (how === "on") delete next[part];
  else next[part] = how;
  return next;
}

/** Forced rows with one more forced to a target, or let go where it was forced to it already. */
export function toggleForced(force, part, row, target) {
  const rows = { ...force[part] };
  if (rows[row] === target) delete rows[row];
  else rows[row] = target;
  const next = { ...force, [part]: rows };
  if (!Object.keys(rows).length) delete next[part];
  return next;
}

/** Forced rows that a prompt of this length still has. */
export function keepForced(force, length) {
  const next = {};
  for (const [part, rows] of Object.entries(force)) {
    const isThere = ([row, target]) => row < length && (target === "even" || target < length);
    const kept = Object.entries(rows).filter(isThere);
    if (kept.length) next[part] = Object.fromEntries(kept);
  }
  return next;
}
