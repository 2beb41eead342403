// Filtering and sorting of the ledger; without it every row is there, in order.
const form = document.getElementById("filters"), list = document.getElementById("rows"), rows = [...list.children];
const rank = { reproduced: 0, partly: 1, refuted: 2, undecided: 3, none: 4 };
function show() {
  const { study, verdict, sort } = Object.fromEntries(new FormData(form));
  const key = sort === "verdict" ? (row) => rank[row.dataset.verdict] * 1000 + Number(row.dataset.order) : (row) => Number(row.dataset.order);
  rows.sort((a, b) => key(a) - key(b)).forEach((row) => {
    row.hidden = Boolean((study && row.dataset.study !== study) || (verdict && row.dataset.verdict !== verdict));
    list.append(row);
  });
  form.elements.shown.value = `${rows.filter((row) => !row.hidden).length} of ${rows.length} claims`;
}
form.hidden = false;
form.addEventListener("input", show);
show();
const asked = document.getElementById(location.hash.slice(1));
if (asked?.matches("details")) asked.open = true;
