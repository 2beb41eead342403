// A training as it goes on: how far it is, and the loss and the skills of each seed.

import { drawCurves } from "curves.js";
import { h, s } from "dom.js";
import { isOn, timeSpent } from "train_session.js";

const SECOND = 1000;
const LOG_RANGE = 30; // a loss that falls by less has no power of ten to stand on
const STYLES = 8; // of curves, in train.css

export const STATUS = {
  running: "Training",
  paused: "Paused",
  stopped: "Stopped",
  done: "Trained",
  failed: "The training failed",
};

/** Steps of all seeds, from 0 to 1. */
function shareDone({ seeds, setup }) {
  const steps = seeds.reduce((total, { step }) => total + step, 0);
  return steps / (seeds.length * setup.spec.steps);
}

function sayProgress(session) {
  const { seeds, setup, status, failure } = session;
  const least = Math.min(...seeds.map(({ step }) => step)).toLocaleString("en");
  const all = setup.spec.steps.toLocaleString("en");
  const spent = timeSpent(session);
  const share = shareDone(session);
  const rest = Math.ceil(spent * (1 - share) / share / SECOND);
  const left = status === "running" && share > 0.02 ? `, about ${rest} s left` : "";
  const took = isOn(session) ? "" : ` after ${(spent / SECOND).toFixed(1)} s`;
  const why = failure ? `: ${failure}` : "";
  return `${STATUS[status]}${why}${took}: step ${least} of ${all}${left}.`;
}

const lossesOf = ({ losses }) => losses.map(([, loss]) => loss);

function drawLosses({ seeds, setup }) {
  const drawn = seeds.filter((each) => lossesOf(each).some(Number.isFinite));
  const all = drawn.flatMap(lossesOf).filter(Number.isFinite);
  const high = Math.max(setup.chance, ...all);
  const low = Math.min(...all.filter((loss) => loss > 0), high / 10);
  const log = high / low > LOG_RANGE;
  const axis = {
    low: log ? low : 0,
    high,
    log,
    cursor: null,
    last: setup.spec.steps,
    marks: listMarks(setup),
    hasLegend: false,
  };
  const lines = drawn.map(({ seed, losses }) => {
    const known = losses.filter(([, loss]) => Number.isFinite(loss));
    return [`seed ${seed}`, known.map(([step]) => step), known.map(([, loss]) => loss)];
  });
  return drawCurves("training loss, nats", lines, axis);
}

/** What a loss is compared with. */
export function listMarks({ chance, floor, token_names: names }) {
  const marks = [[`chance: ${names.length} answers alike`, chance]];
  return floor === null ? marks : [...marks, ["exact floor", floor]];
}

function drawSkill({ seeds, setup }, name) {
  const last = setup.spec.steps;
  const axis = { low: 0, high: 1, log: false, cursor: null, last, hasLegend: false };
  const lines = seeds.filter(({ snapshots }) => snapshots.length).map(({ seed, snapshots }) => [
    `seed ${seed}`,
    snapshots.map(({ step }) => step),
    snapshots.map(({ skills }) => skills[name]),
  ]);
  const title = name === "accuracy" ? name : `accuracy on held-out mappings: ${name}`;
  return drawCurves(title, lines, axis);
}

/** The line of a seed, as it is drawn in the curves. */
function drawKey(index) {
  const line = s("path", { d: "M0,6 H34", class: `curve c${index % STYLES}` });
  return s("svg", { width: 34, height: 12, viewBox: "0 0 34 12", "aria-hidden": "true" }, line);
}

function drawSeed({ seed, step, finite, losses, snapshots }, index, skills) {
  const loss = losses.at(-1)?.[1];
  const isLost = finite < step;
  const shown = (value) => (isLost ? "diverged" : value);
  return h("tr", {},
    h("th", { scope: "row" }, drawKey(index), ` seed ${seed}`),
    h("td", {}, step.toLocaleString("en")),
    h("td", { "data-loss": loss }, shown(loss === undefined ? "…" : loss.toPrecision(3))),
    skills.map((name) => {
      const skill = snapshots.at(-1)?.skills[name];
      const text = skill === undefined ? "…" : `${(100 * skill).toFixed(1)}%`;
      return h("td", { "data-skill": skill }, shown(text));
    }));
}

function drawTable({ seeds }, skills) {
  const names = ["seed", "step", "loss", ...skills];
  return h("div", { class: "scroll" }, h("table", { class: "trained" },
    h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, seeds.map((each, index) => drawSeed(each, index, skills)))));
}

/** Everything that moves while a session trains. */
export function drawProgress(session) {
  const first = session.seeds.find(({ snapshots }) => snapshots.length);
  const skills = Object.keys(first?.snapshots[0].skills ?? {});
  const hasLosses = session.seeds.some((each) => lossesOf(each).some(Number.isFinite));
  const { name, spec } = session.setup;
  return h("div", { class: "session", "data-status": session.status },
    h("p", { class: "trained-what" }, `${name}, rate ${spec.optimizer.lr}`),
    h("progress", { max: 1, value: shareDone(session), "aria-label": "how far the training is" }),
    h("p", { class: "note", id: "train-status" }, sayProgress(session)),
    h("div", { class: "flow train-curves" },
      hasLosses ? drawLosses(session) : null,
      skills.map((name) => drawSkill(session, name))),
    drawTable(session, skills));
}
