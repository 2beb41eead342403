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

/** The model of one seed at one snapshot: {config, params}. */
export function modelOf(run, seed, at) {
  const size = run.parameters.reduce((sum, [, shape]) => sum + shape.reduce((a, b) => a * b, 1), 0);
  let from = (run.carried.indexOf(seed) * run.steps.length + at) * size;
  const params = {}, data = floats(run);
  for (const [name, shape] of run.parameters) {
    const n = shape.reduce((a, b) => a * b, 1);
    params[name] = { shape, data: data.subarray(from, from + n) };
    from += n;
  }
  return { config: run.spec.model, params };
}

export const worldOf = (run, seed) => run.worlds[run.carried.indexOf(seed)];
