// Adam as training/optimizers.py has it: the mean gradient over the root of the mean square, the
// schedule of the rate, warming up, decay, and the shortening of long gradients.

/** The share of the rate at each step, by the name of a schedule (training/schedules.py). */
const SCHEDULES = {
  constant: () => 1,
  linear: ({ end = 0 }, behind) => between(1 - behind, end),
  cosine: ({ end = 0 }, behind) => between(0.5 * (1 + Math.cos(Math.PI * behind)), end),
  "warmup-stable-decay": ({ decay = 0.2, end = 0 }, behind) =>
    between(Math.min(1, (1 - behind) / decay), end),
};

/** From 1 to `end`, as a share goes from 1 to 0. */
const between = (share, end) => share + (1 - share) * end;

/** The learning rate at a step, counted from 0, of a training of so many. */
export function rateAt({ lr, schedule = "constant", warmup = 0 }, step, steps) {
  const fields = typeof schedule === "string" ? { kind: schedule } : schedule;
  const share = SCHEDULES[fields.kind](fields, Math.min(step / steps, 1));
  return lr * share * (warmup ? Math.min(step / warmup, 1) : 1);
}

/** By how much a gradient is shortened. */
function shorten(gradient, clip) {
  let square = 0;
  for (let i = 0; i < gradient.length; i++) square += gradient[i] ** 2;
  const length = Math.sqrt(square);
  return length > clip ? clip / length : 1;
}

/**
 * What moves one vector of parameters: `update(vector, gradient)` is a step.
 *
 * `optimizer` has the fields of a Spec's; `steps` is how many the training has.
 */
export function createAdam(optimizer, size, steps) {
  const { b1, b2, eps, weight_decay: decay = 0, clip = null } = optimizer;
  const mean = new Float32Array(size);
  const square = new Float32Array(size);
  let step = 0;

  function update(vector, gradient) {
    const rate = rateAt(optimizer, step, steps);
    const share = clip === null || clip === undefined ? 1 : shorten(gradient, clip);
    step += 1;
    // in single precision, as in Python: 1 - b2^t is small at first, and its digits count
    const missingFirst = 1 - Math.fround(Math.fround(b1) ** step);
    const missingSecond = 1 - Math.fround(Math.fround(b2) ** step);
    for (let i = 0; i < size; i++) {
      const g = gradient[i] * share;
      const m = (1 - b1) * g + b1 * mean[i];
      const v = (1 - b2) * g * g + b2 * square[i];
      mean[i] = m;
      square[i] = v;
      const direction = m / missingFirst / (Math.sqrt(v / missingSecond) + eps);
      vector[i] -= rate * (direction + decay * vector[i]);
    }
  }

  return { update };
}
