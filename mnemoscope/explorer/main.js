// The page: reads the address, computes, draws; every control changes the address, and the address changes the page.

import { book, modelOf, worldOf } from "data.js";
import { bars, curves, heat, moveAround } from "draw.js";
import { byId, h, percent, put, s, save } from "dom.js";
import { forward, means } from "forward.js";
import { read, write } from "state.js";
import { adapter, parse, random, written } from "tasks.js";
import { walk } from "walk.js";

const MOST = 24; // positions shown in a heat map
const FOLD = 10; // rows and columns of a matrix shown before it is folded
const whole = new Set(); // matrices that are shown whole all the same
const MEAN_OVER = 24; // sequences that a mean is taken over
let state = read(book.runs, location.hash), now = null, playing = null, drawn = 0, wrong = "";
const cachedMeans = new Map();

function meanOf(model) {
  const key = `${state.run.id}/${state.seed}/${state.at}`;
  if (!cachedMeans.has(key)) {
    cachedMeans.clear();
    const next = random(1), task = adapter(state.run, worldOf(state.run, state.seed));
    cachedMeans.set(key, means(model, Array.from({ length: MEAN_OVER }, () => task.draw(next))));
  }
  return cachedMeans.get(key);
}

function editsOf(model, { off, force, tokens, run }) {
  const edits = { heads: {}, mlps: {}, patterns: {} }, dHead = run.spec.model.d_model / run.spec.model.n_heads;
  for (const [key, how] of Object.entries(off)) {
    const width = key.startsWith("mlp") ? run.spec.model.d_model : dHead;
    const values = how === "mean" ? meanOf(model)[key] : Array.from({ length: run.n_ctx }, () => new Array(width).fill(0));
    if (key.startsWith("mlp")) edits.mlps[key.slice(3)] = values;
    else edits.heads[key] = values;
  }
  for (const [key, rows] of Object.entries(force)) {
    edits.patterns[key] = Object.fromEntries(Object.entries(rows).map(([row, to]) => [row, tokens.map((_, j) => (to === "even" ? (j <= row ? 1 / (+row + 1) : 0) : +(j === to)))]));
  }
  return edits;
}

function compute() {
  const model = modelOf(state.run, state.seed, state.at), task = adapter(state.run, worldOf(state.run, state.seed));
  const edits = editsOf(model, state), got = forward(model, state.tokens, edits);
  now = { model, task, edits, got };
}

/** Change what is looked at. The walk, the answers and everything else follow. */
function go(change) {
  state = { ...state, ...change };
  history.replaceState(null, "", write(state));
  render();
}

function onTokens(tokens) {
  const force = {};
  for (const [key, rows] of Object.entries(state.force)) {
    const kept = Object.entries(rows).filter(([row]) => row < tokens.length);
    if (kept.length) force[key] = Object.fromEntries(kept);
  }
  wrong = "";
  byId("typed").value = written(state.run, tokens);
  go({ tokens, force });
}

function pickRun(id) {
  const run = book.runs.find((r) => r.id === id);
  stop();
  byId("look").textContent = "";
  wrong = "";
  go({ ...read(book.runs, `#run=${encodeURIComponent(id)}`), open: state.open });
  byId("typed").value = written(run, state.tokens);
}

function pickSeed(seed) {
  stop();
  go({ seed, at: state.run.carried.includes(seed) ? state.at : state.run.steps.length - 1 });
}

function stop() {
  clearInterval(playing);
  playing = null;
}

function play() {
  if (playing) { stop(); render(); return; }
  if (state.at === state.run.steps.length - 1) state.at = 0;
  playing = setInterval(() => {
    if (state.at === state.run.steps.length - 1) stop();
    go({ at: Math.min(state.at + 1, state.run.steps.length - 1) });
  }, 600);
  go({});
}

