// The forward pass of mnemoscope/models/forward.py for one sequence, in plain arrays of doubles.
//
// A matrix is an array of rows. `model` is {config, params}: params[name] = {shape, data} with data in row-major order.
// Edits silence or force parts:  {heads: {"layer.head": rows}, mlps: {layer: rows}, patterns: {"layer.head": {row: weights}}}.
// The result holds every value on the way, so that nothing has to be computed twice to be shown.

const EPS = 1e-5;

const unpacked = new WeakMap(); // a parameter is cut into rows once, not once for every forward pass

/** One block of a parameter as rows; `at` picks a head out of a stack. */
export function rows(parameter, at = null) {
  if (!unpacked.has(parameter)) unpacked.set(parameter, new Map());
  const known = unpacked.get(parameter);
  if (!known.has(at)) {
    const [n, m] = parameter.shape.length === 1 ? [1, parameter.shape[0]] : parameter.shape.slice(-2), from = at === null ? 0 : at * n * m;
    known.set(at, Array.from({ length: n }, (_, i) => Array.from(parameter.data.subarray(from + i * m, from + (i + 1) * m))));
  }
  return known.get(at);
}

/** A bias; one row of a stack of them where `at` says so. */
const vector = (parameter, at = null) => rows(parameter)[at ?? 0];

export function multiply(a, b) {
  const m = b[0].length;
  return a.map((row) => {
    const out = new Array(m).fill(0);
    for (let k = 0; k < row.length; k++) {
      const x = row[k], other = b[k];
      if (x !== 0) for (let j = 0; j < m; j++) out[j] += x * other[j];
    }
    return out;
  });
}

export const transpose = (a) => a[0].map((_, j) => a.map((row) => row[j]));
export const add = (a, b) => a.map((row, i) => row.map((x, j) => x + b[i][j]));
const addRow = (a, b) => (b ? a.map((row) => row.map((x, j) => x + b[j])) : a);

export function softmax(row) {
  const top = Math.max(...row), e = row.map((x) => Math.exp(x - top)), sum = e.reduce((s, x) => s + x, 0);
  return e.map((x) => x / sum);
}

export function normalised(a) {
  return a.map((row) => {
    const mean = row.reduce((s, x) => s + x, 0) / row.length;
    const centred = row.map((x) => x - mean);
    const scale = Math.sqrt(centred.reduce((s, x) => s + x * x, 0) / row.length + EPS);
    return centred.map((x) => x / scale);
  });
}

export function forward(model, tokens, edits = {}) {
  const { config, params } = model, n = tokens.length, dHead = config.d_model / config.n_heads;
  const { heads = {}, mlps = {}, patterns = {} } = edits;
  const bias = (name, at = null) => (params[name] ? vector(params[name], at) : null);
  const norm = (name, x) => addRow(normalised(x).map((row) => {
    const w = vector(params[`${name}.w`]);
    return row.map((v, j) => v * w[j]);
  }), bias(`${name}.b`));

  const table = rows(params["embed.W_E"]), places = rows(params["pos_embed.W_pos"]);
  const embed = tokens.map((t) => table[t]), position = places.slice(0, n);
  let x = add(embed, position);
  const layers = [];
  for (let layer = 0; layer < config.n_layers; layer++) {
    const at = `blocks.${layer}`, got = { before: x, heads: [] };
    got.seen = config.norm === "pre" ? norm(`${at}.ln1`, x) : x;
    let out = x.map((row) => row.map(() => 0));
    for (let head = 0; head < config.n_heads; head++) {
      const key = `${layer}.${head}`, h = {};
      for (const name of ["Q", "K", "V"]) {
        h[name] = addRow(multiply(got.seen, rows(params[`${at}.attn.W_${name}`], head)), bias(`${at}.attn.b_${name}`, head));
      }
      h.scores = multiply(h.Q, transpose(h.K)).map((row) => row.map((v) => v / Math.sqrt(dHead)));
      h.masked = h.scores.map((row, i) => row.map((v, j) => (j > i ? -Infinity : v)));
      h.pattern = h.masked.map((row, i) => patterns[key]?.[i] ?? softmax(row));
      h.z = heads[key] ? heads[key].slice(0, n) : multiply(h.pattern, h.V);
      h.result = multiply(h.z, rows(params[`${at}.attn.W_O`], head));
      out = add(out, h.result);
      got.heads.push(h);
    }
    got.attention = addRow(out, bias(`${at}.attn.b_O`));
    got.summed = x = add(x, got.attention);
    if (config.norm === "post") x = norm(`${at}.ln1`, x);
    got.middle = x;
    if (params[`${at}.mlp.W_in`]) {
      got.fed = config.norm === "pre" ? norm(`${at}.ln2`, x) : x;
      got.pre = addRow(multiply(got.fed, rows(params[`${at}.mlp.W_in`])), bias(`${at}.mlp.b_in`));
      got.post = config.act === "linear" ? got.pre : got.pre.map((row) => row.map((v) => Math.max(v, 0)));
      got.mlp = mlps[layer] ? mlps[layer].slice(0, n)
        : addRow(multiply(got.post, rows(params[`${at}.mlp.W_out`])), bias(`${at}.mlp.b_out`));
      got.together = x = add(x, got.mlp);
      if (config.norm === "post") x = norm(`${at}.ln2`, x);
    }
    got.after = x;
    layers.push(got);
  }
  const read = config.norm === "pre" ? norm("ln_final", x) : x;
  const unembed = config.tied ? transpose(table) : rows(params["unembed.W_U"]);
  const logits = addRow(multiply(read, unembed), bias("unembed.b_U"));
  return { tokens, embed, position, start: add(embed, position), layers, read, unembed, logits, probabilities: logits.map(softmax) };
}

/** Mean of every head's z and every feed-forward output by position, over some sequences: what "mean" silences to. */
export function means(model, sequences) {
  const total = {}, count = {};
  const take = (key, values) => values.forEach((row, i) => {
    total[key] ??= []; count[key] ??= [];
    total[key][i] = total[key][i] ? total[key][i].map((x, j) => x + row[j]) : row.slice();
    count[key][i] = (count[key][i] ?? 0) + 1;
  });
  for (const tokens of sequences) {
    forward(model, tokens).layers.forEach((got, layer) => {
      got.heads.forEach((h, head) => take(`${layer}.${head}`, h.z));
      if (got.mlp) take(`mlp${layer}`, got.mlp);
    });
  }
  return Object.fromEntries(Object.entries(total).map(([key, rows]) => [key, rows.map((row, i) => row.map((x) => x / count[key][i]))]));
}
