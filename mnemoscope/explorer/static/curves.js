// Curves against training steps on a logarithmic axis, with a cursor at the step that is shown.

import { s } from "dom.js";

const WIDTH = 420;
const HEIGHT = 170;
const LEFT = 46;
const RIGHT = 10;
const TOP = 24;
const BOTTOM = 28;
const NAME_HEIGHT = 12; // of the name of a level
const MAX_TICKS = 5;
const STEP_TICKS = [0, 10, 100, 1000, 10000, 100000];

function sayNumber(value) {
  if (!Number.isFinite(value)) return "no number";
  return value === 0 ? "0" : value.toPrecision(3);
}

function createStepScale(last) {
  return (step) => LEFT + (WIDTH - LEFT - RIGHT) * Math.log1p(step) / Math.log1p(last);
}

function createValueScale({ low, high, log }) {
  const scale = log ? (value) => Math.log10(Math.max(value, low)) : (value) => value;
  const bottom = scale(low);
  const top = scale(high);
  return (value) => {
    const inside = Math.min(top, Math.max(bottom, scale(value)));
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (inside - bottom) / (top - bottom);
  };
}

/** Powers of ten, or quarters of the range; every other one where there are too many. */
function chooseTicks({ low, high, log }) {
  const powers = Array.from({ length: 13 }, (_, i) => 10 ** (i - 9));
  const quarters = [0, 0.25, 0.5, 0.75, 1].map((share) => low + share * (high - low));
  const ticks = log ? powers.filter((value) => value >= low && value <= high) : quarters;
  if (ticks.length <= MAX_TICKS) return ticks;
  return ticks.filter((_, i) => i % 2 === (ticks.length - 1) % 2);
}

function drawValueTick(value, y, log) {
  const text = log ? value.toExponential(0).replace("e+0", "") : value.toPrecision(2);
  return [
    s("path", { d: `M${LEFT},${y} H${WIDTH - RIGHT}`, class: "grid" }),
    s("text", { x: LEFT - 5, y: y + 4, "text-anchor": "end", class: "value" }, text),
  ];
}

function drawStepTick(step, x) {
  const attributes = { x, y: HEIGHT - 12, "text-anchor": "middle", class: "value" };
  return s("text", attributes, step.toLocaleString("en"));
}

function drawCurve([, steps, values], index, x, y) {
  const points = values.map((value, i) => `${x(steps[i]).toFixed(1)},${y(value).toFixed(1)}`);
  return s("path", { d: `M${points.join("L")}`, class: `curve c${index}` });
}

function drawLegend([name], index, count) {
  const x = WIDTH - RIGHT - 4 - 90 * (count - 1 - index);
  return s("text", { x, y: 12, "text-anchor": "end", class: `legend c${index}` }, name);
}

/**
 * A level that the curves are compared with, and its name; one below a logarithmic axis stands at
 * its edge.
 */
function drawMark([name, value], index, y, { low, log }) {
  const at = y(value);
  const isBelow = log && value < low;
  const text = `${name} ${sayNumber(value)}${isBelow ? ", below this axis" : ""}`;
  const isHigh = at < TOP + NAME_HEIGHT; // the title stands above
  // curves fall from the left: the first level, which they start above, is named at the right
  const place = index === 0
    ? { x: WIDTH - RIGHT - 4, "text-anchor": "end" } : { x: LEFT + 4 };
  const label = { ...place, y: isHigh ? at + NAME_HEIGHT : at - 4 };
  return [
    s("path", { d: `M${LEFT},${at} H${WIDTH - RIGHT}`, class: `mark m${index}` }),
    s("text", { ...label, class: `value mark-name m${index}` }, text),
  ];
}

/**
 * `lines` are [name, steps, values]; `axis` is {low, high, log, cursor, last}, where a cursor may be
 * null, and may have `marks`, levels as [name, value], and hasLegend: false.
 */
export function drawCurves(title, lines, axis) {
  const x = createStepScale(axis.last);
  const y = createValueScale(axis);
  const { marks = [], hasLegend = true, cursor } = axis;
  const ends = lines.map(([name, , values]) => `${name} ends at ${sayNumber(values.at(-1))}`);
  const levels = marks.map(([name, value]) => `${name}: ${sayNumber(value)}`);
  const attributes = {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    width: WIDTH,
    height: HEIGHT,
    role: "img",
    class: "curves",
    "aria-label": `${title}. ${[...ends, ...levels].join("; ")}`,
  };
  const unit = { x: WIDTH - RIGHT, y: HEIGHT - 3, "text-anchor": "end", class: "value" };
  return s("svg", attributes,
    s("text", { x: 0, y: 12, class: "head" }, title),
    chooseTicks(axis).map((value) => drawValueTick(value, y(value), axis.log)),
    STEP_TICKS.filter((step) => step <= axis.last).map((step) => drawStepTick(step, x(step))),
    s("text", unit, "steps"),
    marks.map((mark, index) => drawMark(mark, index, y, axis)),
    lines.map((line, index) => [
      drawCurve(line, index, x, y),
      hasLegend && lines.length > 1 && drawLegend(line, index, lines.length),
    ]),
    cursor !== null
      && s("path", { d: `M${x(cursor)},${TOP} V${HEIGHT - BOTTOM}`, class: "cursor" }));
}
