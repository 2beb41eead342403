// JAX's random numbers (threefry2x32, as core/numerics.py fixes them), so that a seed draws the
// same world, the same start and the same batches here as in Python.
//
// A key is two whole numbers of 32 bits in a Uint32Array. Whatever is drawn from it is hashes of
// the numbers 0, 1, 2, ... under the key.

const ROUNDS = [[13, 15, 26, 6], [17, 29, 16, 24]];
const PARITY = 0x1bd11bda;
const MIXED = 5; // groups of four rounds, each followed by a part of the key

const schedule = new Uint32Array(3);

/** The hash of two words under a key, into the first two entries of `out`. */
export function hashWords(key, first, second, out) {
  schedule[0] = key[0];
  schedule[1] = key[1];
  schedule[2] = key[0] ^ key[1] ^ PARITY;
  let a = (first + schedule[0]) | 0;
  let b = (second + schedule[1]) | 0;
  for (let group = 0; group < MIXED; group++) {
    const turns = ROUNDS[group % 2];
    for (let i = 0; i < 4; i++) {
      const turn = turns[i];
      a = (a + b) | 0;
      b = ((b << turn) | (b >>> (32 - turn))) ^ a;
    }
    a = (a + schedule[(group + 1) % 3]) | 0;
    b = (b + schedule[(group + 2) % 3] + group + 1) | 0;
  }
  out[0] = a;
  out[1] = b;
}

const drawn = new Uint32Array(2);

/** The key of a seed. */
export function seedKey(seed) {
  return Uint32Array.of(0, seed);
}

/** The key that a number makes of a key, into `out`. */
export function foldIn(key, number, out) {
  hashWords(key, 0, number, out);
  return out;
}

/** Key `index` of those that a key is split into, into `out`; how many there are changes none. */
export function splitKey(key, index, out) {
  hashWords(key, 0, index, out);
  return out;
}

/** 32 random bits, the ones at a place of an array of them. */
export function bitsAt(key, index) {
  hashWords(key, 0, index, drawn);
  return (drawn[0] ^ drawn[1]) >>> 0;
}

/** A number from [0, 1) with 23 bits. */
function unitAt(key, index) {
  return (bitsAt(key, index) >>> 9) / 2 ** 23;
}

/** A number from [-1, 1). */
export function uniformAt(key, index) {
  return 2 * unitAt(key, index) - 1;
}

// Giles, "Approximating the erfinv function" (2010), in single precision
const CENTRAL = [
  2.81022636e-8, 3.43273939e-7, -3.5233877e-6, -4.39150654e-6, 2.1858087e-4, -1.25372503e-3,
  -4.17768164e-3, 0.246640727, 1.50140941,
];
const TAIL = [
  -2.00214257e-4, 1.00950558e-4, 1.34934322e-3, -3.67342844e-3, 5.73950773e-3, -7.6224613e-3,
  9.43887047e-3, 1.00167406, 2.83297682,
];
const BORDER = 5;

/** The inverse of the error function. */
function inverseErf(x) {
  const w = -Math.log1p(-Math.fround(x * x)); // rounded, as in Python: near 1 it counts
  const isCentral = w < BORDER;
  const at = isCentral ? w - 2.5 : Math.sqrt(w) - 3;
  const coefficients = isCentral ? CENTRAL : TAIL;
  return x * coefficients.reduce((total, each) => total * at + each, 0);
}

const ABOVE_MINUS_ONE = -1 + 2 ** -24;

/** A number from a normal distribution. */
export function normalAt(key, index) {
  const uniform = Math.fround(2 * unitAt(key, index) + ABOVE_MINUS_ONE);
  return Math.SQRT2 * inverseErf(Math.max(uniform, ABOVE_MINUS_ONE));
}

const sides = [new Uint32Array(2), new Uint32Array(2)];

/** A whole number from 0 to n - 1, for n up to 2^16. */
export function integerFrom(key, n) {
  const [forHigh, forLow] = sides;
  const high = bitsAt(splitKey(key, 0, forHigh), 0) % n;
  const low = bitsAt(splitKey(key, 1, forLow), 0) % n;
  const shift = 2 ** 32 % n;
  return (high * shift + low) % n;
}

/** The numbers 0 to n - 1 in random order. */
export function shuffledOrder(key, n) {
  const rounds = Math.ceil(3 * Math.log(Math.max(1, n)) / Math.log(2 ** 32 - 1));
  let order = Array.from({ length: n }, (_, i) => i);
  let left = key;
  for (let round = 0; round < rounds; round++) {
    const forRound = splitKey(left, 1, new Uint32Array(2));
    left = splitKey(left, 0, new Uint32Array(2));
    const places = order.map((_, i) => i);
    const weights = places.map((i) => bitsAt(forRound, i));
    places.sort((i, j) => weights[i] - weights[j]); // stable, as JAX's is
    order = places.map((i) => order[i]);
  }
  return order;
}
