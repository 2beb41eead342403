// What is wrong with an address, in one line.

import { byId } from "dom.js";

export function renderNotice({ view }) {
  const { problems } = view;
  byId("notice").hidden = !problems.length;
  const wasTrained = problems.some((problem) => problem.startsWith("run “trained-here-"));
  const gone = wasTrained
    ? " What was trained in a page is gone when it is closed, unless it was downloaded." : "";
  const text = problems.length
    ? `The address names what this file does not have: ${problems.join(", ")}. `
      + `What stands there instead is the default.${gone}`
    : "";
  if (byId("notice").textContent !== text) byId("notice").textContent = text;
}
