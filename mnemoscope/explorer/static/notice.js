// What is wrong with an address, in one line.

import { byId } from "dom.js";

export function renderNotice({ view }) {
  const { problems } = view;
  byId("notice").hidden = !problems.length;
  const text = problems.length
    ? `The address names what this file does not have: ${problems.join(", ")}. `
      + "What stands there instead is the default."
    : "";
  if (byId("notice").textContent !== text) byId("notice").textContent = text;
}
