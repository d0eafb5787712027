// The panel beside the rows: the chosen event, questions about it, and their answers as steps that lead through the graph.
import { count, fill, h, problem, text } from "../dom.js";
import { table } from "../parts/table.js";
import { answerInto, ctiSteps, marksOf, missingForm, missingReasons } from "./missing.js";
import { eventColumns, outliers, readable, time } from "./rows.js";

const MOST_LINES = 200;

/** The part of the query string that names a row. */
export function placeOf(event) {
  return { operator: event.operator, batch: event.batch, row: event.row, ...(event.at === "history" ? { at: "history" } : {}) };
}

/**
 * `onMarks(marks)` gets the events of an answer: a map from operators to sets of "batch/row"; `onGo(place)` goes to a row.
 * `panel.choose(event)` shows an event, and asks why it is there, or why it was taken back.
 */
export function answerPanel({ trace, onMarks, onGo, signal }) {
  const element = h("section", { class: "panel dbg-answer", "aria-label": "The chosen row" });
  const nodes = new Map(trace.graph.nodes.map((node) => [node.id, node]));
  let turn = 0;

  function clear() {
    turn += 1;
    onMarks(new Map(), new Set());
    fill(element, h("h2", {}, "Why?"), h("p", { class: "note" }, "Choose a row: its causes and effects are marked in the graph and in the tables. The button beside the operator asks why a row is not there."));
  }

  const QUESTIONS = {
    why: { title: "Why is it here?", show: showSteps },
    why_retracted: { title: "Why was it taken back?", show: showSteps },
    forward: { title: "What became of it?", show: showEffects },
  };

  function choose(event, question = null) {
    const node = nodes.get(event.operator);
    const first = question ?? (event.weight < 0 ? "why_retracted" : node.input || node.side ? "forward" : "why");
    const body = h("div", { class: "dbg-body", "aria-live": "polite" });
    const own = (turn += 1);
    const buttons = Object.entries(QUESTIONS)
      .filter(([name]) => name !== "forward" || node.input)
      .map(([name, { title }]) => h("button", { type: "button", "data-question": name, onclick: () => ask(name) }, title));
    const lines = h("p", { class: "dbg-lines" });
    fill(element, h("h2", {}, `#${node.id} ${node.title}, batch ${count(event.batch)}`), eventLine(event), lines, h("div", { class: "bar" }, buttons), body);
    if (node.input) showLines(lines, event);
    if (node.side) {
      showDiverted(body, event);
      onMarks(new Map([[node.id, new Set([`${event.batch}/${event.row}`])]]), new Set());
      return;
    }
    ask(first);

    async function ask(name) {
      for (const button of buttons) button.setAttribute("aria-pressed", button.dataset.question === name);
      const late = setTimeout(() => fill(body, h("p", { class: "note" }, "asking…")), 150);
      try {
        const answer = await trace.part(name, placeOf(event));
        if (own === turn && !signal.aborted) QUESTIONS[name].show(body, answer, event);
      } catch (error) {
        if (own !== turn || signal.aborted) return;
        fill(body, problem(error));
        onMarks(new Map([[event.operator, new Set([`${event.batch}/${event.row}`])]]), new Set());
      } finally {
        clearTimeout(late);
      }
    }
  }

  async function showLines(element, event) {
    try {
      const { lines, more } = await trace.part("lines", placeOf(event));
      fill(element, lines.length > 1 && "one of ", lines.map(({ file, line }) => h("code", { title: file }, line === null ? file : `${file.split("/").at(-1)}, line ${count(line)}`)), more && " and more");
    } catch {
      // the file is gone: the values are all that is known
    }
  }

  function showDiverted(body, event) {
    const { reason, file, line, row } = event.values;
    fill(
      body,
      h("p", {}, "This row was not taken into the stream."),
      reason && h("p", { class: "dbg-rule" }, readable(reason)),
      file && h("p", { class: "dbg-lines" }, h("code", { title: file }, `${file.split("/").at(-1)}${line === null ? "" : `, line ${count(line)}`}`)),
      row && h("pre", {}, row),
    );
  }

  function showSteps(body, answer, event) {
    const marks = new Map();
    const edges = new Set();
    for (const step of answer.steps) {
      if (step.row !== null) mark(marks, step);
      else if (!marks.has(step.operator)) marks.set(step.operator, new Set());
      for (const cause of step.causes) edges.add(`${answer.steps[cause.step].operator}-${step.operator}`);
    }
    mark(marks, { ...event });
    onMarks(marks, edges);
    const inputs = answer.steps.filter((step) => step.input);
    fill(body, inputTables(inputs), h("h3", {}, "Step by step"), h("ol", { class: "dbg-steps" }, treeOf(answer.steps)));
  }

  /** The input events as tables, one for each input; numbers far from the others are marked. */
  function inputTables(inputs) {
    const operators = [...new Set(inputs.map((step) => step.operator))];
    return operators.map((operator) => {
      const node = nodes.get(operator);
      const rows = inputs.filter((step) => step.operator === operator);
      const far = outliers(rows, node.columns);
      const isFar = (row) => node.columns.some((column) => far(row, column.name));
      const columns = [
        ...eventColumns(node.columns, rows, { dates: trace.graph.dates, sign: rows.some((row) => row.weight < 0), far }).filter((column) => column.name !== "re" && (column.name !== "le" || !hasTime(rows, node.columns))),
        { name: "batch", number: true, width: 70, cell: (row) => count(row.batch) },
      ];
      const shown = table({ columns, onRow: (row) => onGo({ ...row, question: "forward" }), label: `Causes among #${operator}`, height: 220, rowClass: (row) => (isFar(row) ? "changed" : row.weight < 0 ? "removed" : "") });
      rows.sort((a, b) => isFar(b) - isFar(a));
      shown.show(rows, rows.some(isFar) ? "Values far from the others are marked and come first." : "");
      return [h("h3", {}, `${counted(rows.length, "input event")} of #${operator} ${node.title}`), shown.element];
    });
  }

  /** The steps as lines, effects before causes, indented by depth. */
  function treeOf(steps) {
    const lines = [];
    const seen = new Set();
    const waiting = [{ place: 0, depth: 0, role: "" }];
    while (waiting.length && lines.length < MOST_LINES) {
      const { place, depth, role } = waiting.pop();
      const step = steps[place];
      const again = seen.has(place) && step.causes.length > 0;
      seen.add(place);
      const roles = [...new Set(step.causes.map((cause) => cause.role))];
      const below = step.causes.length ? ` ← ${roles.map((one) => counted(step.causes.filter((cause) => cause.role === one).length, one)).join(", ")}` : "";
      const through = step.through && !again ? h("span", { class: "dbg-through" }, readable(step.through), below) : null;
      lines.push(
        h(
          "li",
          { style: { paddingInlineStart: `${Math.min(depth, 8) * 1.1}rem` } },
          h(
            "button",
            { type: "button", class: `dbg-step ${step.weight < 0 ? "dbg-gone" : ""}`, disabled: step.row === null, onclick: () => onGo(step) },
            role && h("span", { class: "dbg-role" }, role),
            ` ${readable(step.text)}`,
            again && " (see above)",
          ),
          through,
        ),
      );
      if (!again) for (const cause of [...step.causes].reverse()) waiting.push({ place: cause.step, depth: depth + 1, role: cause.role });
    }
    if (waiting.length) lines.push(h("li", { class: "note" }, `… and ${counted(steps.length - lines.length, "step")} more`));
    return lines;
  }

  function showEffects(body, answer, event) {
    const marks = new Map();
    const edges = new Set();
    for (const effect of answer.effects) if (effect.row !== null) mark(marks, effect);
    mark(marks, event);
    for (const node of trace.graph.nodes) for (const input of node.inputs) if (marks.has(input) && marks.has(node.id)) edges.add(`${input}-${node.id}`);
    onMarks(marks, edges);
    const others = answer.effects.filter((effect) => effect.operator !== event.operator);
    const here = others.filter((effect) => effect.weight > 0);
    const away = others.filter((effect) => effect.weight < 0);
    const list = (title, effects) => effects.length > 0 && [h("h3", {}, title), h("ol", { class: "dbg-steps" }, effects.slice(0, MOST_LINES).map(effectLine))];
    fill(
      body,
      others.length === 0 && h("p", {}, "Nothing: without this event, no other history would differ at the end."),
      list("There because of it", here),
      list("Kept away by it: there in a run without it", away),
      answer.total > answer.effects.length && h("p", { class: "note" }, `${count(answer.effects.length)} of ${count(answer.total)} effects are shown.`),
    );
  }

  function effectLine(effect) {
    return h("li", {}, h("button", { type: "button", class: `dbg-step ${effect.weight < 0 ? "dbg-gone" : ""}`, disabled: effect.row === null, onclick: () => onGo(effect) }, `#${effect.operator} ${readable(effect.text)}`));
  }

  /** A form: why is a row of an operator not there after a batch? */
  function askMissing(node, batch) {
    const own = (turn += 1);
    const body = h("div", { class: "dbg-body", "aria-live": "polite" });
    const onAsk = (values) =>
      answerInto(
        body,
        () => trace.part("why_not", { operator: node.id, batch, ...values }),
        (answer) => {
          if (own === turn) onMarks(...marksOf(answer, (step) => step.reasons.flatMap((reason) => reason.events)));
          return missingReasons(answer, nodes, onGo);
        },
      );
    const form = missingForm(node, { dates: trace.graph.dates, onAsk });
    fill(element, h("h2", {}, `Why is a row of #${node.id} not there after batch ${count(batch)}?`), form, body);
    form.querySelector("input").focus();
  }

  /** Why the CTI of an operator is where it is. */
  function askCti(node, batch) {
    const own = (turn += 1);
    const body = h("div", { class: "dbg-body", "aria-live": "polite" });
    fill(element, h("h2", {}, `Why is the CTI of #${node.id} there after batch ${count(batch)}?`), body);
    return answerInto(
      body,
      () => trace.part("why_cti", { operator: node.id, batch }),
      (answer) => {
        if (own === turn) onMarks(...marksOf(answer, (step) => step.events));
        return ctiSteps(answer, nodes, onGo);
      },
    );
  }

  clear();
  return { element, choose, clear, askMissing, askCti, say: (...children) => ((turn += 1), fill(element, ...children)) };
}

export function eventLine(event) {
  const span = event.point ? `at ${time(event.le)}` : `[${time(event.le)}, ${time(event.re)})`;
  return h(
    "p",
    { class: `dbg-event ${event.weight < 0 ? "dbg-gone" : ""}` },
    h("span", { class: "dbg-span" }, span),
    Object.entries(event.values).map(([name, value]) => h("span", { class: "dbg-value" }, `${name} = ${/^\d{4}-\d\d-\d\dT/.test(value) ? time(value) : text(value)}`)),
  );
}

/** Whether a column has the times of these events. */
function hasTime(rows, columns) {
  return columns.some((column) => rows.every((row) => row.point && time(row.values[column.name]) === time(row.le)));
}

function mark(marks, { operator, batch, row }) {
  if (!marks.has(operator)) marks.set(operator, new Set());
  marks.get(operator).add(`${batch}/${row}`);
}

export function counted(value, noun) {
  return `${count(value)} ${noun}${value === 1 || noun.endsWith("s") ? "" : "s"}`;
}
