// One head's attention pattern as a table: rows are queries, columns are keys.

import { button, h, moveBetweenCells } from "dom.js";

const UNWRITTEN = 0.005; // smaller weights would be written as zero

function shade(value, top) {
  const share = Math.round(100 * Math.min(1, Math.abs(value) / top));
  const color = value < 0 ? "--cold" : "--heat"; // ink can be read on both
  return `color-mix(in srgb, var(${color}) ${share}%, var(--paper))`;
}

function formatWeight(value) {
  if (Math.abs(value) < UNWRITTEN) return "";
  if (Math.abs(value) >= 10) return value.toPrecision(3);
  return value.toFixed(2).replace("-", "−").replace(/^(−?)0\./, "$1.");
}

function drawCell({ part, labels, top }, value, i, j, isForced, handlers) {
  const attributes = {
    tabindex: i === 0 && j === 0 ? 0 : -1,
    "data-key": `cell-${part}-${i}-${j}`,
    "data-row": i,
    "data-column": j,
    role: "button",
    style: `background:${shade(value, top)}`,
    class: isForced ? "forced" : null,
    "aria-label": `from ${labels[i]} to ${labels[j]}: ${value.toFixed(3)}`,
    title: `${labels[i]} → ${labels[j]}: ${value.toFixed(3)}`,
    onmouseenter: () => handlers.onRead(i, j, value),
    onfocus: () => handlers.onRead(i, j, value),
    onclick: () => handlers.onForce(i, j),
  };
  return h("td", attributes, formatWeight(value));
}

function drawRowName({ part, labels }, i, forced, handlers) {
  const attributes = {
    class: forced === undefined ? "row" : "row forced",
    "aria-pressed": forced === "even",
    title: "spread this row evenly",
    "aria-label": `from ${labels[i]}: spread evenly`,
  };
  const name = button(`even-${part}-${i}`, labels[i], () => handlers.onEven(i), attributes);
  return h("th", { scope: "row" }, name);
}

/**
 * `map` is {part, pattern, labels, forced, top, isCausal}: forced maps rows to a column or "even",
 * top is the weight of a full cell. `handlers` are onRead, onForce and onEven.
 */
export function drawHeatmap(map, handlers) {
  const { pattern, forced, isCausal } = map;
  const rows = pattern.map((row, i) => h("tr", {},
    drawRowName(map, i, forced[i], handlers),
    row.map((value, j) => (isCausal && j > i
      ? h("td", { class: "unseen" })
      : drawCell(map, value, i, j, forced[i] === j, handlers)))));
  const names = map.labels.map((label) => h("th", { scope: "col" }, label));
  return h("table", { class: "heat", onkeydown: moveBetweenCells },
    h("thead", {}, h("tr", {}, h("td", {}), names)),
    h("tbody", {}, rows));
}
