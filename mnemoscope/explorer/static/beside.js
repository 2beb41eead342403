// Two models at once: which one stands beside, every place at which the two are compared, and the
// first one where they differ.

import { areComparable } from "address.js";
import { nameModel } from "answers.js";
import { byId, h, put } from "dom.js";
import { DIFFERENT, listDifferences } from "differences.js";
import { changeView } from "state.js";
import { drawThumbnail } from "thumbnail.js";

/** All models that can be asked the same: the other seeds of the run, and those of other runs. */
function listOthers({ runs, view }) {
  return runs.filter((run) => areComparable(view.run, run)).flatMap((run) =>
    run.opened.map((seed) => ({ run, seed }))
      .filter(({ seed }) => run !== view.run || seed !== view.seed));
}

/** A select of the models that can stand beside; null where there are none. */
export function drawBesideSelect(state) {
  const { view } = state;
  const others = listOthers(state);
  if (!others.length) return null;
  const isChosen = ({ run, seed }) => run === view.beside?.run && seed === view.beside?.seed;
  const options = others.map((each, index) =>
    h("option", { value: index, selected: isChosen(each) }, nameModel(each, view)));
  const onchange = (event) => changeView(state, { beside: others[event.target.value] ?? null });
  return h("label", {}, "Beside ",
    h("select", { id: "beside", "data-key": "beside", onchange },
      h("option", { value: "", selected: !view.beside }, "nothing"), options));
}

function drawRow({ name, distance, heads }, isFirst) {
  const width = `width:${Math.round(100 * distance)}%`;
  const picture = (pattern) => drawThumbnail(pattern, 1);
  return h("tr", { class: isFirst ? "first" : null },
    h("th", { scope: "row" }, name),
    h("td", {}, heads ? picture(heads[0]) : null),
    h("td", {}, heads ? picture(heads[1]) : null),
    h("td", {}, h("span", { class: "measure", "aria-hidden": "true" }, h("i", { style: width }))),
    h("td", { class: "value" }, distance.toFixed(2)),
    h("td", {}, isFirst ? "first difference" : null));
}

function sayFirst(first, one, other) {
  const both = `${nameModel(one, other)} and ${nameModel(other, one)}`;
  const [a, b] = [one, other].map(({ run, at }) => run.steps[at].toLocaleString("en"));
  const steps = a === b ? `at step ${a}` : `at steps ${a} and ${b}`;
  if (!first) return `Nowhere do ${both}, ${steps}, differ by ${DIFFERENT} or more on this prompt.`;
  const where = `${first.name} (${first.distance.toFixed(2)})`;
  return `The first place where ${both}, ${steps}, differ by ${DIFFERENT} or more: ${where}.`;
}

export function renderBeside(state) {
  const { beside, view } = state;
  byId("beside-section").hidden = !beside;
  if (!beside) {
    put(byId("differences"));
    return;
  }
  const places = listDifferences(state, beside);
  const first = places.find(({ distance }) => distance >= DIFFERENT);
  byId("first-difference").textContent = sayFirst(first, view, beside.view);
  const heads = [nameModel(view, beside.view), nameModel(beside.view, view)];
  put(byId("differences"), h("table", { class: "differences" },
    h("thead", {}, h("tr", {},
      ["place", ...heads, "how far apart", "", ""].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, places.map((place) => drawRow(place, place === first)))));
}
