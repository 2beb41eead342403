// The part that is open: its switch (on, zero or mean), its attention where it is a head, and every
// matrix that it computes, which tables.js draws.

import { switchPart, toggleForced } from "ablation.js";
import { button, byId, h, put } from "dom.js";
import { weightOfFullCell } from "flow.js";
import { drawHeatmap } from "heatmap.js";
import { ATTENTION } from "layer_tables.js";
import { isHead, isMlp, namePart, placeOf } from "parts.js";
import { changeView } from "state.js";

const MAX_POSITIONS = 24; // the last ones of a longer prompt are shown

function drawSwitch(state, part) {
  const { off } = state.view;
  const set = (how) => changeView(state, { off: switchPart(off, part, how) });
  const choices = ["on", "zero", "mean"].map((how) =>
    button(`off-${part}-${how}`, how, () => set(how), {
      "aria-pressed": (off[part] ?? "on") === how,
    }));
  const name = namePart(state.model, part);
  return h("div", { class: "switch", role: "group", "aria-label": name }, choices);
}

/** Forced rows as the heat map counts them, which starts at the first position that is shown. */
function shiftForced(forced, first) {
  const shifted = Object.entries(forced).map(([row, target]) =>
    [row - first, target === "even" ? target : target - first]);
  return Object.fromEntries(shifted);
}

function drawPattern(state, part, first) {
  const { run, tokens, force } = state.view;
  const { layer, head } = placeOf(part);
  const name = namePart(state.model, part);
  const labels = tokens.map((token, i) => `${i} ${run.token_names[token]}`);
  const toggle = (row, target) =>
    changeView(state, { force: toggleForced(force, part, row, target) });
  const handlers = {
    onRead(i, j, value) {
      const where = `${labels[i + first]} attends to ${labels[j + first]}`;
      byId("attended").textContent = `In ${name}, ${where} with weight ${value.toFixed(4)}.`;
    },
    onForce: (i, j) => toggle(i + first, j + first),
    onEven: (i) => toggle(i + first, "even"),
  };
  const { pattern } = state.trace.layers[layer].heads[head];
  const map = {
    part,
    pattern: pattern.slice(first).map((row) => row.slice(first)),
    labels: labels.slice(first),
    forced: shiftForced(force[part] ?? {}, first),
    top: weightOfFullCell(run.config, pattern),
    isCausal: run.config.causal,
  };
  return h("div", { class: "scroll" }, drawHeatmap(map, handlers));
}

/** How a pattern is read, and what is unusual about it. */
function describePatterns(config, first) {
  const notes = [
    "Rows are queries, columns are keys. Press a cell to force its row to attend there alone,",
    "a row's name to spread it evenly; again to let it go.",
  ];
  if (!config.causal) notes.push("Every position sees the whole prompt.");
  if (!ATTENTION[config.attention].sumsToOne) {
    notes.push("The weights of a row do not sum to one; negative ones are orange.");
  }
  if (first) notes.push(`The last ${MAX_POSITIONS} positions are shown.`);
  return notes.join(" ");
}

function drawHead(state, part) {
  const first = Math.max(0, state.view.tokens.length - MAX_POSITIONS);
  return [
    h("p", { class: "note" }, describePatterns(state.view.run.config, first)),
    drawPattern(state, part, first),
  ];
}

const capitalize = (text) => text[0].toUpperCase() + text.slice(1);

export function renderPart(state) {
  const { part } = state.view;
  const section = byId("part-section");
  section.hidden = !part;
  // a head shows its attention first; of other parts the matrices are all there is
  if (section.dataset.part !== part) byId("matrices").open = Boolean(part) && !isHead(part);
  section.dataset.part = part;
  if (!isHead(part)) byId("attended").textContent = "";
  if (!part) {
    put(byId("part"));
    return;
  }
  const canBeOff = isHead(part) || isMlp(part);
  const close = () => changeView(state, { part: "" });
  put(byId("part"),
    h("div", { class: "bar-of" },
      h("h2", {}, capitalize(namePart(state.model, part))),
      canBeOff ? drawSwitch(state, part) : null,
      button("close-part", "Close", close)),
    canBeOff
      ? h("p", { class: "note" }, "Zero: it says nothing. Mean: what it says on average over ",
        "24 prompts drawn at random, whatever this prompt is.")
      : null,
    isHead(part) ? drawHead(state, part) : null);
}
