// One number of the walk explained: what was multiplied and added to make it.

import { byId, button, h, put } from "dom.js";

const format = (x) => x.toFixed(4);

function drawRow(label, product, value, attributes = {}) {
  return h("tr", attributes,
    h("th", { scope: "row" }, label),
    h("td", {}, product),
    h("td", {}, value));
}

/** A table of what was added, with its sum below, and what was done to that. */
function drawSum(terms, addends, after) {
  const products = terms.map(([label, a, b]) => [label, `${format(a)} × ${format(b)}`, a * b]);
  const rows = [...products, ...addends.map(([label, value]) => [label, "", value])];
  if (!rows.length) return null;
  const total = rows.reduce((sum, [, , value]) => sum + value, 0);
  return h("table", { class: "numbers" }, h("tbody", {},
    rows.map(([label, product, value]) => drawRow(label, product, format(value))),
    drawRow("sum", null, format(total), { class: "sum" }),
    after ? drawRow(after.label, null, format(after.apply(total)), { class: "sum" }) : null));
}

export function closeCell(state) {
  state.explained = null;
  byId("cell").replaceChildren();
}

/** Open the arithmetic of one cell: of a step, the matrix on a line of it, row i and column j. */
export function explainCell(state, step, line, i, j) {
  const { name, formula, values, derive } = state.walk.steps[step].lines[line];
  state.explained = { run: state.view.run, step, line, i, j };
  const { terms, addends, after, note } = derive(i, j);
  const nonzero = terms.filter(([, a, b]) => a * b !== 0);
  const zeros = terms.length - nonzero.length;
  put(byId("cell"),
    h("h3", {}, `${name}[${i},${j}] = ${format(values[i][j])}`),
    formula ? h("p", {}, h("i", {}, `${name} = ${formula}`)) : null,
    drawSum(nonzero, addends, after),
    zeros ? h("p", { class: "note" }, `${zeros} products that are zero are left out.`) : null,
    note ? h("p", {}, note) : null,
    button("close", "Close", () => closeCell(state)));
}

/** The open cell follows the numbers, or closes where it is no more. */
export function renderCell(state) {
  if (!state.explained) return;
  const { run, step, line, i, j } = state.explained;
  const value = state.walk.steps[step]?.lines[line]?.values[i]?.[j];
  if (run === state.view.run && value !== undefined) explainCell(state, step, line, i, j);
  else closeCell(state);
}

export function listenToCell(state) {
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") closeCell(state);
  });
}
