// The parameters of a seed before training, as mnemoscope/models/initialize.py draws them:
// embeddings N(0, 1), matrices and biases uniform in +-1/sqrt(fan in), norms at identity.

import { countNumbers, nameParts } from "network.js";
import { normalAt, splitKey, uniformAt } from "threefry.js";

const NORMAL = ["W_E", "W_pos"];

/** How many numbers a matrix sums up; a bias is drawn as the matrix it belongs to. */
function countInputs(config, last) {
  if (last === "W_O" || last === "b_O") return config.n_heads * config.d_head;
  if (last === "W_out" || last === "b_out") return config.d_mlp;
  return config.d_model;
}

/** All parameters as one vector, from the key of a seed's weights; they are [name, shape]. */
export function drawStart(config, parameters, key) {
  const forNormal = splitKey(key, 0, new Uint32Array(2));
  const forUniform = splitKey(key, 1, new Uint32Array(2));
  const vector = new Float32Array(countNumbers(parameters));
  let normals = 0;
  let uniforms = 0;
  for (const [name, part] of Object.entries(nameParts(parameters, vector))) {
    const last = name.split(".").at(-1);
    if (last === "w") part.fill(1);
    else if (NORMAL.includes(last)) {
      for (let i = 0; i < part.length; i++) part[i] = normalAt(forNormal, normals + i);
      normals += part.length;
    } else if (last !== "b") {
      const size = Math.fround(countInputs(config, last) ** -0.5);
      for (let i = 0; i < part.length; i++) part[i] = uniformAt(forUniform, uniforms + i) * size;
      uniforms += part.length;
    }
  }
  return vector;
}
