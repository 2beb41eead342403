// What is being looked at. All of it lives in the address, so copying the address copies the view.
//
//   #run=3f2a90c1&seed=2&at=11&prompt=245345322&off=0.1:zero,mlp0:mean&force=0.0:8>3,0.1:4=even&open=2

import { parse, written } from "tasks.js";

export function read(runs, hash) {
  const asked = new URLSearchParams(hash.replace(/^#/, ""));
  const run = runs.find((r) => r.id === asked.get("run")) ?? runs[0];
  const seed = run.opened.includes(Number(asked.get("seed") ?? NaN)) ? Number(asked.get("seed")) : run.opened[0];
  const last = run.steps.length - 1, at = asked.has("at") && run.carried.includes(seed) ? Number(asked.get("at")) : last;
  const tokens = asked.has("prompt") ? parse(run, asked.get("prompt")).tokens : null;
  const { n_layers, n_heads } = run.spec.model, named = run.parameters.map(([name]) => name);
  const isHead = (key) => /^\d+\.\d+$/.test(key) && Number(key.split(".")[0]) < n_layers && Number(key.split(".")[1]) < n_heads;
  const isMlp = (key) => /^mlp\d+$/.test(key) && named.includes(`blocks.${key.slice(3)}.mlp.W_in`);
  const off = {}, force = {};
  for (const part of (asked.get("off") ?? "").split(",")) {
    const [key, how] = part.split(":");
    if ((isHead(key) || isMlp(key)) && ["zero", "mean"].includes(how)) off[key] = how;
  }
  const prompt = tokens ?? run.presets[0].tokens;
  for (const part of (asked.get("force") ?? "").split(",")) {
    const found = part.match(/^(\d+\.\d+):(\d+)(?:>(\d+)|(=even))$/);
    if (!found || !isHead(found[1])) continue;
    const row = Number(found[2]), to = found[4] ? "even" : Number(found[3]);
    if (row < prompt.length && (to === "even" || to <= row)) (force[found[1]] ??= {})[row] = to;
  }
  const open = (asked.get("open") ?? "").split(",").filter((x) => /^\d+$/.test(x)).map(Number).slice(0, 1);
  return { run, seed, at: Number.isInteger(at) && at >= 0 && at <= last ? at : last, tokens: prompt, off, force, open };
}

export function write({ run, seed, at, tokens, off, force, open }) {
  const parts = new URLSearchParams({ run: run.id, seed, at, prompt: written(run, tokens) });
  const offs = Object.entries(off).map(([key, how]) => `${key}:${how}`);
  const forces = Object.entries(force).flatMap(([key, rows]) => Object.entries(rows).map(([row, to]) => `${key}:${row}${to === "even" ? "=even" : `>${to}`}`));
  if (offs.length) parts.set("off", offs.join(","));
  if (forces.length) parts.set("force", forces.join(","));
  if (open.length) parts.set("open", open.join(","));
  return `#${parts}`;
}
