// Products of matrices in row-major order, two rows and four columns at a time: what is added up
// stays in registers. Nothing is allocated.
//
//   y = x w + b        x has rows of length k, y of length m, w has k rows of length m

/** y = x w + bias; `bias` may be null. */
export function applyMatrix(y, x, w, bias, rows, k, m) {
  const evenRows = rows - (rows % 2);
  const wide = m - (m % 4);
  for (let j = 0; j < wide; j += 4) {
    const bias0 = bias ? bias[j] : 0;
    const bias1 = bias ? bias[j + 1] : 0;
    const bias2 = bias ? bias[j + 2] : 0;
    const bias3 = bias ? bias[j + 3] : 0;
    for (let i = 0; i < evenRows; i += 2) {
      let a0 = bias0;
      let a1 = bias1;
      let a2 = bias2;
      let a3 = bias3;
      let b0 = bias0;
      let b1 = bias1;
      let b2 = bias2;
      let b3 = bias3;
      let atX = i * k;
      let atW = j;
      for (let n = 0; n < k; n++) {
        const p = x[atX];
        const q = x[atX + k];
        const w0 = w[atW];
        const w1 = w[atW + 1];
        const w2 = w[atW + 2];
        const w3 = w[atW + 3];
        a0 += p * w0;
        a1 += p * w1;
        a2 += p * w2;
        a3 += p * w3;
        b0 += q * w0;
        b1 += q * w1;
        b2 += q * w2;
        b3 += q * w3;
        atX += 1;
        atW += m;
      }
      const atY = i * m + j;
      y[atY] = a0;
      y[atY + 1] = a1;
      y[atY + 2] = a2;
      y[atY + 3] = a3;
      y[atY + m] = b0;
      y[atY + m + 1] = b1;
      y[atY + m + 2] = b2;
      y[atY + m + 3] = b3;
    }
  }
  applyBlock(y, x, w, bias, 0, evenRows, wide, k, m);
  applyBlock(y, x, w, bias, evenRows, rows, 0, k, m);
}

/** The same one number at a time, for rows from `first` to `end` and columns from `column` on. */
function applyBlock(y, x, w, bias, first, end, column, k, m) {
  for (let i = first; i < end; i++) {
    for (let j = column; j < m; j++) {
      let total = bias ? bias[j] : 0;
      for (let n = 0; n < k; n++) total += x[i * k + n] * w[n * m + j];
      y[i * m + j] = total;
    }
  }
}

/** dx = dy w^T. */
export function applyTransposed(dx, dy, w, rows, k, m) {
  const evenRows = rows - (rows % 2);
  const wide = k - (k % 4);
  for (let n = 0; n < wide; n += 4) {
    for (let i = 0; i < evenRows; i += 2) {
      let a0 = 0;
      let a1 = 0;
      let a2 = 0;
      let a3 = 0;
      let b0 = 0;
      let b1 = 0;
      let b2 = 0;
      let b3 = 0;
      let atY = i * m;
      let atW = n * m;
      for (let j = 0; j < m; j++) {
        const p = dy[atY];
        const q = dy[atY + m];
        const w0 = w[atW];
        const w1 = w[atW + m];
        const w2 = w[atW + 2 * m];
        const w3 = w[atW + 3 * m];
        a0 += p * w0;
        a1 += p * w1;
        a2 += p * w2;
        a3 += p * w3;
        b0 += q * w0;
        b1 += q * w1;
        b2 += q * w2;
        b3 += q * w3;
        atY += 1;
        atW += 1;
      }
      const atX = i * k + n;
      dx[atX] = a0;
      dx[atX + 1] = a1;
      dx[atX + 2] = a2;
      dx[atX + 3] = a3;
      dx[atX + k] = b0;
      dx[atX + k + 1] = b1;
      dx[atX + k + 2] = b2;
      dx[atX + k + 3] = b3;
    }
  }
  transposedBlock(dx, dy, w, 0, evenRows, wide, k, m);
  transposedBlock(dx, dy, w, evenRows, rows, 0, k, m);
}

/** The same one number at a time, for rows from `first` to `end` and columns from `column` on. */
function transposedBlock(dx, dy, w, first, end, column, k, m) {
  for (let i = first; i < end; i++) {
    for (let n = column; n < k; n++) {
      let total = 0;
      for (let j = 0; j < m; j++) total += dy[i * m + j] * w[n * m + j];
      dx[i * k + n] = total;
    }
  }
}

/** dw += x^T dy. */
export function addOuter(dw, x, dy, rows, k, m) {
  const evenRows = k - (k % 2);
  const wide = m - (m % 4);
  for (let n = 0; n < evenRows; n += 2) {
    for (let j = 0; j < wide; j += 4) {
      let a0 = 0;
      let a1 = 0;
      let a2 = 0;
      let a3 = 0;
      let b0 = 0;
      let b1 = 0;
      let b2 = 0;
      let b3 = 0;
      let atX = n;
      let atY = j;
      for (let i = 0; i < rows; i++) {
        const p = x[atX];
        const q = x[atX + 1];
        const y0 = dy[atY];
        const y1 = dy[atY + 1];
        const y2 = dy[atY + 2];
        const y3 = dy[atY + 3];
        a0 += p * y0;
        a1 += p * y1;
        a2 += p * y2;
        a3 += p * y3;
        b0 += q * y0;
        b1 += q * y1;
        b2 += q * y2;
        b3 += q * y3;
        atX += k;
        atY += m;
      }
      const atW = n * m + j;
      dw[atW] += a0;
      dw[atW + 1] += a1;
      dw[atW + 2] += a2;
      dw[atW + 3] += a3;
      dw[atW + m] += b0;
      dw[atW + m + 1] += b1;
      dw[atW + m + 2] += b2;
      dw[atW + m + 3] += b3;
    }
  }
  outerBlock(dw, x, dy, rows, 0, evenRows, wide, k, m);
  outerBlock(dw, x, dy, rows, evenRows, k, 0, k, m);
}

/** The same one number at a time, for rows of dw from `first` to `end`, columns from `column`. */
function outerBlock(dw, x, dy, rows, first, end, column, k, m) {
  for (let n = first; n < end; n++) {
    for (let j = column; j < m; j++) {
      let total = 0;
      for (let i = 0; i < rows; i++) total += x[i * k + n] * dy[i * m + j];
      dw[n * m + j] += total;
    }
  }
}

/** db += the sum of the rows of dy. */
export function addRows(db, dy, rows, m) {
  for (let j = 0; j < m; j++) {
    let total = 0;
    for (let i = 0; i < rows; i++) total += dy[i * m + j];
    db[j] += total;
  }
}