function models() {
  const { run, seed } = state;
  put(byId("models"),
    h("label", {}, "Model ", h("select", { id: "run", "data-key": "run", onchange: (e) => pickRun(e.target.value) },
      book.runs.map((r) => h("option", { value: r.id, selected: r === run }, r.name)))),
    h("label", {}, "Seed ", h("select", { id: "seed", "data-key": "seed", onchange: (e) => pickSeed(Number(e.target.value)) },
      run.opened.map((n) => h("option", { value: n, selected: n === seed }, n)))),
    h("p", { class: "note" }, run.about));
  const outcomes = Object.entries(run.outcomes), skills = outcomes.filter(([name]) => name !== "loss");
  put(byId("strip"), h("p", { class: "note" }, "Every seed at the end of training: click one to open it. In framed ones the whole training can be scrubbed through."), (skills.length ? skills : outcomes).map(([name, values]) => {
    const share = name === "loss" ? Math.max(...values.filter(Number.isFinite), 1e-9) : 1;
    return h("div", { class: "strip", role: "group", "aria-label": `${name} of every seed` }, h("span", { class: "note" }, name), run.seeds.map((n, i) => {
      const here = run.opened.includes(n), known = typeof values[i] === "number", told = `seed ${n}: ${name} ${known ? values[i].toPrecision(3) : "diverged"}`;
      return h("button", { type: "button", disabled: !here, class: `seed ${n === seed ? "chosen" : ""} ${run.carried.includes(n) ? "framed" : ""}`, "data-key": `seed-${name}-${n}`, "aria-pressed": n === seed, title: here ? told : `${told} (not in this file)`,
        "aria-label": told, onclick: () => pickSeed(n) }, h("span", { style: `height:${known ? Math.round(100 * values[i] / share) : 0}%` }));
    }));
  }));
}

function prompt() {
  const { run, tokens } = state, { task } = now;
  put(byId("tokens"), tokens.map((t, i) => h("span", { class: task.asks(tokens).includes(i) ? "chip asks" : "chip" }, run.token_names[t])));
  put(byId("keys"),
    run.token_names.map((name, t) => h("button", { type: "button", "data-key": `add-${t}`, "aria-label": `add ${name}`, disabled: tokens.length >= run.n_ctx, onclick: () => onTokens([...tokens, t]) }, name)),
    h("button", { type: "button", "data-key": "back", "aria-label": "remove the last token", disabled: tokens.length < 2, onclick: () => onTokens(tokens.slice(0, -1)) }, "⌫"));
  put(byId("presets"),
    run.presets.map((p, i) => h("button", { type: "button", "data-key": `preset-${i}`, title: p.why, onclick: () => onTokens(p.tokens) }, p.name)),
    h("button", { type: "button", "data-key": "draw", onclick: () => onTokens(task.draw(random(++drawn + 1000 * state.seed))) }, run.draws));
  const warning = wrong || task.warn(tokens);
  byId("typed").setAttribute("aria-invalid", wrong ? "true" : "false");
  if (byId("warning").textContent !== warning) byId("warning").textContent = warning;
}

function answers() {
  const { run, tokens } = state, { got, task } = now, names = run.token_names;
  const asked = task.asks(tokens).slice(-MOST);
  const oracles = asked.length ? task.oracles(tokens, asked[0]).map(([name]) => name) : [];
  put(byId("answers"), asked.map((at) => bars(`after ${at} “${names[tokens[at]]}”`, names, got.probabilities[at], task.oracles(tokens, at), task.marks(tokens, at))));
  put(byId("key"), "Bars: the model.", oracles.map((name, k) => h("span", {}, k === 0 ? " ┃ exact, " : " ▼ exact, ", name, ".")), oracles.length ? " No mark: zero." : null, ` ${task.legend}`);
}

