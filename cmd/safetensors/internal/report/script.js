"use strict";

// The line at the foot of the window names the box or the cell under the pointer, or with the focus.
const readout = document.getElementById("readout");
const show = (event) => {
  const label = event.target.closest?.(".cell, .sizes > *")?.getAttribute("aria-label");
  readout.hidden = !label;
  readout.textContent = label ?? "";
};
for (const kind of ["pointerover", "focusin", "focusout"]) document.addEventListener(kind, show);

// Maps and treemaps are one tab stop each: the arrow keys move within.
const focus = (from, to) => {
  if (!to) return;
  from.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
};
const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
for (const map of document.querySelectorAll("table.map")) {
  map.querySelector(".cell").tabIndex = 0;
  map.addEventListener("keydown", (event) => {
    if (!(event.key in steps)) return;
    event.preventDefault();
    const [down, right] = steps[event.key];
    let cell = event.target;
    do cell = map.rows[cell.parentNode.rowIndex + down]?.cells[cell.cellIndex + right];
    while (cell && !cell.matches(".cell"));
    focus(event.target, cell);
  });
}

// next returns the box that is nearest in a direction, or undefined: boxes beside each other come first.
const next = (boxes, from, [down, right]) => {
  const edges = (box) => {
    const r = box.getBoundingClientRect();
    const [start, end, near, far] = down ? [r.left, r.right, r.top, r.bottom] : [r.top, r.bottom, r.left, r.right];
    return down + right > 0 ? { start, end, near, far } : { start, end, near: -far, far: -near };
  };
  const a = edges(from);
  let best, least = Infinity;
  for (const box of boxes) {
    const b = edges(box);
    if (box === from || b.near < a.far - 1) continue;
    const aside = Math.max(0, b.start - a.end, a.start - b.end);
    const distance = 4 * (b.near - a.far + 2 * aside) + Math.abs(b.start - a.start) / 100;
    if (distance < least) [best, least] = [box, distance];
  }
  return best;
};
for (const map of document.querySelectorAll(".sizes")) {
  const boxes = [...map.querySelectorAll("a")];
  for (const box of boxes) box.tabIndex = -1;
  boxes[0].tabIndex = 0;
  map.addEventListener("keydown", (event) => {
    const to = event.key in steps ? next(boxes, event.target, steps[event.key])
      : event.key === "Home" ? boxes[0] : event.key === "End" ? boxes.at(-1) : null;
    if (to === null) return;
    event.preventDefault();
    focus(event.target, to);
  });
}

// make returns an element with a text and classes.
const make = (tag, text = "", className = "") => {
  const element = document.createElement(tag);
  element.textContent = text;
  if (className) element.className = className;
  return element;
};

// breakable puts opportunities for line breaks behind the dots of a name.
const breakable = (cell) => {
  const parts = cell.textContent.split(/(?<=\.)/);
  cell.replaceChildren(...parts.flatMap((part, i) => (i ? [make("wbr"), part] : [part])));
};

// sortable makes buttons of the headers of a table, and calls order with the column and the sign.
const sortable = (table, order) => {
  for (const header of table.tHead.querySelectorAll("th:not(.plain)")) {
    const button = make("button");
    button.append(...header.childNodes);
    header.append(button);
  }
  table.tHead.addEventListener("click", (event) => {
    const header = event.target.closest("th:not(.plain)");
    if (!header) return;
    const before = header.ariaSort;
    for (const other of header.parentNode.cells) other.ariaSort = null;
    const sign = (before ? before === "descending" : !header.classList.contains("n")) ? 1 : -1;
    header.ariaSort = sign > 0 ? "ascending" : "descending";
    order(header, sign);
  });
};
const names = new Intl.Collator("en", { numeric: true });

// ordered returns items by their keys in a column.
const ordered = (items, header, sign, key) => {
  const number = header.classList.contains("n");
  return items.map((item) => [key(item), item])
    .sort(([a], [b]) => sign * (number ? (a < b ? -1 : a > b ? 1 : 0) : names.compare(a, b)))
    .map(([, item]) => item);
};

