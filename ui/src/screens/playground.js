// A drawn stream to play with: its rows in a table that one may change, inserted one after another, and what the answer
// becomes.
import "./answers.css";
import { post, subscribe } from "../api.js";
import { fill, h, problem } from "../dom.js";
import { Fold, SHOWN } from "../fold.js";
import { table } from "../parts/table.js";
import { ticks, timeText, valueText } from "../times.js";

/** The rows of an example, {play: {stream, answers, rows}}; `start()` creates its stream and its query. */
export function playground({ play }, { start, signal }) {
  const columns = Object.keys(play.rows[0]);
  const rows = play.rows.map((row) => ({ ...row }));
  let next = 0;
  let follower = null;
  const failed = h("div", {});
  const body = h("tbody", {});
  const drawn = h("table", { class: "plain editor-drawn" }, h("thead", {}, h("tr", {}, h("th", {}, ""), columns.map((name) => h("th", { class: typeof rows[0][name] === "number" ? "number" : "" }, name)))), body);
  const insert = h("button", { type: "button", class: "main", onclick: () => act(insertNext) }, "Insert the next row");
  const again = h("button", { type: "button", onclick: () => act(begin) }, "Begin again");
  const answers = h("div", { class: "editor-answers" });
  const element = h("div", { class: "editor-playground" }, h("div", {}, h("p", { class: "note" }, `Rows of ${play.stream}: change them before they are inserted.`), h("div", { class: "scroll" }, drawn), h("div", { class: "bar" }, insert, again), failed), answers);
  signal.addEventListener("abort", () => follower?.abort(), { once: true });
  draw();
  act(begin);
  return element;

  async function act(what) {
    insert.disabled = again.disabled = true;
    try {
      await what();
      fill(failed);
    } catch (error) {
      if (!signal.aborted) fill(failed, problem(error));
    }
    again.disabled = false;
    insert.disabled = !follower || next >= rows.length;
  }

  async function begin() {
    follower?.abort();
    follower = null;
    await start();
    next = 0;
    draw();
    follower = new AbortController();
    follow(follower.signal);
  }

  async function insertNext() {
    await post(`/streams/${encodeURIComponent(play.stream)}/rows`, [rows[next]]);
    next += 1;
    draw();
  }

  function draw() {
    fill(body, rows.map((row, i) => h("tr", { class: i < next ? "editor-inserted" : i === next ? "editor-next" : "" }, h("td", {}, i < next ? "✓" : i === next ? "→" : ""), columns.map((name) => cell(row, name, i)))));
  }

  function cell(row, name, i) {
    const number = typeof play.rows[i][name] === "number";
    if (i < next) return h("td", { class: number ? "number" : "" }, valueText(row[name]));
    const change = (event) => (row[name] = number ? Number(event.target.value) : event.target.value);
    return h("td", { class: number ? "number" : "" }, h("input", { type: number ? "number" : "text", value: row[name], "aria-label": `${name} of row ${i + 1}`, oninput: change }));
  }

  /** The answer, as it is and as it was. */
  function follow(signal) {
    let fold = null;
    let grid = null;
    fill(answers, h("p", { class: "note" }, `Answers of ${play.answers}: `, h("a", { href: `#/answers/${encodeURIComponent(play.answers)}` }, "on their own screen")));
    const promised = h("p", { class: "note" }, "no answers yet");
    answers.append(promised);
    subscribe(play.answers, { signal, onRows, onState });

    function onState(state, cursor) {
      if (state === "connected" && !cursor) fold = null;
      if (state instanceof Error) fill(promised, state.message); // someone else began it again
    }

    function onRows(piece) {
      const first = piece.rows.find((row) => row.kind !== "cti") ?? piece.rows[0];
      if (!fold && first) begin(Object.keys(first).filter((name) => !["kind", "le", "re", "re_new"].includes(name)));
      fold.take(piece.rows, piece.snapshot, performance.now());
      fold.settle(performance.now());
      if (piece.cti !== null) fold.cti = piece.cti;
      paint();
    }

    function begin(names) {
      fold = new Fold(names);
      const time = (name, title) => ({ name, title, width: 170, cell: (one) => shown(one, name, (value) => timeText(ticks(value), fold.dates)) });
      grid = table({ label: `Answers of ${play.answers}`, height: 300, columns: [...names.map((name) => ({ name, cell: (one) => shown(one, name, valueText) })), time("le", "from"), time("re", "to")], rowClass });
      fill(answers, answers.firstChild, promised, grid.element);
    }

    function paint() {
      if (signal.aborted || !fold) return;
      fold.expire(performance.now());
      grid.show(fold.list().sort((a, b) => a.le - b.le || a.order - b.order));
      fill(promised, fold.cti === null ? "" : `final up to ${timeText(ticks(fold.cti), true)}`);
      if (performance.now() - fold.changed < SHOWN) setTimeout(paint, fold.leaving.size ? 500 : SHOWN);
    }
  }
}

function rowClass(one) {
  if (one.mark === "removed") return "answers-removed";
  return one.mark === "new" && performance.now() - one.at < SHOWN ? "answers-new" : "";
}

/** A value; what was corrected keeps its old one beside it. */
function shown(one, name, text) {
  if (!one.before || !(name in one.before)) return text(one.row[name]);
  return h("span", { class: "answers-changed" }, h("s", {}, text(one.before[name])), " → ", h("b", {}, text(one.row[name])));
}
