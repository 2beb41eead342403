// The answers: the last one where it is always in view, with a sentence on it, and below the bars
// of every position that the task asks at.

import { drawBars, sayBest } from "bars.js";
import { byId, h, put } from "dom.js";
import { namePart } from "parts.js";
import { shortenPrompt } from "tokens.js";

const MAX_ANSWERS = 24;

const capitalize = (text) => text[0].toUpperCase() + text.slice(1);

function drawAnswer({ view, trace, before, task }, at, whose = "") {
  const { run, tokens } = view;
  const isAsked = task.queries(tokens).includes(at);
  return drawBars(
    `${whose}after ${at} “${run.token_names[tokens[at]]}”`,
    run.token_names,
    trace.probabilities[at],
    isAsked ? task.oracles(tokens, at) : [],
    isAsked ? task.marks(tokens, at) : { used: [], recall: null },
    before?.probabilities[at],
  );
}

function renderKey({ view, before, task }, queries) {
  const oracles = queries.length ? task.oracles(view.tokens, queries[0]) : [];
  const marks = oracles.map(([name], index) =>
    h("span", {}, index === 0 ? " ┃ exact, " : " ▼ exact, ", name, "."));
  const zero = oracles.length ? " No mark: zero." : null;
  const ghost = before ? " Dashed: before the knock-out." : null;
  const { causal: isCausal } = view.run.config;
  const whole = isCausal ? null : " This model sees the whole prompt, later tokens too.";
  put(byId("key"), "Bars: the model.", ghost, marks, zero, ` ${task.legend}`, whole);
}

export function renderAnswers(state) {
  const { tokens } = state.view;
  const { beside } = state;
  const queries = state.task.queries(tokens).slice(-MAX_ANSWERS);
  const last = tokens.length - 1;
  put(byId("answer"), beside
    ? [drawAnswer(state, last, `${nameModel(state.view, beside.view)}, `),
      drawAnswer(beside, last, `${nameModel(beside.view, state.view)}, `)]
    : drawAnswer(state, last));
  put(byId("answers"), queries.map((at) => drawAnswer(state, at)));
  renderKey(state, queries);
}

/** What tells a model from another: its seed, or its run where that is another. */
export function nameModel({ run, seed }, other) {
  return run === other.run ? `seed ${seed}` : `${run.name}, seed ${seed}`;
}

/** What was done to the model, in words: "head 1 knocked out". */
export function describeEdits({ view, model }) {
  const done = Object.entries(view.off).map(([part, how]) =>
    `${namePart(model, part)} ${how === "mean" ? "at its mean" : "knocked out"}`);
  const forced = Object.keys(view.force).map((part) =>
    `attention of ${namePart(model, part)} forced`);
  return [...done, ...forced].join(", ");
}

export function renderSummary(state) {
  const { view, trace, before } = state;
  const names = view.run.token_names;
  const prompt = shortenPrompt(view.run, view.tokens);
  const now = sayBest(names, trace.probabilities.at(-1));
  const was = before && sayBest(names, before.probabilities.at(-1));
  const other = state.beside && ` ${capitalize(nameModel(state.beside.view, view))}: ${
    sayBest(names, state.beside.trace.probabilities.at(-1))}.`;
  const own = before
    ? `After ${prompt}: was ${was}, now ${now}, with ${describeEdits(state)}.`
    : `After ${prompt} the model says ${now}.`;
  byId("summary").textContent = own + (other ?? "");
}

/** What may be answered and why, such as recall and elimination. */
export function renderReadings({ view, task }) {
  const { tokens, run } = view;
  const found = task.readings(tokens, tokens.length - 1);
  const said = found.map(([name, token]) => `${name} says ${run.token_names[token]}`);
  byId("readings").textContent = said.length ? `Here ${said.join(", ")}.` : "";
}
