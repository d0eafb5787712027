// Breakpoints, and a run that goes on by batches, operators or rows.
import { post } from "../api.js";
import { fill, h, problem } from "../dom.js";
import { readable } from "./rows.js";

const KINDS = { output: "gives a row", retraction: "takes a row back", late: "gets a late row", cti: "promises a CTI" };
const MOVES = { run: "Run to a breakpoint", batch: "Step a batch", operator: "Step an operator", event: "Step a row", restart: "Restart" };

/** A session that runs the query step by step; `rows()` are those of a batch. */
export function session({ rows, signal }) {
  let open = false;
  return {
    moves: MOVES,
    async act(body) {
      if (!open) await post("/ui/data/debug", { action: "open", batch_rows: rows() }, signal);
      open = true;
      return post("/ui/data/debug", body, signal);
    },
    close: () => (open = false),
  };
}

/** Breakpoints over a trace that is there: `trace()` is asked where its run would have stopped, behind the place of `at()`. */
export function recorded({ trace, at }) {
  const points = [];
  let last = 0;
  let place = null;

  async function ask(wanted, from) {
    const found = await trace().part("stop", { ...from, breakpoints: JSON.stringify(wanted) });
    wanted.forEach((point, i) => (point.text = found.breakpoints[i]));
    return found;
  }

  return {
    moves: { run: MOVES.run, restart: MOVES.restart },
    async act(body) {
      const first = { batch: trace().graph.first, operator: 0 };
      let text = "";
      if (body.action === "add") {
        const point = { kind: body.kind, operator: body.operator, when: body.when };
        await ask([point], first); // a mistake is said now
        points.push({ ...point, number: (last += 1), hits: 0 });
      } else if (body.action === "delete") {
        points.splice(points.findIndex((point) => point.number === body.number), 1);
      } else if (body.action === "restart") {
        place = first;
        for (const point of points) point.hits = 0;
        text = "at the start, before the first batch";
      } else {
        const now = at();
        const here = place && (place.operator === 0 || (place.batch === now.batch && place.operator === now.operator)) ? place : now;
        const found = await ask(points.map(({ kind, operator, when }) => ({ kind, operator, when })), here);
        for (const hit of found.hits) points[hit.breakpoint - 1].hits += 1;
        const end = trace().graph.first + trace().graph.batches - 1;
        text = found.place ? [`batch ${found.place.batch}, after #${found.place.operator}`, ...found.hits.map((hit) => hit.text)].join("\n") : "no breakpoint stops the rest of the trace";
        place = found.place ?? { batch: end, operator: trace().graph.output };
      }
      return { breakpoints: points, pause: { text, ...place } };
    },
    close() {
      points.length = 0;
      place = null;
    },
  };
}

/** `run` is a session, or what is recorded; `onPause(found)` gets its pause, and of a session the graph of the trace so far. */
export function stepper({ run, onPause, signal }) {
  let nodes = [];
  const kind = h("select", { id: "dbg-kind", onchange: hint }, Object.entries(KINDS).map(([value, title]) => h("option", { value }, title)));
  const operator = h("select", { id: "dbg-at" });
  const when = h("input", { id: "dbg-when", autocomplete: "off" });
  const list = h("ul", { class: "dbg-breakpoints" });
  const pause = h("p", { class: "dbg-pause", role: "status" });
  const element = h(
    "details",
    { class: "panel dbg-stepper" },
    h("summary", {}, "Breakpoints and steps"),
    h(
      "form",
      { class: "bar", onsubmit: add },
      h("label", { for: "dbg-at" }, "Stop when"),
      operator,
      h("label", { for: "dbg-kind", class: "dbg-hidden" }, "what it does"),
      kind,
      h("label", { for: "dbg-when", class: "dbg-hidden" }, "condition"),
      when,
      h("button", { type: "submit" }, "Add"),
    ),
    list,
    h("div", { class: "bar" }, Object.entries(run.moves).map(([action, title]) => h("button", { type: "button", onclick: () => act({ action }) }, title))),
    pause,
  );
  hint();

  function hint() {
    const texts = { output: "a condition, such as price > 100, or any row", cti: "a time that it passes" };
    when.placeholder = texts[kind.value] ?? "";
    when.disabled = !(kind.value in texts);
  }

  function add(event) {
    event.preventDefault();
    act({ action: "add", kind: kind.value, operator: operator.value ? Number(operator.value) : null, when: when.value });
  }

  async function act(body) {
    for (const button of element.querySelectorAll("button")) button.disabled = true;
    try {
      const found = await run.act(body);
      fill(list, found.breakpoints.map(line));
      const said = readable(found.pause.text);
      fill(pause, found.pause.error ? problem({ message: said }) : said);
      if (body.action in MOVES) await onPause(found);
    } catch (error) {
      if (!signal.aborted) fill(pause, problem(error));
    } finally {
      for (const button of element.querySelectorAll("button")) button.disabled = false;
    }
  }

  function line(one) {
    const hits = one.hits === 1 ? "1 hit" : `${one.hits} hits`;
    return h("li", {}, `${readable(one.text)} (${hits}) `, h("button", { type: "button", "aria-label": `Delete breakpoint ${one.number}`, onclick: () => act({ action: "delete", number: one.number }) }, "Delete"));
  }

  return {
    element,
    /** The operators to choose from. */
    operators(next) {
      nodes = next;
      fill(operator, h("option", { value: "" }, "any operator"), nodes.map((node) => h("option", { value: node.id }, `#${node.id} ${node.title}`)));
    },
    /** Forget the run: the next step begins a new one. */
    close() {
      run.close();
      fill(list);
      fill(pause);
    },
  };
}
