// Training: a scrubber through the snapshots of a seed, a button that plays them, and the curves.

import { drawCurves } from "curves.js";
import { byId, put } from "dom.js";
import { changeView, refresh } from "state.js";
import { listMarks } from "train_progress.js";

const PLAY_INTERVAL = 600; // milliseconds from one snapshot to the next
const LOG_RANGE = 30; // a loss that falls by less has no power of ten to stand on

export function stopPlaying(state) {
  clearInterval(state.timer);
  state.timer = null;
}

function playNext(state) {
  const last = state.view.run.steps.length - 1;
  if (state.view.at === last) stopPlaying(state);
  changeView(state, { at: Math.min(state.view.at + 1, last) });
}

function togglePlaying(state) {
  if (state.timer) {
    stopPlaying(state);
    refresh(state);
    return;
  }
  const { run, at } = state.view;
  state.timer = setInterval(() => playNext(state), PLAY_INTERVAL);
  changeView(state, { at: at === run.steps.length - 1 ? 0 : at });
}

/** Whether the file holds the whole training of the view's seed, and not its end alone. */
function hasSnapshots({ run, seed }) {
  return run.carried.includes(seed);
}

function renderScrubber(state) {
  const { run, at } = state.view;
  const step = run.steps[at].toLocaleString("en");
  const last = run.steps.at(-1).toLocaleString("en");
  // a model from elsewhere mostly comes without its training
  const isAlone = run.spec.imported && run.steps.length < 2;
  const isFixed = run.steps.length < 2 || !hasSnapshots(state.view);
  byId("time").max = run.steps.length - 1;
  byId("time").value = at;
  byId("time").disabled = isFixed;
  byId("time").setAttribute("aria-valuetext", `step ${run.steps[at]}`);
  byId("play").disabled = isFixed;
  byId("play").textContent = state.timer ? "Pause" : "Play";
  byId("step").textContent = isAlone ? "imported, not trained here" : `step ${step} of ${last}`;
  byId("only").textContent = hasSnapshots(state.view)
    ? ""
    : "Of this seed only the end of training is in this file; framed seeds have all of it.";
}

function drawLoss({ run, seed }, cursor, last) {
  const losses = run.losses[run.opened.indexOf(seed)];
  const high = Math.max(run.chance, ...losses);
  const low = Math.min(...losses.filter((loss) => loss > 0), high / 10);
  const log = high / low > LOG_RANGE;
  const axis = { low: log ? low : 0, high, log, cursor, last, marks: listMarks(run) };
  return drawCurves("training loss, nats", [["loss", run.loss_steps, losses]], axis);
}

function drawSkills({ run, seed }, cursor, last) {
  const row = run.opened.indexOf(seed);
  const skills = Object.entries(run.curves);
  if (!skills.length) return null;
  const lines = skills.map(([name, values]) => [name, run.steps, values[row]]);
  return drawCurves("accuracy", lines, { low: 0, high: 1, log: false, cursor, last });
}

export function renderTraining(state) {
  const { view } = state;
  renderScrubber(state);
  if (view.run.loss_steps.length < 2) {
    put(byId("curves"));
    return;
  }
  const cursor = view.run.steps[view.at];
  const last = view.run.steps.at(-1);
  const skills = hasSnapshots(view) ? drawSkills(view, cursor, last) : null;
  put(byId("curves"), drawLoss(view, cursor, last), skills);
}

export function listenToTraining(state) {
  byId("time").addEventListener("input", (event) => {
    stopPlaying(state);
    changeView(state, { at: Number(event.target.value) });
  });
  byId("play").addEventListener("click", () => togglePlaying(state));
}
