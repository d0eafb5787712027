// Editor: SQL with completion from the catalog, errors at their places, the plan as one types, and examples to play with.
import "./editor.css";
import { ServerError, post, sql } from "../api.js";
import { catalogNames } from "../catalog.js";
import { counted, fill, h, problem } from "../dom.js";
import examples from "../examples.json";
import { graph } from "../parts/graph.js";
import { sqlEditor } from "../parts/sql_editor.js";
import { table } from "../parts/table.js";
import { valueText } from "../times.js";
import { playground } from "./playground.js";

/** The text is kept for this tab, until Sign out: it may have secrets. */
const KEY = "headrace.editor";
const NUMBERS = /^(u?int|float|double|decimal|half)/;

export async function show(root, context) {
  const { signal } = context;
  localStorage.removeItem(KEY); // where it was kept before
  let names = [];
  let timer = 0;
  let asking = new AbortController();
  let playing = new AbortController();
  const editor = sqlEditor({ text: sessionStorage.getItem(KEY) ?? examples[0].sql, label: "SQL", names: () => names, onChange: changed, onMove: soon, onRun: run });
  const plan = graph({ label: "The plan of the query at the caret" });
  const explained = h("pre", { class: "editor-explain", tabindex: 0, "aria-label": "EXPLAIN" });
  const verdict = h("p", { class: "editor-verdict", role: "status" });
  const results = h("section", { class: "editor-results", "aria-label": "Results", "aria-live": "polite" });
  const play = h("section", { class: "editor-play" });
  const button = h("button", { type: "button", class: "main", onclick: () => run(), title: "Ctrl+Enter: the selection, or the whole text" }, "Run");
  const choice = h("select", { "aria-label": "Examples", onchange: () => choose(examples[choice.selectedIndex - 1]) }, h("option", {}, "Examples …"), examples.map((one) => h("option", {}, one.name)));
  fill(
    root,
    h("h1", {}, "Editor"),
    h("div", { class: "bar" }, button, choice, h("span", { class: "note" }, "Ctrl+Enter runs the selection, or all. Ctrl+Space completes. Tab leaves the text.")),
    h("div", { class: "editor-both" }, h("div", { class: "editor-text" }, editor.element, verdict), h("div", { class: "editor-plan" }, h("h2", {}, "Plan"), plan.element, h("details", {}, h("summary", {}, "EXPLAIN"), explained))),
    play,
    results,
  );
  signal.addEventListener("abort", () => (clearTimeout(timer), asking.abort(), playing.abort(), editor.destroy()), { once: true });

  // --- as one types --------------------------------------------------------------------------------------------------

  function changed(text) {
    sessionStorage.setItem(KEY, text);
    soon();
  }

  function soon() {
    clearTimeout(timer);
    timer = setTimeout(check, 350);
  }

  async function check() {
    asking.abort();
    asking = new AbortController();
    const text = editor.text;
    try {
      const found = await post("/ui/data/check", { sql: text, caret: letters(text, editor.caret) }, asking.signal);
      if (signal.aborted || editor.text !== text) return;
      shown(found, text);
    } catch (error) {
      if (error.name === "AbortError" || signal.aborted) return;
      fill(verdict, error instanceof ServerError ? error.message : "no connection: the text is not checked");
    }
  }

  function shown(found, text) {
    const wrong = found.error;
    editor.mark(wrong && placed(wrong, found.at, text));
    fill(verdict, wrong ? [h("span", { class: "editor-wrong" }, wrong.message), wrong.instead && [" · instead: ", h("code", {}, wrong.instead)]] : found.note || (text.trim() ? "The text is right." : ""));
    if (!found.plan) return;
    plan.show(found.plan);
    fill(explained, found.explain);
  }

  // --- running -------------------------------------------------------------------------------------------------------

  async function run() {
    const { text, from } = editor.chosen;
    button.disabled = true;
    fill(results, h("p", { class: "note" }, "running …"));
    try {
      fill(results, (await sql(text, signal)).map(replied));
      refresh();
    } catch (error) {
      if (signal.aborted) return;
      fill(results, error instanceof ServerError ? problem(error) : h("p", { class: "problem", role: "alert" }, "There is no connection to the server. Try again."));
      if (error.at) editor.mark({ ...placed(error, error.at, text), from: from + units(text, error.at[0]), to: from + units(text, error.at[1]) });
    } finally {
      button.disabled = false;
    }
  }

  function choose(example) {
    choice.selectedIndex = 0;
    if (!example) return;
    playing.abort();
    playing = new AbortController();
    editor.replace(example.sql);
    fill(results);
    fill(play, h("h2", {}, example.name), h("p", {}, example.about));
    if (example.play) play.append(playground(example, { start: () => sql(example.sql, signal).then(refresh), signal: playing.signal }));
    else run();
  }

  async function refresh() {
    try {
      names = await catalogNames(signal);
    } catch {
      // completion has the names that were known
    }
    if (!signal.aborted) soon();
  }

  await refresh();
}

/** A problem at its place, which the server counts in letters. */
function placed(error, at, text) {
  const [from, to] = at ?? [0, 0];
  const message = [error.message, error.allowed && `allowed: ${error.allowed}`, error.instead && `instead: ${error.instead}`].filter(Boolean).join("\n");
  return { from: units(text, from), to: units(text, to), message };
}

/** Letters as the server counts them (code points), from units of JavaScript, and back. */
function letters(text, place) {
  return Array.from(text.slice(0, place)).length;
}

function units(text, place) {
  return Array.from(text).slice(0, place).join("").length;
}

/** What a statement replied. */
function replied(reply) {
  if (!reply.columns) return h("p", { class: "editor-reply" }, h("b", {}, reply.tag), " ", reply.message ?? "", " ", answersOf(reply));
  if (reply.columns.length === 1 && reply.tag === "EXPLAIN") return h("pre", {}, reply.rows.map((row) => row[reply.columns[0].name]).join("\n"));
  const grid = table({
    columns: reply.columns.map(({ name, type }) => ({ name, number: NUMBERS.test(type), width: name === "le" || name === "re" ? 210 : undefined, title: { le: "from", re: "to" }[name] ?? name, cell: (row) => valueText(name === "re" && row.re === null ? "∞" : row[name]) })),
    label: reply.tag,
    height: 300,
  });
  grid.show(reply.rows, [counted(reply.rows.length, "row"), ...reply.notes].join(" · "));
  return h("div", { class: "editor-reply" }, h("b", {}, reply.tag), grid.element);
}

/** A link to the answers of what was created. */
function answersOf(reply) {
  const name = /^(?:query|table|materialized view) (\S+)/.exec(reply.message ?? "")?.[1];
  const created = /^(QUERY|CREATE TABLE|CREATE MATERIALIZED VIEW)$/.test(reply.tag);
  return created && name ? h("a", { href: `#/answers/${encodeURIComponent(name)}` }, "its answers") : null;
}