// keyOf returns what orders a cell of the page.
const keyOf = (cell) => {
  const data = cell.querySelector("data");
  return data ? (data.value === "" ? Infinity : Number(data.value)) : cell.matches(".n") ? Infinity : cell.textContent;
};

for (const table of document.querySelectorAll("table.pairs")) {
  for (const row of table.tBodies[0].rows) breakable(row.cells[0]);
  sortable(table, (header, sign) =>
    table.tBodies[0].append(...ordered([...table.tBodies[0].rows], header, sign, (row) => keyOf(row.cells[header.cellIndex]))));
}

// The table of tensors shows at most this many rows at once.
const most = 2000;
const table = document.querySelector("#tensors table");
if (table) {
  const body = table.tBodies[0], headers = [...table.tHead.rows[0].cells];
  const nameColumn = headers.findIndex((header) => header.matches(".name"));
  const filter = document.getElementById("filter"), found = document.getElementById("found");
  const rows = [...body.rows];
  for (const row of rows) breakable(row.cells[nameColumn]);
  document.querySelector(".tools").hidden = false;

  // An entry is a tensor: its id, its name, and its row, or else the texts of its cells.
  const listed = rows.map((row) => ({ id: row.id, name: row.cells[nameColumn].textContent, row }));
  let every; // all entries, once somebody asks for them: in the order of the page
  const entries = () => (every ??= readRest());
  const readRest = () => {
    const rest = document.getElementById("rest");
    if (!rest) return listed;
    const lines = rest.textContent.split("\n");
    const shared = lines.shift().split("\t").map((cells) => cells.split("|"));
    const all = [], waiting = [...listed].reverse();
    if (!lines.includes(".")) all.push(...waiting.splice(0).reverse());
    let name = "";
    for (const line of lines) {
      if (line === ".") all.push(waiting.pop());
      if (line === "." || line === "") continue;
      const [id, same, suffix, ...texts] = line.split("\t");
      name = name.slice(0, same) + suffix;
      const cells = texts.flatMap((text) => (text.startsWith("@") ? shared[text.slice(1)] : [text]));
      cells.splice(nameColumn, 0, name);
      all.push({ id: "t" + id, name, cells });
    }
    return all;
  };

  // parse returns what a text of the rest shows, and its value.
  const parse = (text = "", number = false) => {
    const [shown, value = shown] = text.split("~");
    if (!number) return [shown, value];
    const digits = value.replace(/[, %]/g, "").replaceAll("−", "-");
    return [shown, digits === "" || !isFinite(digits) ? Infinity : Number(digits)];
  };

  const picture = ([letters, zero]) => {
    const svg = rows[0].querySelector("svg").cloneNode(true);
    const bars = svg.querySelector("path");
    bars.setAttribute("d", [...letters].map((letter, i) => (letter === "a" ? "" : `M${5 * i} 24v${97 - letter.charCodeAt()}h5V24`)).join(""));
    svg.replaceChildren(bars);
    if (zero) {
      const line = bars.cloneNode();
      line.setAttribute("d", `M${zero} 0V24`);
      line.classList.add("zero");
      svg.append(line);
    }
    return svg;
  };

  // rowOf returns the row of an entry, which it makes if it is the first to ask for it.
  const rowOf = (entry) => {
    if (entry.row) return entry.row;
    const row = (entry.row = make("tr"));
    row.id = entry.id;
    headers.forEach((header, column) => {
      const number = header.matches(".n"), text = entry.cells[column] ?? "";
      const [shown, value] = parse(text, number);
      const cell = make(column === nameColumn ? "th" : "td", number || header.matches(".plain") ? "" : shown, number ? "n" : "");
      row.append(cell);
      if (column === nameColumn) {
        cell.textContent = entry.name;
        cell.scope = "row";
        breakable(cell);
      } else if (header.matches(".plain")) {
        cell.append(picture(text.split("~")));
      } else if (header.matches(".dtype")) {
        cell.prepend(make("i", "", value));
      } else if (header.matches(".tally") && shown === "") {
        if (table.matches(".summaries")) cell.append(Object.assign(make("data", "0"), { value: "0" }));
        cell.classList.add("none");
      } else if (number && shown) {
        cell.append(Object.assign(make("data", shown), { value: isFinite(value) ? value : "" }));
        if (header.matches(".bad")) cell.classList.add("alarm");
        if (header.matches(".bar") && isFinite(value)) cell.style.setProperty("--share", Math.ceil((100 * value) / (table.dataset.most || 1)) + "%");
        if (header.matches(".bar")) cell.classList.add("bar");
      }
    });
    return row;
  };

  const key = (entry, column) => {
    if (entry.row) return keyOf(entry.row.cells[column]);
    if (column === nameColumn) return entry.name;
    const header = headers[column], [shown, value] = parse(entry.cells[column], header.matches(".n"));
    if (header.matches(".tally") && shown === "" && table.matches(".summaries")) return 0;
    return header.matches(".n") ? value : shown;
  };

  // matches returns a func that tells whether a name matches what the filter holds. Part of a name is
  // enough, unless the filter was set by a link; * stands for any characters.
  let exact = false, sorted;
  const matches = () => {
    const wanted = filter.value.trim().toLowerCase();
    if (!wanted.includes("*")) return exact ? (name) => name.toLowerCase() === wanted : (name) => name.toLowerCase().includes(wanted);
    const pattern = wanted.split("*").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(".*");
    const regexp = new RegExp(exact ? `^${pattern}$` : pattern, "s");
    return (name) => regexp.test(name.toLowerCase());
  };

  // The table shows the entries that match the filter, or without a filter all that are not equal in two checkpoints.
  const isEqual = (entry) => entry.cells?.[0] === "=";
  const draw = () => {
    let some = listed, all = listed.length;
    if (filter.value.trim()) {
      const match = matches();
      all = entries().length;
      some = entries().filter((entry) => match(entry.name));
    } else if (sorted) {
      some = entries().filter((entry) => !isEqual(entry));
    }
    if (sorted) some = ordered(some, ...sorted, (entry) => key(entry, sorted[0].cellIndex));
    const shown = some.slice(0, most);
    body.replaceChildren(...shown.map(rowOf));
    const number = (n) => n.toLocaleString("en");
    found.textContent = !filter.value.trim() ? "" : number(some.length) + " of " + number(all)
      + (shown.length < some.length ? `, the first ${number(shown.length)} shown` : "");
  };
  filter.addEventListener("input", () => {
    exact = false;
    draw();
  });
  sortable(table, (header, sign) => {
    sorted = [header, sign];
    draw();
  });

  // Boxes and cells lead to their rows. Escape leads back.
  let origin;
  const narrow = (pattern) => {
    [filter.value, exact] = [pattern, true];
    draw();
  };
  const reveal = (id) => {
    const entry = id && (listed.find((entry) => entry.id === id) ?? entries().find((entry) => entry.id === id));
    if (!entry) return;
    if (!entry.row?.isConnected) narrow(entry.name);
    body.querySelector("[aria-current]")?.removeAttribute("aria-current");
    entry.row.ariaCurrent = "true";
    entry.row.tabIndex = -1;
    entry.row.focus();
  };
  const follow = (link) => {
    origin = link;
    if (!link.hasAttribute("tabindex")) link.tabIndex = -1; // so that Escape can give it the focus
    if (link.dataset.filter) {
      narrow(link.dataset.filter);
      filter.focus();
      return;
    }
    const id = link.dataset.id ?? link.getAttribute("href")?.slice(1);
    if (!id) return;
    reveal(id);
    location.hash = id;
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.(".cell, .sizes > a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    follow(link);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches(".cell")) {
      event.preventDefault();
      follow(event.target);
    }
    if (event.key === "Escape" && origin && event.target.closest("#tensors")) origin.focus();
  });
  const arrive = () => reveal(location.hash.slice(1));
  addEventListener("popstate", arrive);
  arrive();
}
