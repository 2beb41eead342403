// The answers: bars for every position that the task asks at, and one sentence on the last.

import { drawBars } from "bars.js";
import { byId, formatPercent, h, put } from "dom.js";
import { formatPrompt } from "tokens.js";

const MAX_ANSWERS = 24;

function renderBars({ view, trace, task }, queries) {
  const { run, tokens } = view;
  const names = run.token_names;
  put(byId("answers"), queries.map((at) => drawBars(
    `after ${at} “${names[tokens[at]]}”`,
    names,
    trace.probabilities[at],
    task.oracles(tokens, at),
    task.marks(tokens, at),
  )));
}

function renderKey({ view, task }, queries) {
  const oracles = queries.length ? task.oracles(view.tokens, queries[0]) : [];
  const marks = oracles.map(([name], index) =>
    h("span", {}, index === 0 ? " ┃ exact, " : " ▼ exact, ", name, "."));
  const zero = oracles.length ? " No mark: zero." : null;
  const { causal: isCausal } = view.run.config;
  const whole = isCausal ? null : " This model sees the whole prompt, later tokens too.";
  put(byId("key"), "Bars: the model.", marks, zero, ` ${task.legend}`, whole);
}

export function renderAnswers(state) {
  const queries = state.task.queries(state.view.tokens).slice(-MAX_ANSWERS);
  renderBars(state, queries);
  renderKey(state, queries);
}

export function renderSummary({ view, trace }) {
  const probabilities = trace.probabilities.at(-1);
  const best = Math.max(...probabilities);
  const answer = view.run.token_names[probabilities.indexOf(best)];
  const prompt = formatPrompt(view.run, view.tokens);
  const answered = `the model says ${answer} (${formatPercent(best)})`;
  byId("summary").textContent = `After ${prompt} ${answered}.`;
}