function attention() {
  const { run, tokens, off, force } = state, { got } = now, names = run.token_names;
  const from = Math.max(0, tokens.length - MOST), labels = tokens.map((t, i) => `${i} ${names[t]}`);
  const switches = (key, name) => h("div", { class: "switch", role: "group", "aria-label": name }, ["on", "zero", "mean"].map((how) => h("button", {
    type: "button", "data-key": `off-${key}-${how}`, "aria-pressed": (off[key] ?? "on") === how,
    onclick: () => { const next = { ...off }; if (how === "on") delete next[key]; else next[key] = how; go({ off: next }); } }, how)));
  const panels = got.layers.flatMap((layer, l) => [
    ...layer.heads.map((head, k) => {
      const key = `${l}.${k}`, forced = force[key] ?? {}, title = `Layer ${l}, head ${k}`;
      const set = (row, to) => {
        const rows = { ...forced };
        if (rows[row] === to) delete rows[row]; else rows[row] = to;
        const next = { ...force, [key]: rows };
        if (!Object.keys(rows).length) delete next[key];
        go({ force: next });
      };
      const look = (i, j, value) => { byId("look").textContent = `${title}: ${labels[i]} looks at ${labels[j]} with weight ${value.toFixed(4)}.`; };
      const rows = head.pattern.slice(from).map((row) => row.slice(from));
      return h("figure", { class: off[key] ? "part off" : "part", "data-part": key }, h("figcaption", {}, title, switches(key, title)),
        h("div", { class: "scroll" }, heat(key, rows, labels.slice(from), Object.fromEntries(Object.entries(forced).map(([i, to]) => [i - from, to === "even" ? to : to - from])),
          { look: (i, j, v) => look(i + from, j + from, v), force: (i, j) => set(i + from, j + from), even: (i) => set(i + from, "even") })));
    }),
    layer.mlp ? h("figure", { class: off[`mlp${l}`] ? "part mlp off" : "part mlp", "data-part": `mlp${l}` }, h("figcaption", {}, `Layer ${l}, feed-forward`, switches(`mlp${l}`, `Layer ${l}, feed-forward`)),
      h("p", { class: "note" }, `${run.spec.model.d_mlp} hidden units, of which ${layer.post.at(-1).filter((x) => x > 0).length} are on at the last token.`)) : null,
  ]);
  put(byId("heads"), panels);
  byId("reset").disabled = !Object.keys(off).length && !Object.keys(force).length;
  byId("folded").textContent = from ? `The last ${MOST} positions are shown.` : "";
}

function training() {
  const { run, seed, at } = state, row = run.opened.indexOf(seed), whole = row < run.carried.length, last = run.steps.at(-1), cursor = run.steps[at];
  const losses = run.losses[row], top = Math.max(...losses), low = Math.min(...losses.filter((x) => x > 0), top / 10);
  byId("time").max = run.steps.length - 1;
  byId("time").value = at;
  byId("time").setAttribute("aria-valuetext", `step ${cursor}`);
  const trained = !run.spec.imported; // a model from elsewhere came without its training
  byId("step").textContent = trained ? `step ${cursor.toLocaleString("en")} of ${last.toLocaleString("en")}` : "imported, not trained here";
  byId("play").textContent = playing ? "Pause" : "Play";
  byId("time").disabled = byId("play").disabled = !whole || !trained;
  byId("only").textContent = whole ? "" : "Of this seed only the end of training is in this file; framed seeds have all of it.";
  const skills = Object.entries(whole ? run.curves : {}).map(([name, values]) => [name, run.steps, values[row]]);
  const log = top / low > 30; // a loss that falls by little has no tick to stand on
  put(byId("curves"), trained && curves("training loss, nats", [["loss", run.loss_steps, losses]], { low: log ? low : 0, high: top, log, cursor, last, unit: "steps" }),
    trained && skills.length ? curves("share of right answers", skills, { low: 0, high: 1, cursor, last, unit: "steps" }) : null);
}

let walked = { key: "", steps: [] };

function numbers() {
  const steps = walk(now.model, now.got, state.run.token_names, now.edits), open = new Set(state.open);
  const key = JSON.stringify([state.run.id, state.open, [...whole], state.tokens]), same = key === walked.key;
  walked = { key, steps };
  if (same) { // only values moved: the tables stay, and their numbers follow
    for (const cell of byId("walk").querySelectorAll("td[data-row]")) {
      const [step, line] = cell.closest("[data-line]").dataset.line.split(" ");
      const text = steps[step].lines[line].values[cell.dataset.row][cell.dataset.column].toFixed(3);
      if (cell.textContent !== text) cell.textContent = text;
    }
    return;
  }
  put(byId("walk"), steps.map((step, n) => h("details", { open: open.has(n), ontoggle: (e) => {
    if (e.target.open === state.open.includes(n)) return;
    go({ open: e.target.open ? [n] : [] }); // one at a time: thousands of cells would be slow
  } }, h("summary", { "data-key": `open-${n}` }, `${n + 1}. ${step.title}`), open.has(n) ? h("div", { class: "lines" }, step.lines.map((line, k) => matrix(line, n, k))) : null)));
}

