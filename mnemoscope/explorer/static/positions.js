// Where a token stands: fixed waves that are added to the embedding, or angles by which queries and
// keys are turned.

const WAVE_BASE = 10000;

/** Dimension j of a position as a sine or a cosine: {isSine, angle}. */
export function waveAt(dModel, position, j) {
  const isSine = j % 2 === 0;
  const even = isSine ? j : j - 1;
  return { isSine, angle: position * WAVE_BASE ** (-even / dModel) };
}

/** Sines in even dimensions and cosines in odd ones, a row for each position. */
export function waves(dModel, length) {
  const value = (position, j) => {
    const { isSine, angle } = waveAt(dModel, position, j);
    return isSine ? Math.sin(angle) : Math.cos(angle);
  };
  const row = (position) => Array.from({ length: dModel }, (_, j) => value(position, j));
  return Array.from({ length }, (_, position) => row(position));
}

/**
 * How dimension j of a query or key is turned at a position: it becomes x[j] cos + x[partner] sin.
 * Null where it stays as it is.
 */
export function turnAt(config, position, j) {
  const { rotary_dim: dims, rotary_base: base, rotary_adjacent_pairs: isAdjacent } = config;
  if (j >= dims) return null;
  const half = dims / 2;
  const isFirst = isAdjacent ? j % 2 === 0 : j < half;
  const pair = isAdjacent ? Math.floor(j / 2) : j % half;
  const distance = isAdjacent ? 1 : half;
  const angle = position * base ** (-pair / half);
  return {
    partner: isFirst ? j + distance : j - distance,
    angle,
    cos: Math.cos(angle),
    sin: isFirst ? -Math.sin(angle) : Math.sin(angle),
  };
}

/** Queries or keys, each row turned by the angles of its position. */
export function turn(config, x) {
  const turned = (row, position, j) => {
    const found = turnAt(config, position, j);
    return found ? row[j] * found.cos + row[found.partner] * found.sin : row[j];
  };
  return x.map((row, position) => row.map((_, j) => turned(row, position, j)));
}
