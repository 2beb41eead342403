// The prompt: what is typed, and a key for each token.

import { keepForced } from "ablation.js";
import { button, byId, put } from "dom.js";
import { changeView } from "state.js";
import { formatPrompt, parsePrompt } from "tokens.js";

/** Put the view's prompt into the field where one types. */
export function showTyped({ view }) {
  byId("typed").value = formatPrompt(view.run, view.tokens);
}

/** Ask the model about these tokens. */
export function setPrompt(state, tokens) {
  state.inputError = "";
  byId("typed").value = formatPrompt(state.view.run, tokens);
  changeView(state, { tokens, force: keepForced(state.view.force, tokens.length) });
}

function renderKeys(state) {
  const { run, tokens } = state.view;
  const keys = run.token_names.map((name, token) =>
    button(`add-${token}`, name, () => setPrompt(state, [...tokens, token]), {
      "aria-label": `add ${name}`,
      disabled: tokens.length >= run.n_ctx,
    }));
  const back = button("back", "⌫", () => setPrompt(state, tokens.slice(0, -1)), {
    "aria-label": "remove the last token",
    disabled: tokens.length < 2,
  });
  put(byId("keys"), keys, back);
}

export function renderPrompt(state) {
  const { tokens } = state.view;
  renderKeys(state);
  const warning = state.inputError || state.task.warn(tokens);
  byId("typed").setAttribute("aria-invalid", state.inputError ? "true" : "false");
  // the same text again would be read out again
  if (byId("warning").textContent !== warning) byId("warning").textContent = warning;
}

/** What was typed stays as it was typed, with the cursor where it was. */
function onTyped(state, field) {
  const text = field.value;
  const cursor = field.selectionStart;
  const { tokens, error } = parsePrompt(state.view.run, text);
  state.inputError = error ?? "";
  if (!tokens) {
    renderPrompt(state);
    return;
  }
  setPrompt(state, tokens);
  field.value = text;
  field.setSelectionRange(cursor, cursor);
}

export function listenToPrompt(state) {
  byId("typed").addEventListener("input", (event) => onTyped(state, event.target));
}
