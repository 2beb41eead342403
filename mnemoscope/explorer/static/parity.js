// Parity: the page computes what Python answered when the run was packed, and shows the difference.

import { buildEdits } from "ablation.js";
import { loadModel } from "data.js";
import { byId, h, put } from "dom.js";
import { forward } from "forward.js";

const TOLERANCE = 1e-4; // of a probability

/** The largest difference of a probability from one of Python's answers. */
function differenceFrom(run, golden) {
  const { seed, at, tokens, off } = golden;
  const model = loadModel(run, seed, at);
  const edits = buildEdits(model, { run, tokens, off, force: {} });
  const { probabilities } = forward(model, tokens, edits);
  const differences = probabilities.flatMap((row, i) =>
    row.map((p, token) => Math.abs(p - golden.probabilities[i][token])));
  return Math.max(...differences);
}

/** The badge at the top of the page. */
export function renderParity({ runs }) {
  const differences = runs.flatMap((run) =>
    run.golden.map((golden) => differenceFrom(run, golden)));
  const found = Math.max(0, ...differences);
  const worst = Number.isNaN(found) ? Infinity : found;
  const isGood = worst <= TOLERANCE;
  const attributes = {
    class: isGood ? "badge good" : "badge bad",
    "data-worst": worst,
    role: "status",
  };
  const far = worst.toExponential(1);
  const message = `computed here; at most ${far} from Python on ${differences.length} prompts`;
  put(byId("badge"), h("span", attributes, isGood ? "✓ " : "✗ ", message));
}
