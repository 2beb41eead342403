// What was trained in the page as a run like those that the file carries, so that every other tool
// of the page opens it. Of a training that was stopped it has what all of its seeds came to.

import { nameParts } from "network.js";
import { drawWorld } from "trainer.js";

const lastOf = (values) => values.at(-1) ?? null;
const finiteOrNull = (value) => (Number.isFinite(value) ? value : null);

/** Snapshots that every seed has. */
function countShared({ seeds }) {
  return Math.min(...seeds.map(({ snapshots }) => snapshots.length));
}

function isWhole({ finite, step }) {
  return finite === step;
}

function buildLoader(setup, seeds) {
  return (seed, at) => {
    const { vector } = seeds.find((each) => each.seed === seed).snapshots[at];
    const data = nameParts(setup.parameters, vector);
    const params = setup.parameters.map(([name, shape]) => [name, { shape, data: data[name] }]);
    return { config: setup.config, params: Object.fromEntries(params) };
  };
}

/** Skills by name: one value for each seed at the end, and each whole seed's curve. */
function collectSkills(seeds, whole, count) {
  const names = Object.keys(seeds[0].snapshots[0].skills);
  const skillAt = (name) => ({ skills }) => skills[name];
  const endOf = (each, name) => (isWhole(each) ? each.snapshots[count - 1].skills[name] : null);
  const outcomes = names.map((name) => [name, seeds.map((each) => endOf(each, name))]);
  const curves = names.map((name) => [name, whole.map(({ snapshots }) =>
    snapshots.slice(0, count).map(skillAt(name)))]);
  return { outcomes: Object.fromEntries(outcomes), curves: Object.fromEntries(curves) };
}

/** Stops up to the last snapshot that all seeds share. */
function collectLosses(seeds, last) {
  const steps = seeds[0].losses.map(([step]) => step).filter((step) => step <= last);
  return { steps, losses: seeds.map(({ losses }) =>
    losses.slice(0, steps.length).map(([, loss]) => finiteOrNull(loss))) };
}

/** Whether there is anything to open: a seed with a finite loss, and weights after a step. */
export function canBeOpened(session) {
  return countShared(session) > 1 && session.seeds.some(isWhole);
}

/** The run; `number` tells it from others that were trained in this page. */
export function buildTrainedRun(session, number) {
  const { setup, seeds, snapshots } = session;
  const count = countShared(session);
  const steps = snapshots.slice(0, count);
  const whole = seeds.filter(isWhole);
  const { outcomes, curves } = collectSkills(seeds, whole, count);
  const ends = collectLosses(seeds, lastOf(steps));
  const opened = whole.map(({ seed }) => seed);
  const { lr } = setup.spec.optimizer;
  const planned = setup.spec.steps.toLocaleString("en");
  const isCut = lastOf(steps) < setup.spec.steps;
  const cut = isCut ? ` Stopped at step ${lastOf(steps).toLocaleString("en")}.` : "";
  return {
    ...setup,
    id: `trained-here-${number}`,
    name: `trained here ${number}: ${setup.name}`,
    about: `Trained in this page: ${planned} steps at rate ${lr}.${cut} ${setup.about}`,
    steps,
    seeds: seeds.map(({ seed }) => seed),
    carried: opened,
    opened,
    worlds: opened.map((seed) => drawWorld(setup.spec, seed)),
    outcomes: { ...outcomes, loss: ends.losses.map(lastOf) },
    loss_steps: ends.steps,
    losses: ends.losses.filter((_, i) => isWhole(seeds[i])),
    curves,
    golden: [],
    recipes: [],
    loadModel: buildLoader(setup, seeds),
  };
}
