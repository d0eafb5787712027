// Answers: the live rows of a query, a stream, a table or a view, with their corrections, in the views of the shell.
//
// The subscription feeds a fold (fold.js) in slices, so that a large batch does not hold the page up; the table is drawn
// at most some times a second, and less often when drawing is slow.
import "./answers.css";
import { quoted, sql, subscribe } from "../api.js";
import { count, counted, fill, h, problem } from "../dom.js";
import { Fold, SHOWN } from "../fold.js";
import { table } from "../parts/table.js";
import { timeline } from "../parts/timeline.js";
import { isDate, ticks, timeText, valueText } from "../times.js";

const MOST = 100_000;
/** Rows that are folded before the page may have its turn, and milliseconds after which it has it. */
const SLICE = 1_000;
const TURN = 12;
const NUMBERS = /^(BYTE|SHORT|INT|LONG|FLOAT|DOUBLE|DECIMAL|INTEGER|BIGINT)/;

const VIEWS = {
  rows: "Rows that hold now.",
  history: "Which rows hold when, after all corrections.",
  changes: "What was added (+), corrected (±) and removed (−) since this page is open, the newest first.",
  events: "The physical events as they arrive, the newest first.",
  timeline: "Lifetimes on an axis of time: what the promise has reached is final.",
};

export async function show(root, context) {
  if (!context.path.length) return choose(root, context.signal);
  const name = context.path[0];
  let about;
  try {
    about = await described(name, context.signal);
  } catch (error) {
    if (error.code !== "SQL") throw error;
    return fill(root, h("h1", {}, name), h("p", { class: "problem", role: "alert" }, "There is no such query, stream, table or view. ", h("a", { href: "#/answers" }, "What there is")));
  }
  return follow(root, context, name, about);
}

/** What there is to follow. */
async function choose(root, signal) {
  const [queries, tables, views] = await sql("SHOW QUERIES; SHOW TABLES; SHOW VIEWS", signal);
  const named = [
    ...queries.rows.map((row) => [row.query, row.kind]),
    ...tables.rows.map((row) => [row.table, "table"]),
    ...views.rows.map((row) => [row.view, row.kind]),
  ];
  const rows = [...new Map(named)].filter(([, kind]) => kind !== "view");
  fill(
    root,
    h("h1", {}, "Answers"),
    rows.length
      ? h(
          "ul",
          { class: "answers-names" },
          rows.map(([name, kind]) => h("li", {}, h("a", { href: `#/answers/${encodeURIComponent(name)}` }, name), " ", h("span", { class: "soft" }, kind))),
        )
      : h("p", {}, "There is nothing to follow yet: queries, tables and materialized views are. ", h("a", { href: "#/editor" }, "The editor"), " has examples."),
  );
}

/** The columns of a name, with their types, and whether it is a table or a view over tables. */
async function described(name, signal) {
  const [columns, tables, views] = await sql(`DESCRIBE ${quoted(name)}; SHOW TABLES; SHOW VIEWS`, signal);
  const relation = tables.rows.some((row) => row.table === name) || views.rows.some((row) => row.view === name);
  return { columns: columns.rows.map((row) => ({ name: row.column, number: NUMBERS.test(row.type) })), relation };
}

