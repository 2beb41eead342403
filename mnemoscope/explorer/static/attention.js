// Every head's attention and every feed-forward layer, each with its switch: on, zero or mean.

import { switchPart, toggleForced } from "ablation.js";
import { button, byId, h, put } from "dom.js";
import { drawHeatmap } from "heatmap.js";
import { ATTENTION } from "layer_tables.js";
import { changeView } from "state.js";

const MAX_POSITIONS = 24; // the last ones of a longer prompt are shown

function drawSwitch(state, part, name) {
  const { off } = state.view;
  const set = (how) => changeView(state, { off: switchPart(off, part, how) });
  const choices = ["on", "zero", "mean"].map((how) =>
    button(`off-${part}-${how}`, how, () => set(how), {
      "aria-pressed": (off[part] ?? "on") === how,
    }));
  return h("div", { class: "switch", role: "group", "aria-label": name }, choices);
}

function drawPart(state, part, name, className, content) {
  const classes = state.view.off[part] ? `${className} off` : className;
  return h("figure", { class: classes, "data-part": part },
    h("figcaption", {}, name, drawSwitch(state, part, name)),
    content);
}

/** Forced rows as the heat map counts them, which starts at the first position that is shown. */
function shiftForced(forced, first) {
  const shifted = Object.entries(forced).map(([row, target]) =>
    [row - first, target === "even" ? target : target - first]);
  return Object.fromEntries(shifted);
}

/** Weights that sum to one are shown against one, all others against the largest. */
function weightOfFullCell(config, pattern) {
  if (ATTENTION[config.attention].sumsToOne) return 1;
  const sizes = pattern.flat().map(Math.abs);
  return sizes.reduce((top, size) => Math.max(top, size), 0) || 1;
}

function drawHead(state, layer, head, first) {
  const { run, tokens, force } = state.view;
  const part = `${layer}.${head}`;
  const name = `Layer ${layer}, head ${head}`;
  const labels = tokens.map((token, i) => `${i} ${run.token_names[token]}`);
  const toggle = (row, target) =>
    changeView(state, { force: toggleForced(force, part, row, target) });
  const handlers = {
    onRead(i, j, value) {
      const where = `${labels[i + first]} attends to ${labels[j + first]}`;
      byId("attended").textContent = `${name}: ${where} with weight ${value.toFixed(4)}.`;
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
  const drawn = drawHeatmap(map, handlers);
  return drawPart(state, part, name, "part", h("div", { class: "scroll" }, drawn));
}

function drawMlp(state, layer) {
  const hidden = state.trace.layers[layer].post.at(-1);
  const active = hidden.filter((x) => x > 0).length;
  const above = `${active} are above zero at the last token`;
  const note = `${hidden.length} hidden units, of which ${above}.`;
  const name = `Layer ${layer}, feed-forward`;
  return drawPart(state, `mlp${layer}`, name, "part mlp", h("p", { class: "note" }, note));
}

/** What is unusual about the patterns. */
function describePatterns(config, first) {
  const notes = [];
  if (!config.causal) notes.push("Every position sees the whole prompt.");
  if (!ATTENTION[config.attention].sumsToOne) {
    notes.push("The weights of a row do not sum to one; negative ones are orange.");
  }
  if (first) notes.push(`The last ${MAX_POSITIONS} positions are shown.`);
  return notes;
}

export function renderAttention(state) {
  const { tokens, off, force } = state.view;
  const first = Math.max(0, tokens.length - MAX_POSITIONS);
  const parts = state.trace.layers.map((layer, l) => [
    layer.heads.map((_, head) => drawHead(state, l, head, first)),
    layer.mlpOut ? drawMlp(state, l) : null,
  ]);
  put(byId("heads"), parts);
  byId("reset").disabled = !Object.keys(off).length && !Object.keys(force).length;
  byId("folded").textContent = describePatterns(state.view.run.config, first).join(" ");
}

export function listenToAttention(state) {
  byId("reset").addEventListener("click", () => changeView(state, { off: {}, force: {} }));
}
