// Weights as weight_bytes.py packed them. Of each seed and parameter there is a block of rows, one
// for each snapshot, or a single one where training changes nothing: whole numbers, rows after the
// first as differences, all lowest bytes first. A whole number q stands for low + q step, or, with
// 32 bits, for the float that has these bits.

const FLOAT_BITS = 32;

function countElements(shape) {
  return shape.reduce((product, n) => product * n, 1);
}

async function inflate(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The whole numbers of a block, row after row. */
function readIntegers(bytes, start, nRows, size, bits) {
  const count = nRows * size;
  const numbers = new Uint32Array(count);
  for (let place = 0; 8 * place < bits; place++) {
    const plane = start + place * count;
    for (let i = 0; i < count; i++) numbers[i] |= bytes[plane + i] << (8 * place);
  }
  for (let i = size; i < count; i++) numbers[i] += numbers[i - size]; // modulo 2^32
  if (bits < FLOAT_BITS) for (let i = 0; i < count; i++) numbers[i] %= 2 ** bits;
  return numbers;
}

function toFloats(numbers, [low, step], bits) {
  if (bits === FLOAT_BITS) return new Float32Array(numbers.buffer);
  return Float32Array.from(numbers, (q) => low + q * step);
}

/** Every seed's blocks in the order of `run.opened`: {name: {shape, size, nRows, data}}. */
export async function unpackWeights(run) {
  const { bits, constant, scales, data } = run.weights;
  const bytes = await inflate(data);
  let start = 0;
  let block = 0;
  return run.opened.map((_, row) => {
    const snapshots = row < run.carried.length ? run.steps.length : 1;
    return Object.fromEntries(run.parameters.map(([name, shape]) => {
      const nRows = constant.includes(name) ? 1 : snapshots;
      const size = countElements(shape);
      const numbers = readIntegers(bytes, start, nRows, size, bits);
      start += nRows * size * Math.ceil(bits / 8);
      return [name, { shape, size, nRows, data: toFloats(numbers, scales[block++], bits) }];
    }));
  });
}