/** Which of n rows or columns are shown; null stands for the gap. */
const folded = (n, all) => (all || n <= FOLD + 1 ? Array.from({ length: n }, (_, i) => i) : [...Array(FOLD - 1).keys(), null, n - 1]);

function matrix(line, step, place) {
  const all = whole.has(line.name), down = folded(line.values.length, all), across = folded(line.values[0].length, all);
  const head = line.columns ? h("thead", {}, h("tr", {}, h("td", {}), across.map((j) => h("th", { scope: "col" }, j === null ? "…" : line.columns[j])))) : null;
  const cell = (i, j) => (i === null || j === null ? h("td", {}, "…")
    : h("td", { role: "button", tabindex: i || j ? -1 : 0, "data-key": `n-${line.name}-${i}-${j}`, "data-row": i, "data-column": j }, line.values[i][j].toFixed(3)));
  const large = down.includes(null) || across.includes(null) || all;
  return h("div", { class: line.formula ? "matrix" : "matrix given", "data-line": `${step} ${place}` }, h("p", {}, h("i", {}, line.formula ? `${line.name} = ${line.formula}` : line.name),
    h("small", {}, ` ${line.values.length} by ${line.values[0].length}${line.formula ? "" : ", learned"} `),
    large ? h("button", { type: "button", class: "small", "data-key": `all-${line.name}`, "aria-pressed": all, onclick: () => { if (all) whole.delete(line.name); else whole.add(line.name); numbers(); } }, all ? "fold" : "show all") : null),
  h("div", { class: "scroll" }, h("table", { class: "numbers", onkeydown: moveAround, onclick: (e) => { const at = e.target.closest("td[data-row]"); if (at) explain(step, place, +at.dataset.row, +at.dataset.column); } }, head,
    h("tbody", {}, down.map((i) => h("tr", {}, h("th", { scope: "row" }, i === null ? "…" : line.rows[i]), across.map((j) => cell(i, j))))))));
}

let explained = null; // which cell is open: {run, step, place, i, j}

function explain(step, place, i, j) {
  const line = walked.steps[step].lines[place];
  explained = { run: state.run, step, place, i, j };
  const how = line.how(i, j), value = line.values[i][j], show = (x) => x.toFixed(4);
  const terms = how.terms.filter(([, a, b]) => a * b !== 0), zeros = how.terms.length - terms.length;
  const lines = [...terms.map(([label, a, b]) => [label, `${show(a)} × ${show(b)}`, a * b]), ...how.plus.map(([label, x]) => [label, "", x])];
  put(byId("cell"), h("h3", {}, `${line.name}[${i},${j}] = ${show(value)}`), line.formula ? h("p", {}, h("i", {}, `${line.name} = ${line.formula}`)) : null,
    lines.length ? h("table", { class: "numbers" }, h("tbody", {}, lines.map(([label, product, x]) => h("tr", {}, h("th", { scope: "row" }, label), h("td", {}, product), h("td", {}, show(x)))),
      h("tr", { class: "sum" }, h("th", { scope: "row" }, "sum"), h("td", {}), h("td", {}, show(lines.reduce((sum, [, , x]) => sum + x, 0)))))) : null,
    zeros ? h("p", { class: "note" }, `${zeros} products that are zero are left out.`) : null, how.note ? h("p", {}, how.note) : null,
    h("button", { type: "button", "data-key": "close", onclick: close }, "Close"));
}

function close() {
  explained = null;
  byId("cell").replaceChildren();
}

/** The open cell follows the numbers, or closes where it is no more. */
function follow() {
  if (!explained) return;
  const { run, step, place, i, j } = explained;
  if (run === state.run && walked.steps[step]?.lines[place]?.values[i]?.[j] !== undefined) explain(step, place, i, j);
  else close();
}

