// Which model: a run, one of its seeds, and a strip that shows how every seed ended.

import { readAddress } from "address.js";
import { drawBesideSelect } from "beside.js";
import { button, byId, h, put } from "dom.js";
import { showTyped } from "prompt.js";
import { changeView } from "state.js";
import { stopPlaying } from "training.js";

function pickRun(state, id) {
  stopPlaying(state);
  byId("attended").textContent = "";
  state.inputError = "";
  const fresh = readAddress(state.runs, `#run=${encodeURIComponent(id)}`);
  changeView(state, { ...fresh, open: state.view.open });
  showTyped(state);
}

function pickSeed(state, seed) {
  const { run, at } = state.view;
  stopPlaying(state);
  changeView(state, { seed, at: run.carried.includes(seed) ? at : run.steps.length - 1 });
}

function drawSelect(label, id, options, onPick) {
  const items = options.map(({ value, text, selected }) => h("option", { value, selected }, text));
  const onchange = (event) => onPick(event.target.value);
  return h("label", {}, `${label} `, h("select", { id, "data-key": id, onchange }, items));
}

/** A model's shape in a few words; its whole configuration is folded away behind them. */
function sayShape({ n_layers: nLayers, n_heads: nHeads, d_model: dModel }) {
  const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
  return `${count(nLayers, "layer")}, ${count(nHeads, "head")}, ${count(dModel, "dimension")}`;
}

function renderSelects(state) {
  const { run, seed } = state.view;
  const runs = state.runs.map((each) =>
    ({ value: each.id, text: each.name, selected: each === run }));
  const seeds = run.opened.map((each) => ({ value: each, text: each, selected: each === seed }));
  put(byId("models"),
    drawSelect("Model", "run", runs, (id) => pickRun(state, id)),
    drawSelect("Seed", "seed", seeds, (value) => pickSeed(state, Number(value))),
    drawBesideSelect(state),
    h("details", { class: "about" },
      h("summary", { "data-key": "about" }, sayShape(run.config)),
      h("p", { class: "note" }, run.about)));
  if (byId("words").textContent !== run.words) byId("words").textContent = run.words;
}

/** One seed as a button; `height` is how full it stands, from 0 to 1. */
function drawSeed(state, name, seed, value, height) {
  const { run } = state.view;
  const isOpened = run.opened.includes(seed);
  const isChosen = seed === state.view.seed;
  const isFinite = typeof value === "number";
  const label = `seed ${seed}: ${name} ${isFinite ? value.toPrecision(3) : "diverged"}`;
  const bar = h("span", { style: `height:${isFinite ? Math.round(100 * height) : 0}%` });
  return button(`seed-${name}-${seed}`, bar, () => pickSeed(state, seed), {
    disabled: !isOpened,
    class: `seed ${isChosen ? "chosen" : ""} ${run.carried.includes(seed) ? "framed" : ""}`,
    "aria-pressed": isChosen,
    title: isOpened ? label : `${label} (not in this file)`,
    "aria-label": label,
  });
}

function drawOutcome(state, name, values) {
  const top = name === "loss" ? Math.max(...values.filter(Number.isFinite), 1e-9) : 1;
  const seeds = state.view.run.seeds.map((seed, i) =>
    drawSeed(state, name, seed, values[i], values[i] / top));
  return h("div", { class: "strip", role: "group", "aria-label": `${name} of every seed` },
    h("span", { class: "note" }, name), seeds);
}

/** Skills where the task has some, else the loss. */
function renderStrip(state) {
  const outcomes = Object.entries(state.view.run.outcomes);
  const skills = outcomes.filter(([name]) => name !== "loss");
  const shown = skills.length ? skills : outcomes;
  if (!shown.length) { // a model from elsewhere, with no task to lose anything on
    put(byId("strip"));
    return;
  }
  const note = "Every seed at the end of training: click one to open it. "
    + "In framed ones the whole training can be scrubbed through.";
  put(byId("strip"),
    h("p", { class: "note" }, note),
    shown.map(([name, values]) => drawOutcome(state, name, values)));
}

/** Nothing of it changes with the prompt or over training, and of seeds there can be hundreds. */
export function renderModels(state) {
  const { run, seed, beside } = state.view;
  const key = JSON.stringify([state.runs.length, run.id, seed, beside?.run.id, beside?.seed]);
  if (byId("models").dataset.shown === key) return;
  byId("models").dataset.shown = key;
  renderSelects(state);
  renderStrip(state);
}