/** Show the rows of a name in `root`; `feed` is `subscribe`, or gives the same calls. */
export function follow(root, context, name, about, feed = subscribe) {
  const { signal } = context;
  const payload = about.columns.map((column) => column.name);
  const fold = new Fold(payload, { most: MOST, relation: about.relation });
  const kinds = about.relation ? Object.keys(VIEWS) : Object.keys(VIEWS).slice(1);
  const look = { view: kinds.includes(context.query.get("view")) ? context.query.get("view") : kinds[0], filter: "", sort: null, descending: false, paused: false };
  const page = frame(name, kinds, look, { choose: choice, redraw: () => plan(0), pause });
  fill(root, page.element);
  let shown = null;
  let timer = 0;
  let due = Infinity; // when the next drawing is planned, and before when there is none
  let ready = 0;
  let waiting = 0; // changes before the pause
  let copies = false; // whether the table has a column for them
  choice(look.view);
  signal.addEventListener("abort", () => clearTimeout(timer), { once: true });

  function choice(view) {
    look.view = view;
    look.sort = null;
    copies = fold.several;
    page.choose(view);
    shown = view === "timeline" ? lifetimes() : grid(view);
    fill(page.body, shown.element);
    draw();
  }

  function grid(view) {
    const made = table({
      columns: columnsOf(view, about, fold),
      label: `${view} of ${name}`,
      height: Math.max(260, Math.min(640, window.innerHeight - 300)),
      empty: "no rows yet",
      onSort: (column) => sortBy(column),
      onRow: (row) => page.details(row.row ?? row, payload),
      rowClass: (row) => rowClass(row, view),
      rowStyle: (row) => (row.at ? { animationDelay: `${Math.min(0, row.at - performance.now())}ms` } : {}),
    });
    return made;
  }

  /** The timeline, which is shown as the tables are, with a lane for each value of the first column that is no number. */
  function lifetimes() {
    const key = about.columns.find((column) => !column.number)?.name ?? "";
    const age = (one) => performance.now() - one.at;
    const mark = (one) => (one.at && one.mark && age(one) < SHOWN / 2 ? { kind: one.mark === "ended" ? "corrected" : one.mark, age: age(one) } : null);
    const drawn = timeline({ label: `Timeline of ${name}`, values: (one) => one.row, mark, onRow: (one) => page.details(one.row, payload) });
    return { element: drawn.element, show: (rows) => drawn.show({ rows, columns: payload, cti: fold.cti, key, dates: fold.dates || about.relation }) };
  }

  function sortBy(column) {
    look.descending = look.sort === column ? !look.descending : false;
    look.sort = column;
    shown.sorted(column, look.descending);
    plan(0);
  }

  function pause() {
    look.paused = !look.paused;
    waiting = fold.counts.changes;
    plan(0);
  }

  /** Draw in some milliseconds, unless that is planned sooner; drawing takes at most a fifth of the time. */
  function plan(wait = 100) {
    const at = Math.max(performance.now() + wait, ready);
    if (signal.aborted || at >= due) return;
    due = at;
    clearTimeout(timer);
    timer = setTimeout(() => requestAnimationFrame(draw), at - performance.now());
  }

  function draw() {
    due = Infinity;
    if (signal.aborted) return;
    const began = performance.now();
    page.progress(fold, about, look.paused ? fold.counts.changes - waiting : null);
    if (!look.paused) {
      fold.expire(began);
      if (fold.several && !copies) return choice(look.view);
      const rows = chosen(fold, look, payload, began);
      shown.show(rows, note(fold, look, rows));
    }
    ready = performance.now() + 4 * (performance.now() - began);
    if (fold.leaving.size && began - fold.changed < SHOWN) plan(500);
    else if (began - fold.changed < SHOWN) plan(SHOWN - (began - fold.changed) + 50);
  }

  async function onRows(piece) {
    let turn = performance.now();
    for (let start = 0; start < piece.rows.length; start += SLICE) {
      fold.take(piece.rows.slice(start, start + SLICE), piece.snapshot, performance.now());
      if (performance.now() - turn > TURN) {
        await new Promise((resolve) => setTimeout(resolve));
        turn = performance.now();
      }
    }
    fold.settle(performance.now());
    if (piece.cti !== null) fold.cti = piece.cti;
    plan();
  }

  return feed(name, {
    signal,
    onRows,
    onState(state, cursor) {
      if (state === "connected" && !cursor) fold.reset();
      page.state(state);
      plan(0);
    },
  });
}

// --- rows ----------------------------------------------------------------------------------------------------------

