// Small helpers for the page. Text always goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

const isMissing = (value) => value === null || value === undefined || value === false;

/** Attributes: "onclick" and the like listen, true is "", and false leaves out all but aria-*. */
function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    const isAria = name.startsWith("aria-");
    if (isMissing(value) && !(isAria && value === false)) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true && !isAria ? "" : String(value));
  }
}

function fill(node, attributes, children) {
  setAttributes(node, attributes);
  node.append(...children.flat(Infinity).filter((child) => !isMissing(child)));
  return node;
}

/** An HTML element. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function byId(id) {
  return document.getElementById(id);
}

/** A button; `key` names it, so that the focus finds it again after everything was drawn anew. */
export function button(key, label, onclick, attributes = {}) {
  return h("button", { type: "button", "data-key": key, onclick, ...attributes }, label);
}

/** Put new children into a node; whoever had the focus keeps it, told by data-key. */
export function put(node, ...children) {
  const key = node.contains(document.activeElement) ? document.activeElement.dataset?.key : null;
  node.replaceChildren(...children.flat(Infinity).filter((child) => !isMissing(child)));
  if (!key) return;
  const again = node.querySelector(`[data-key="${CSS.escape(key)}"]`);
  again?.focus({ preventScroll: true });
}

/** Arrow keys move the focus from cell to cell of a table; Enter and the space bar click. */
export function moveBetweenCells(event) {
  const cell = event.target.closest("td[data-row]");
  if (!cell) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    cell.click();
    return;
  }
  const row = cell.parentElement;
  const column = [...row.children].indexOf(cell);
  const neighbors = {
    ArrowLeft: cell.previousElementSibling,
    ArrowRight: cell.nextElementSibling,
    ArrowUp: row.previousElementSibling?.children[column],
    ArrowDown: row.nextElementSibling?.children[column],
  };
  if (!(event.key in neighbors)) return;
  event.preventDefault();
  const next = neighbors[event.key];
  if (!next?.matches("td[data-row]")) return;
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

export function formatPercent(x) {
  if (x >= 0.9995) return "100%";
  if (x < 0.0005) return "0%";
  return `${(100 * x).toFixed(x < 0.1 ? 1 : 0)}%`;
}

/** Offer a text, or bytes in parts, as a download. */
export function saveFile(name, type, ...parts) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
