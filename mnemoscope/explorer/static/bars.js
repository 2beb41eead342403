// One answer as bars: the model's probabilities after one token, what ideal predictors say, and, as
// ghosts, what the model said before anything was knocked out.
// Colours are CSS variables, so that they follow light and dark.

import { formatPercent, s } from "dom.js";

const WIDTH = 250;
const ROW = 20;
const TOP = 26; // above the first row stands the title
const LEFT = 34; // for the token
const RIGHT = 52; // for the number
const SPAN = WIDTH - LEFT - RIGHT;
const MAX_ROWS = 12;
const INVISIBLE = 0.005; // a share too small for an outline

/** The likeliest tokens, now or before, in the order of the vocabulary. */
function chooseTokens(probabilities, before) {
  const most = probabilities.map((p, token) => Math.max(p, before?.[token] ?? 0));
  const ranked = probabilities.map((_, token) => token);
  ranked.sort((a, b) => most[b] - most[a]);
  return ranked.slice(0, MAX_ROWS).sort((a, b) => a - b);
}

function describeOracle(names, [name, exact]) {
  if (!exact) return `${name}: none fits`;
  const possible = exact.map((p, token) => [p, token]).filter(([p]) => p > 0);
  const shares = possible.map(([p, token]) => `${names[token]} ${formatPercent(p)}`);
  return `${name}: ${shares.join(", ")}`;
}

/** The first oracle is a line across the bar, the second a small triangle. */
function drawOracle(probability, y, index) {
  const x = LEFT + SPAN * probability;
  const path = index === 0 ? `M${x},${y + 2} v${ROW - 3}` : `M${x},${y + 1} l4,-0 l-4,6 l-4,-6 z`;
  return s("path", { d: path, class: `oracle o${index}` });
}

/** The bar as it was, as an outline. */
function drawGhost(probability, track) {
  const width = Math.max(1, SPAN * probability);
  return s("rect", { x: track.x, y: track.y - 2, width, height: track.height + 4, class: "ghost" });
}

function drawRow(name, probability, { y, isBest, isUsed, isRecall, exact, before }) {
  const track = { x: LEFT, y: y + 4, height: ROW - 7 };
  const label = { x: LEFT - 6, y: y + 14, "text-anchor": "end" };
  const value = { x: WIDTH - RIGHT + 4, y: y + 14, class: "value" };
  const mark = isRecall ? " ★" : isUsed ? " ·" : "";
  return [
    s("text", { ...label, class: isUsed && !isRecall ? "token used" : "token" }, name),
    s("rect", { ...track, width: SPAN, class: "track" }),
    s("rect", {
      ...track,
      width: Math.max(0, SPAN * probability),
      class: isBest ? "bar best" : "bar",
    }),
    before >= INVISIBLE && drawGhost(before, track),
    exact.map((p, index) => p > 0 && drawOracle(p, y, index)),
    s("text", value, formatPercent(probability) + mark),
  ];
}

/** The likeliest token and its share, "4 (100%)". */
export function sayBest(names, probabilities) {
  const best = probabilities.indexOf(Math.max(...probabilities));
  return `${names[best]} (${formatPercent(probabilities[best])})`;
}

/**
 * Bars for one position; `oracles` and `marks` are as tasks.js gives them, `before` the
 * probabilities before anything was knocked out, or null.
 */
export function drawBars(title, names, probabilities, oracles, marks, before = null) {
  const shown = chooseTokens(probabilities, before);
  const height = TOP + ROW * shown.length;
  const best = probabilities.indexOf(Math.max(...probabilities));
  const now = `the model says ${sayBest(names, probabilities)}`;
  const was = before ? `, before the knock-out ${sayBest(names, before)}` : "";
  const label = `${title}: ${now}${was}`;
  const rows = shown.map((token, i) => drawRow(names[token], probabilities[token], {
    y: TOP + ROW * i,
    isBest: token === best,
    isUsed: marks.used.includes(token),
    isRecall: marks.recall === token,
    exact: oracles.map(([, exact]) => exact?.[token] ?? 0),
    before: before?.[token] ?? 0,
  }));
  const attributes = {
    viewBox: `0 0 ${WIDTH} ${height}`,
    width: WIDTH,
    height,
    role: "img",
    "aria-label": [label, ...oracles.map((oracle) => describeOracle(names, oracle))].join(". "),
    class: "answer",
  };
  return s("svg", attributes, s("text", { x: 0, y: 14, class: "head" }, title), rows);
}
