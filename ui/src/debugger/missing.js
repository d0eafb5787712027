// Why is a row not there, and why is a CTI where it is: a form, and reasons as steps that lead through the graph.
import { fill, h, problem } from "../dom.js";
import { readable, time } from "./rows.js";

/** The form of a question about a row that one expects of `node`; `onAsk({values, at})` is called with texts. */
export function missingForm(node, { dates, onAsk }) {
  const fields = node.columns.map((column, i) => ({ column, input: h("input", { id: `dbg-not-${i}`, autocomplete: "off", placeholder: column.type.toLowerCase() }) }));
  const at = h("input", { id: "dbg-not-at", autocomplete: "off", placeholder: dates ? "2024-05-01T12:05:00" : "5" });
  const submit = (event) => {
    event.preventDefault();
    const values = Object.fromEntries(fields.filter(({ input }) => input.value !== "").map(({ column, input }) => [column.name, input.value]));
    onAsk({ values: JSON.stringify(values), ...(at.value.trim() ? { at: at.value.trim() } : {}) });
  };
  return h(
    "form",
    { class: "dbg-missing", onsubmit: submit },
    h("p", { class: "note" }, `Describe the row that you expect of #${node.id}: some of its values, or a time at which it lasts.`),
    fields.map(({ column, input }) => h("div", { class: "dbg-field" }, h("label", { for: input.id }, column.name), input)),
    h("div", { class: "dbg-field" }, h("label", { for: at.id }, "at the time"), at),
    h("button", { type: "submit", class: "main" }, "Why is it not there?"),
  );
}

/** The reasons of an absence, nearest to the answer first; `onGo(event)` goes to an event. */
export function missingReasons({ steps }, nodes, onGo) {
  const found = steps.filter((step) => step.reasons.length);
  return found.map((step) => [
    h("h3", {}, `#${step.operator} ${nodes.get(step.operator).title}: ${readable(step.wanted)}`),
    step.reasons.map((reason) =>
      h(
        "div",
        { class: "dbg-reason" },
        h("p", {}, h("b", {}, reason.kind), `: ${readable(reason.text)}`),
        h("ol", { class: "dbg-steps" }, reason.events.map((event) => eventButton(event, onGo, event.role))),
        reason.instead.length > 0 && h("p", { class: "note" }, "In its place:"),
        h("ol", { class: "dbg-steps" }, reason.instead.map(({ steps: [first] }) => h("li", {}, readable(first.text)))),
      ),
    ),
  ]);
}

/** The steps of a CTI: what each operator promises, by which rule, and what holds it. */
export function ctiSteps({ steps }, nodes, onGo) {
  return h(
    "ol",
    { class: "dbg-steps" },
    steps.map((step) =>
      h(
        "li",
        {},
        h("p", { class: "dbg-cti" }, h("b", {}, `#${step.operator} ${nodes.get(step.operator).title}: ${time(step.cti)}`), ` (${readable(step.rule)})`),
        step.reason && h("span", { class: "dbg-through" }, readable(step.reason)),
        h("ol", { class: "dbg-steps" }, step.events.map((event) => eventButton(event, onGo, "event"))),
      ),
    ),
  );
}

function eventButton(event, onGo, role) {
  return h("li", {}, h("button", { type: "button", class: "dbg-step", disabled: event.row === null, onclick: () => onGo(event) }, h("span", { class: "dbg-role" }, role), ` ${readable(event.text)}`));
}

/** The operators and edges of an answer with steps that have others below, and the places of their events. */
export function marksOf({ steps }, eventsOf) {
  const marks = new Map(steps.map((step) => [step.operator, new Set()]));
  const edges = new Set();
  for (const step of steps) {
    for (const below of step.below) edges.add(`${steps[below].operator}-${step.operator}`);
    for (const event of eventsOf(step)) {
      if (!marks.has(event.operator)) marks.set(event.operator, new Set());
      marks.get(event.operator).add(`${event.batch}/${event.row}`);
    }
  }
  return [marks, edges];
}

/** Ask, and fill a body with what `show` makes of the answer, or with the error. */
export async function answerInto(body, ask, show) {
  try {
    const answer = await ask();
    fill(body, show(answer));
  } catch (error) {
    fill(body, problem(error));
  }
}
