// Presets: prompts worth trying, and a random one.

import { button, byId, put } from "dom.js";
import { setPrompt } from "prompt.js";
import { createRandom } from "random.js";

function drawPrompt(state) {
  state.drawCount += 1;
  return state.task.draw(createRandom(state.drawCount + 1000 * state.view.seed));
}

export function renderPresets(state) {
  const { run } = state.view;
  const presets = run.presets.map(({ name, tokens, why }, i) =>
    button(`preset-${i}`, name, () => setPrompt(state, tokens), { title: why }));
  const draw = button("draw", run.draw_label, () => setPrompt(state, drawPrompt(state)));
  put(byId("presets"), presets, draw);
}
