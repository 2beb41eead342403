// Text in which some characters, the triggers, are always followed by what followed them before in
// the same sequence; as tasks.js has it. The Python half is bigrams_adapter.py.

import { createPlain } from "plain_task.js";
import { randomIndex } from "random.js";

const SHORTEST = 8; // tokens of a random prompt

/** What followed a token earlier in the prompt, in order. */
function followersBefore(tokens, at) {
  const found = [];
  for (let i = 0; i < at; i++) if (tokens[i] === tokens[at]) found.push(tokens[i + 1]);
  return found;
}

export function createBigrams(run, world) {
  const { noise: noiseShare = 0 } = run.spec.task;
  const { noise_token: noiseToken } = world;
  const names = run.token_names;
  // null: every sequence draws its own triggers, and any token may be one
  const isTrigger = (token) => world.triggers === null || world.triggers.includes(token);
  const isSeen = (tokens, at) => isTrigger(tokens[at]) && tokens.indexOf(tokens[at]) < at;
  const say = (tokens) => tokens.map((token) => names[token]).join(" ");

  /** What the context says: what followed the trigger before, or null where noise hides it. */
  function recalled(tokens, at) {
    if (!isSeen(tokens, at)) return null;
    const found = followersBefore(tokens, at);
    return found.find((token) => token !== noiseToken) ?? null;
  }

  /** What is believed of a trigger's output, by Bayes: a follower is the output, or noise. */
  function believe(tokens, at) {
    let belief = names.map(() => 1 / names.length);
    for (const seen of followersBefore(tokens, at)) {
      const share = (token) => noiseShare * Number(seen === noiseToken)
        + (1 - noiseShare) * Number(seen === token);
      const weighed = belief.map((p, token) => p * share(token));
      const total = weighed.reduce((sum, p) => sum + p, 0);
      if (!total) return null;
      belief = weighed.map((p) => p / total);
    }
    return belief.map((p, token) =>
      noiseShare * Number(token === noiseToken) + (1 - noiseShare) * p);
  }

  function findContradiction(tokens) {
    for (let at = 0; at < tokens.length; at++) {
      if (!isSeen(tokens, at) || world.triggers === null) continue;
      const found = new Set(followersBefore(tokens, at));
      found.delete(noiseToken);
      if (found.size > 1) {
        const followers = [...found].map((token) => `“${names[token]}”`).join(" and by ");
        return `“${names[tokens[at]]}” is followed by ${followers}: within a sequence of this task `
          + "it never is.";
      }
    }
    return "";
  }

  function warnUntrained(tokens) {
    const at = tokens.length - 1;
    if (run.spec.task.loss === "all" || isSeen(tokens, at)) return "";
    const which = world.triggers === null ? "a token" : `one of ${say(world.triggers)}`;
    return `Training asked only after ${which} that had stood there before: what follows `
      + `“${names[tokens[at]]}” here was never learned.`;
  }

  return {
    ...createPlain(run, world),
    legend: "★ what followed the same token before.",
    queries(tokens) {
      const all = tokens.map((_, at) => at);
      const asked = all.filter((at) => isSeen(tokens, at));
      return asked.length ? asked : all.slice(-1);
    },
    readings(tokens, at) {
      const token = recalled(tokens, at);
      return token === null ? [] : [["the context", token]];
    },
    warn: (tokens) => findContradiction(tokens) || warnUntrained(tokens),
    oracles(tokens, at) {
      const isKnown = world.triggers !== null && isTrigger(tokens[at]) && world.is_uniform;
      return isKnown ? [["a reader of the whole context", believe(tokens, at)]] : [];
    },
    marks: (tokens, at) => ({ used: [], recall: recalled(tokens, at) }),
    draw(random) {
      const tokens = world.samples[randomIndex(world.samples.length, random)];
      const ends = tokens.map((_, at) => at).filter((at) => at >= SHORTEST && isSeen(tokens, at));
      return ends.length ? tokens.slice(0, ends[0] + 1) : tokens;
    },
  };
}
