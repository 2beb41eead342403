// Small helpers for the page. Text always goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || (value === false && !name.startsWith("aria-"))) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);

/** Put new children into a node; whoever had the focus keeps it, told by data-key. */
export function put(node, ...children) {
  const key = node.contains(document.activeElement) ? document.activeElement.dataset?.key : null;
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== false));
  if (key) node.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

export const percent = (x) => (x >= 0.9995 ? "100%" : x < 0.0005 ? "0%" : x < 0.1 ? `${(100 * x).toFixed(1)}%` : `${(100 * x).toFixed(0)}%`);

export function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
