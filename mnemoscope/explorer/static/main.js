// The start of the page: one state, every part drawn from it, and what listens to it.

import { readAddress } from "address.js";
import { renderAnswers, renderReadings, renderSummary } from "answers.js";
import { renderBeside } from "beside.js";
import { listenToCell, renderCell } from "cell.js";
import { readRuns } from "data.js";
import { listenToFlow, renderFlow } from "flow.js";
import { renderModels } from "models.js";
import { renderNotice } from "notice.js";
import { renderParity } from "parity.js";
import { renderPart } from "part_panel.js";
import { renderPresets } from "presets.js";
import { listenToPrompt, renderPrompt, showTyped } from "prompt.js";
import { listenToShare } from "share.js";
import { createState, keepAddress, refresh } from "state.js";
import { renderTables } from "tables.js";
import { checkStop, listenToTour, renderTour } from "tour.js";
import { renderTrainHere } from "train_view.js";
import { listenToTraining, renderTraining, stopPlaying } from "training.js";

function render(state) {
  renderNotice(state);
  renderTour(state);
  renderModels(state);
  renderPrompt(state);
  renderPresets(state);
  renderReadings(state);
  renderAnswers(state);
  renderFlow(state);
  renderBeside(state);
  renderPart(state);
  renderTraining(state);
  renderTables(state);
  renderCell(state);
  renderSummary(state);
  renderTrainHere(state);
}

/** Somebody typed or opened another address. */
function openAddress(state) {
  stopPlaying(state);
  state.view = checkStop(readAddress(state.runs, location.hash));
  state.inputError = "";
  showTyped(state);
  refresh(state);
}

async function start() {
  const state = createState(await readRuns(), render);
  state.view = checkStop(readAddress(state.runs, location.hash));
  listenToPrompt(state);
  listenToTraining(state);
  listenToFlow(state);
  listenToCell(state);
  listenToShare(state);
  listenToTour(state);
  addEventListener("hashchange", () => openAddress(state));
  showTyped(state);
  keepAddress(state);
  refresh(state);
  requestAnimationFrame(() => setTimeout(() => renderParity(state))); // after the first picture
}

start();
