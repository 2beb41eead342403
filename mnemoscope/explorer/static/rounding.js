// Whole numbers as Python makes them.

/** The nearest whole number; a half goes to the even one. */
export function roundHalfEven(x) {
  const below = Math.floor(x);
  if (x - below !== 0.5) return Math.round(x);
  return below % 2 ? below + 1 : below;
}
