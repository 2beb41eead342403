// The walk on the page: one step open at a time, its matrices as tables, large ones folded; and the
// same matrices for the part that is open.

import { explainCell } from "cell.js";
import { button, byId, h, moveBetweenCells, put } from "dom.js";
import { changeView } from "state.js";
import { buildWalk } from "walk.js";

const FOLD = 10; // rows and columns of a matrix that are shown when it is folded

/** Which of n rows or columns are shown; null stands for the gap. */
function chooseIndices(n, isWhole) {
  if (isWhole || n <= FOLD + 1) return Array.from({ length: n }, (_, i) => i);
  return [...Array(FOLD - 1).keys(), null, n - 1];
}

function drawNumber(line, i, j) {
  if (i === null || j === null) return h("td", {}, "…");
  const attributes = {
    role: "button",
    tabindex: i || j ? -1 : 0,
    "data-key": `n-${line.name}-${i}-${j}`,
    "data-row": i,
    "data-column": j,
  };
  return h("td", attributes, line.values[i][j].toFixed(3));
}

function drawTable(line, rows, columns, onPick) {
  const name = (labels, index) => (index === null ? "…" : labels[index]);
  const header = (j) => h("th", { scope: "col" }, name(line.columns, j));
  const head = line.columns
    ? h("thead", {}, h("tr", {}, h("td", {}), columns.map(header)))
    : null;
  const body = rows.map((i) => h("tr", {},
    h("th", { scope: "row" }, name(line.rows, i)),
    columns.map((j) => drawNumber(line, i, j))));
  const onclick = (event) => {
    const cell = event.target.closest("td[data-row]");
    if (cell) onPick(Number(cell.dataset.row), Number(cell.dataset.column));
  };
  return h("table", { class: "numbers", onkeydown: moveBetweenCells, onclick },
    head, h("tbody", {}, body));
}

function toggleFold(state, name) {
  if (state.unfolded.has(name)) state.unfolded.delete(name);
  else state.unfolded.add(name);
  renderTables(state);
}

function drawCaption(state, line, isLarge) {
  const isWhole = state.unfolded.has(line.name);
  const size = `${line.values.length} by ${line.values[0].length}`;
  const fold = button(
    `all-${line.name}`,
    isWhole ? "fold" : "show all",
    () => toggleFold(state, line.name),
    { class: "small", "aria-pressed": isWhole },
  );
  return h("p", {},
    h("i", {}, line.formula ? `${line.name} = ${line.formula}` : line.name),
    h("small", {}, ` ${size}${line.formula ? "" : ", learned"} `),
    isLarge ? fold : null);
}

function drawMatrix(state, step, index) {
  const line = state.walk.steps[step].lines[index];
  const isWhole = state.unfolded.has(line.name);
  const rows = chooseIndices(line.values.length, isWhole);
  const columns = chooseIndices(line.values[0].length, isWhole);
  const isLarge = isWhole || rows.includes(null) || columns.includes(null);
  const table = drawTable(line, rows, columns, (i, j) => explainCell(state, step, index, i, j));
  const attributes = {
    class: line.formula ? "matrix" : "matrix given",
    "data-line": `${step} ${index}`,
  };
  return h("div", attributes,
    drawCaption(state, line, isLarge),
    h("div", { class: "scroll" }, table));
}

function drawStep(state, { title, lines }, step) {
  const isOpen = state.view.open.includes(step);
  const ontoggle = (event) => {
    if (event.target.open === state.view.open.includes(step)) return;
    // one at a time: thousands of cells would be slow
    changeView(state, { open: event.target.open ? [step] : [] });
  };
  const matrices = lines.map((_, index) => (isOpen ? drawMatrix(state, step, index) : null));
  return h("details", { open: isOpen, ontoggle },
    h("summary", { "data-key": `open-${step}` }, `${step + 1}. ${title}`),
    isOpen ? h("div", { class: "lines" }, matrices) : null);
}

/** The matrices of the part that is open. */
function drawPart(state) {
  const step = state.walk.steps.findIndex(({ part }) => part && part === state.view.part);
  if (step < 0) return [];
  return state.walk.steps[step].lines.map((_, index) => drawMatrix(state, step, index));
}

/** Only values moved: the tables stay, and their numbers follow. */
function updateNumbers(steps) {
  for (const cell of document.querySelectorAll("[data-line] td[data-row]")) {
    const [step, index] = cell.closest("[data-line]").dataset.line.split(" ");
    const { row, column } = cell.dataset;
    const text = steps[step].lines[index].values[row][column].toFixed(3);
    if (cell.textContent !== text) cell.textContent = text;
  }
}

export function renderTables(state) {
  const { run, open, part, tokens } = state.view;
  const steps = buildWalk(state.model, state.trace, run.token_names, state.edits);
  const key = JSON.stringify([run.id, open, part, [...state.unfolded], tokens]);
  const isSame = key === state.walk.key;
  state.walk = { key, steps };
  if (isSame) {
    updateNumbers(steps);
    return;
  }
  put(byId("walk"), steps.map((step, n) => drawStep(state, step, n)));
  put(byId("numbers"), drawPart(state));
}
