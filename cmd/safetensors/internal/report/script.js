"use strict";
const readout = document.getElementById("readout");
document.addEventListener("pointerover", (event) => {
  const title = event.target.dataset?.title;
  readout.hidden = !title;
  readout.textContent = title ?? "";
});

for (const table of document.querySelectorAll("table.rows")) {
  const body = table.tBodies[0];
  const value = (row, column) => {
    const cell = row.cells[column];
    const data = cell.querySelector("data");
    return data ? (data.value === "" ? -Infinity : Number(data.value)) : cell.textContent;
  };
  table.tHead.addEventListener("click", (event) => {
    const header = event.target.closest("th:not(.plain)");
    if (!header) return;
    const column = header.cellIndex;
    const number = header.classList.contains("n");
    const before = header.ariaSort;
    for (const other of header.parentNode.cells) other.ariaSort = null;
    const sign = (before ? before === "descending" : !number) ? 1 : -1;
    header.ariaSort = sign > 0 ? "ascending" : "descending";
    const names = new Intl.Collator("en", { numeric: true });
    const keyed = [...body.rows].map((row) => [value(row, column), row]);
    keyed.sort(([a], [b]) => sign * (number ? (a < b ? -1 : a > b ? 1 : 0) : names.compare(a, b)));
    body.append(...keyed.map(([, row]) => row));
  });
}

const filter = document.getElementById("filter");
filter?.addEventListener("input", () => {
  const wanted = filter.value.toLowerCase();
  const rows = document.querySelectorAll("#tensors tbody tr");
  let found = 0;
  for (const row of rows) {
    row.hidden = !row.querySelector("th").textContent.toLowerCase().includes(wanted);
    if (!row.hidden) found++;
  }
  document.getElementById("found").textContent = wanted ? `${found} of ${rows.length}` : "";
});
