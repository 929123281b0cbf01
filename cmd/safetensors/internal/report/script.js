"use strict";
const readout = document.getElementById("readout");
const show = (event) => {
  const label = event.target.closest?.(".cell, .sizes a, rect")?.getAttribute("aria-label");
  readout.hidden = !label;
  readout.textContent = label ?? "";
};
for (const kind of ["pointerover", "focusin", "focusout"]) document.addEventListener(kind, show);

const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
for (const map of document.querySelectorAll("table.map")) {
  map.querySelector(".cell").tabIndex = 0; // the only stop of the map
  map.addEventListener("keydown", (event) => {
    if (!(event.key in steps)) return;
    event.preventDefault();
    const [down, right] = steps[event.key];
    let cell = event.target;
    do cell = map.rows[cell.parentNode.rowIndex + down]?.cells[cell.cellIndex + right];
    while (cell && !cell.matches(".cell"));
    if (!cell) return;
    event.target.tabIndex = -1;
    cell.tabIndex = 0;
    cell.focus();
  });
}

for (const table of document.querySelectorAll("table.rows")) {
  const body = table.tBodies[0];
  for (const header of table.tHead.querySelectorAll("th:not(.plain)")) {
    const button = document.createElement("button");
    button.append(...header.childNodes);
    header.append(button);
  }
  const value = (row, column) => {
    const cell = row.cells[column];
    const data = cell.querySelector("data");
    return data ? (data.value === "" ? Infinity : Number(data.value)) : cell.textContent;
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
