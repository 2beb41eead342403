// A worker that trains seeds, a stretch at a time. It is told
//
//   {start: setup, seed, snapshots, stops}   to get a seed ready
//   {advance: seed}                          to train it for a while
//
// and tells, after each, {seed, step, finite, losses, snapshots}: how many steps are behind, how
// many of them had a finite loss, the mean losses [stop, loss] and the snapshots
// {step, vector, skills} that came since it last told.

import { createTrainer } from "trainer.js";

const PATIENCE = 120; // milliseconds after which the page hears of it

const seeds = new Map();

function keepSnapshot(each) {
  const { trainer, step } = each;
  return { step, vector: trainer.vector.slice(), skills: trainer.measureSkills() };
}

function tell(seed, losses, snapshots) {
  const { step, finite } = seeds.get(seed);
  const buffers = snapshots.map(({ vector }) => vector.buffer);
  self.postMessage({ seed, step, finite, losses, snapshots }, buffers);
}

function begin({ start: setup, seed, snapshots, stops }) {
  const trainer = createTrainer(setup, seed);
  const counts = { step: 0, finite: 0, sum: 0, from: 0 };
  const each = { trainer, snapshots: new Set(snapshots), stops, ...counts };
  seeds.set(seed, each);
  tell(seed, [], [keepSnapshot(each)]);
}

function takeStep(each) {
  const loss = each.trainer.advance();
  each.step += 1;
  each.sum += loss;
  each.finite += Number.isFinite(loss) ? 1 : 0;
}

/** The mean loss since the last stop. */
function readLoss(each) {
  const loss = each.sum / (each.step - each.from);
  each.sum = 0;
  each.from = each.step;
  return [each.step, loss];
}

function goOn(seed) {
  const each = seeds.get(seed);
  const begun = performance.now();
  const losses = [];
  const snapshots = [];
  const last = each.stops.at(-1);
  let next = each.stops.findIndex((stop) => stop > each.step);
  while (each.step < last && performance.now() - begun < PATIENCE) {
    takeStep(each);
    if (each.step !== each.stops[next]) continue;
    next += 1;
    losses.push(readLoss(each));
    if (each.snapshots.has(each.step)) snapshots.push(keepSnapshot(each));
  }
  tell(seed, losses, snapshots);
}

self.onmessage = ({ data }) => {
  if (data.start) begin(data);
  else goOn(data.advance);
};
