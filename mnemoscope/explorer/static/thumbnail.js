// A head's attention pattern as a small picture: rows are queries, columns are keys.

import { s } from "dom.js";

const SIZE = 92; // pixels, at most
const LARGEST_CELL = 12;
const INVISIBLE = 0.01; // of a full cell: not worth drawing

/** `top` is the weight of a full cell. */
export function drawThumbnail(pattern, top) {
  const n = pattern.length;
  const cell = Math.min(LARGEST_CELL, SIZE / n);
  const gap = cell > 5 ? 1 : 0;
  const cells = pattern.flatMap((row, i) => row.map((value, j) => {
    const share = Math.min(1, Math.abs(value) / top);
    return share > INVISIBLE && s("rect", {
      x: (j * cell).toFixed(1),
      y: (i * cell).toFixed(1),
      width: (cell - gap).toFixed(1),
      height: (cell - gap).toFixed(1),
      class: value < 0 ? "cold" : "hot",
      "fill-opacity": share.toFixed(2),
    });
  }));
  const side = (n * cell).toFixed(1);
  const attributes = { viewBox: `0 0 ${side} ${side}`, width: side, height: side };
  return s("svg", { ...attributes, class: "thumbnail", "aria-hidden": "true" },
    s("rect", { width: side, height: side, class: "sheet" }), cells);
}
