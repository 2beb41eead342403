// A guided tour: stops that follow each other, each a view with two sentences, whose values are
// computed for that view. Leaving it keeps what is shown.

import { describeEdits } from "answers.js";
import { button, byId, formatPercent, h, put } from "dom.js";
import { showTyped } from "prompt.js";
import { changeView, computeView } from "state.js";
import { formatPrompt } from "tokens.js";
import { listStops, skillCurve } from "tour_rules.js";
import { stopPlaying } from "training.js";

const LOOKED_AT = {
  answer: "result",
  model: "model",
  part: "part-section",
  time: "time",
  prompt: "ask",
  seeds: "seed",
};

function bestOf(run, trace) {
  const probabilities = trace.probabilities.at(-1);
  const top = Math.max(...probabilities);
  const token = probabilities.indexOf(top);
  return { token, name: run.token_names[token], share: formatPercent(top) };
}

/** Whose answer a token is: recall's, elimination's, or that of none of those there are. */
function nameReading(readings, token) {
  const found = readings.find(([, each]) => each === token);
  if (found) return found[0];
  return readings.length ? `neither ${readings.map(([name]) => name).join(" nor ")}` : "nobody";
}

/** Every skill at the view's snapshot, and at the end of training. */
function listSkills({ run, seed, at }) {
  const write = (value) => (typeof value === "number" ? formatPercent(value) : "unknown");
  const skills = Object.entries(run.outcomes).filter(([name]) => name !== "loss");
  return skills.flatMap(([name, ends]) => {
    const end = ends[run.seeds.indexOf(seed)];
    const isEnd = at === run.steps.length - 1;
    const now = isEnd ? end : skillCurve({ run, seed }, name)?.[at];
    return [[name, write(now)], [`${name}_end`, write(end)]];
  });
}

/** What can stand in braces in a step's text, by name, computed for its view. */
function computeValues(view) {
  const { run, seed, at, tokens } = view;
  const shown = computeView(view);
  const { token, name, share } = bestOf(run, shown.trace);
  const was = bestOf(run, shown.before ?? shown.trace);
  const readings = shown.task.readings(tokens, tokens.length - 1);
  return {
    answer: name,
    share,
    was: was.name,
    was_share: was.share,
    reading: nameReading(readings, token),
    off: describeEdits(shown) || "nothing",
    prompt: formatPrompt(run, tokens),
    seed: String(seed),
    seeds: String(run.opened.length),
    step: run.steps[at].toLocaleString("en"),
    last_step: run.steps.at(-1).toLocaleString("en"),
    ...Object.fromEntries(listSkills(view)),
  };
}

const texts = new WeakMap(); // by stop: filled in once

/** A step's text with its values. */
function fillText(stop) {
  if (!texts.has(stop)) {
    const values = computeValues(stop.view);
    texts.set(stop, stop.step.text.replace(/\{([\w ]+)\}/g, (_, name) => values[name]));
  }
  return texts.get(stop);
}

const isSame = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** Whether the page shows what a stop shows. */
function isAt(view, stop) {
  const fields = ["seed", "at", "tokens", "off", "force"];
  return fields.every((field) => isSame(view[field], stop.view[field]));
}

function goTo(state, index) {
  stopPlaying(state);
  state.inputError = "";
  const { step, view } = listStops(state.view.run)[index];
  changeView(state, { ...view, part: step.part ?? "", stop: index });
  showTyped(state);
  byId("tour").querySelector("[data-key=tour-next], [data-key=tour-leave]").focus();
  byId(LOOKED_AT[step.look])?.scrollIntoView({ block: "nearest" });
}

function leave(state) {
  changeView(state, { stop: null });
  byId("tour-start").querySelector("button")?.focus();
}

function renderStart(state) {
  const stops = listStops(state.view.run);
  const isOffered = stops.length > 0 && state.view.stop === null;
  const label = `Tour in ${stops.length} steps: ${state.view.run.tour?.title}`;
  put(byId("tour-start"), isOffered
    ? button("tour-begin", label, () => goTo(state, 0), { class: "begin" })
    : null);
}

/** A step, its number, and the ways on and out. */
function drawStop(state, stops, index) {
  const stop = stops[index];
  const isLast = index === stops.length - 1;
  const go = (to) => () => goTo(state, to);
  return [
    h("h2", { id: "tour-title" }, `${index + 1} of ${stops.length}. ${stop.step.title}`),
    h("p", { id: "tour-text" }, fillText(stop)),
    h("div", { class: "bar-of" },
      button("tour-back", "← Back", go(index - 1), { disabled: index === 0 }),
      isLast ? null : button("tour-next", "Next →", go(index + 1), {
        class: "begin",
        "aria-describedby": "tour-text", // the focus comes here: the text is read out
      }),
      button("tour-leave", "Leave the tour", () => leave(state)),
      isAt(state.view, stop) ? null : button("tour-again", "Show this step again", go(index))),
  ];
}

export function renderTour(state) {
  const { run, stop: index } = state.view;
  const stops = listStops(run);
  const isOn = index !== null;
  renderStart(state);
  byId("tour").hidden = !isOn;
  document.body.dataset.look = isOn ? stops[index].step.look : "";
  // the same text again would be read out again
  const key = isOn ? JSON.stringify([run.id, index, isAt(state.view, stops[index])]) : "";
  if (byId("tour").dataset.shown === key) return;
  byId("tour").dataset.shown = key;
  put(byId("tour"), isOn ? drawStop(state, stops, index) : null);
}

/** A view whose address names a stop that the tour of its run has not stands outside of it. */
export function checkStop(view) {
  const { run, stop, problems } = view;
  if (stop === null || listStops(run)[stop]) return view;
  return { ...view, stop: null, problems: [...problems, `step of a tour “${stop + 1}”`] };
}

/** Arrows go back and on while the focus is in the tour; Escape leaves it. */
export function listenToTour(state) {
  byId("tour").addEventListener("keydown", (event) => {
    const stops = listStops(state.view.run);
    const to = { ArrowRight: state.view.stop + 1, ArrowLeft: state.view.stop - 1 }[event.key];
    if (event.key === "Escape") leave(state);
    if (to === undefined || !stops[to]) return;
    event.preventDefault();
    goTo(state, to);
  });
}
