// Pictures: bars of an answer, heat maps, curves. Colours are CSS variables, so that they follow light and dark.

import { h, percent, s } from "dom.js";

const WIDTH = 250, ROW = 20;

/** The model's probabilities after one token, with what perfect readers would say. */
export function bars(title, names, p, oracles, marks) {
  const shown = p.map((x, t) => [t, x]).sort((a, b) => b[1] - a[1]).slice(0, 12).map(([t]) => t).sort((a, b) => a - b);
  const left = 34, right = 52, span = WIDTH - left - right, height = 26 + ROW * shown.length;
  const x = (value) => left + span * value;
  const best = p.indexOf(Math.max(...p));
  const told = [`${title}: the model says ${names[best]} (${percent(p[best])})`];
  for (const [name, q] of oracles) told.push(q ? `${name}: ${q.map((v, t) => [v, t]).filter(([v]) => v > 0).map(([v, t]) => `${names[t]} ${percent(v)}`).join(", ")}` : `${name}: none fits`);
  const rows = shown.map((t, i) => {
    const y = 26 + ROW * i, used = marks.used.includes(t), recall = marks.recall === t;
    return [
      s("text", { x: left - 6, y: y + 14, "text-anchor": "end", class: used && !recall ? "token used" : "token" }, names[t]),
      s("rect", { x: left, y: y + 4, width: span, height: ROW - 7, class: "track" }),
      s("rect", { x: left, y: y + 4, width: Math.max(0, span * p[t]), height: ROW - 7, class: t === best ? "bar best" : "bar" }),
      oracles.map(([, q], k) => q && q[t] > 0 && s("path", { d: k === 0 ? `M${x(q[t])},${y + 2} v${ROW - 3}` : `M${x(q[t])},${y + 1} l4,-0 l-4,6 l-4,-6 z`, class: `oracle o${k}` })),
      s("text", { x: WIDTH - right + 4, y: y + 14, class: "value" }, percent(p[t]) + (recall ? " ★" : used ? " ·" : "")),
    ];
  });
  return s("svg", { viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height, role: "img", "aria-label": told.join(". "), class: "answer" },
    s("text", { x: 0, y: 14, class: "head" }, title), rows);
}

const shade = (value) => `color-mix(in srgb, var(--heat) ${Math.round(100 * Math.min(1, Math.max(0, value)))}%, var(--paper))`;

/** Arrow keys move the focus from cell to cell of a table; Enter and the space bar click. */
export function moveAround(event) {
  const cell = event.target.closest("td[data-row]");
  if (!cell) return;
  if (event.key === "Enter" || event.key === " ") { event.preventDefault(); cell.click(); return; }
  const row = cell.parentElement, place = [...row.children].indexOf(cell);
  const beside = { ArrowLeft: cell.previousElementSibling, ArrowRight: cell.nextElementSibling,
    ArrowUp: row.previousElementSibling?.children[place], ArrowDown: row.nextElementSibling?.children[place] };
  if (!(event.key in beside)) return;
  event.preventDefault();
  if (beside[event.key]?.matches("td[data-row]")) { cell.tabIndex = -1; beside[event.key].tabIndex = 0; beside[event.key].focus(); }
}

/** One head's attention as a table: rows ask, columns are looked at. */
export function heat(key, pattern, labels, forced, { look, force, even }) {
  const cells = pattern.map((row, i) => h("tr", {},
    h("th", { scope: "row" }, h("button", { type: "button", class: forced[i] === undefined ? "row" : "row forced", "data-key": `even-${key}-${i}`, "aria-pressed": forced[i] === "even",
      title: "spread this row evenly", "aria-label": `from ${labels[i]}: spread evenly`, onclick: () => even(i) }, labels[i])),
    row.map((value, j) => (j > i ? h("td", { class: "unseen" }) : h("td", {
      tabindex: i === 0 && j === 0 ? 0 : -1, "data-key": `cell-${key}-${i}-${j}`, "data-row": i, "data-column": j, role: "button",
      style: `background:${shade(value)}`, class: `${forced[i] === j ? "forced" : ""} ${value > 0.55 ? "strong" : ""}`.trim() || null,
      "aria-label": `from ${labels[i]} to ${labels[j]}: ${value.toFixed(3)}`, title: `${labels[i]} → ${labels[j]}: ${value.toFixed(3)}`,
      onmouseenter: () => look(i, j, value), onfocus: () => look(i, j, value), onclick: () => force(i, j),
    }, value < 0.005 ? "" : value.toFixed(2).replace(/^0/, ""))))));
  return h("table", { class: "heat", onkeydown: moveAround }, h("thead", {}, h("tr", {}, h("td", {}), labels.map((label) => h("th", { scope: "col" }, label)))), h("tbody", {}, cells));
}

/** Curves against training steps on a log axis, with a cursor. `lines` are [name, steps, values]. */
export function curves(title, lines, { low, high, log = false, cursor, last, unit }) {
  const width = 420, height = 170, left = 46, right = 10, top = 24, bottom = 28;
  const x = (step) => left + (width - left - right) * Math.log1p(step) / Math.log1p(last);
  const scale = log ? (v) => Math.log10(Math.max(v, low)) : (v) => v, [a, b] = [scale(low), scale(high)];
  const y = (v) => height - bottom - (height - top - bottom) * (Math.min(b, Math.max(a, scale(v))) - a) / (b - a);
  const ticks = log ? Array.from({ length: 13 }, (_, i) => 10 ** (i - 9)).filter((v) => v >= low && v <= high) : [0, 0.25, 0.5, 0.75, 1].map((v) => low + v * (high - low));
  const few = ticks.length > 5 ? ticks.filter((_, i) => i % 2 === (ticks.length - 1) % 2) : ticks;
  const steps = [0, 10, 100, 1000, 10000, 100000].filter((v) => v <= last);
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "curves",
    "aria-label": `${title}. ${lines.map(([name, , values]) => `${name} ends at ${values.at(-1).toPrecision(3)}`).join("; ")}` },
  s("text", { x: 0, y: 12, class: "head" }, title),
  few.map((v) => [s("path", { d: `M${left},${y(v)} H${width - right}`, class: "grid" }), s("text", { x: left - 5, y: y(v) + 4, "text-anchor": "end", class: "value" }, log ? v.toExponential(0).replace("e+0", "") : v.toPrecision(2))]),
  steps.map((v) => s("text", { x: x(v), y: height - 12, "text-anchor": "middle", class: "value" }, v.toLocaleString("en"))),
  s("text", { x: width - right, y: height - 1, "text-anchor": "end", class: "value" }, unit),
  lines.map(([name, at, values], k) => [
    s("path", { d: values.map((v, i) => `${i ? "L" : "M"}${x(at[i]).toFixed(1)},${y(v).toFixed(1)}`).join(""), class: `curve c${k}` }),
    lines.length > 1 && s("text", { x: width - right - 4 - 90 * (lines.length - 1 - k), y: 12, "text-anchor": "end", class: `legend c${k}` }, name)]),
  s("path", { d: `M${x(cursor)},${top} V${height - bottom}`, class: "cursor" }));
}
