// Functions to be composed, half of them hidden in the world and half shown; as tasks.js has it. The
// Python half is hops_adapter.py.

import { createPlain } from "plain_task.js";
import { randomOrder } from "random.js";

/** Where a number of hops leads from a position: value b of function a, on and on. */
function follow(hidden, context, { a, b }, hops) {
  const k = hidden.length;
  let value = b;
  for (let hop = 0; hop < hops; hop++) {
    const index = (a + hop) % k;
    value = context[index][hidden[index][value]];
  }
  return value;
}

export function createHops(run, world) {
  const { n, k } = run.spec.task;
  const cut = (tokens) => Array.from({ length: Math.ceil(tokens.length / n) }, (_, a) =>
    tokens.slice(a * n, a * n + n));
  const isWhole = (tokens) => tokens.length === n * k
    && cut(tokens).every((row) => new Set(row).size === n);
  const place = (at) => ({ a: Math.floor(at / n), b: at % n });
  const answer = (tokens, at) => follow(world.hidden, cut(tokens), place(at), k);

  return {
    ...createPlain(run, world),
    legend: `Read after the last layer: ${k} hops.`,
    groups(tokens) {
      const all = tokens.map((_, at) => at);
      return cut(all);
    },
    readings(tokens, at) {
      if (!isWhole(tokens)) return [];
      const { a, b } = place(at);
      const levels = Array.from({ length: Math.log2(k) + 1 }, (_, level) => 2 ** level);
      return levels.reverse().map((hops) => [
        `${hops} hop${hops === 1 ? "" : "s"}`,
        follow(world.hidden, cut(tokens), { a, b }, hops),
      ]);
    },
    warn(tokens) {
      if (isWhole(tokens)) return "";
      return `A sequence is ${k} permutations of ${run.token_names.join(" ")}, all of them shown: `
        + "no training showed anything else.";
    },
    oracles(tokens, at) {
      if (!isWhole(tokens)) return [];
      const right = answer(tokens, at);
      return [[`${k} hops`, run.token_names.map((_, token) => Number(token === right))]];
    },
    draw: (random) => Array.from({ length: k }, () => randomOrder(n, random)).flat(),
  };
}
