/* The map of a sweep on a canvas, and the cell that is chosen beside it. */

const data = JSON.parse(document.getElementById("data").textContent);
const map = document.getElementById("map");
const beside = document.getElementById("cell");
const FAINTEST = 0.04;
const FULLEST = 0.65;
const HALF = 0.5;
const LETTER = 6.6;
const rows = data.rows.values.length;
const columns = data.columns.values.length;
const panels = data.panels.values.length;
const byPlace = new Map(data.cells.map((cell) => [cell.at.join(), cell]));
let chosen = null;
let layout = null;

const color = (name) => getComputedStyle(document.body).getPropertyValue(`--${name}`).trim();
const longest = (axis) => Math.max(...axis.values.map((value) => value.length));
const interval = (hits, n) => data.wilson[n][hits];
const isOpen = (cell) => {
  const [low, high] = interval(cell.k, cell.n);
  return low <= HALF && HALF <= high;
};

/* Where everything stands, in pixels. */
function layOut() {
  const room = Math.max(300, map.parentElement.clientWidth);
  const left = data.rows.name ? 30 + LETTER * longest(data.rows) : 10;
  const across = panels > 1 ? Math.max(1, Math.min(panels, Math.floor(24 / columns))) : 1;
  const free = room / across - left - 16;
  const width = Math.max(4, Math.min(54, free / columns));
  const height = Math.max(4, Math.min(30, width, 520 / rows));
  const turned = LETTER * longest(data.columns) + 6 > width;
  const above = data.panels.name ? 24 : 8;
  const below = 26 + (turned ? LETTER * longest(data.columns) : 14);
  return {
    across,
    width,
    height,
    left,
    above,
    turned,
    stepX: left + width * columns + 16,
    stepY: above + height * rows + below,
    down: Math.ceil(panels / across),
  };
}

function originOf(panel) {
  const x = (panel % layout.across) * layout.stepX + layout.left;
  const y = Math.floor(panel / layout.across) * layout.stepY + layout.above;
  return [x, y];
}

function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif";
  return pen;
}

function cornerOf(cell) {
  const [x, y] = originOf(cell.at[0]);
  return [x + cell.at[2] * layout.width, y + cell.at[1] * layout.height];
}

function drawCell(pen, cell, ink, seed) {
  const { width, height } = layout;
  const [x, y] = cornerOf(cell);
  const share = cell.k / cell.n;
  pen.globalAlpha = FAINTEST + (FULLEST - FAINTEST) * share;
  pen.fillStyle = seed;
  pen.fillRect(x, y, width, height);
  pen.strokeStyle = ink;
  if (width >= 8 && height >= 8) {
    pen.globalAlpha = 0.12;
    pen.lineWidth = 0.5;
    pen.strokeRect(x, y, width, height);
  }
}

/* What is written over a cell, and over the boundary. */
function writeCell(pen, cell, ink) {
  const { width, height } = layout;
  const [x, y] = cornerOf(cell);
  pen.strokeStyle = ink;
  if (isOpen(cell)) {
    pen.globalAlpha = 0.8;
    pen.lineWidth = 1;
    pen.beginPath();
    const isWide = width >= 30 && height >= 20;
    const at = isWide ? [x + width - 4.5, y + 4.5, 2.2] : [x + width / 2, y + height / 2, 1.4];
    pen.arc(...at, 0, 2 * Math.PI);
    pen.stroke();
  }
  if (width >= 30 && height >= 14) {
    pen.globalAlpha = 1;
    pen.fillStyle = ink;
    pen.textAlign = "center";
    const isSure = cell.k === 0 || cell.k === cell.n;
    const text = isSure ? `${cell.k / cell.n}` : data.shares[cell.n][cell.k].slice(1, 4);
    pen.fillText(text, x + width / 2, y + height / 2 + 4);
  }
}

