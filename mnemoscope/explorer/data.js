// The data that the page carries: runs with their weights, as the Python side packed them.

export const book = JSON.parse(document.getElementById("data").textContent);

const unpacked = new Map();

function floats(run) {
  if (!unpacked.has(run.id)) {
    const bytes = Uint8Array.from(atob(run.weights), (c) => c.charCodeAt(0));
    unpacked.set(run.id, new Float32Array(bytes.buffer)); // little-endian, as every browser's machine is
  }
  return unpacked.get(run.id);
}

const built = new Map();

/** The model of one seed at one snapshot: {config, params}; the last ones stay at hand. */
export function modelOf(run, seed, at) {
  const key = `${run.id} ${seed} ${at}`;
  if (!built.has(key)) {
    if (built.size >= 32) built.delete(built.keys().next().value);
    built.set(key, build(run, seed, at));
  }
  return built.get(key);
}

function build(run, seed, at) {
  const size = run.parameters.reduce((sum, [, shape]) => sum + shape.reduce((a, b) => a * b, 1), 0);
  const row = run.opened.indexOf(seed), whole = run.carried.length; // first those with every snapshot, then ends alone
  let from = (row < whole ? row * run.steps.length + at : whole * run.steps.length + row - whole) * size;
  const params = {}, data = floats(run);
  for (const [name, shape] of run.parameters) {
    const n = shape.reduce((a, b) => a * b, 1);
    params[name] = { shape, data: data.subarray(from, from + n) };
    from += n;
  }
  return { config: run.spec.model, params };
}

export const worldOf = (run, seed) => run.worlds[run.opened.indexOf(seed)];
