// The tasks that are trained in the page: their worlds and sequences, drawn as in Python.
//
// A task has
//   read                    positions whose loss counts
//   drawWorld(key)          what a seed's key hides
//   exportWorld(world)      the same as tasks.js reads it
//   drawSequence(world, key, tokens, targets, row)
//                           fills in row `row` of a batch: its tokens, and its targets at `read`
//   listExams(world)        what a model is asked: [{name, read, tokens, targets}], an accuracy for
//                           each name; arrays are flat, row after row

import { roundHalfEven } from "rounding.js";
import { bitsAt, integerFrom, seedKey, shuffledOrder } from "threefry.js";

/** All orders of the numbers 0 to n - 1, in lexicographic order. */
function listOrders(n) {
  if (n === 0) return [[]];
  return Array.from({ length: n }, (_, first) => first).flatMap((first) =>
    listOrders(n - 1).map((rest) => [first, ...rest.map((x) => (x >= first ? x + 1 : x))]));
}

/** Pairs x y of a hidden permutation (tasks/permutation.py). */
function createPermutation(spec) {
  const {
    n_symbols: n, repeat, repeat_of: repeatOf, held_out: share, split_seed: splitSeed,
    x_order: xOrder = "shuffled", loss = "answers",
  } = spec;
  const length = 2 * n - 1;
  const table = listOrders(n);
  const orders = xOrder === "fixed" ? table.slice(0, 1) : table;
  const nHeldOut = Math.min(Math.max(roundHalfEven(share * table.length), 1), table.length - 1);
  const everywhere = Array.from({ length }, (_, position) => position);
  const asked = everywhere.filter((position) => position % 2 === 0);
  const read = loss === "all" ? everywhere : asked;
  const borders = listBorders();

  /** Where the random bits of a source become those of the next one. */
  function listBorders() {
    const chance = Array.from({ length: n - 1 }, (_, source) => {
      if (repeatOf === "any") return repeat / (n - 1);
      return source === 0 ? repeat : 0;
    });
    let below = 0;
    return chance.map((each) => {
      below += each;
      return Math.fround(below * 2 ** 32);
    });
  }

  function drawWorld(key) {
    const order = shuffledOrder(splitSeed === null ? key : seedKey(splitSeed), table.length);
    const shuffled = order.map((i) => table[i]);
    return { train: shuffled.slice(nHeldOut), heldOut: shuffled.slice(0, nHeldOut) };
  }

  /** The token at a place of the sequence that a mapping and an order make. */
  function tokenAt(mapping, order, source, place) {
    const pair = place >> 1;
    const x = order[pair === n - 1 ? source : pair];
    return (place % 2 ? mapping[x] : x) + 1;
  }

  function fill(mapping, order, source, tokens, targets, row, places) {
    for (let t = 0; t < length; t++) {
      tokens[row * length + t] = tokenAt(mapping, order, source, t);
    }
    for (let i = 0; i < places.length; i++) {
      targets[row * places.length + i] = tokenAt(mapping, order, source, places[i] + 1);
    }
  }

  function drawSequence(world, key, tokens, targets, row) {
    const mapping = world.train[bitsAt(key, 0) % world.train.length];
    const order = orders[bitsAt(key, 1) % orders.length];
    const word = Math.fround(bitsAt(key, 2));
    let source = 0;
    for (let i = 0; i < n - 1; i++) if (word >= borders[i]) source += 1;
    fill(mapping, order, source, tokens, targets, row, read);
  }

  /** The last answer on every held-out sequence whose last pair is this one. */
  function listExam(name, world, source) {
    const last = [length - 1];
    const count = world.heldOut.length * orders.length;
    const tokens = new Int32Array(count * length);
    const targets = new Int32Array(count);
    world.heldOut.forEach((mapping, i) => orders.forEach((order, j) =>
      fill(mapping, order, source, tokens, targets, i * orders.length + j, last)));
    return { name, read: last, tokens, targets };
  }

  return {
    read,
    drawWorld,
    exportWorld: ({ train, heldOut }) => ({ train, held_out: heldOut }),
    drawSequence,
    listExams: (world) => [
      listExam("elimination", world, n - 1),
      listExam("recall", world, 0),
    ],
  };
}

/** A B C A B C ... from a random start (tasks/cycle.py). */
function createCycle({ n_symbols: n, length }) {
  const read = Array.from({ length }, (_, position) => position);

  function fill(start, tokens, targets, row) {
    for (let t = 0; t < length; t++) {
      tokens[row * length + t] = (start + t) % n;
      targets[row * length + t] = (start + t + 1) % n;
    }
  }

  function listExam() {
    const tokens = new Int32Array(n * length);
    const targets = new Int32Array(n * length);
    for (let start = 0; start < n; start++) fill(start, tokens, targets, start);
    return { name: "accuracy", read, tokens, targets };
  }

  return {
    read,
    drawWorld: () => null,
    exportWorld: () => null,
    drawSequence: (world, key, tokens, targets, row) =>
      fill(integerFrom(key, n), tokens, targets, row),
    listExams: () => [listExam()],
  };
}

const TASKS = new Map([["permutation", createPermutation], ["cycle", createCycle]]);

/** The task of a Spec. */
export function createTask(spec) {
  return TASKS.get(spec.kind)(spec);
}
