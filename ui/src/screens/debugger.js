// The Debugger: a query is traced, and every change of every operator is shown, batch by batch, with its causes.
import "../debugger/debugger.css";
import { get, sql } from "../api.js";
import { fill, h, problem } from "../dom.js";
import { showComparison } from "../debugger/comparison.js";
import { recorded, session, stepper } from "../debugger/stepper.js";
import { openTrace, traceOf } from "../debugger/trace.js";
import { traceView } from "../debugger/view.js";
import { showSaved } from "../debugger/saved.js";

export async function show(root, context) {
  const { mode } = context.about;
  if (mode === "checkpoint" && !context.path.length) return showSaved(root, await get("/ui/data/saved", context.signal), context.about.traced);
  if (mode === "server" && !context.path.length) return choose(root, context);
  await showTrace(root, context, mode === "server" ? context.path[0] : context.about.name);
}

/** The queries of a server, to choose one. */
async function choose(root, { signal }) {
  const names = await queryNames(signal);
  fill(
    root,
    h("h1", {}, "Debugger"),
    h("p", {}, "A query is run again over what its streams and tables have now, beside the running one, which is not touched. Every change of every operator is kept."),
    names.length
      ? h("ul", { class: "dbg-queries" }, names.map((name) => h("li", {}, h("a", { href: `#/debug/${encodeURIComponent(name)}` }, name))))
      : h("p", { class: "note" }, "There are no queries yet."),
  );
}

async function queryNames(signal) {
  const [{ rows }] = await sql("SHOW QUERIES", signal);
  return rows.map((row) => row.query ?? row.name);
}

async function showTrace(root, context, name) {
  const { query, signal } = context;
  const given = Number(query.get("rows")) || context.about.batchRows || "";
  const rows = h("input", { type: "number", id: "dbg-rows", min: 1, step: 1, value: given, placeholder: "as it reads", inputmode: "numeric" });
  const again = h("button", { type: "submit" }, "Trace again");
  const form = h(
    "form",
    { class: "bar dbg-form", onsubmit: (event) => (event.preventDefault(), run(true)) },
    h("h1", {}, name),
    h("span", { class: "space" }),
    h("label", { for: "dbg-rows" }, "Rows of a batch"),
    rows,
    again,
  );
  const place = h("div", {});
  let shown = null;
  const live = context.about.mode === "file";
  const debugged = live ? session({ rows: () => Number(rows.value) || null, signal }) : recorded({ trace: () => current, at: () => shown.place });
  const steps = stepper({ run: debugged, onPause: ({ pause, ...found }) => (live ? paused({ pause, ...found }) : shown.goTo({ ...pause, operator: pause.operator || shown.place.operator, row: null })), signal });
  fill(root, form, steps.element, place);
  let before = null;
  const comparison = h("div", {});
  const compare = h("button", { type: "button", hidden: true, onclick: () => showComparison(comparison, current, before) }, "Compare with the trace before");
  let current = null;
  form.append(compare);
  if (context.about.mode === "server") addOthers().catch(() => {}); // without a list there is nothing to choose
  place.before(comparison);
  let running = new AbortController();
  signal.addEventListener("abort", () => running.abort());

  async function run(fresh) {
    running.abort();
    running = new AbortController();
    const own = running.signal;
    again.disabled = true;
    steps.close();
    const late = setTimeout(() => fill(place, h("p", { class: "note", role: "status" }, "The query runs, and everything is kept…")), 200);
    try {
      const trace = await openTrace(name, Number(rows.value) || null, own);
      if (own.aborted) return;
      if (!trace.graph.batches) return fill(place, h("p", { class: "note", role: "status" }, "The query has not read a row yet: there is nothing to show. Insert rows, and trace again."));
      if (current) before = current;
      current = trace;
      compare.hidden = !before;
      fill(comparison);
      const at = fresh ? {} : { batch: query.has("batch") ? Number(query.get("batch")) : null, operator: Number(query.get("operator")) };
      const view = traceView({ trace, at, signal: own, onPlace: (batch, operator) => remember(context, batch, operator, rows.value) });
      shown = view;
      clearTimeout(late);
      fill(place, (trace.graph.notes ?? []).map((text) => h("p", { class: "note", role: "status" }, text)), view.element);
      steps.operators(trace.graph.nodes);
      await view.ready;
    } catch (error) {
      if (!own.aborted && error.status !== 401) fill(place, problem(error));
    } finally {
      clearTimeout(late);
      again.disabled = false;
    }
  }

  /** A list of the other queries, to compare one with this: two versions over the same rows, say. */
  async function addOthers() {
    const others = (await queryNames(signal)).filter((other) => other !== name);
    if (!others.length) return;
    const list = h("select", { "aria-label": "Compare with another query", onchange: () => compareWith(list) }, h("option", { value: "" }, "Compare with…"), others.map((other) => h("option", {}, other)));
    form.append(list);
  }

  async function compareWith(list) {
    const other = list.value;
    list.value = "";
    if (!other) return;
    if (!current) return fill(comparison, h("p", { class: "note", role: "status" }, `There is no trace of ${name} yet that ${other} could be compared with.`));
    const [shownTrace, own] = [current, running.signal];
    fill(comparison, h("p", { class: "note", role: "status" }, `${other} runs, to be compared…`));
    try {
      const found = await openTrace(other, Number(rows.value) || null, own);
      if (shownTrace === current) await showComparison(comparison, shownTrace, found, [name, other]);
    } catch (error) {
      if (!own.aborted) fill(comparison, problem(error));
    }
  }

  /** The run of a session has stopped: its trace so far, at the place where it is. */
  async function paused(found) {
    running.abort();
    running = new AbortController();
    const at = { batch: found.pause.batch, operator: found.pause.operator ?? found.output, tab: "changes" };
    const view = traceView({ trace: traceOf(found, null, running.signal), at, signal: running.signal, onPlace: () => {} });
    fill(place, view.element);
    if (!current) steps.operators(found.nodes); // the trace has failed, as this run may
    await view.ready;
  }

  await run(false);
}

/** Keep the place in the address, so that it can be sent to others; this does not load the screen again. */
function remember({ path }, batch, operator, rows) {
  const parameters = new URLSearchParams({ batch, operator, ...(rows ? { rows } : {}) });
  history.replaceState(null, "", `#/${["debug", ...path.map(encodeURIComponent)].join("/")}?${parameters}`);
}
