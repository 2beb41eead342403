// The view, everything that is being looked at, as an address: copying the address copies the view.
//
//   #run=3f2a90c1&seed=2&at=11&prompt=245345322
//    &off=0.1:zero,mlp0:mean&force=0.0:8>3,0.1:4=even&open=2
//
// A view has
//   run      one of the runs in this file
//   seed     one of its seeds
//   at       the index of a snapshot of its training
//   tokens   the prompt
//   off      ablated parts: {"layer.head" or "mlp<layer>": "zero" or "mean"}
//   force    forced rows of attention patterns: {"layer.head": {row: column or "even"}}
//   open     the steps of the walk that are open, at most one
//
// What an address names that this file does not hold falls back to the first run, its first seed,
// the end of training and the first preset.

import { formatPrompt, parsePrompt } from "tokens.js";

function hasParameter(run, name) {
  return run.parameters.some(([each]) => each === name);
}

function isHead(run, part) {
  if (!/^\d+\.\d+$/.test(part)) return false;
  const [layer, head] = part.split(".").map(Number);
  return head < run.config.n_heads && hasParameter(run, `blocks.${layer}.attn.W_Q`);
}

function isMlp(run, part) {
  if (!/^mlp\d+$/.test(part)) return false;
  return hasParameter(run, `blocks.${part.slice(3)}.mlp.W_in`);
}

function readSeed(run, text) {
  const seed = Number(text ?? NaN);
  return run.opened.includes(seed) ? seed : run.opened[0];
}

function readSnapshot(run, seed, text) {
  const last = run.steps.length - 1;
  if (text === null || !run.carried.includes(seed)) return last;
  const at = Number(text);
  return Number.isInteger(at) && at >= 0 && at <= last ? at : last;
}

function readPrompt(run, text) {
  const tokens = text === null ? null : parsePrompt(run, text).tokens;
  return tokens ?? run.presets[0].tokens;
}

function readAblations(run, text) {
  const off = {};
  for (const item of (text ?? "").split(",")) {
    const [part, how] = item.split(":");
    const known = isHead(run, part) || isMlp(run, part);
    if (known && ["zero", "mean"].includes(how)) off[part] = how;
  }
  return off;
}

function readForced(run, tokens, text) {
  const force = {};
  for (const item of (text ?? "").split(",")) {
    const found = item.match(/^(\d+\.\d+):(\d+)(?:>(\d+)|(=even))$/);
    if (!found || !isHead(run, found[1])) continue;
    const [, part, rowText, columnText, even] = found;
    const row = Number(rowText);
    const target = even ? "even" : Number(columnText);
    const seen = run.config.causal ? row + 1 : tokens.length;
    if (row >= tokens.length || (target !== "even" && target >= seen)) continue;
    force[part] ??= {};
    force[part][row] = target;
  }
  return force;
}

function readOpen(text) {
  const steps = (text ?? "").split(",").filter((step) => /^\d+$/.test(step));
  return steps.map(Number).slice(0, 1);
}

/** The view that an address names. */
export function readAddress(runs, hash) {
  const asked = new URLSearchParams(hash.replace(/^#/, ""));
  const run = runs.find((each) => each.id === asked.get("run")) ?? runs[0];
  const seed = readSeed(run, asked.get("seed"));
  const tokens = readPrompt(run, asked.get("prompt"));
  return {
    run,
    seed,
    at: readSnapshot(run, seed, asked.get("at")),
    tokens,
    off: readAblations(run, asked.get("off")),
    force: readForced(run, tokens, asked.get("force")),
    open: readOpen(asked.get("open")),
  };
}

function formatForced(force) {
  return Object.entries(force).flatMap(([part, rows]) =>
    Object.entries(rows).map(([row, target]) =>
      `${part}:${row}${target === "even" ? "=even" : `>${target}`}`));
}

/** The address that names a view. */
export function writeAddress({ run, seed, at, tokens, off, force, open }) {
  const fields = new URLSearchParams({ run: run.id, seed, at, prompt: formatPrompt(run, tokens) });
  const ablated = Object.entries(off).map(([part, how]) => `${part}:${how}`);
  const forced = formatForced(force);
  if (ablated.length) fields.set("off", ablated.join(","));
  if (forced.length) fields.set("force", forced.join(","));
  if (open.length) fields.set("open", open.join(","));
  return `#${fields}`;
}
