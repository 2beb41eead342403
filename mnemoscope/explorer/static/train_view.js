// Train here: the section in which a model is trained in the page, and what comes of it.

import { readAddress } from "address.js";
import { button, byId, h, put, saveFile } from "dom.js";
import { showTyped } from "prompt.js";
import { buildRunFile } from "run_file.js";
import { changeView } from "state.js";
import { STATUS, drawProgress } from "train_progress.js";
import { countWorkers, isOn, pause, resume, startSession, stop } from "train_session.js";
import {
  LIMITS, baseOf, buildSetup, choicesOf, defaultsOf, estimateTime, findTrainable, isAllowed,
  listTrainable,
} from "train_setup.js";
import { buildTrainedRun, canBeOpened } from "trained_run.js";

const SECOND = 1000;
const LABELS = { seeds: "Seeds", first: "from seed", lr: "Learning rate", steps: "Steps" };

/** A time in a few words. */
export function sayTime(milliseconds) {
  const seconds = milliseconds / SECOND;
  if (seconds < 2) return "a second";
  const grain = seconds < 10 ? 1 : 5;
  if (seconds < 50) return `${Math.ceil(seconds / grain) * grain} s`;
  const minutes = Math.round(seconds / 60);
  return minutes <= 1 ? "a minute" : `${minutes} minutes`;
}

function sayCost(setup, { seeds }) {
  const workers = countWorkers(seeds);
  const rounds = Math.ceil(seeds / workers);
  const who = seeds === 1 ? "one seed" : `${seeds} seeds, ${workers} at a time`;
  return `About ${sayTime(rounds * estimateTime(setup))} for ${who}. Everything above can be used `
    + "meanwhile; nothing leaves this computer.";
}

/** The view's `train` with one number changed; what is as by default is left out. */
function withChoice(view, trainable, name, value) {
  const train = { ...view.train, [name]: value };
  if (value === defaultsOf(trainable)[name]) delete train[name];
  return train;
}

function drawNumber(state, trainable, name, value) {
  const { least, most, isWhole } = LIMITS[name];
  const onchange = ({ target }) => {
    const asked = Number(target.value);
    const isGood = target.value !== "" && isAllowed(name, asked);
    state.trainError = isGood ? "" : `${LABELS[name]}: ${isWhole ? "whole numbers" : "numbers"} `
      + `from ${least} to ${most.toLocaleString("en")}, not “${target.value}”.`;
    if (isGood) changeView(state, { train: withChoice(state.view, trainable, name, asked) });
    else renderTrainHere(state);
  };
  return h("label", {}, `${LABELS[name]} `, h("input", {
    id: `train-${name}`,
    "data-key": `train-${name}`,
    class: "number",
    type: "text",
    inputmode: isWhole ? "numeric" : "decimal",
    autocomplete: "off",
    value,
    disabled: Boolean(state.session && isOn(state.session)),
    onchange,
  }));
}

function drawWhat(state, trainable) {
  const all = listTrainable(state.view.run);
  if (all.length < 2 && trainable === baseOf(state.view.run)) return null;
  const options = all.map(({ id, name }) =>
    h("option", { value: id, selected: id === trainable.id }, name));
  const onchange = ({ target }) => {
    const train = target.value === all[0].id ? {} : { recipe: target.value };
    changeView(state, { train });
  };
  return h("label", {}, "What ", h("select", {
    id: "train-what",
    "data-key": "train-what",
    disabled: Boolean(state.session && isOn(state.session)),
    onchange,
  }, options));
}

function begin(state, trainable) {
  const choices = choicesOf(state.view, trainable);
  const seeds = Array.from({ length: choices.seeds }, (_, i) => choices.first + i);
  try {
    state.session = startSession(buildSetup(trainable, choices), seeds, () => drawLater(state));
    state.session.base = baseOf(state.view.run);
  } catch (error) {
    state.trainError = `This browser trains nothing here: ${error.message}.`;
  }
  renderTrainHere(state);
}

/** At most once for each picture that the screen shows. */
function drawLater(state) {
  if (state.session.isWaiting) return;
  state.session.isWaiting = true;
  requestAnimationFrame(() => {
    state.session.isWaiting = false;
    keepResult(state);
    renderTrainHere(state);
  });
}

