// The view, everything that is being looked at, as an address: copying the address copies the view.
//
//   #run=3f2a90c1&seed=2&at=11&prompt=245345322
//    &off=0.1:zero,mlp0:mean&force=0.0:8>3,0.1:4=even&part=0.1&open=2&stop=3&with=3f2a90c1:1
//    &train=seeds:2,lr:0.003
//
// A view has
//   run      one of the runs in this file
//   seed     one of its seeds
//   at       the index of a snapshot of its training
//   tokens   the prompt
//   off      ablated parts: {part: "zero" or "mean"}, with parts as in parts.js
//   force    forced rows of attention patterns: {"layer.head": {row: column or "even"}}
//   part     the part whose numbers are open, or ""
//   open     the steps of the walk that are open, at most one
//   stop     where the tour stands, counted from 0, or null
//   beside   the model that stands beside it, {run, seed}, or null
//   train    what of a training in the page is not as by default, as in train_setup.js
//
// What an address names that this file does not hold falls back to the first run, its first seed,
// the end of training and the first preset, and `problems` says so.

import { listOpenable, listParts } from "parts.js";
import { formatPrompt, parsePrompt } from "tokens.js";
import { LIMITS, isAllowed, listTrainable } from "train_setup.js";

const FIELDS = [
  "run", "seed", "at", "prompt", "off", "force", "part", "open", "stop", "with",
  "train",
];
const LONGEST = 40; // characters of an unknown value that are repeated

/** What parts.js reads of a model, without its weights. */
export function outlineOf(run) {
  const params = Object.fromEntries(run.parameters.map(([name]) => [name, true]));
  return { config: run.config, params };
}

/** Notes down what is unknown. */
function createNotes() {
  const problems = [];
  const shorten = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text);
  const note = (what, value) => problems.push(`${what} “${shorten(String(value))}”`);
  return { problems, note };
}

const items = (text) => (text ?? "").split(",").filter(Boolean);

/** A run by its id, the start of it, or its name. */
function findRun(runs, text) {
  const same = runs.find((run) => run.id === text || run.name === text);
  if (same || !text) return same;
  const like = runs.filter((run) => run.id.startsWith(text));
  return like.length === 1 ? like[0] : undefined;
}

function readRun(runs, text, note) {
  const found = findRun(runs, text);
  if (!found && text !== null) note("run", text);
  return found ?? runs[0];
}

function readSeed(run, text, note) {
  const seed = text ? Number(text) : NaN;
  if (run.opened.includes(seed)) return seed;
  if (text !== null) note("seed", text);
  return run.opened[0];
}

function readSnapshot(run, seed, text, note) {
  const last = run.steps.length - 1;
  if (text === null) return last;
  const at = text === "" ? NaN : Number(text);
  const first = run.carried.includes(seed) ? 0 : last;
  if (Number.isInteger(at) && at >= first && at <= last) return at;
  note("snapshot", text);
  return last;
}

function readPrompt(run, text, note) {
  if (text === null) return run.presets[0].tokens;
  const { tokens } = parsePrompt(run, text);
  if (!tokens) note("prompt", text);
  return tokens ?? run.presets[0].tokens;
}

function readAblations(run, text, note) {
  const parts = listParts(outlineOf(run));
  const off = {};
  for (const item of items(text)) {
    const [part, how] = item.split(":");
    if (parts.includes(part) && ["zero", "mean"].includes(how)) off[part] = how;
    else note("knock-out", item);
  }
  return off;
}

/** One forced row, {part, row, target}, or null. */
function readForcedRow(run, tokens, item) {
  const found = item.match(/^(\d+\.\d+):(\d+)(?:>(\d+)|(=even))$/);
  if (!found || !listParts(outlineOf(run)).includes(found[1])) return null;
  const [, part, rowText, columnText, even] = found;
  const row = Number(rowText);
  const target = even ? "even" : Number(columnText);
  const seen = run.config.causal ? row + 1 : tokens.length;
  if (row >= tokens.length || (target !== "even" && target >= seen)) return null;
  return { part, row, target };
}

