// The data that the page carries: runs with their weights, as pack.py packed them.

const KEPT_MODELS = 32;

const weightsOfRun = new Map(); // decoded once
const models = new Map(); // the last ones that were asked for

/** The runs in this file. */
export function readRuns() {
  return JSON.parse(document.getElementById("data").textContent).runs;
}

function decodeWeights(run) {
  if (!weightsOfRun.has(run.id)) {
    const bytes = Uint8Array.from(atob(run.weights), (character) => character.charCodeAt(0));
    weightsOfRun.set(run.id, new Float32Array(bytes.buffer)); // little-endian, as every browser is
  }
  return weightsOfRun.get(run.id);
}

function countElements(shape) {
  return shape.reduce((product, n) => product * n, 1);
}

/** Which block of weights is this seed's: first seeds with every snapshot, then ends alone. */
function blockIndex(run, seed, at) {
  const row = run.opened.indexOf(seed);
  const carried = run.carried.length;
  if (row < carried) return row * run.steps.length + at;
  return carried * run.steps.length + row - carried;
}

function buildModel(run, seed, at) {
  const data = decodeWeights(run);
  const sizes = run.parameters.map(([, shape]) => countElements(shape));
  let start = blockIndex(run, seed, at) * sizes.reduce((total, size) => total + size, 0);
  const params = {};
  run.parameters.forEach(([name, shape], i) => {
    params[name] = { shape, data: data.subarray(start, start + sizes[i]) };
    start += sizes[i];
  });
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
