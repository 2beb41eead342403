// Filtering and sorting of the ledger; without it every row is there, in order.

const form = document.getElementById("filters");
const list = document.getElementById("rows");
const rows = [...list.children];
// the first choice is "all"
const verdicts = [...form.elements.verdict.options].slice(1).map((option) => option.value);

const byClaim = (row) => Number(row.dataset.order);
const byVerdict = (row) => rank(row.dataset.verdict) * 1000 + byClaim(row);

function rank(verdict) {
  return verdicts.includes(verdict) ? verdicts.indexOf(verdict) : verdicts.length;
}

function isShown({ dataset }, { study, verdict }) {
  return (!study || dataset.study === study) && (!verdict || dataset.verdict === verdict);
}

function render() {
  const chosen = Object.fromEntries(new FormData(form));
  const key = chosen.sort === "verdict" ? byVerdict : byClaim;
  rows.sort((a, b) => key(a) - key(b));
  for (const row of rows) {
    row.hidden = !isShown(row, chosen);
    list.append(row);
  }
  const shown = rows.filter((row) => !row.hidden).length;
  form.elements.shown.value = `${shown} of ${rows.length} claims`;
}

function openAskedRow() {
  const asked = document.getElementById(location.hash.slice(1));
  if (asked?.matches("details")) asked.open = true;
}

form.hidden = false;
form.addEventListener("input", render);
render();
openAskedRow();