function drawNames(pen, panel, ink) {
  const { width, height, turned } = layout;
  const [x, y] = originOf(panel);
  const bottom = y + rows * height;
  pen.globalAlpha = 0.35;
  pen.strokeStyle = ink;
  pen.lineWidth = 1;
  pen.strokeRect(x, y, columns * width, rows * height);
  pen.globalAlpha = 1;
  pen.fillStyle = ink;
  pen.textAlign = "right";
  if (data.rows.name) {
    const every = Math.max(1, Math.ceil(13 / height));
    for (let row = rows - 1; row >= 0; row -= every) {
      pen.fillText(data.rows.values[row], x - 5, y + (row + HALF) * height + 4);
    }
  }
  const every = turned ? Math.max(1, Math.ceil(13 / width)) : 1;
  for (let column = 0; column < columns; column += every) {
    const middle = x + (column + HALF) * width;
    if (turned) {
      pen.save();
      pen.translate(middle + 4, bottom + 6);
      pen.rotate(-Math.PI / 2);
      pen.fillText(data.columns.values[column], 0, 0);
      pen.restore();
    } else {
      pen.textAlign = "center";
      pen.fillText(data.columns.values[column], middle, bottom + 15);
    }
  }
  pen.textAlign = "center";
  if (data.panels.name) {
    const name = `${data.panels.name} = ${data.panels.values[panel]}`;
    pen.fillText(name, x + (columns * width) / 2, y - 9);
  }
  pen.font = "bold 11px system-ui, sans-serif";
  const below = turned ? LETTER * longest(data.columns) + 20 : 31;
  pen.fillText(data.columns.name, x + (columns * width) / 2, bottom + below);
  if (data.rows.name) {
    pen.save();
    pen.translate(x - 14 - LETTER * longest(data.rows), y + (rows * height) / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(data.rows.name, 0, 0);
    pen.restore();
  }
  pen.font = "11px system-ui, sans-serif";
}

function drawMarks(pen, panel) {
  const { width, height } = layout;
  const [originX, originY] = originOf(panel);
  pen.globalAlpha = 1;
  pen.strokeStyle = color("published");
  for (const [isBand, left, top, right, bottom] of data.marks[panel] ?? []) {
    const x = originX + left * width;
    const y = originY + top * height;
    if (isBand) {
      pen.lineWidth = 1;
      const wide = (right - left) * width - 1;
      pen.strokeRect(x + HALF, y + HALF, wide, (bottom - top) * height - 1);
    } else {
      pen.lineWidth = 2.5;
      pen.beginPath();
      pen.moveTo(x, y);
      pen.lineTo(originX + right * width, originY + bottom * height);
      pen.stroke();
    }
  }
}

function drawMap() {
  layout = layOut();
  const wide = layout.stepX * Math.min(panels, layout.across);
  const pen = prepare(map, wide, layout.stepY * layout.down + 6);
  const ink = color("ink");
  const seed = color("seed");
  for (const cell of data.cells) {
    drawCell(pen, cell, ink, seed);
  }
  for (let panel = 0; panel < panels; panel += 1) {
    drawNames(pen, panel, ink);
    drawMarks(pen, panel);
  }
  for (const cell of data.cells) {
    writeCell(pen, cell, ink);
  }
  if (chosen) {
    pen.globalAlpha = 1;
    pen.strokeStyle = ink;
    pen.lineWidth = 2.5;
    pen.strokeRect(...cornerOf(chosen), layout.width, layout.height);
  }
}

function drawLegend() {
  const pen = prepare(document.getElementById("scale"), 110, 12);
  pen.fillStyle = color("seed");
  for (let i = 0; i <= 10; i += 1) {
    pen.globalAlpha = FAINTEST + ((FULLEST - FAINTEST) * i) / 10;
    pen.fillRect(i * 10, 0, 10, 12);
  }
  document.getElementById("said").textContent = `share of seeds that reach ${data.event}`;
  const percent = Math.round(data.level * 1000) / 10;
  const marks = data.marks.length ? "; orange: where the share crosses one half, and its band" : "";
  document.getElementById("ring").textContent =
    `\u25cb its ${percent}% interval contains one half${marks}`;
}

/* The share that has not reached yet, as [step, share, low, high] at each change. */
export function curveOf(cell) {
  if (cell.curve) {
    const [steps, values, low, high] = cell.curve;
    return steps.map((step, i) => [step, values[i], low[i], high[i]]);
  }
  let left = cell.n;
  const points = [[0, 1, ...interval(cell.n, cell.n)]];
  for (const [step, count] of cell.reached) {
    left -= count;
    points.push([step, left / cell.n, ...interval(left, cell.n)]);
  }
  points.push([cell.end, left / cell.n, ...interval(left, cell.n)]);
  return points;
}

function stairs(points, which, x, y) {
  const corners = [];
  points.forEach((point, i) => {
    if (i) {
      corners.push(`${x(point[0])},${y(points[i - 1][which])}`);
    }
    corners.push(`${x(point[0])},${y(point[which])}`);
  });
  return corners;
}

function curveSvg(cell) {
  const points = curveOf(cell);
  const x = (step) => (36 + (330 * step) / (cell.end || 1)).toFixed(1);
  const y = (share) => (8 + 140 * (1 - share)).toFixed(1);
  const band = [...stairs(points, 3, x, y), ...stairs(points, 2, x, y).reverse()].join(" ");
  const ticks = [0, HALF, 1].map(
    (part) => `<text x="${x(part * cell.end)}" y="163" text-anchor="middle">` +
      `${Math.round(part * cell.end).toLocaleString("en")}</text>` +
      `<text x="30" y="${Number(y(part)) + 4}" text-anchor="end">${part}</text>`,
  );
  return `<svg viewBox="0 0 390 184" role="img" font-size="11" fill="currentColor"
    aria-label="share of seeds that have not reached yet, by step">
    <path d="M36 8V148H366" fill="none" stroke="currentColor" stroke-opacity=".5"/>
    <path d="M36 78H366" stroke="currentColor" stroke-opacity=".35" stroke-dasharray="3 3"/>
    <polygon points="${band}" fill="var(--seed)" fill-opacity=".14"/>
    <polyline points="${stairs(points, 1, x, y).join(" ")}" fill="none" stroke="var(--seed)"
      stroke-width="2"/>${ticks.join("")}
    <text x="201" y="180" text-anchor="middle">step; share of seeds that have not reached</text>
    </svg>`;
}

function element(name, text, parent) {
  const made = document.createElement(name);
  made.textContent = text;
  parent.append(made);
  return made;
}

function axisValue(axis, i) {
  return axis.name ? [`${axis.name} = ${axis.values[i]}`] : [];
}

function show(cell) {
  const [panel, row, column] = cell.at;
  const place = [
    ...axisValue(data.panels, panel),
    ...axisValue(data.rows, row),
    ...axisValue(data.columns, column),
  ];
  beside.replaceChildren();
  element("h2", place.join(", "), beside);
  const lost = cell.diverged ? `; ${cell.diverged} diverged` : "";
  const share = data.shares[cell.n][cell.k];
  element("p", `${cell.k} of ${cell.n} seeds reach it: ${share}${lost}.`, beside);
  element("p", `Median step: ${cell.median}.`, beside);
  beside.insertAdjacentHTML("beforeend", curveSvg(cell));
  if (cell.link) {
    element("a", "Open its models in the explorer", element("p", "", beside)).href = cell.link;
  }
  if (cell.command) {
    const line = element("p", cell.link ? "or type " : "Its models in the explorer: ", beside);
    element("code", cell.command, line);
    const button = element("button", "copy", line);
    button.onclick = () => navigator.clipboard.writeText(cell.command);
  }
}

function choose(cell) {
  chosen = cell;
  show(cell);
  drawMap();
}

function cellAt(event) {
  const box = map.getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left) / layout.stepX);
  const line = Math.floor((event.clientY - box.top) / layout.stepY);
  const panel = line * layout.across + column;
  const [x, y] = originOf(panel);
  const at = [
    panel,
    Math.floor((event.clientY - box.top - y) / layout.height),
    Math.floor((event.clientX - box.left - x) / layout.width),
  ];
  return byPlace.get(at.join());
}

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function move(event) {
  const step = STEPS[event.key];
  if (!step) {
    return;
  }
  event.preventDefault();
  if (!chosen) {
    choose(data.cells[0]);
    return;
  }
  // over places where nothing was trained
  let [panel, row, column] = chosen.at;
  while (row >= 0 && row < rows && column >= 0 && column < columns) {
    row += step[0];
    column += step[1];
    const found = byPlace.get([panel, row, column].join());
    if (found) {
      choose(found);
      return;
    }
  }
}

map.addEventListener("click", (event) => {
  const cell = cellAt(event);
  if (cell) {
    choose(cell);
  }
});
map.addEventListener("pointermove", (event) => {
  const cell = cellAt(event);
  map.title = cell ? `${cell.k} of ${cell.n} seeds` : "";
});
map.addEventListener("keydown", move);
window.addEventListener("resize", drawMap);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  drawMap();
  drawLegend();
});
const start = performance.now();
drawMap();
drawLegend();
document.body.dataset.drawn = (performance.now() - start).toFixed(1);
