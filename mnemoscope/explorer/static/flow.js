// The model as a flow, from tokens to the answer. It is the control panel: a part is pressed to
// knock it out and in again, and its numbers open from here.

import { switchPart } from "ablation.js";
import { button, byId, formatPercent, h, put } from "dom.js";
import { ATTENTION } from "layer_tables.js";
import { isHead, namePart, partsOfLayer, placeOf } from "parts.js";
import { changeView } from "state.js";
import { drawThumbnail } from "thumbnail.js";

const MAX_GROUPS = 10; // the last ones of a longer prompt are shown
const MAX_POSITIONS = 24;

/** Weights that sum to one are shown against one, all others against the largest. */
export function weightOfFullCell(config, pattern) {
  if (ATTENTION[config.attention].sumsToOne) return 1;
  const sizes = pattern.flat().map(Math.abs);
  return sizes.reduce((top, size) => Math.max(top, size), 0) || 1;
}

function drawStep(title, caption, ...content) {
  return h("li", { class: "step" },
    h("h3", {}, title),
    h("p", { class: "note" }, caption),
    content);
}

function drawArrow() {
  return h("li", { class: "arrow", "aria-hidden": "true" });
}

/** The button that opens the numbers of a part. */
function drawOpener(state, part) {
  const isOpen = state.view.part === part;
  const toggle = () => changeView(state, { part: isOpen ? "" : part });
  return button(`numbers-${part}`, isOpen ? "close" : "numbers", toggle, {
    class: "opener",
    "aria-expanded": isOpen,
    "aria-controls": "part",
    "aria-label": `${isOpen ? "close the numbers" : "numbers"} of ${namePart(state.model, part)}`,
  });
}

/** What stands on a part that is knocked out. */
const TOLD = { zero: "knocked out", mean: "at its mean" };

/** Whether there is no room for words in the parts. */
function isDrawingDense({ config }) {
  return config.n_layers > 1 || config.n_heads > 4;
}

function drawNode(state, part, title, content, more = "") {
  const how = state.view.off[part];
  const toggle = () =>
    changeView(state, { off: switchPart(state.view.off, part, how ? "on" : "zero") });
  const cut = button(`node-${part}`, "", toggle, {
    class: "cut",
    "aria-pressed": Boolean(how),
    "aria-label": `knock out ${namePart(state.model, part)}`,
    title: (how ? "put it in again" : "knock it out") + more,
  });
  cut.append(h("span", { class: "title" }, title), ...content);
  if (how) cut.append(h("strong", { class: "told" }, TOLD[how]));
  return h("div", { class: how ? "node off" : "node", "data-node": part },
    cut, drawOpener(state, part));
}

/** Where the last position attends to most. */
function describeAttention({ view }, pattern) {
  const row = pattern.at(-1);
  const sizes = row.map(Math.abs);
  const j = sizes.indexOf(Math.max(...sizes));
  const name = view.run.token_names[view.tokens[j]];
  const weight = row[j].toFixed(2).replace("-", "−").replace("0.", ".");
  return `the last looks most at ${j} “${name}”, ${weight}`;
}

function drawHead(state, part) {
  const { layer, head } = placeOf(part);
  const { pattern } = state.trace.layers[layer].heads[head];
  const first = Math.max(0, pattern.length - MAX_POSITIONS);
  const shown = pattern.slice(first).map((row) => row.slice(first));
  const forced = Object.keys(state.view.force[part] ?? {}).length;
  const looks = describeAttention(state, pattern);
  const isDense = isDrawingDense(state.model);
  return drawNode(state, part, `Head ${head}`, [
    drawThumbnail(shown, weightOfFullCell(state.view.run.config, pattern)),
    isDense ? null : h("span", { class: "note" }, looks),
    forced ? h("strong", { class: "told" }, "forced") : null,
  ].filter(Boolean), isDense ? `; ${looks}` : "");
}

function drawMlp(state, part) {
  const hidden = state.trace.layers[placeOf(part).layer].post.at(-1);
  const top = Math.max(...hidden.map(Math.abs)) || 1;
  const bars = hidden.map((x) =>
    h("i", { style: `height:${Math.max(4, Math.round((100 * Math.abs(x)) / top))}%` }));
  const active = hidden.filter((x) => x > 0).length;
  return drawNode(state, part, `${hidden.length} units`, [
    h("span", { class: "units", "aria-hidden": "true" }, bars),
    h("span", { class: "note" }, `${active} above zero at the last`),
  ]);
}

