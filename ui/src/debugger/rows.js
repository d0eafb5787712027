// The rows of an operator, in pages: changes of a batch, or its history after it.
import { count, fill, h, text } from "../dom.js";
import { table } from "../parts/table.js";

export const PAGE = 1000;

/** A time as people read it: without the letters of ISO. */
export function time(value) {
  if (value === "inf") return "∞";
  if (value === null || value === undefined) return "–";
  return typeof value === "string" ? value.replace("T", " ").replace(/(\.0+)?(Z|\+00:00)$/, "") : String(value);
}

/** The columns of events, as wide as these rows need: lifetime, and those of the operator. `far(row, name)` marks cells. */
export function eventColumns(columns, rows, { dates, sign = true, far = () => false }) {
  const some = rows.slice(0, 200);
  const wide = (title, shown) => Math.round(Math.max(title.length * 8.6, 24, Math.min(300, Math.max(0, ...some.map((row) => shown(row).length)) * 7.9)) + 26);
  const end = (row) => (row.point ? "(instant)" : time(row.re));
  return [
    sign && { name: "weight", title: "±", width: 44, cell: (row) => (row.weight > 0 ? "+" : "−") + (Math.abs(row.weight) > 1 ? Math.abs(row.weight) : "") },
    { name: "le", title: "from", width: wide("from", (row) => time(row.le)), number: !dates, cell: (row) => time(row.le) },
    { name: "re", title: "to", width: wide("to", end), number: !dates, cell: end },
    ...columns.map((column) => ({
      name: column.name,
      number: column.number,
      width: wide(column.name, (row) => cell(row.values[column.name], column)),
      cell: (row) => (far(row, column.name) ? h("b", { class: "dbg-far", title: "far from the others" }, text(row.values[column.name])) : cell(row.values[column.name], column)),
    })),
  ].filter(Boolean);
}

/** A text of the server with times as people read them. */
export function readable(value) {
  return value.replace(/(\d{4}-\d\d-\d\d)T(\d\d:)/g, "$1 $2");
}

/** A value as text: times as people read them, fractions with nine digits. */
function cell(value, column) {
  if (typeof value === "number" && !Number.isInteger(value)) return String(Number(value.toPrecision(9)));
  return /DATE|TIMESTAMP/i.test(column.type) && typeof value === "string" ? time(value) : text(value);
}

/**
 * A pager over one part: `load(offset)` → {columns, total, rows}; `onRow(row)`; `rowClass(row)`. `pages.show(load, place)`
 * shows the page of the row with the number `place`, and chooses it.
 */
export function pages({ onRow, rowClass, dates, label, height = 340 }) {
  const element = h("div", {});
  let shown = null;
  let turn = 0;

  async function show(load, { offset = 0, row = null, sign = true, note = () => "", empty = "no rows" } = {}) {
    const own = (turn += 1);
    const first = row === null ? offset : Math.floor(row / PAGE) * PAGE;
    const page = await load(first);
    if (own !== turn) return null;
    shown = table({ columns: eventColumns(page.columns, page.rows, { dates, sign }), onRow, rowClass, label, height, empty });
    const move = (to) => show(load, { offset: to, sign, note, empty });
    const last = Math.min(page.total, first + PAGE);
    const pager =
      page.total > PAGE &&
      h(
        "div",
        { class: "bar" },
        h("button", { type: "button", disabled: first === 0, onclick: () => move(Math.max(0, first - PAGE)) }, "Earlier rows"),
        h("span", { class: "note" }, `rows ${count(first + 1)} – ${count(last)} of ${count(page.total)}`),
        h("button", { type: "button", disabled: last >= page.total, onclick: () => move(first + PAGE) }, "Later rows"),
      );
    fill(element, shown.element, pager);
    shown.show(page.rows, note(page));
    if (row !== null) shown.choose(row - first, false);
    if (row !== null) shown.reveal(row - first);
    return page;
  }

  return { element, show, repaint: () => shown?.redraw() };
}

/** Which numbers of a list are far from the others: more than eight times the usual distance from the middle. */
export function outliers(rows, columns) {
  const bounds = new Map();
  for (const column of columns.filter((one) => one.number)) {
    const values = rows.map((row) => row.values[column.name]).filter((value) => typeof value === "number");
    if (values.length < 5) continue;
    const middle = median(values);
    const usual = median(values.map((value) => Math.abs(value - middle)));
    const mean = values.reduce((sum, value) => sum + Math.abs(value - middle), 0) / values.length;
    const distance = usual || mean;
    if (distance > 0) bounds.set(column.name, (value) => typeof value === "number" && Math.abs(value - middle) > 8 * distance);
  }
  return (row, name) => bounds.get(name)?.(row.values[name]) ?? false;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}
