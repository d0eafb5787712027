// A plan as a graph: sources on the left, sinks on the right, stages as frames, loops as loops.
import "./graph.css";
import dagre from "@dagrejs/dagre";
import { fill, h } from "../dom.js";

const WIDTH = 190;
const HEIGHT = 76;

/**
 * The picture of {stages: [{level, title}], nodes: [{id, level, kind, title, text, inputs, loop}]}. `badge(node)` gives the
 * lines below the title (at most two), `nodeClass(node)` further classes, `edgeLabel(from, to)` the text on an edge;
 * `onSelect(node)` is called by a click, Enter or Space. Arrow keys go along the edges.
 */
export function graph({ onSelect = () => {}, badge = () => [], nodeClass = () => "", edgeLabel = () => "", edgeClass = () => "", label = "The plan" }) {
  const element = h("div", { class: "graph", role: "group", "aria-label": label });
  let plan = { stages: [], nodes: [] };
  let selected = null;
  let layout = null;
  let shapes = new Map();
  let edges = [];

  function arrange() {
    const made = new dagre.graphlib.Graph({ compound: true, multigraph: true });
    made.setGraph({ rankdir: "LR", nodesep: 22, ranksep: 26, marginx: 16, marginy: 28 });
    made.setDefaultEdgeLabel(() => ({}));
    for (const stage of plan.stages) made.setNode(`stage-${stage.level}`, {});
    for (const node of plan.nodes) {
      made.setNode(String(node.id), { width: WIDTH, height: HEIGHT });
      if (plan.stages.some((stage) => stage.level === node.level)) made.setParent(String(node.id), `stage-${node.level}`);
    }
    for (const node of plan.nodes) {
      node.inputs.forEach((input, i) => made.setEdge(String(input), String(node.id), { width: 60, height: 16 }, `${input}-${node.id}-${i}`));
    }
    dagre.layout(made);
    return made;
  }

  function draw() {
    const { width = 10, height = 10 } = layout.graph();
    shapes = new Map();
    edges = [];
    const frames = plan.stages.map((stage) => {
      const box = layout.node(`stage-${stage.level}`);
      if (!box?.width) return null;
      const left = box.x - box.width / 2;
      const top = box.y - box.height / 2;
      return h("g", { class: "graph-stage" }, h("rect", { x: left, y: top, width: box.width, height: box.height, rx: 8 }), h("text", { x: left + 8, y: top - 5 }, stage.title));
    });
    const lines = layout.edges().map((edge) => {
      const { points } = layout.edge(edge);
      const from = node(edge.v);
      const to = node(edge.w);
      const path = points.map((point, i) => `${i ? "L" : "M"}${point.x},${point.y}`).join(" ");
      const middle = points[Math.floor(points.length / 2)];
      const shape = h("g", { class: "graph-edge" }, h("path", { d: path, "marker-end": "url(#graph-arrow)" }), h("text", { x: middle.x, y: middle.y - 5 }));
      edges.push({ from, to, shape });
      return shape;
    });
    const boxes = plan.nodes.map(box);
    const arrow = h("marker", { id: "graph-arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerUnits: "userSpaceOnUse", markerWidth: 9, markerHeight: 9, orient: "auto" }, h("path", { d: "M0,0L8,4L0,8z" }));
    fill(element, h("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, h("defs", {}, arrow), frames, lines, boxes));
    paint();
  }

  const node = (id) => plan.nodes.find((one) => String(one.id) === String(id));

  function box(one) {
    const { x, y } = layout.node(String(one.id));
    const left = x - WIDTH / 2;
    const top = y - HEIGHT / 2;
    const title = `#${one.id} ${one.title ?? one.kind}`;
    const shape = h(
      "g",
      { class: "graph-node", tabindex: 0, role: "button", "aria-label": `${title}: ${one.text}`, onclick: () => select(one.id), onkeydown: (event) => key(event, one) },
      h("rect", { x: left, y: top, width: WIDTH, height: HEIGHT, rx: 7 }),
      h("text", { class: "graph-title", x: left + 9, y: top + 18 }, fitting(title, "600 12px")),
      h("text", { class: "graph-text", x: left + 9, y: top + 35 }, fitting(one.text, "11px")),
      h("text", { class: "graph-badge", x: left + 9, y: top + 52 }),
      h("text", { class: "graph-badge", x: left + 9, y: top + 68 }),
      one.loop && h("path", { class: "graph-loop", d: `M${left + WIDTH - 22},${top} C${left + WIDTH + 18},${top - 30} ${left + WIDTH - 80},${top - 30} ${left + WIDTH - 46},${top}`, "marker-end": "url(#graph-arrow)" }),
    );
    shapes.set(String(one.id), shape);
    return shape;
  }

  function paint() {
    for (const one of plan.nodes) {
      const shape = shapes.get(String(one.id));
      shape.setAttribute("class", `graph-node ${nodeClass(one)} ${String(one.id) === String(selected) ? "graph-selected" : ""}`);
      shape.setAttribute("aria-pressed", String(one.id) === String(selected));
      const texts = shape.querySelectorAll(".graph-badge");
      const lines = [badge(one)].flat();
      texts.forEach((element, i) => (element.textContent = fitting(lines[i] ?? "", "11px")));
    }
    for (const { from, to, shape } of edges) {
      shape.setAttribute("class", `graph-edge ${edgeClass(from, to)}`);
      shape.querySelector("text").textContent = edgeLabel(from, to);
    }
  }

  function select(id, call = true) {
    selected = id;
    paint();
    if (call) onSelect(node(id));
  }

  function key(event, one) {
    const readers = plan.nodes.filter((other) => other.inputs.includes(one.id)).map((other) => other.id);
    const beside = plan.nodes.map((other) => other.id);
    const place = beside.indexOf(one.id);
    const next = { ArrowRight: readers[0], ArrowLeft: one.inputs[0], ArrowDown: beside[place + 1], ArrowUp: beside[place - 1] }[event.key];
    if (event.key === "Enter" || event.key === " ") select(one.id);
    else if (next !== undefined) shapes.get(String(next)).focus();
    else return;
    event.preventDefault();
  }

  return {
    element,
    /** Show a plan; the same plan with other numbers is only painted again. */
    show(next) {
      const same = JSON.stringify(next.nodes.map((one) => [one.id, one.inputs, one.text])) === JSON.stringify(plan.nodes.map((one) => [one.id, one.inputs, one.text]));
      plan = next;
      if (same && layout) return paint();
      layout = arrange();
      draw();
    },
    paint,
    select,
    get selected() {
      return selected;
    },
  };
}

/** A text that fits into a node; the end of a longer one is left out. */
function fitting(value, font) {
  pen.font = `${font} ${getComputedStyle(document.documentElement).getPropertyValue("--sans") || "sans-serif"}`;
  const width = WIDTH - 16;
  if (pen.measureText(value).width <= width) return value;
  let [least, most] = [0, value.length];
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (pen.measureText(`${value.slice(0, middle)}…`).width <= width) least = middle;
    else most = middle - 1;
  }
  return `${value.slice(0, least)}…`;
}

const pen = document.createElement("canvas").getContext("2d");
