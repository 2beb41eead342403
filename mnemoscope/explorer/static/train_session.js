// A training in the page: its seeds side by side in workers, started, held and stopped.
//
// A session has
//   setup      what is trained: a run or a recipe, with the spec as the visitor wants it
//   snapshots  steps after which weights are kept
//   seeds      [{seed, step, finite, losses, snapshots}], as train_worker.js tells of them
//   status     "running", "paused", "stopped", "done" or "failed"
//   failure    what went wrong, or ""
//   spent      milliseconds of training so far, without those of pauses

import { listSnapshots, listStops } from "train_stops.js";
import { joinModules, readCarried } from "worker_text.js";

const MAX_WORKERS = 4;

/** How many seeds are trained at once. */
export function countWorkers(nSeeds) {
  return Math.max(1, Math.min(MAX_WORKERS, navigator.hardwareConcurrency || 2, nSeeds));
}

function createWorker() {
  const text = joinModules("train_worker.js", readCarried);
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  const worker = new Worker(address);
  URL.revokeObjectURL(address);
  return worker;
}

/** Start training; `onChange(session)` is called whenever there is something new. */
export function startSession(setup, seeds, onChange) {
  const { steps, snapshots: count } = setup.spec;
  const snapshots = listSnapshots(steps, count);
  const session = {
    setup,
    snapshots,
    seeds: seeds.map((seed) =>
      ({ seed, step: 0, finite: 0, losses: [], snapshots: [], isBusy: true })),
    status: "running",
    failure: "",
    spent: 0,
    since: performance.now(),
    workers: [],
    onChange,
  };
  session.workers = Array.from({ length: countWorkers(seeds.length) }, () => employ(session));
  const message = { snapshots, stops: listStops(steps, snapshots) };
  session.seeds.forEach(({ seed }, i) =>
    workerOf(session, i).postMessage({ start: setup, seed, ...message }));
  return session;
}

const workerOf = ({ workers }, index) => workers[index % workers.length];

function employ(session) {
  const worker = createWorker();
  worker.onmessage = ({ data }) => hear(session, data);
  worker.onerror = (event) => {
    event.preventDefault();
    session.failure = event.message || "the browser allows no worker here";
    end(session, "failed");
  };
  return worker;
}

function isEnded({ seeds, setup }) {
  return seeds.every(({ step }) => step >= setup.spec.steps);
}

function hear(session, { seed, step, finite, losses, snapshots }) {
  const each = session.seeds.find((known) => known.seed === seed);
  each.losses.push(...losses);
  each.snapshots.push(...snapshots);
  Object.assign(each, { step, finite, isBusy: false });
  if (isEnded(session)) end(session, "done");
  else if (session.status === "running") askForMore(session);
  session.onChange(session);
}

/** Each worker that waits goes on with the one of its seeds that is behind. */
function askForMore(session) {
  session.workers.forEach((worker) => {
    const own = session.seeds.filter((_, i) => workerOf(session, i) === worker);
    if (own.some(({ isBusy }) => isBusy)) return;
    const left = own.filter(({ step }) => step < session.setup.spec.steps);
    if (!left.length) return;
    const behind = left.reduce((a, b) => (b.step < a.step ? b : a));
    behind.isBusy = true;
    worker.postMessage({ advance: behind.seed });
  });
}

function stopClock(session) {
  if (session.status === "running") session.spent += performance.now() - session.since;
}

function end(session, status) {
  stopClock(session);
  session.workers.forEach((worker) => worker.terminate());
  session.status = status;
  session.onChange(session);
}

export function isOn({ status }) {
  return status === "running" || status === "paused";
}

/** Milliseconds of training so far. */
export function timeSpent(session) {
  const now = session.status === "running" ? performance.now() - session.since : 0;
  return session.spent + now;
}

export function pause(session) {
  stopClock(session);
  session.status = "paused";
  session.onChange(session);
}

export function resume(session) {
  session.status = "running";
  session.since = performance.now();
  askForMore(session);
  session.onChange(session);
}

/** End it before its time; what was trained stays. */
export function stop(session) {
  end(session, "stopped");
}
