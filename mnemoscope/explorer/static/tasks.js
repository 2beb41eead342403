// What the page knows of a task: where it asks, what an ideal predictor would answer, and how a
// prompt is checked and drawn. The Python half is task_adapters.py; nothing else knows a task by
// its name.
//
// An adapter has
//   legend                  what its marks mean, for the line below the answers
//   queries(tokens)         the positions whose answers are shown
//   groups(tokens)          the prompt as it is read: lists of positions that belong together
//   readings(tokens, at)    what may be answered and why: [name, token]
//   warn(tokens)            what is odd about a prompt, or ""
//   oracles(tokens, at)     exact answers after a position: [name, probabilities or null]
//   marks(tokens, at)       {used, recall}: tokens that were answers already, and the one to recall
//   draw(random)            a random prompt

import { createBigrams } from "bigrams_task.js";
import { createHops } from "hops_task.js";
import { createPlain, normalizeCounts, warnUntrained } from "plain_task.js";
import { randomIndex, randomOrder } from "random.js";

/** The pairs x y that stand before a position. */
function pairsBefore(tokens, at) {
  const pairs = [];
  for (let i = 0; i + 1 < at; i += 2) pairs.push([tokens[i], tokens[i + 1]]);
  return pairs;
}

/** What contradicts itself in a prompt of pairs, or "". */
function findContradiction(tokens) {
  const answers = new Map();
  const sources = new Map();
  const end = tokens.length % 2 === 0 ? tokens.length + 1 : tokens.length;
  for (const [x, y] of pairsBefore(tokens, end)) {
    if (answers.has(x) && answers.get(x) !== y) {
      return `${x} is paired with ${answers.get(x)} and with ${y}: no permutation does that.`;
    }
    if (sources.has(y) && sources.get(y) !== x) {
      return `${y} is the answer to ${sources.get(y)} and to ${x}: no permutation does that.`;
    }
    answers.set(x, y);
    sources.set(y, x);
  }
  return "";
}

/** Pairs x y of a hidden permutation; asked at every x. */
function createPermutation(run, world) {
  const { n_symbols: nSymbols, repeat, repeat_of: repeatOf } = run.spec.task;

  /** The exact posterior if every mapping is as likely as any other. */
  function answerByAll(tokens, at) {
    const pairs = pairsBefore(tokens, at);
    const shown = pairs.find(([x]) => x === tokens[at]);
    const used = pairs.map(([, y]) => y);
    const isPossible = (token) => {
      if (token === 0) return false;
      return shown ? token === shown[1] : !used.includes(token);
    };
    return normalizeCounts(run.token_names.map((_, token) => Number(isPossible(token))));
  }

  /** The exact posterior if only the mappings of training are possible. */
  function answerByTrained(tokens, at) {
    const pairs = pairsBefore(tokens, at);
    const counts = run.token_names.map(() => 0);
    for (const mapping of world.train) {
      const fits = pairs.every(([x, y]) => mapping[x - 1] + 1 === y);
      if (fits) counts[mapping[tokens[at] - 1] + 1]++;
    }
    return normalizeCounts(counts);
  }

  return {
    legend: "★ the recall answer; · and struck out: a value used already.",
    queries: (tokens) => tokens.map((_, i) => i).filter((i) => i % 2 === 0),
    groups(tokens) {
      const starts = tokens.map((_, i) => i).filter((i) => i % 2 === 0);
      return starts.map((i) => (i + 1 < tokens.length ? [i, i + 1] : [i]));
    },
    readings(tokens, at) {
      if (at % 2) return []; // a value was shown there, and nothing is asked
      const { used, recall } = this.marks(tokens, at);
      const unused = run.token_names.map((_, token) => token).filter((token) =>
        token > 0 && !used.includes(token));
      const found = recall === null ? [] : [["recall", recall]];
      return unused.length === 1 ? [...found, ["elimination", unused[0]]] : found;
    },
    warn(tokens) {
      if (tokens.includes(0)) return "The token 0 is in the vocabulary, but no sequence holds it.";
      return findContradiction(tokens) || warnUntrained(run, tokens);
    },
    oracles(tokens, at) {
      if (tokens.slice(0, at + 1).includes(0)) return [];
      return [
        ["all mappings", answerByAll(tokens, at)],
        ["training mappings", answerByTrained(tokens, at)],
      ];
    },
    marks(tokens, at) {
      const pairs = pairsBefore(tokens, at);
      const shown = pairs.find(([x]) => x === tokens[at]);
      return { used: pairs.map(([, y]) => y), recall: shown?.[1] ?? null };
    },
    draw(random) {
      const mapping = world.held_out[randomIndex(world.held_out.length, random)];
      const order = randomOrder(nSymbols, random);
      if (random() < repeat) {
        const again = repeatOf === "any" ? randomIndex(nSymbols - 1, random) : 0;
        order[nSymbols - 1] = order[again];
      }
      return order.flatMap((x) => [x + 1, mapping[x] + 1]).slice(0, run.n_ctx);
    },
  };
}

/** A B C A B C ...: the successor of the last token is certain. */
function createCycle(run, world) {
  const nSymbols = run.spec.task.n_symbols;
  const successor = (token) => (token + 1) % nSymbols;
  const follows = (token, i, tokens) => i === 0 || token === successor(tokens[i - 1]);
  return {
    ...createPlain(run, world),
    warn(tokens) {
      return tokens.every(follows) ? "" : "This leaves the cycle: no training showed it.";
    },
    oracles(tokens, at) {
      const answer = run.token_names.map((_, token) => Number(token === successor(tokens[at])));
      return [["successor of the last token", answer]];
    },
    draw(random) {
      const first = randomIndex(nSymbols, random);
      return Array.from({ length: run.n_ctx }, (_, i) => (first + i) % nSymbols);
    },
  };
}

const ADAPTERS = new Map([
  ["permutation", createPermutation],
  ["cycle", createCycle],
  ["bigrams", createBigrams],
  ["hops", createHops],
]);

/** The adapter of a run's task in the world of one seed. */
export function createAdapter(run, world) {
  const create = ADAPTERS.get(run.spec.task.kind) ?? createPlain;
  return create(run, world);
}