/** The rows of a view that the filter lets through, in their order. */
function chosen(fold, look, payload, now) {
  let rows = fold.list(look.view, now);
  const wanted = look.filter.trim().toLowerCase();
  if (wanted) rows = rows.filter((one) => matches(one.row ?? one, payload, wanted));
  const value = { le: (one) => one.le ?? ticks((one.row ?? one).le), re: (one) => one.re ?? ticks((one.row ?? one).re), at: (one) => one.at };
  if (look.sort) {
    const of = value[look.sort] ?? ((one) => (one.row ?? one)[look.sort]);
    const way = look.descending ? -1 : 1;
    return rows.sort((a, b) => way * compared(of(a), of(b)));
  }
  if (look.view === "timeline") return rows;
  if (look.view === "history") return rows.sort((a, b) => b.le - a.le || (a.re === b.re ? a.order - b.order : b.re - a.re));
  return look.view === "rows" ? rows.sort((a, b) => a.order - b.order) : rows;
}

function matches(row, payload, wanted) {
  return ["le", "re", ...payload].some((name) => row[name] !== null && valueText(row[name]).toLowerCase().includes(wanted));
}

/** NULLs last; numbers by value, also those that are texts because they are large. */
function compared(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  const numbers = Number(a) - Number(b);
  if (!Number.isNaN(numbers)) return numbers;
  const [left, right] = [valueText(a), valueText(b)];
  return left < right ? -1 : left > right ? 1 : 0;
}

function rowClass(row, view) {
  if (view === "changes") return `answers-${{ "+": "new", "−": "removed", "±": "changed" }[row.mark]}-mark`;
  if (view === "events" || !row.at || performance.now() - row.at > SHOWN) return "";
  if (row.mark === "removed" || (view === "rows" && row.mark === "ended")) return "answers-removed";
  return row.mark === "new" && !(view === "rows" && row.previous) ? "answers-new" : "";
}

function note(fold, look, rows) {
  const { dropped, unknown } = fold.counts;
  const parts = [counted(rows.filter((one) => one.mark !== "removed" && one.mark !== "ended").length, "row")];
  const kept = look.view === "changes" || look.view === "events" ? fold.log : fold.most;
  if (dropped && kept === fold.most) parts.push(`the newest ${count(kept)} are kept; ${count(dropped)} earlier ones are not shown`);
  if (kept === fold.log && fold.counts.changes > kept) parts.push(`at least the newest ${count(kept)} are kept`);
  if (unknown) parts.push(`${count(unknown)} retractions of rows that were not there`);
  return parts.join(" · ");
}

// --- columns -------------------------------------------------------------------------------------------------------

function columnsOf(view, about, fold) {
  const dates = () => fold.dates || about.relation;
  const time = (name, title) => ({ name, title, width: about.relation ? 200 : 190, cell: (one) => cell(one, name, view, (value) => timeText(name === "le" && value === null ? -Infinity : ticks(value), dates())) });
  const narrow = window.innerWidth < 600;
  const values = about.columns.map(({ name, number }) => ({ name, number, cell: (one) => cell(one, name, view, valueText) }));
  const lifetime = [time("le", "from"), time("re", "to")];
  const held = narrow ? [...values, ...lifetime] : [...lifetime, ...values]; // on a telephone the values are in sight
  const copies = { name: "copies", title: "copies", number: true, width: 80, cell: (one) => (one.copies > 1 ? `×${one.copies}` : "") };
  if (view === "rows") return fold.several ? [...values, copies] : values;
  if (view === "history") return fold.several ? [...held, copies] : held;
  if (view === "changes") {
    const clock = (one) => new Date(performance.timeOrigin + one.at).toLocaleTimeString("en-GB");
    return [{ name: "mark", title: "", width: 36, cell: (one) => one.mark }, { name: "at", title: "seen at", width: 90, cell: clock }, ...held];
  }
  return [{ name: "kind", title: "kind", width: 90 }, ...lifetime, time("re_new", "new end"), ...values].map((column) => ({ ...column, cell: (row) => eventCell(row, column) }));
}

