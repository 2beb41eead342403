// Functions that JavaScript's Math does not have.

const ALL_BUT_ONE = 6; // beyond it erf is 1 in doubles

/** The error function, to the last digits of a double. */
export function erf(x) {
  const size = Math.abs(x);
  if (size >= ALL_BUT_ONE) return Math.sign(x);
  // erf(x) = 2/√π e^{-x²} (x + 2x³/3 + 4x⁵/15 + ...): no term is negative, so nothing cancels
  let term = size;
  let total = size;
  for (let n = 1; term > total * Number.EPSILON; n++) {
    term *= 2 * size * size / (2 * n + 1);
    total += term;
  }
  return Math.sign(x) * 2 / Math.sqrt(Math.PI) * Math.exp(-size * size) * total;
}
