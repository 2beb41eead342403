// The data that the page carries: runs with their weights, as pack.py packed them.

import { unpackWeights } from "weights.js";

const KEPT_MODELS = 32;

const blocksOfRun = new Map(); // the weights of every seed that can be opened
const models = new Map(); // the last ones that were asked for

/** The runs in this file, their weights unpacked. */
export async function readRuns() {
  const { runs } = JSON.parse(document.getElementById("data").textContent);
  await Promise.all(runs.map(async (run) => blocksOfRun.set(run.id, await unpackWeights(run))));
  return runs;
}

function buildModel(run, seed, at) {
  const blocks = blocksOfRun.get(run.id)[run.opened.indexOf(seed)];
  const params = Object.fromEntries(Object.entries(blocks).map(([name, block]) => {
    const { shape, size, nRows, data } = block;
    const start = size * (nRows > 1 ? at : 0); // an end alone, or never changed: one row
    return [name, { shape, data: data.subarray(start, start + size) }];
  }));
  return { config: run.config, params };
}

/** The model of one seed at one snapshot: {config, params}. */
export function loadModel(run, seed, at) {
  const key = `${run.id} ${seed} ${at}`;
  if (!models.has(key)) {
    const oldest = models.keys().next().value;
    if (models.size >= KEPT_MODELS) models.delete(oldest);
    // one that was trained in the page brings its own
    models.set(key, run.loadModel ? run.loadModel(seed, at) : buildModel(run, seed, at));
  }
  return models.get(key);
}

/** What a seed's task drew before training, such as which mappings are held out. */
export function worldOf(run, seed) {
  return run.worlds[run.opened.indexOf(seed)];
}
