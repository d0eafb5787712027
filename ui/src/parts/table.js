// A table that draws only the rows in view: a hundred thousand rows cost as much as thirty.
import "./table.css";
import { fill, h, text } from "../dom.js";

const ROW = 26;

/**
 * A virtual table. `columns`: [{name, title, number, width, cell(row) → text or node}]; `onRow(row, index)` for a click or
 * Enter; `rowClass(row, index)`, `rowStyle(row, index)`; `onSort(name)` for a click on a column's title (`table.sorted`
 * shows the order); `label` for screen readers; `height` in pixels. It has the keys of a list: arrows, Page
 * Up and Down, Home, End, Enter. `table.show(rows, note)` replaces the rows; a note says what is not shown.
 */
export function table({ columns, onRow, rowClass = () => "", rowStyle = () => ({}), onSort, label, height = 320, empty = "no rows" }) {
  let rows = [];
  let current = -1;
  const least = columns.map((column) => column.width ?? Math.max(90, 8 * (column.title ?? column.name).length + 30));
  const widths = columns.map((column, i) => (column.width ? `${column.width}px` : `minmax(${Math.min(least[i], 260)}px, 1fr)`)).join(" ");
  const rowWidth = `${least.reduce((sum, width) => sum + Math.min(width, 260), 0)}px`; // rows are grids of their own: all are as wide
  const head = h(
    "div",
    { class: "vt-row vt-head", role: "row", style: { gridTemplateColumns: widths, minWidth: rowWidth } },
    columns.map((column) => {
      const title = column.title ?? column.name;
      const shown = onSort ? h("button", { type: "button", class: "vt-sort", onclick: () => onSort(column.name) }, title) : title;
      return h("div", { role: "columnheader", class: column.number ? "number" : "" }, shown);
    }),
  );
  const body = h("div", { class: "vt-rows" });
  const room = h("div", { class: "vt-room" }, body);
  const scroller = h(
    "div",
    { class: "vt", role: "grid", "aria-label": label, tabindex: 0, style: { maxHeight: `${height}px` }, onscroll: () => draw(), onkeydown: key },
    head,
    room,
  );
  const below = h("p", { class: "note vt-note" });
  const element = h("div", { class: "vt-box" }, scroller, below);
  new ResizeObserver(() => draw()).observe(scroller);

  function draw() {
    const seen = scroller.clientHeight || height;
    const first = Math.max(0, Math.floor(scroller.scrollTop / ROW) - 5);
    const last = Math.min(rows.length, first + Math.ceil(seen / ROW) + 10);
    room.style.height = `${Math.max(1, rows.length) * ROW}px`;
    body.style.transform = `translateY(${first * ROW}px)`;
    const active = document.activeElement === scroller;
    fill(body, rows.length ? rows.slice(first, last).map((row, i) => line(row, first + i)) : h("p", { class: "note vt-empty" }, empty));
    scroller.setAttribute("aria-rowcount", rows.length);
    if (active) scroller.setAttribute("aria-activedescendant", current >= 0 ? `${id}-${current}` : "");
  }

  const id = `vt${(serial += 1)}`;
  function line(row, index) {
    return h(
      "div",
      {
        class: `vt-row ${rowClass(row, index)} ${index === current ? "vt-current" : ""}`,
        role: "row",
        id: `${id}-${index}`,
        "aria-rowindex": index + 1,
        style: { gridTemplateColumns: widths, minWidth: rowWidth, ...rowStyle(row, index) },
        onclick: () => choose(index),
      },
      columns.map((column) => {
        const shown = column.cell ? column.cell(row) : text(row[column.name]);
        return h("div", { role: "gridcell", class: column.number ? "number" : "", title: typeof shown === "string" ? shown : undefined }, shown);
      }),
    );
  }

  function choose(index, call = true) {
    current = index;
    draw();
    if (call && onRow && rows[index] !== undefined) onRow(rows[index], index);
  }

  function key(event) {
    const page = Math.max(1, Math.floor(scroller.clientHeight / ROW) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length };
    if (event.key === "Enter" || event.key === " ") {
      if (current >= 0) choose(current);
    } else if (event.key in moves && rows.length) {
      const next = Math.min(rows.length - 1, Math.max(0, current + moves[event.key]));
      const top = next * ROW;
      if (top < scroller.scrollTop) scroller.scrollTop = top;
      if (top + ROW * 2 > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = top + 2 * ROW - scroller.clientHeight;
      choose(next, false);
    } else return;
    event.preventDefault();
  }

  return {
    element,
    show(next, note = "") {
      rows = next;
      if (current >= rows.length) current = -1;
      fill(below, note);
      draw();
    },
    choose,
    redraw: draw,
    /** Scroll a row into view. */
    reveal(index) {
      if (index * ROW < scroller.scrollTop || (index + 2) * ROW > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = Math.max(0, (index - 3) * ROW);
      draw();
    },
    /** Show by which column the rows are sorted. */
    sorted(name, descending) {
      columns.forEach((column, i) => {
        if (column.name === name) head.children[i].setAttribute("aria-sort", descending ? "descending" : "ascending");
        else head.children[i].removeAttribute("aria-sort");
      });
    },
    get rows() {
      return rows;
    },
    /** The row that was chosen, or that arrows have reached. */
    get current() {
      return rows[current];
    },
  };
}

let serial = 0;
