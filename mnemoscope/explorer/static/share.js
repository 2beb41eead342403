// Sharing a view: its address, its answers as a picture, its numbers as JSON.

import { byId, s, saveFile } from "dom.js";
import { formatPrompt } from "tokens.js";

const WIDTH = 790;
const COLUMNS = 3;
const COLUMN_WIDTH = 260;
const GAP = 12;
// the picture stands alone, so it brings its colours
const PICTURE_STYLE = `
  text { font: 12px sans-serif; fill: #1c1e21 }
  .head { font-weight: 600 }
  .track { fill: #eef0f3 }
  .bar { fill: #7fb2d9 }
  .best { fill: #0072b2 }
  .oracle { fill: #d55e00; stroke: #d55e00; stroke-width: 2 }
  .o1 { fill: #009e73; stroke: none }
  .used { fill: #8a919c }
`;

function placeCard(card, index, rowHeight) {
  const copy = card.cloneNode(true);
  copy.setAttribute("x", 10 + COLUMN_WIDTH * (index % COLUMNS));
  copy.setAttribute("y", 40 + rowHeight * Math.floor(index / COLUMNS));
  return copy;
}

function buildPicture({ view }) {
  const { run, seed, at, tokens } = view;
  const cards = [...byId("answers").children];
  const rowHeight = cards[0].height.baseVal.value + GAP;
  const height = 50 + rowHeight * Math.ceil(cards.length / COLUMNS);
  const step = run.steps[at];
  const title = `${run.name}, seed ${seed}, step ${step}, prompt ${formatPrompt(run, tokens)}`;
  const attributes = {
    xmlns: "http://www.w3.org/2000/svg",
    width: WIDTH,
    height,
    viewBox: `0 0 ${WIDTH} ${height}`,
  };
  const picture = s("svg", attributes,
    s("style", {}, PICTURE_STYLE),
    s("rect", { width: WIDTH, height, fill: "#fff" }),
    s("text", { x: 10, y: 22, class: "head" }, title),
    cards.map((card, index) => placeCard(card, index, rowHeight)));
  return new XMLSerializer().serializeToString(picture);
}

function exactAnswer({ view, task }, position) {
  return { position, ...Object.fromEntries(task.oracles(view.tokens, position)) };
}

function buildNumbers(state) {
  const { run, seed, at, tokens, off, force } = state.view;
  const { logits, probabilities, layers } = state.trace;
  const numbers = {
    address: location.href,
    run: run.id,
    model: run.name,
    seed,
    step: run.steps[at],
    prompt: tokens.map((token) => run.token_names[token]),
    off,
    force,
    probabilities,
    logits,
    attention: layers.map((layer) => layer.heads.map((head) => head.pattern)),
    exact: state.task.queries(tokens).map((position) => exactAnswer(state, position)),
  };
  return JSON.stringify(numbers, null, 1);
}

async function copyAddress() {
  try {
    await navigator.clipboard.writeText(location.href);
    byId("copied").textContent = "Copied.";
  } catch {
    byId("copied").textContent = "Copy the address of this page from the browser.";
  }
}

export function listenToShare(state) {
  byId("copy").addEventListener("click", copyAddress);
  byId("svg").addEventListener("click", () =>
    saveFile("answers.svg", "image/svg+xml", buildPicture(state)));
  byId("json").addEventListener("click", () =>
    saveFile("numbers.json", "application/json", buildNumbers(state)));
}
