// Sharing a view: its address, its answers as a picture, its numbers as JSON.

import { byId, s, saveFile } from "dom.js";
import { formatPrompt } from "tokens.js";

const WIDTH = 790;
const COLUMNS = 3;
const COLUMN_WIDTH = 260;
const GAP = 12;

/** A color on light paper, by its name: the page's first rule has all of them. */
function lightColor(name) {
  return document.styleSheets[0].cssRules[0].style.getPropertyValue(`--${name}`).trim();
}

/** The picture stands alone, on white, so it brings its style along. */
function writePictureStyle() {
  const exact = lightColor("exact");
  return `
  text { font: 12px sans-serif; fill: ${lightColor("ink")} }
  .head { font-weight: 600 }
  .track { fill: ${lightColor("band")} }
  .bar { fill: ${lightColor("bar")} }
  .best { fill: ${lightColor("best")} }
  .oracle { fill: ${exact}; stroke: ${exact}; stroke-width: 2 }
  .o1 { fill: ${lightColor("train")}; stroke: none }
  .used { fill: ${lightColor("quiet")} }
`;
}

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
    s("style", {}, writePictureStyle()),
    s("rect", { width: WIDTH, height, fill: lightColor("paper") }),
    s("text", { x: 10, y: 22, class: "head" }, title),
    cards.map((card, index) => placeCard(card, index, rowHeight)));
  return new XMLSerializer().serializeToString(picture);
}

function exactAnswer({ view, task }, position) {
  return { position, ...Object.fromEntries(task.oracles(view.tokens, position)) };
}

/** The second model and its answers; null where there is none. */
function describeBeside({ beside }) {
  if (!beside) return null;
  const { run, seed, at } = beside.view;
  const { probabilities } = beside.trace;
  return { run: run.id, model: run.name, seed, step: run.steps[at], probabilities };
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
    beside: describeBeside(state),
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