/** A value; if it was corrected a moment ago, the old one and the new one. */
function cell(one, name, view, shown) {
  const before = view === "rows" ? (one.previous ?? (one.mark === "ended" ? null : one.before)) : one.before;
  const value = shown(one.row[name]);
  const fading = view !== "changes";
  if (!before || !(name in before) || (fading && performance.now() - one.at > SHOWN)) return value;
  const delay = fading ? { animationDelay: `${Math.min(0, one.at - performance.now())}ms` } : {};
  return h("span", { class: fading ? "answers-changed answers-fading" : "answers-changed", style: delay, title: `${shown(before[name])} → ${value}` }, h("s", {}, shown(before[name])), " → ", h("b", {}, value));
}

function eventCell(row, column) {
  if (column.name === "kind") return row.kind;
  if (row.kind === "cti" && column.name !== "le") return "";
  if (column.name === "re_new" && row.kind !== "retract") return "";
  if (column.name === "re_new" && row.re_new === row.le) return "removed";
  const { le, re, re_new } = row;
  if (column.name in { le, re, re_new }) return timeText(ticks(row[column.name]), isDate(le) || column.relation);
  return valueText(row[column.name]);
}

// --- the frame -----------------------------------------------------------------------------------------------------

function frame(name, kinds, look, { choose: choice, redraw, pause }) {
  const title = (kind) => kind[0].toUpperCase() + kind.slice(1);
  const tabs = Object.fromEntries(
    kinds.map((kind) => [kind, h("button", { type: "button", role: "tab", id: `view-${kind}`, "aria-controls": "answers-body", title: VIEWS[kind], onclick: () => choice(kind) }, title(kind))]),
  );
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": "Views", onkeydown: (event) => arrows(event, Object.values(tabs)) }, Object.values(tabs));
  const state = h("span", { class: "answers-state", role: "status" });
  const cti = h("span", { class: "answers-cti" });
  const filter = h("input", { type: "search", "aria-label": "Filter", placeholder: "Filter", oninput: () => ((look.filter = filter.value), redraw()) });
  const button = h("button", { type: "button", "aria-pressed": "false", onclick: () => (pause(), button.setAttribute("aria-pressed", look.paused), fill(button, look.paused ? "Continue" : "Pause")) }, "Pause");
  const explained = h("p", { class: "note answers-about" });
  const body = h("div", { id: "answers-body", role: "tabpanel" });
  const details = h("div", { class: "answers-details" });
  const failed = h("div", {});
  const element = h("div", { class: "answers" }, h("h1", {}, name), failed, h("div", { class: "bar" }, state, cti, h("span", { class: "space" }), filter, button), list, explained, body, details);
  return {
    element,
    body,
    choose(kind) {
      for (const [other, tab] of Object.entries(tabs)) {
        tab.setAttribute("aria-selected", other === kind);
        tab.tabIndex = other === kind ? 0 : -1;
      }
      fill(explained, VIEWS[kind]);
      body.setAttribute("aria-labelledby", `view-${kind}`);
    },
    state(next) {
      const words = { connected: "live", waiting: "no connection, trying again" };
      fill(state, typeof next === "string" ? words[next] : "ended");
      state.dataset.state = typeof next === "string" ? next : "ended";
      if (typeof next === "string") fill(failed);
      else fill(failed, problem(next), h("button", { type: "button", onclick: () => window.dispatchEvent(new HashChangeEvent("hashchange")) }, "Begin again"));
    },
    progress(fold, about, paused) {
      const final = fold.cti === null ? "" : fold.cti === "inf" ? "all final" : `final up to ${timeText(ticks(fold.cti), fold.dates || isDate(fold.cti) || about.relation)}`;
      fill(cti, [final, counted(fold.counts.changes, "change"), paused === null ? "" : `paused since ${counted(paused, "change")}`].filter(Boolean).join(" · "));
    },
    details(row, payload) {
      const dates = isDate(row.le);
      const lines = [["from", timeText(ticks(row.le), dates)], ["to", timeText(ticks(row.re), dates)], ...payload.map((column) => [column, valueText(row[column])])];
      fill(details, h("h2", {}, "Row"), h("dl", {}, lines.map(([term, value]) => [h("dt", {}, term), h("dd", {}, value)])));
    },
  };
}

/** The keys of a list of tabs. */
function arrows(event, tabs) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
  next.click();
  next.focus();
  event.preventDefault();
}