/** What is trained becomes one of the page's runs, once it ended. */
function keepResult(state) {
  const { session } = state;
  if (isOn(session) || session.run || !canBeOpened(session)) return;
  state.trainedRuns += 1;
  session.run = { ...buildTrainedRun(session, state.trainedRuns), base: session.base };
  state.runs.push(session.run);
  state.render(state);
}

function openResult(state) {
  const { run } = state.session;
  const { tokens } = state.view;
  const fresh = readAddress(state.runs, `#run=${run.id}`);
  const isReadable = tokens.length <= run.n_ctx
    && tokens.every((token) => token < run.token_names.length);
  const kept = { tokens: isReadable ? tokens : fresh.tokens, train: state.view.train };
  changeView(state, { ...fresh, ...kept });
  showTyped(state);
  byId("setup").scrollIntoView({ block: "start" });
  byId("run").focus({ preventScroll: true });
}

function saveResult({ session }) {
  saveFile(`${session.run.id}.safetensors`, "application/octet-stream", ...buildRunFile(session));
}

function drawButtons(state, trainable) {
  const { session } = state;
  if (!session || !isOn(session)) {
    const label = session ? "Train again" : "Start training";
    return button("train-start", label, () => begin(state, trainable), {
      class: "begin",
      disabled: Boolean(state.trainError),
    });
  }
  const isPaused = session.status === "paused";
  return [
    button("train-pause", isPaused ? "Go on" : "Pause", () => (isPaused ? resume : pause)(session)),
    button("train-stop", "Stop", () => stop(session)),
  ];
}

function drawResult(state) {
  const { session } = state;
  if (!session?.run) return null;
  const isDone = session.status === "done";
  const where = isDone
    ? `“mnemoscope import ${session.run.id}.safetensors” takes the file.`
    : "A training that was stopped cannot be downloaded: a run is a whole training.";
  const open = `Open “${session.run.name}”`;
  return h("div", { class: "bar-of" },
    button("train-open", open, () => openResult(state), { class: "begin" }),
    button("train-save", "Download as a run", () => saveResult(state), { disabled: !isDone }),
    h("span", { class: "note" }, where));
}

function drawControls(state, trainable) {
  const choices = choicesOf(state.view, trainable);
  const numbers = Object.keys(LABELS).map((name) =>
    drawNumber(state, trainable, name, choices[name]));
  const cost = sayCost(buildSetup(trainable, choices), choices);
  return [
    h("p", {}, "Begin again from random numbers, and watch. A seed is the same here as in Python: "
      + "the same start, the same batches."),
    trainable === baseOf(state.view.run) ? null
      : h("p", {}, `${trainable.about} ${trainable.words}`),
    h("div", { class: "bar-of" },
      drawWhat(state, trainable), numbers, drawButtons(state, trainable)),
    state.trainError ? h("p", { class: "warning", role: "status" }, state.trainError) : null,
    state.session && isOn(state.session) ? null
      : h("p", { class: "note", id: "train-cost" }, cost),
  ];
}

/** Draw into a part of the section, but only when what it shows has changed: a button that is
 * replaced while it is pressed is never clicked. */
function putIfChanged(id, shown, draw) {
  const key = JSON.stringify(shown);
  if (byId(id).dataset.shown === key) return;
  byId(id).dataset.shown = key;
  put(byId(id), draw());
}

/** What a screen reader is told: that a training began, was held or ended, and not every step. */
function sayStatus(session) {
  const said = session ? STATUS[session.status] : "";
  if (byId("train-said").textContent !== said) byId("train-said").textContent = said;
}

export function renderTrainHere(state) {
  const { run, train } = state.view;
  const { session } = state;
  const trainable = findTrainable(state.view);
  const shown = [run.id, train, state.trainError, session?.status];
  putIfChanged("train-controls", shown, () => (trainable
    ? drawControls(state, trainable)
    : h("p", { class: "note" }, `The page cannot train this one: ${run.training.why_not}.`)));
  const steps = session?.seeds.map(({ step }) => step);
  putIfChanged("train-live", [session?.status, steps], () =>
    (session ? drawProgress(session) : null));
  sayStatus(session);
  putIfChanged("train-result", [session?.status, session?.run?.id], () => drawResult(state));
}
