// Import maps do not reach workers, and a page from the disk can load no other file: a worker is
// one text, a module and all that it imports one after the other. They share one scope, so no two
// of them may name a thing alike.

const IMPORT = /^import [^;]* from "([^"]+)";\n/gm;

/** A module after all that it imports, as one text; `read` gives a module's text by its name. */
export function joinModules(name, read, joined = new Set()) {
  if (joined.has(name)) return "";
  joined.add(name);
  const text = read(name);
  const imported = [...text.matchAll(IMPORT)].map(([, each]) => joinModules(each, read, joined));
  return imported.join("") + text.replace(IMPORT, "").replace(/^export /gm, "");
}

/** The text of a module that this page carries. */
export function readCarried(name) {
  const { imports } = JSON.parse(document.querySelector("script[type=importmap]").textContent);
  const bytes = atob(imports[name].split(",")[1]);
  return new TextDecoder().decode(Uint8Array.from(bytes, (each) => each.charCodeAt(0)));
}
