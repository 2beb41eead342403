// Random numbers that can be found again: the same seed draws the same prompt on every machine.

/** A generator of numbers in [0, 1) from a seed (mulberry32). */
export function createRandom(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export function randomIndex(n, random) {
  return Math.floor(random() * n);
}

/** The numbers 0 to n - 1 in random order. */
export function randomOrder(n, random) {
  const order = Array.from({ length: n }, (_, i) => i);
  for (let i = n - 1; i > 0; i--) {
    const j = randomIndex(i + 1, random);
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}
