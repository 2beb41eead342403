// When a training in the page stops: as in training/loop.py at the snapshots, and evenly between.

import { roundHalfEven } from "rounding.js";

const EVEN_STOPS = 64;

/** Steps after which weights are kept, as `Spec.snapshot_steps` says for so many. */
export function listSnapshots(steps, count) {
  const ratio = Math.log(steps) / (count - 2);
  const spaced = Array.from({ length: count - 1 }, (_, i) => Math.round(Math.exp(ratio * i)));
  return [...new Set([0, ...spaced, steps])].sort((a, b) => a - b);
}

/** Steps after which the loss is read. */
export function listStops(steps, snapshots) {
  const even = Array.from({ length: EVEN_STOPS }, (_, i) =>
    roundHalfEven(steps * (i + 1) / EVEN_STOPS));
  const all = new Set([...snapshots, ...even]);
  all.delete(0);
  return [...all].sort((a, b) => a - b);
}
