// The training of one seed, as training/step.py has it: draw a batch, take the gradient of its
// loss, follow it. The batch of a step depends on seed and step alone.

import { createAdam } from "adam.js";
import { drawStart } from "draw_start.js";
import { countNumbers, createNetwork, nameParts } from "network.js";
import { foldIn, seedKey, splitKey } from "threefry.js";
import { createTask } from "train_tasks.js";

const EXAM_ROWS = 120; // sequences that are examined at once

/** The three keys of a seed: world, weights, data. */
function splitSeed(seed) {
  const key = seedKey(seed);
  return [0, 1, 2].map((index) => splitKey(key, index, new Uint32Array(2)));
}

/** The world of a seed as the page's adapters read it. */
export function drawWorld(spec, seed) {
  const task = createTask(spec.task);
  return task.exportWorld(task.drawWorld(splitSeed(seed)[0]));
}

/** Asks a model all the questions of an exam, a few at a time: the accuracy. */
function createExam(model, sizes, { name, read, tokens, targets }) {
  const { length } = sizes;
  const total = tokens.length / length;
  const batch = Math.min(EXAM_ROWS, total);
  const network = createNetwork(model, { ...sizes, batch }, read);
  const asked = new Int32Array(batch * length);

  function countRight(first, logits) {
    let right = 0;
    for (let i = 0; i < Math.min(batch, total - first) * read.length; i++) {
      let best = 0;
      for (let token = 1; token < sizes.tokens; token++) {
        if (logits[i * sizes.tokens + token] > logits[i * sizes.tokens + best]) best = token;
      }
      if (best === targets[first * read.length + i]) right += 1;
    }
    return right;
  }

  function measure() {
    let right = 0;
    for (let first = 0; first < total; first += batch) {
      asked.fill(0); // the last ones may be fewer
      asked.set(tokens.subarray(first * length, (first + batch) * length));
      right += countRight(first, network.forward(asked));
    }
    return right / (total * read.length);
  }

  return { name, measure };
}

/**
 * One seed's training; `setup` is a run or a recipe as Python packs it, whose `spec` says rate and
 * steps.
 */
export function createTrainer(setup, seed) {
  const { spec, config, parameters, n_ctx: length, token_names: { length: nTokens } } = setup;
  const [worldKey, weightsKey, dataKey] = splitSeed(seed);
  const task = createTask(spec.task);
  const world = task.drawWorld(worldKey);
  const vector = drawStart(config, parameters, weightsKey);
  const gradient = new Float32Array(countNumbers(parameters));
  const params = nameParts(parameters, vector);
  const model = { config, params, grads: nameParts(parameters, gradient) };
  const sizes = { batch: spec.batch, length, tokens: nTokens };
  const network = createNetwork(model, sizes, task.read);
  const adam = createAdam(spec.optimizer, vector.length, spec.steps);
  const tokens = new Int32Array(spec.batch * length);
  const targets = new Int32Array(spec.batch * task.read.length);
  const stepKey = new Uint32Array(2);
  const rowKey = new Uint32Array(2);
  let exams = null; // made when they are first asked for
  let step = 0;

  /** The batch of a step, into `tokens` and `targets`. */
  function drawBatch(at) {
    foldIn(dataKey, at, stepKey);
    for (let row = 0; row < spec.batch; row++) {
      splitKey(stepKey, row, rowKey);
      task.drawSequence(world, rowKey, tokens, targets, row);
    }
  }

  /** One step; the loss before it. */
  function advance() {
    drawBatch(step);
    gradient.fill(0);
    const loss = network.addGradient(tokens, targets);
    adam.update(vector, gradient);
    step += 1;
    return loss;
  }

  /** Accuracies by name. */
  function measureSkills() {
    exams ??= task.listExams(world).map((exam) => createExam(model, sizes, exam));
    return Object.fromEntries(exams.map(({ name, measure }) => [name, measure()]));
  }

  return { vector, gradient, tokens, targets, advance, measureSkills };
}
