// Start and stop of a query, by the statements of SQL: the server decides who may.
import { quoted, sql } from "../api.js";
import { h, notice } from "../dom.js";
import { confirmed } from "./confirm.js";

/** A button that starts or stops a query; `set(state)` when its state is known, `done` after the statement. */
export function control(name, done = () => {}) {
  let running = false;
  const button = h("button", { type: "button", onclick: act }, "Start");

  async function act() {
    if (running && !(await confirmed(`Stop the query ${name}? It keeps its place, and goes on from there when it is started again.`, "Stop it"))) return;
    button.disabled = true;
    try {
      const [reply] = await sql(`${running ? "STOP" : "START"} QUERY ${quoted(name)}`);
      notice(reply.message);
    } catch (error) {
      notice([error.message, error.instead].filter(Boolean).join(": "), "error");
    }
    button.disabled = false;
    button.focus();
    await done();
  }

  return {
    element: button,
    set(state) {
      running = state === "running";
      const title = running ? "Stop" : "Start";
      if (button.textContent !== title) button.textContent = title;
      button.setAttribute("aria-label", `${title} ${name}`);
    },
  };
}

/** The state of a query as a mark. */
export function stateMark() {
  const element = h("span", { class: "query-state" });
  return {
    element,
    set(query) {
      element.dataset.state = query.state;
      element.textContent = query.state;
    },
  };
}
