// Arithmetic on matrices. A matrix is an array of rows, a row an array of doubles.

export function multiply(a, b) {
  const width = b[0].length;
  return a.map((row) => {
    const out = new Array(width).fill(0);
    for (let k = 0; k < row.length; k++) {
      const x = row[k];
      const other = b[k];
      if (x === 0) continue;
      for (let j = 0; j < width; j++) out[j] += x * other[j];
    }
    return out;
  });
}

export function transpose(a) {
  return a[0].map((_, j) => a.map((row) => row[j]));
}

export function add(a, b) {
  return a.map((row, i) => row.map((x, j) => x + b[i][j]));
}

/** Add one row, a bias, to every row; without a bias the matrix stays as it is. */
export function addBias(a, bias) {
  if (!bias) return a;
  return a.map((row) => row.map((x, j) => x + bias[j]));
}

export function sum(values) {
  return values.reduce((total, x) => total + x, 0);
}

export function softmax(row) {
  const top = Math.max(...row);
  const exponentials = row.map((x) => Math.exp(x - top));
  const total = sum(exponentials);
  return exponentials.map((x) => x / total);
}
