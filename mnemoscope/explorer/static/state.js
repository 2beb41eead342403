// The one state of the page, handed to everything that draws or listens. Controls change the view,
// the view becomes the address, and everything is computed and drawn anew.

import { buildEdits } from "ablation.js";
import { outlineOf, writeAddress } from "address.js";
import { loadModel, worldOf } from "data.js";
import { forward } from "forward.js";
import { listParts } from "parts.js";
import { createAdapter } from "tasks.js";

/** The state at the start, still without a view; `render` draws the page from it. */
export function createState(runs, render) {
  return {
    runs, // all that this file carries
    view: null, // what is looked at, as in address.js
    model: null, // of the view's run, seed and snapshot; {config, params}
    task: null, // the adapter of its task, as in tasks.js
    edits: null, // what is ablated and forced, as `forward` takes it
    trace: null, // every value of the forward pass
    before: null, // the same with nothing ablated or forced; null where nothing is
    inputError: "", // what is wrong with the typed prompt
    beside: null, // what the second model computes; null where there is none
    drawCount: 0, // random prompts so far
    timer: null, // while training is played
    unfolded: new Set(), // names of matrices that are shown whole
    walk: { key: "", steps: [] }, // the steps of the walk, and what their tables were built for
    explained: null, // the cell whose arithmetic is open: {run, step, line, i, j}
    session: null, // the training in the page, as in train_session.js
    trainedRuns: 0, // runs that came of it so far
    trainError: "", // what is wrong with the numbers that it was given
    render,
  };
}

/** What a view shows: its model, its task, its edits, the forward pass with them and without. */
export function computeView(view) {
  const model = loadModel(view.run, view.seed, view.at);
  const task = createAdapter(view.run, worldOf(view.run, view.seed));
  const edits = buildEdits(model, view);
  const trace = forward(model, view.tokens, edits);
  const isEdited = Object.keys({ ...view.off, ...view.force }).length > 0;
  const before = isEdited ? forward(model, view.tokens) : null;
  return { view, model, task, edits, trace, before };
}

/** The snapshot of another run or seed that has trained as long, or last before that. */
function sameSnapshot({ run, at }, { run: other, seed }) {
  const last = other.steps.length - 1;
  if (!other.carried.includes(seed)) return last;
  return Math.max(0, other.steps.findLastIndex((step) => step <= run.steps[at]));
}

/** Edits of the parts that a run has too. */
function keepKnown(parts, run) {
  const known = listParts(outlineOf(run));
  return Object.fromEntries(Object.entries(parts).filter(([part]) => known.includes(part)));
}

/** The second model, asked the same with the same parts knocked out; null where there is none. */
function computeBeside(view) {
  const { beside } = view;
  if (!beside) return null;
  return computeView({
    ...view,
    ...beside,
    at: sameSnapshot(view, beside),
    off: keepKnown(view.off, beside.run),
    force: keepKnown(view.force, beside.run),
  });
}

/** Compute what the view shows, and draw it. */
export function refresh(state) {
  Object.assign(state, computeView(state.view), { beside: computeBeside(state.view) });
  state.render(state);
}

/** Put the view into the address, so that it can be copied. */
export function keepAddress(state) {
  // in a notebook's frame the page has no address of its own
  if (location.protocol === "about:") return;
  history.replaceState(null, "", writeAddress(state.view));
}

/** Change the view; the address and the page follow. */
export function changeView(state, change) {
  const view = { ...state.view, problems: [], ...change };
  const isItself = view.beside?.run === view.run && view.beside?.seed === view.seed;
  state.view = isItself ? { ...view, beside: null } : view;
  keepAddress(state);
  refresh(state);
}
