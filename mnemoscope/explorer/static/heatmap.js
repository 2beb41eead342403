// One head's attention pattern as a table: rows are queries, columns are keys.

import { button, h, moveBetweenCells } from "dom.js";

const STRONG = 0.55; // above it a cell is dark, and its number light

function shade(value) {
  const share = Math.round(100 * Math.min(1, Math.max(0, value)));
  return `color-mix(in srgb, var(--heat) ${share}%, var(--paper))`;
}

function drawCell(part, value, i, j, labels, isForced, handlers) {
  const classes = [isForced && "forced", value > STRONG && "strong"].filter(Boolean);
  const attributes = {
    tabindex: i === 0 && j === 0 ? 0 : -1,
    "data-key": `cell-${part}-${i}-${j}`,
    "data-row": i,
    "data-column": j,
    role: "button",
    style: `background:${shade(value)}`,
    class: classes.join(" ") || null,
    "aria-label": `from ${labels[i]} to ${labels[j]}: ${value.toFixed(3)}`,
    title: `${labels[i]} → ${labels[j]}: ${value.toFixed(3)}`,
    onmouseenter: () => handlers.onRead(i, j, value),
    onfocus: () => handlers.onRead(i, j, value),
    onclick: () => handlers.onForce(i, j),
  };
  return h("td", attributes, value < 0.005 ? "" : value.toFixed(2).replace(/^0/, ""));
}

function drawRowName(part, i, labels, forced, handlers) {
  const attributes = {
    class: forced === undefined ? "row" : "row forced",
    "aria-pressed": forced === "even",
    title: "spread this row evenly",
    "aria-label": `from ${labels[i]}: spread evenly`,
  };
  const name = button(`even-${part}-${i}`, labels[i], () => handlers.onEven(i), attributes);
  return h("th", { scope: "row" }, name);
}

/** `forced` maps rows to a column or "even"; `handlers` are onRead, onForce and onEven. */
export function drawHeatmap(part, pattern, labels, forced, handlers) {
  const rows = pattern.map((row, i) => h("tr", {},
    drawRowName(part, i, labels, forced[i], handlers),
    row.map((value, j) => (j > i
      ? h("td", { class: "unseen" })
      : drawCell(part, value, i, j, labels, forced[i] === j, handlers)))));
  const names = labels.map((label) => h("th", { scope: "col" }, label));
  return h("table", { class: "heat", onkeydown: moveBetweenCells },
    h("thead", {}, h("tr", {}, h("td", {}), names)),
    h("tbody", {}, rows));
}
