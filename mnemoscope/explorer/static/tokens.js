// Prompts as text: what is typed becomes tokens, and tokens become what is shown.

/** Names of one character stand side by side; longer ones need spaces between them. */
function hasLongNames(run) {
  return run.token_names.some((name) => name.length > 1);
}

// white space as tokens are named, in mnemoscope/tasks/bigrams.py
const SIGNS = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍" };

/** White space is a token where there is one for it, and else only stands between tokens. */
function splitPrompt(run, text) {
  if (hasLongNames(run)) return text.split(/\s+/).filter(Boolean);
  const named = (name) => run.token_names.includes(name);
  const characters = [...text].map((each) => (named(SIGNS[each]) ? SIGNS[each] : each));
  return characters.filter((each) => named(each) || !/[\s,]/.test(each));
}

/** A typed prompt as {tokens}, or as {error} that says what is wrong with it. */
export function parsePrompt(run, text) {
  const names = run.token_names;
  const words = splitPrompt(run, text);
  const allowed = `allowed: 1 to ${run.n_ctx} of ${names.join(" ")}`;
  if (!words.length) return { error: `The prompt is empty; ${allowed}.` };
  const unknown = words.find((word) => !names.includes(word));
  if (unknown !== undefined) return { error: `Unknown token “${unknown}”; ${allowed}.` };
  const isTooLong = words.length > run.n_ctx;
  if (isTooLong) return { error: `${words.length} tokens are too many; ${allowed}.` };
  return { tokens: words.map((word) => names.indexOf(word)) };
}

const SHORT = 16; // tokens that are repeated in a sentence

/** A prompt in a sentence: of a long one the end. */
export function shortenPrompt(run, tokens) {
  if (tokens.length <= SHORT) return formatPrompt(run, tokens);
  return `…${formatPrompt(run, tokens.slice(-SHORT))}`;
}

/** Tokens as one would type them. */
export function formatPrompt(run, tokens) {
  const names = tokens.map((token) => run.token_names[token]);
  return names.join(hasLongNames(run) ? " " : "");
}
