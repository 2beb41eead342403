// The start of the page: one state, every part drawn from it, and what listens to it.

import { readAddress } from "address.js";
import { renderAnswers, renderSummary } from "answers.js";
import { listenToAttention, renderAttention } from "attention.js";
import { listenToCell, renderCell } from "cell.js";
import { readRuns } from "data.js";
import { renderModels } from "models.js";
import { renderParity } from "parity.js";
import { renderPresets } from "presets.js";
import { listenToPrompt, renderPrompt, showTyped } from "prompt.js";
import { listenToShare } from "share.js";
import { createState, keepAddress, refresh } from "state.js";
import { renderTables } from "tables.js";
import { listenToTraining, renderTraining, stopPlaying } from "training.js";

function render(state) {
  renderModels(state);
  renderPrompt(state);
  renderPresets(state);
  renderAnswers(state);
  renderAttention(state);
  renderTraining(state);
  renderTables(state);
  renderCell(state);
  renderSummary(state);
}

/** Somebody typed or opened another address. */
function openAddress(state) {
  stopPlaying(state);
  state.view = readAddress(state.runs, location.hash);
  state.inputError = "";
  showTyped(state);
  refresh(state);
}

function start() {
  const state = createState(readRuns(), location.hash, render);
  listenToPrompt(state);
  listenToTraining(state);
  listenToAttention(state);
  listenToCell(state);
  listenToShare(state);
  addEventListener("hashchange", () => openAddress(state));
  showTyped(state);
  keepAddress(state);
  refresh(state);
  requestAnimationFrame(() => setTimeout(() => renderParity(state))); // after the first picture
}

start();
