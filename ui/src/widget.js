// Widgets of notebooks (anywidget): the graph, the timeline and the live table of the dashboard.
import "./theme.css";
import "./controls.css";
import { bytes, count, fill, h } from "./dom.js";
import { graph } from "./parts/graph.js";
import { timeline } from "./parts/timeline.js";
import { follow } from "./screens/answers.js";

const KINDS = { graph: showGraph, live: showLive, timeline: showTimeline };

function showGraph(model, el) {
  const details = h("pre", { class: "mono" });
  const picture = graph({
    badge: (node) => [`state: ${node.state}`, `CTI: ${node.cti}`],
    onSelect: (node) => fill(details, explained(node)),
  });
  fill(el, picture.element, details);
  picture.show(model.get("data"));
}

/** The lifetimes of a result. */
function showTimeline(model, el) {
  const { rows, total, cti, dates, columns, key } = model.get("data");
  const picture = timeline({});
  fill(el, picture.element, total > rows.length && h("p", { class: "note" }, `the first ${count(rows.length)} of ${count(total)} events`));
  picture.show({ rows, columns, cti, key, dates });
  picture.fit();
}

/** A running query: its plan with the state of its operators, and its answers. */
function showLive(model, el) {
  const [line, failure, answers] = [h("p", {}), h("p", { class: "problem", role: "alert", hidden: true }), h("div", {})];
  const details = h("pre", { class: "mono" });
  const operators = () => Object.fromEntries((model.get("data").report.operators ?? []).map((one) => [one.operator, one]));
  const picture = graph({
    badge: (node) => {
      const state = operators()[`${node.title} ${node.text}`.trim()];
      return state ? [`${count(state.rows)} rows, ${bytes(state.bytes)}`, `held by ${state.held_by}`] : [`state: ${node.state}`, `CTI: ${node.cti}`];
    },
    onSelect: (node) => fill(details, explained(node)),
  });
  const update = () => {
    const { graph: plan, name, state, error, report } = model.get("data");
    const rows = Object.values(report.counts ?? {}).reduce((sum, counts) => sum + (counts.rows ?? 0), 0);
    const lost = Object.values(report.counts ?? {}).reduce((sum, counts) => sum + (counts.diverted ?? 0) + (counts.dropped ?? 0), 0);
    const parts = [`batch ${report.batch ?? "–"}`, `${count(rows)} rows`, lost ? `${count(lost)} not used` : "", `CTI ${report.cti ?? "–"}`];
    fill(line, h("b", {}, `${name}: ${state}`), ` · ${parts.filter(Boolean).join(" · ")}`);
    failure.hidden = !error;
    fill(failure, error);
    picture.show(plan);
  };
  fill(el, line, failure, picture.element, details, answers);
  update();
  model.on("change:data", update);
  const ended = new AbortController();
  const columns = model.get("data").columns;
  if (columns) follow(answers, { path: [], query: new URLSearchParams(), signal: ended.signal }, "Answers", { columns, relation: false }, feedOf(model));
  else fill(answers, h("p", { class: "note" }, "The answers are shown here if the query has a sink hr.memory()."));
  return () => {
    ended.abort();
    model.off("change:data", update);
  };
}

/** The events that Python sends, in the form of a subscription. A snapshot begins anew. */
function feedOf(model) {
  return (name, { onRows, onState, signal }) => {
    const receive = (message) => {
      if (message.type !== "rows") return;
      if (message.snapshot) onState("connected", "");
      onRows(message);
    };
    model.on("msg:custom", receive);
    signal.addEventListener("abort", () => model.off("msg:custom", receive), { once: true });
    model.send({ type: "ready" });
  };
}

/** The lines of `explain` about an operator. */
function explained(node) {
  return [
    `#${node.id} ${node.title} ${node.text}`,
    `runs: ${node.runs}; state: ${node.state}; CTI: ${node.cti}${node.corrects ? "; corrects itself" : ""}`,
    `CTI delay: ${node.delay}`,
    ...node.advice.map((advice) => `advice: ${advice}`),
    ...node.lines,
  ].join("\n");
}

/** Whether the notebook is dark: by the colour behind the widget, which every notebook has. */
function isDark(el) {
  for (let place = el; place; place = place.parentElement) {
    const [red, green, blue, alpha = 1] = (getComputedStyle(place).backgroundColor.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
    if (alpha > 0) return red + green + blue < 384;
  }
  return false;
}

export default {
  render({ model, el }) {
    el.classList.add("headrace");
    requestAnimationFrame(() => (el.dataset.theme = isDark(el) ? "dark" : "light")); // when it is in the page
    return KINDS[model.get("kind")]?.(model, el);
  },
};