function readForced(run, tokens, text, note) {
  const force = {};
  for (const item of items(text)) {
    const found = readForcedRow(run, tokens, item);
    if (found) (force[found.part] ??= {})[found.row] = found.target;
    else note("forced row", item);
  }
  return force;
}

function readPart(run, text, note) {
  if (!text) return "";
  if (listOpenable(outlineOf(run)).includes(text)) return text;
  note("part", text);
  return "";
}

function readOpen(text, note) {
  const wrong = items(text).find((step) => !/^\d{1,4}$/.test(step));
  if (wrong !== undefined) note("step of the walk", wrong);
  return items(text).filter((step) => /^\d{1,4}$/.test(step)).map(Number).slice(0, 1);
}

/** Whether the tour comes that far is for tour.js to say. */
function readStop(text, note) {
  if (text === null) return null;
  if (/^[1-9]\d{0,2}$/.test(text)) return Number(text) - 1;
  note("step of a tour", text);
  return null;
}

/** Whether two runs can be asked the same. */
export function areComparable(run, other) {
  return other.n_ctx >= run.n_ctx && run.token_names.join(" ") === other.token_names.join(" ");
}

function readBeside(runs, { run: own, seed: ownSeed }, text, note) {
  if (!text) return null;
  const cut = text.lastIndexOf(":");
  const run = findRun(runs, text.slice(0, cut));
  const seed = Number(text.slice(cut + 1));
  const isOther = run !== own || seed !== ownSeed;
  if (run?.opened.includes(seed) && isOther && areComparable(own, run)) return { run, seed };
  note("second model", text);
  return null;
}

function readTrain(run, text, note) {
  const train = {};
  for (const item of items(text)) {
    const [name, value] = item.split(":");
    const recipe = name === "recipe" && listTrainable(run).find(({ id }) => id === value);
    const isNumber = name in LIMITS && value && isAllowed(name, Number(value));
    if (recipe) train.recipe = recipe.id;
    else if (isNumber) train[name] = Number(value);
    else note("training", item);
  }
  return train;
}

/** The view that an address names, and `problems`, a list of what in it is unknown. */
export function readAddress(runs, hash) {
  const asked = new URLSearchParams(hash.replace(/^#/, ""));
  const { problems, note } = createNotes();
  for (const name of asked.keys()) if (!FIELDS.includes(name)) note("field", name);
  const run = readRun(runs, asked.get("run"), note);
  const seed = readSeed(run, asked.get("seed"), note);
  const tokens = readPrompt(run, asked.get("prompt"), note);
  return {
    run,
    seed,
    at: readSnapshot(run, seed, asked.get("at"), note),
    tokens,
    off: readAblations(run, asked.get("off"), note),
    force: readForced(run, tokens, asked.get("force"), note),
    part: readPart(run, asked.get("part"), note),
    open: readOpen(asked.get("open"), note),
    stop: readStop(asked.get("stop"), note),
    beside: readBeside(runs, { run, seed }, asked.get("with"), note),
    train: readTrain(run, asked.get("train"), note),
    problems,
  };
}

function formatForced(force) {
  return Object.entries(force).flatMap(([part, rows]) =>
    Object.entries(rows).map(([row, target]) =>
      `${part}:${row}${target === "even" ? "=even" : `>${target}`}`));
}

/** The address that names a view. */
export function writeAddress(view) {
  const { run, seed, at, tokens, off, force, part, open, stop, beside, train } = view;
  const fields = new URLSearchParams({ run: run.id, seed, at, prompt: formatPrompt(run, tokens) });
  const ablated = Object.entries(off).map(([each, how]) => `${each}:${how}`);
  const forced = formatForced(force);
  if (ablated.length) fields.set("off", ablated.join(","));
  if (forced.length) fields.set("force", forced.join(","));
  if (part) fields.set("part", part);
  if (open.length) fields.set("open", open.join(","));
  if (stop !== null) fields.set("stop", stop + 1);
  if (beside) fields.set("with", `${beside.run.id}:${beside.seed}`);
  const trained = Object.entries(train).map(([name, value]) => `${name}:${value}`);
  if (trained.length) fields.set("train", trained.join(","));
  return `#${fields}`;
}
