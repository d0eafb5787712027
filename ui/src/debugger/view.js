// One trace: its graph with the changes of a batch, the batches, the rows of an operator, and the questions.
import { bytes, count, fill, h, problem, seconds } from "../dom.js";
import { graph } from "../parts/graph.js";
import { table } from "../parts/table.js";
import { answerPanel, counted } from "./answer.js";
import { PAGE, pages, readable, time } from "./rows.js";
import { scrubber } from "./scrubber.js";

const TABS = { changes: "Changes in this batch", history: "History after it", state: "State", about: "Operator" };

/** Shows a trace in `root`; `at` has the batch and the operator to begin with, `onPlace` is called with others. */
export function traceView({ trace, at, onPlace, signal }) {
  const { graph: plan } = trace;
  let batch = null;
  let operator = plan.nodes.some((node) => node.id === at.operator) ? at.operator : plan.output;
  let tab = at.tab ?? (plan.first > 0 ? "changes" : "history");
  let marks = new Map();
  let edges = new Set();
  let turn = 0;

  const picture = graph({
    label: "The operators, with the changes of the batch on the edges",
    onSelect: (node) => choose(node.id),
    badge: (node) => badges(node),
    nodeClass: (node) => [marks.has(node.id) && "cause", troubles(node.id) && "dbg-trouble"].filter(Boolean).join(" "),
    edgeLabel: (from, to) => changeText(counts(to.side ? to.id : from.id)),
    edgeClass: (from, to) => (edges.has(`${from.id}-${to.id}`) ? "cause" : ""),
  });
  const slider = scrubber({ onBatch: (number) => go(number), signal });
  const rows = pages({ onRow: (row) => ask(row), rowClass, dates: plan.dates, label: "Rows of the chosen operator" });
  const panel = answerPanel({ trace, signal, onMarks: setMarks, onGo: goTo });
  const title = h("h2", { class: "dbg-operator" });
  const notes = h("div", { class: "dbg-troubles" });
  const content = h("div", { class: "dbg-content" });
  const tabs = h("div", { class: "tabs", role: "tablist" });
  const element = h(
    "div",
    { class: "dbg" },
    slider.element,
    notes,
    picture.element,
    h("div", { class: "dbg-columns" }, h("section", { class: "dbg-rows", "aria-label": "The chosen operator" }, title, tabs, content), panel.element),
  );
  document.addEventListener("keydown", key, { signal });

  const counts = (id) => batch?.operators.find((one) => one.id === id);
  const troubles = (id) => batch?.troubles.find((one) => one.id === id);

  function badges(node) {
    const now = counts(node.id);
    if (!now) return [];
    const late = troubles(node.id);
    const state = now.state_rows === null ? "" : `state ${counted(now.state_rows, "row")}`;
    const first = [changeText(now) || "no changes", state, late && Object.entries(late.counts).map(([name, value]) => `${count(value)} ${name}`)[0]];
    return [first.filter(Boolean).join(" · "), node.side ? "" : `CTI ${time(now.cti)}`];
  }

  function rowClass(row) {
    const own = marks.get(operator)?.has(`${slider.batch}/${row.row}`);
    const change = tab === "changes" ? (row.weight > 0 ? "dbg-add" : "dbg-remove") : "";
    return `${change} ${own && tab === "changes" ? "marked" : ""}`;
  }

  function setMarks(nextMarks, nextEdges) {
    marks = nextMarks;
    edges = nextEdges;
    picture.paint();
    rows.repaint();
  }

  async function go(number, place = {}) {
    const own = (turn += 1);
    const found = await trace.part("batch", { batch: number });
    if (own !== turn || signal.aborted) return;
    batch = found;
    picture.paint();
    onPlace(number, operator);
    fill(notes, batch.troubles.map(trouble));
    await showTab(place.row ?? null);
  }

  function trouble({ id, counts: found, example }) {
    const what = Object.entries(found).map(([name, value]) => `${count(value)} ${name.replaceAll("_", " ")}`);
    const side = plan.nodes.find((node) => node.kind === "Diverted" && node.inputs.includes(id));
    return h(
      "p",
      { class: "dbg-rule" },
      h("b", {}, `#${id}: ${what.join(", ")}. `),
      example && `${readable(example.reason)}${example.file ? ` (${example.file.split("/").at(-1)}${example.line ? `, line ${count(example.line)}` : ""})` : ""} `,
      side && found.diverted && h("button", { type: "button", onclick: () => choose(side.id) }, "Show the rows"),
    );
  }

  async function choose(id, place = {}) {
    operator = id;
    picture.select(id, false);
    const node = plan.nodes.find((one) => one.id === id);
    const missing = h("button", { type: "button", class: "dbg-ask", onclick: () => panel.askMissing(node, slider.batch) }, "Why is a row not there?");
    fill(title, `#${id} ${node.title} `, h("span", { class: "soft" }, node.text), missing);
    if (tab === "state" && !node.stateful) tab = "changes";
    fill(
      tabs,
      Object.entries(TABS)
        .filter(([name]) => name !== "state" || node.stateful)
        .map(([name, label]) => h("button", { type: "button", role: "tab", "aria-selected": String(name === tab), onclick: () => chooseTab(name) }, label)),
    );
    trace.part("activity", { operator: id }).then((activity) => operator === id && !signal.aborted && slider.bars(activity), () => {});
    if (batch) {
      onPlace(slider.batch, operator);
      await showTab(place.row ?? null);
    }
  }

  function chooseTab(name) {
    tab = name;
    choose(operator);
  }

  async function showTab(row = null) {
    const own = turn;
    const place = { operator, batch: slider.batch };
    try {
      if (tab === "changes" || tab === "history") {
        const load = (offset) => trace.part(tab, { ...place, offset, limit: PAGE });
        const note = (page) => (tab === "changes" && page.total ? `${changeText(page)} in this batch` : page.total ? counted(page.total, "event") : "");
        if (content.firstChild !== rows.element) fill(content, rows.element);
        await rows.show(load, { row, sign: tab === "changes", note, empty: tab === "changes" ? "this operator gave no change in this batch" : "no events" });
      } else if (tab === "state") fill(content, stateOf(await trace.part("state", place)));
      else fill(content, about());
    } catch (error) {
      if (own === turn && !signal.aborted) fill(content, problem(error));
    }
  }

  function stateOf({ tables }) {
    if (!tables.length) return h("p", { class: "note" }, "The state is empty after this batch.");
    return [
      h("p", { class: "note" }, "What the operator remembers after this batch. These tables are its own, and may change from version to version."),
      tables.map(({ name, total, columns, rows: found }) => {
        const shown = table({ columns: columns.map((column) => ({ ...column, width: 120 })), label: `State ${name}`, height: 220 });
        shown.show(found, total > found.length ? `the first ${count(found.length)} of ${counted(total, "row")}` : "");
        return [h("h3", {}, `${name}: ${counted(total, "row")}`), shown.element];
      }),
    ];
  }

  function about() {
    const node = plan.nodes.find((one) => one.id === operator);
    const now = counts(operator);
    const line = (name, value) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value));
    return h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "plain" },
        line("Text", node.text),
        line("Reads", node.inputs.length ? node.inputs.map((id) => `#${id}`).join(", ") : "input"),
        line("Columns", node.columns.map((column) => `${column.name} ${column.type}`).join(", ")),
        line("CTI after this batch", [`${now.cti === null ? "none yet: nothing is promised" : time(now.cti)} `, h("button", { type: "button", onclick: () => panel.askCti(node, slider.batch) }, "Why?")]),
        line("Latest time seen", time(now.high)),
        line("Changes in this batch", changeText(now) || "none"),
        line("Time in this batch", seconds(now.seconds)),
        line("State after this batch", now.state_rows === null ? "none" : `${counted(now.state_rows, "row")}, ${bytes(now.state_bytes)}`),
        line("In all batches", `${counted(node.changes, "change")}, ${counted(node.removals, "removal")}, ${seconds(node.seconds)}`),
      ),
    );
  }

  function ask(row) {
    panel.choose({ ...row, operator, batch: slider.batch, at: tab });
  }

  /** Go to the row of a step: its batch, its operator, its page. */
  async function goTo(step) {
    tab = "changes";
    slider.choose(step.batch, false);
    operator = step.operator;
    const moved = go(step.batch, { row: step.row });
    await choose(step.operator, { row: step.row });
    await moved;
    if (step.question) panel.choose(step, step.question);
  }

  function key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea, [role=grid], .graph-node, [role=tablist]")) return;
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move === undefined) return;
    slider.choose(slider.batch + move);
    event.preventDefault();
  }

  slider.show(plan.first, plan.batches, plan.ended);
  picture.show({ stages: [], nodes: plan.nodes.map((node) => ({ ...node, text: shortened(node) })) });
  choose(operator);
  const last = plan.first + plan.batches - 1;
  const first = Number.isInteger(at.batch) ? Math.max(plan.first, Math.min(at.batch, last)) : last;
  slider.choose(first, false);
  return { element, panel, ready: go(first), goTo, get place() { return { batch: slider.batch, operator }; } };
}

/** The text of an operator without its kind, which is its title. */
function shortened(node) {
  return node.text.startsWith(node.title) ? node.text.slice(node.title.length).trim() || node.text : node.text;
}

function changeText(found) {
  if (!found) return "";
  return [found.added > 0 && `+${count(found.added)}`, found.removed > 0 && `−${count(found.removed)}`].filter(Boolean).join(" ");
}
