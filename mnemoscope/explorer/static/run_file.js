// A run that was trained in the page as a file that `mnemoscope import` takes: the arrays of a
// stored run in the safetensors format, with the Spec in the header (exchange/run_files.py).
//
//   snapshots/<parameter>  (seed, snapshot, ...)      losses      (seed, stop)
//   loss_steps             (stop,)                    good_steps  (seed,)

import { nameParts } from "network.js";

const ALIGNED = 8; // bytes: the data begins at a multiple of it

function joinFloats(parts) {
  const joined = new Float32Array(parts.reduce((total, part) => total + part.length, 0));
  let start = 0;
  for (const part of parts) {
    joined.set(part, start);
    start += part.length;
  }
  return joined;
}

/** All arrays as [name, dtype, shape, data]. */
function listArrays({ setup, seeds, snapshots }) {
  const nSeeds = seeds.length;
  const vectors = seeds.flatMap((each) => each.snapshots.map(({ vector }) => vector));
  const byName = vectors.map((vector) => nameParts(setup.parameters, vector));
  const stops = seeds[0].losses.map(([step]) => step);
  const losses = seeds.flatMap((each) => each.losses.map(([, loss]) => loss));
  const finite = seeds.map((each) => each.finite);
  return [
    ["good_steps", "I32", [nSeeds], Int32Array.from(finite)],
    ["loss_steps", "I32", [stops.length], Int32Array.from(stops)],
    ["losses", "F32", [nSeeds, stops.length], Float32Array.from(losses)],
    ...setup.parameters.map(([name, shape]) => [
      `snapshots/${name}`,
      "F32",
      [nSeeds, snapshots.length, ...shape],
      joinFloats(byName.map((parts) => parts[name])),
    ]),
  ];
}

/** The file of a training that came to its end, as parts of a Blob. */
export function buildRunFile(session) {
  const arrays = listArrays(session);
  const header = {
    __metadata__: {
      format: "mnemoscope run",
      spec: JSON.stringify(session.setup.spec),
      seeds: JSON.stringify(session.seeds.map(({ seed }) => seed)),
    },
  };
  let start = 0;
  for (const [name, dtype, shape, data] of arrays) {
    header[name] = { dtype, shape, data_offsets: [start, start + data.byteLength] };
    start += data.byteLength;
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const padding = new Uint8Array((ALIGNED - (text.length % ALIGNED)) % ALIGNED).fill(0x20);
  const length = new BigUint64Array([BigInt(text.length + padding.length)]);
  return [length, text, padding, ...arrays.map(([, , , data]) => data)];
}
