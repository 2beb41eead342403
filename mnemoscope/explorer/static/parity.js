// Parity: the page computes what Python answered when the run was packed, and shows the difference.

import { buildEdits } from "ablation.js";
import { loadModel } from "data.js";
import { byId, h, put } from "dom.js";
import { forward } from "forward.js";
import { createTrainer } from "trainer.js";

const TOLERANCE = 1e-4; // of a probability
const LOSS_TOLERANCE = 1e-3; // in nats: a stored training may have multiplied in TF32
const STRETCHES = 2; // of a stored training that are repeated: the second comes after a step
const REPEATED = 64; // steps that they may have

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

/** How far the losses of a training's first steps are from those of the one that is stored. */
function differencesOfTraining({ training, ...run }) {
  if (training.why_not) return [];
  const stops = run.loss_steps.slice(0, STRETCHES).filter((stop) => stop <= REPEATED);
  const trainer = createTrainer(run, run.opened[0]);
  let step = 0;
  return stops.map((stop, i) => {
    const begun = step;
    let total = 0;
    for (; step < stop; step++) total += trainer.advance();
    return Math.abs(total / (stop - begun) - run.losses[0][i]);
  });
}

/** The largest difference; what is no number is as far as can be. */
function findWorst(differences) {
  const found = Math.max(0, ...differences);
  return Number.isNaN(found) ? Infinity : found;
}

/** The badge at the top of the page. */
export function renderParity({ runs }) {
  const differences = runs.flatMap((run) =>
    run.golden.map((golden) => differenceFrom(run, golden)));
  const ofTraining = runs.map(differencesOfTraining).filter((each) => each.length);
  const worst = findWorst(differences);
  const worstLoss = findWorst(ofTraining.flat());
  const isGood = worst <= TOLERANCE && worstLoss <= LOSS_TOLERANCE;
  const attributes = {
    class: isGood ? "badge good" : "badge bad",
    "data-worst": worst,
    "data-worst-loss": worstLoss,
    role: "status",
  };
  const far = worst.toExponential(1);
  const answers = `at most ${far} from Python on ${differences.length} prompts`;
  const steps = ofTraining.length
    ? `, ${worstLoss.toExponential(1)} in the first steps of ${ofTraining.length} trainings` : "";
  const message = `computed here; ${answers}${steps}`;
  put(byId("badge"), h("span", attributes, isGood ? "✓ " : "✗ ", message));
}
