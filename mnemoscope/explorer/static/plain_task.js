// A task of which the page knows no more than sequences of it, and what other tasks share.

import { randomIndex } from "random.js";
import { sum } from "matrix.js";

const MAX_DRAWN = 256; // tokens of a random prompt; a language model takes thousands

/** Where no training asked, answers mean little. */
export function warnUntrained(run, tokens) {
  const at = tokens.length - 1;
  if (run.trained_positions.includes(at)) return "";
  return `No training asked for an answer after position ${at}: what follows it was never learned.`;
}

/**
 * No oracle, and sequences that Python drew: for a task without an adapter of its own. Of a model
 * from elsewhere no sequences are known, and any tokens are as good.
 */
export function createPlain(run, world) {
  return {
    legend: "",
    queries(tokens) {
      const all = tokens.map((_, i) => i);
      const trained = all.filter((i) => run.trained_positions.includes(i));
      return trained.length ? trained : all;
    },
    groups: (tokens) => tokens.map((_, i) => [i]),
    readings: () => [],
    warn: (tokens) => warnUntrained(run, tokens),
    oracles: () => [],
    marks: () => ({ used: [], recall: null }),
    draw(random) {
      if (world) return world.samples[randomIndex(world.samples.length, random)];
      const length = Math.min(run.n_ctx, MAX_DRAWN);
      return Array.from({ length }, () => randomIndex(run.token_names.length, random));
    },
  };
}

/** Counts as probabilities; null where there is nothing to count. */
export function normalizeCounts(counts) {
  const total = sum(counts);
  return total ? counts.map((count) => count / total) : null;
}