/** The largest difference in probability from the Python model, over the prompts and edits it was asked to answer. */
function parity() {
  let worst = 0, prompts = 0;
  for (const run of book.runs) {
    for (const { seed, at, tokens, off, probabilities } of run.golden) {
      const model = modelOf(run, seed, at), zero = editsOf(model, { run, tokens, off, force: {} });
      forward(model, tokens, zero).probabilities.forEach((row, i) => row.forEach((p, t) => { worst = Math.max(worst, Math.abs(p - probabilities[i][t])); }));
      prompts++;
    }
  }
  return { worst: Number.isNaN(worst) ? Infinity : worst, prompts };
}

function badge() {
  const { worst, prompts } = parity(), good = worst <= 1e-4;
  put(byId("badge"), h("span", { class: good ? "badge good" : "badge bad", "data-worst": worst, role: "status" }, good ? "✓ " : "✗ ",
    `computed here; at most ${worst.toExponential(1)} from Python on ${prompts} prompts`));
}

function picture() {
  const style = "text{font:12px sans-serif;fill:#1c1e21}.head{font-weight:600}.track{fill:#eef0f3}.bar{fill:#7fb2d9}.best{fill:#0072b2}.oracle{fill:#d55e00;stroke:#d55e00;stroke-width:2}.o1{fill:#009e73;stroke:none}.used{fill:#8a919c}";
  const cards = [...byId("answers").children].map((card, i) => {
    const copy = card.cloneNode(true);
    copy.setAttribute("x", 10 + 260 * (i % 3));
    copy.setAttribute("y", 40 + (card.height.baseVal.value + 12) * Math.floor(i / 3));
    return copy;
  });
  const height = 50 + (byId("answers").children[0].height.baseVal.value + 12) * Math.ceil(cards.length / 3);
  const whole = s("svg", { xmlns: "http://www.w3.org/2000/svg", width: 790, height, viewBox: `0 0 790 ${height}` }, s("style", {}, style), s("rect", { width: 790, height, fill: "#fff" }),
    s("text", { x: 10, y: 22, class: "head" }, `${state.run.name}, seed ${state.seed}, step ${state.run.steps[state.at]}, prompt ${written(state.run, state.tokens)}`), cards);
  return new XMLSerializer().serializeToString(whole);
}

function data() {
  const { run, seed, at, tokens, off, force } = state, { got, task } = now;
  return JSON.stringify({ address: location.href, run: run.id, model: run.name, seed, step: run.steps[at], prompt: tokens.map((t) => run.token_names[t]), off, force,
    probabilities: got.probabilities, logits: got.logits, attention: got.layers.map((layer) => layer.heads.map((head) => head.pattern)),
    exact: task.asks(tokens).map((i) => ({ position: i, ...Object.fromEntries(task.oracles(tokens, i)) })) }, null, 1);
}

function render() {
  compute();
  models(); prompt(); answers(); attention(); training(); numbers(); follow();
  const best = now.got.probabilities.at(-1), top = best.indexOf(Math.max(...best));
  byId("summary").textContent = `After ${written(state.run, state.tokens)} the model says ${state.run.token_names[top]} (${percent(best[top])}).`;
}

byId("typed").addEventListener("input", (event) => {
  const found = parse(state.run, event.target.value);
  wrong = found.wrong ?? "";
  if (found.tokens) { const text = event.target.value, at = event.target.selectionStart; onTokens(found.tokens); event.target.value = text; event.target.setSelectionRange(at, at); } else prompt();
});
byId("time").addEventListener("input", (event) => { stop(); go({ at: Number(event.target.value) }); });
addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
byId("play").addEventListener("click", play);
byId("reset").addEventListener("click", () => go({ off: {}, force: {} }));
byId("copy").addEventListener("click", async () => {
  try { await navigator.clipboard.writeText(location.href); byId("copied").textContent = "Copied."; } catch { byId("copied").textContent = "Copy the address of this page from the browser."; }
});
byId("svg").addEventListener("click", () => save("answers.svg", "image/svg+xml", picture()));
byId("json").addEventListener("click", () => save("numbers.json", "application/json", data()));
addEventListener("hashchange", () => { stop(); state = read(book.runs, location.hash); wrong = ""; byId("typed").value = written(state.run, state.tokens); render(); });

byId("typed").value = written(state.run, state.tokens);
history.replaceState(null, "", write(state));
render();
requestAnimationFrame(() => setTimeout(badge)); // after the first picture
