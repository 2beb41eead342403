// What a visitor trains: the model that is open or a recipe of its run, with a few numbers changed.
//
// The view's `train` has what differs from the defaults, and stands in the address:
//
//   train=recipe:f3b5d49e,seeds:2,first:5,lr:0.003,steps:1000

import { countWorkers } from "train_session.js";

export const LIMITS = {
  seeds: { least: 1, most: 8, isWhole: true },
  first: { least: 0, most: 2 ** 31 - 9, isWhole: true },
  lr: { least: 1e-6, most: 10, isWhole: false },
  steps: { least: 2, most: 100_000, isWhole: true },
};
const SNAPSHOTS = 40;
const SIDE_BY_SIDE = 4;
// fields of a Spec: the page has snapshots of its own, and reads no metrics
const NOT_TAKEN = ["snapshot_at", "metrics", "n_evals"];
// what of a run is trained: all but what came of its own training
const FIELDS = [
  "id", "name", "words", "about", "spec", "config", "token_names", "n_ctx", "trained_positions",
  "draw_label", "presets", "tour", "parameters", "chance", "floor", "training", "recipes",
];

/** A run that the file carries: of what was trained here, the one that was open then. */
export function baseOf(run) {
  return run.base ?? run;
}

/** What can be trained where a run is open: itself, and its recipes. */
export function listTrainable(run) {
  const base = baseOf(run);
  return [base, ...base.recipes].filter(({ training }) => !training.why_not);
}

/** The one that a view names; undefined where there is none. */
export function findTrainable({ run, train }) {
  const all = listTrainable(run);
  return all.find(({ id }) => id === train.recipe) ?? all[0];
}

/** The numbers that a visitor can change, with their defaults. */
export function defaultsOf({ spec }) {
  return { seeds: countWorkers(SIDE_BY_SIDE), first: 0, lr: spec.optimizer.lr, steps: spec.steps };
}

/** Whether a number is one that a training can have. */
export function isAllowed(name, value) {
  const { least, most, isWhole } = LIMITS[name];
  return value >= least && value <= most && (!isWhole || Number.isInteger(value));
}

/** The numbers of a view. */
export function choicesOf(view, trainable) {
  const { recipe, ...changed } = view.train;
  return { ...defaultsOf(trainable), ...changed };
}

/** What a session trains. */
export function buildSetup(trainable, { lr, steps }) {
  const taken = Object.entries(trainable.spec).filter(([name]) => !NOT_TAKEN.includes(name));
  const spec = Object.fromEntries(taken);
  const picked = Object.fromEntries(FIELDS.map((name) => [name, trainable[name] ?? null]));
  return {
    ...picked,
    spec: { ...spec, optimizer: { ...spec.optimizer, lr }, steps, snapshots: SNAPSHOTS },
  };
}

const PER_MILLISECOND = 1.3e6; // products, on one core of a server of 2023

/** About how many milliseconds a seed takes. */
export function estimateTime(setup) {
  const { spec, config, n_ctx: length, token_names: names, trained_positions: read } = setup;
  const { d_model: d, d_mlp: width, n_heads: nHeads, d_head: dHead, n_layers: nLayers } = config;
  const inner = nHeads * dHead;
  const rows = spec.batch * (nLayers > 1 ? length : read.length);
  const attention = rows * (inner * d + 2 * length * inner);
  const first = names.length * length * 3 * d * inner;
  const rest = (nLayers - 1) * rows * 3 * d * inner;
  const others = rows * (nLayers * 2 * d * width + d * names.length);
  const products = 3 * (nLayers * attention + first + rest + others);
  return spec.steps * (0.05 + products / PER_MILLISECOND);
}
