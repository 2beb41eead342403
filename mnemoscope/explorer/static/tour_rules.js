// Where a tour stops in this run: the rules of its steps, worked out for the seeds and snapshots
// that the run has. A step whose rule no seed or snapshot meets is left out.
//
// A step of the data is {title, text, look, and any of prompt, seed, at, off, part}, as in
// tours.py; what it leaves out stays as it was in the step before. A stop is {step, view}.

import { totalVariation } from "differences.js";
import { isHead, listParts } from "parts.js";
import { computeView } from "state.js";

const stopsOfRun = new Map(); // worked out once, by the id of a run

const lastRow = (rows) => rows.at(-1);

/** The entry with the largest value; undefined among none. */
function largestBy(entries, valueOf) {
  const values = entries.map(valueOf);
  return entries[values.indexOf(Math.max(...values))];
}

/** A skill of a seed at the end of training. */
function skillAtEnd({ run }, name, seed) {
  return run.outcomes[name]?.[run.seeds.indexOf(seed)] ?? null;
}

/** What a seed answers at the end of training, with the same parts knocked out. */
function answerAtEnd(view, seed) {
  const { trace } = computeView({ ...view, seed, at: view.run.steps.length - 1 });
  return lastRow(trace.probabilities);
}

/** The seed that a rule picks, of those that can be scrubbed; `most_different` takes any other. */
function pickSeed(view, rule) {
  const { run, seed } = view;
  if (rule.most_different) {
    const others = run.opened.filter((each) => each !== seed);
    const own = answerAtEnd(view, seed);
    return largestBy(others, (each) => totalVariation(own, answerAtEnd(view, each)));
  }
  const name = rule.highest ?? rule.lowest;
  const sign = rule.highest === undefined ? -1 : 1;
  const measured = run.carried.filter((each) => skillAtEnd(view, name, each) !== null);
  return largestBy(measured, (each) => sign * skillAtEnd(view, name, each));
}

/** A skill of the view's seed over its snapshots; null where only its end is in the file. */
export function skillCurve({ run, seed }, name) {
  return run.curves[name]?.[run.carried.indexOf(seed)] ?? null;
}

/** The snapshot that a rule picks, or undefined. */
function pickSnapshot(view, rule) {
  const last = view.run.steps.length - 1;
  if (rule === "end") return last;
  if (!view.run.carried.includes(view.seed)) return undefined;
  if (rule === "start") return 0;
  const curve = skillCurve(view, rule.first ?? rule.largest);
  if (!curve) return undefined;
  if (rule.first !== undefined) {
    const found = curve.findIndex((value) => value >= rule.at_least);
    return found < 0 ? undefined : found;
  }
  const minus = rule.minus === "" ? curve.map(() => 0) : skillCurve(view, rule.minus);
  if (!minus) return undefined;
  const gains = curve.map((value, i) => value - minus[i]);
  return gains.indexOf(Math.max(...gains));
}

/** The parts that a rule knocks out, or undefined. */
function pickOff(view, rule) {
  if (rule === "nothing") return {};
  const { model, trace } = computeView({ ...view, off: {} });
  const parts = listParts(model);
  if (rule === "the head with the largest effect") {
    const own = lastRow(trace.probabilities);
    const effectOf = (part) => {
      const { trace: without } = computeView({ ...view, off: { [part]: "zero" } });
      return totalVariation(own, lastRow(without.probabilities));
    };
    const found = largestBy(parts.filter(isHead), effectOf);
    return found && { [found]: "zero" };
  }
  if (!rule.every((part) => parts.includes(part))) return undefined;
  return Object.fromEntries(rule.map((part) => [part, "zero"]));
}

/** The view of a step that follows a view, or null where a rule picks nothing. */
function follow(view, step) {
  const next = { ...view, tokens: step.prompt ?? view.tokens };
  const rules = [["seed", pickSeed], ["at", pickSnapshot], ["off", pickOff]];
  for (const [field, pick] of rules) {
    if (step[field] === undefined) continue;
    next[field] = pick(next, step[field]);
    if (next[field] === undefined) return null;
  }
  if (!next.run.carried.includes(next.seed)) next.at = next.run.steps.length - 1;
  return next;
}

function findStops(run) {
  let view = {
    run,
    seed: run.carried[0],
    at: run.steps.length - 1,
    tokens: run.presets[0].tokens,
    off: {},
    force: {},
  };
  const stops = [];
  for (const step of run.tour.steps) {
    const next = follow(view, step);
    if (!next) continue;
    view = next;
    stops.push({ step, view });
  }
  return stops;
}

/** The stops of a run's tour; none where it has no tour. */
export function listStops(run) {
  if (!run.tour) return [];
  if (!stopsOfRun.has(run.id)) stopsOfRun.set(run.id, findStops(run));
  return stopsOfRun.get(run.id);
}
