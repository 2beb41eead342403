// What the page knows about a task: how to check a prompt, draw one, and say what a perfect reader would answer.
// An unknown task gets `plain`: any tokens, no oracle. Nothing outside this file knows a task by name.

/** A generator of numbers in [0, 1) from a seed (mulberry32), so that a random prompt can be found again. */
export function random(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function shuffled(n, next) {
  const list = Array.from({ length: n }, (_, i) => i);
  for (let i = n - 1; i > 0; i--) {
    const j = Math.floor(next() * (i + 1));
    [list[i], list[j]] = [list[j], list[i]];
  }
  return list;
}

const plain = (run) => ({
  legend: "",
  asks: (tokens) => tokens.map((_, i) => i),
  warn: () => "",
  oracles: () => [],
  marks: () => ({ used: [], recall: null }),
  draw: (next) => Array.from({ length: run.n_ctx }, () => Math.floor(next() * run.token_names.length)),
});

/** Pairs x y of a hidden permutation; asked at every x. */
function permutation(run, world) {
  const { n_symbols: v, repeat, repeat_of } = run.spec.task;
  const seen = (tokens, at) => {
    const pairs = [];
    for (let i = 0; i + 1 < at; i += 2) pairs.push([tokens[i], tokens[i + 1]]);
    return pairs;
  };
  const share = (counts) => {
    const total = counts.reduce((s, x) => s + x, 0);
    return total ? counts.map((x) => x / total) : null;
  };
  function all(tokens, at) {
    const pairs = seen(tokens, at), shown = pairs.find(([x]) => x === tokens[at]), used = pairs.map(([, y]) => y);
    return share(run.token_names.map((_, t) => (t === 0 ? 0 : shown ? +(t === shown[1]) : +!used.includes(t))));
  }
  function trained(tokens, at) {
    const pairs = seen(tokens, at), counts = run.token_names.map(() => 0);
    for (const mapping of world.train) if (pairs.every(([x, y]) => mapping[x - 1] + 1 === y)) counts[mapping[tokens[at] - 1] + 1]++;
    return share(counts);
  }
  const fits = (tokens, at) => tokens.slice(0, at + 1).every((t) => t > 0);
  return {
    legend: "★ the recall answer; · and struck out: a value used already.",
    asks: (tokens) => tokens.map((_, i) => i).filter((i) => i % 2 === 0),
    warn(tokens) {
      if (tokens.includes(0)) return "The token 0 is in the vocabulary, but no sequence holds it.";
      const y = new Map(), x = new Map();
      for (const [a, b] of seen(tokens, tokens.length + (tokens.length % 2 === 0))) {
        if (y.has(a) && y.get(a) !== b) return `${a} is paired with ${y.get(a)} and with ${b}: no permutation does that.`;
        if (x.has(b) && x.get(b) !== a) return `${b} is the answer to ${x.get(b)} and to ${a}: no permutation does that.`;
        y.set(a, b); x.set(b, a);
      }
      return "";
    },
    oracles: (tokens, at) => (fits(tokens, at) ? [["all mappings", all(tokens, at)], ["training mappings", trained(tokens, at)]] : []),
    marks(tokens, at) {
      const pairs = seen(tokens, at);
      return { used: pairs.map(([, y]) => y), recall: pairs.find(([x]) => x === tokens[at])?.[1] ?? null };
    },
    draw(next) {
      const mapping = world.held_out[Math.floor(next() * world.held_out.length)], order = shuffled(v, next);
      if (next() < repeat) order[v - 1] = order[repeat_of === "any" ? Math.floor(next() * (v - 1)) : 0];
      return order.flatMap((x) => [x + 1, mapping[x] + 1]).slice(0, run.n_ctx);
    },
  };
}

/** A B C A B C ...: the successor of the last token is certain. */
function cycle(run) {
  const n = run.spec.task.n_symbols;
  return {
    ...plain(run),
    warn: (tokens) => (tokens.every((t, i) => i === 0 || t === (tokens[i - 1] + 1) % n) ? "" : "This leaves the cycle: no training showed it."),
    oracles: (tokens, at) => [["successor of the last token", run.token_names.map((_, t) => +(t === (tokens[at] + 1) % n))]],
    draw(next) {
      const first = Math.floor(next() * n);
      return Array.from({ length: run.n_ctx }, (_, i) => (first + i) % n);
    },
  };
}

const known = { permutation, cycle };

export const adapter = (run, world) => (known[run.spec.task.kind] ?? plain)(run, world);

/** A typed prompt as tokens, or what is wrong with it. */
export function parse(run, text) {
  const names = run.token_names, long = names.some((name) => name.length > 1);
  const words = long ? text.split(/\s+/).filter(Boolean) : [...text].filter((c) => !/[\s,]/.test(c));
  const allowed = `allowed: 1 to ${run.n_ctx} of ${names.join(" ")}`;
  if (!words.length) return { wrong: `The prompt is empty; ${allowed}.` };
  const odd = words.find((word) => !names.includes(word));
  if (odd !== undefined) return { wrong: `Unknown token “${odd}”; ${allowed}.` };
  if (words.length > run.n_ctx) return { wrong: `${words.length} tokens are too many; ${allowed}.` };
  return { tokens: words.map((word) => names.indexOf(word)) };
}

export const written = (run, tokens) => tokens.map((t) => run.token_names[t]).join(run.token_names.some((n) => n.length > 1) ? " " : "");