/** How a layer's parts meet the stream. */
function describeAttentionStep({ config }) {
  const norm = config.norm === "pre" ? "norm, " : "";
  return `${norm}${config.attn_residual ? "added to the stream" : "replaces the stream"}`;
}

function drawParts(state, title, caption, parts) {
  const draw = (part) => (isHead(part) ? drawHead(state, part) : drawMlp(state, part));
  const hasRoom = state.model.config.n_layers === 1;
  const className = parts.length > (hasRoom ? 1 : 2) ? "nodes paired" : "nodes";
  return drawStep(title, caption, h("div", { class: className }, parts.map(draw)));
}

function drawLayer(state, layer) {
  const { model } = state;
  const parts = partsOfLayer(model, layer);
  const heads = parts.filter(isHead);
  const mlps = parts.filter((part) => !isHead(part));
  const name = model.config.n_layers > 1 ? `Layer ${layer} ` : "";
  const title = (text) => (name ? name + text : text[0].toUpperCase() + text.slice(1));
  const caption = describeAttentionStep(model);
  if (model.config.parallel_attn_mlp && heads.length && mlps.length) {
    return [drawArrow(), drawParts(state, title("side by side"), caption, parts)];
  }
  return [
    heads.length ? [drawArrow(), drawParts(state, title("attention"), caption, heads)] : null,
    mlps.length
      ? [drawArrow(), drawParts(state, title("feed-forward"), "added to the stream", mlps)]
      : null,
  ];
}

/** The prompt as it is read: pairs with an arrow, or token by token. */
function drawTokens({ view, task }) {
  const name = (i) => view.run.token_names[view.tokens[i]];
  const groups = task.groups(view.tokens);
  const isPaired = groups.some((group) => group.length > 1);
  const write = (group) => {
    if (group.length > 1) return group.map(name).join(" → ");
    return isPaired ? `${name(group[0])} → ?` : name(group[0]);
  };
  const shown = groups.slice(-MAX_GROUPS);
  const hidden = groups.length - shown.length;
  return h("ul", { class: isPaired ? "read" : "read single" },
    hidden ? h("li", { class: "note" }, `${hidden} before`) : null,
    shown.map((group) => h("li", {}, write(group))));
}

function drawAnswer({ view, trace, before }) {
  const names = view.run.token_names;
  const best = (probabilities) => {
    const top = Math.max(...probabilities);
    return [names[probabilities.indexOf(top)], formatPercent(top)];
  };
  const [answer, share] = best(trace.probabilities.at(-1));
  const was = before ? best(before.probabilities.at(-1)).join(" ") : "";
  return h("div", { class: "final" },
    h("b", {}, answer), h("span", {}, share), was ? h("s", {}, `was ${was}`) : null);
}

export function renderFlow(state) {
  const { model, view } = state;
  const { d_model: dModel, n_layers: nLayers, norm } = model.config;
  const withPositions = state.trace.position
    ? `${dModel} numbers, position added`
    : `${dModel} numbers a token`;
  const layers = Array.from({ length: nLayers }, (_, layer) => drawLayer(state, layer));
  const nTokens = view.run.token_names.length;
  const unembedding = norm === "pre" ? "norm, then logits" : `logits of ${nTokens} tokens`;
  byId("flow").className = isDrawingDense(model) ? "dense" : "";
  put(byId("flow"),
    drawStep("Tokens", `${view.tokens.length} read`, drawTokens(state)),
    drawArrow(),
    drawStep("Embedding", withPositions, drawOpener(state, "embed")),
    layers,
    drawArrow(),
    drawStep("Unembedding", unembedding, drawOpener(state, "unembed")),
    drawArrow(),
    drawStep("Answer", "most likely", drawAnswer(state)));
  const { off, force } = view;
  byId("reset").disabled = !Object.keys(off).length && !Object.keys(force).length;
}

export function listenToFlow(state) {
  byId("reset").addEventListener("click", () => changeView(state, { off: {}, force: {} }));
}
