// Queries: all of them, with what they do now; one request a second.
import "./queries.css";
import { get, poll, ServerError } from "../api.js";
import { bytes, count, fill, h, seconds } from "../dom.js";
import { control, stateMark } from "../parts/control.js";

const EXAMPLE = `CREATE STREAM sales (item STRING, amount LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 1 min LATE DIVERT;
QUERY minutes AS SELECT item, sum(amount) AS total FROM sales [TUMBLING 1 min] GROUP BY item;`;
const COLUMNS = [
  ["query", "Query"],
  ["state", "State"],
  ["rate", "Rows/s", "rows read for each second, the mean of the last five"],
  ["curve", "Last minute", "rows read in each second"],
  ["cti", "CTI", "nothing before this time changes any more"],
  ["lag", "Lag", "by how much the CTI is behind the clock"],
  ["corrections", "Corrections", "answers that were replaced or taken back in the last minute"],
  ["diverted", "Diverted", "rows that were late or malformed, so far"],
  ["size", "State", "bytes of state"],
  ["action", ""],
];

export async function show(root, context) {
  const shown = new Map();
  const body = h("tbody", {});
  const heads = COLUMNS.map(([name, title, about]) => h("th", { scope: "col", class: `queries-${name}`, title: about }, title || h("span", { class: "skip" }, "Start or stop")));
  const list = h("div", { class: "queries-list" }, h("table", { class: "plain queries", "aria-label": "Queries" }, h("thead", {}, h("tr", {}, heads)), body));
  const note = h("p", { class: "note", role: "status" });
  const place = h("div", {}, h("p", { class: "note" }, "Asking the server …"));
  fill(root, h("h1", {}, "Queries"), note, place);

  async function update(signal) {
    let found;
    try {
      found = await get("/ui/data/queries", signal);
    } catch (error) {
      if (error instanceof ServerError && error.status >= 500) return; // it stops or starts: the next time
      throw error;
    }
    const names = new Set(found.queries.map((query) => query.name));
    for (const [name, row] of shown) {
      if (!names.has(name)) {
        row.element.remove();
        shown.delete(name);
      }
    }
    for (const query of found.queries) {
      if (!shown.has(query.name)) {
        shown.set(query.name, line(query.name, () => update(signal)));
        body.append(shown.get(query.name).element);
      }
      shown.get(query.name).set(query);
    }
    const text = summary(found.queries);
    if (note.textContent !== text) note.textContent = text;
    const wanted = found.queries.length ? list : place.firstChild?.classList?.contains("queries-empty") ? place.firstChild : empty();
    if (place.firstChild !== wanted) fill(place, wanted);
  }
  await poll(update, 1000, context.signal);
}

function summary(queries) {
  if (!queries.length) return "";
  const by = Map.groupBy ? Map.groupBy(queries, (query) => query.state) : grouped(queries);
  return [...by].map(([state, list]) => `${list.length} ${state}`).join(", ");
}

function grouped(queries) {
  const found = new Map();
  for (const query of queries) found.set(query.state, [...(found.get(query.state) ?? []), query]);
  return found;
}

function empty() {
  return h(
    "div",
    { class: "panel queries-empty" },
    h("p", {}, "No query is here yet. ", h("a", { href: "#/editor" }, "The editor"), " takes statements such as these, and so do the shell (headrace sql --server) and psql:"),
    h("pre", {}, EXAMPLE),
  );
}

function line(name, done) {
  const link = h("a", { href: `#/query/${encodeURIComponent(name)}` }, name);
  const error = h("p", { class: "queries-error" });
  const state = stateMark();
  const together = h("span", { class: "soft queries-together" });
  const spark = curve();
  const button = control(name, done);
  const cells = Object.fromEntries(["rate", "cti", "lag", "corrections", "diverted", "size"].map((key) => [key, h("td", { class: `number queries-${key}` })]));
  for (const [key, title] of COLUMNS) if (cells[key]) cells[key].dataset.title = title;
  const element = h(
    "tr",
    {},
    h("th", { scope: "row", class: "queries-query" }, link, error),
    h("td", { class: "queries-state" }, state.element, together),
    cells.rate,
    h("td", { class: "queries-curve" }, spark.element),
    cells.cti,
    cells.lag,
    cells.corrections,
    cells.diverted,
    cells.size,
    h("td", { class: "queries-action" }, button.element),
  );
  return {
    element,
    set(query) {
      state.set(query);
      button.set(query.state);
      put(together, query.runs_with.length ? `with ${query.runs_with.length} more` : query.state === "running" ? "alone" : "");
      together.title = query.runs_with.slice(0, 20).join(", ");
      put(error, (query.error ?? "").split("\n")[0]);
      error.hidden = !query.error;
      put(cells.rate, query.rate >= 10 || query.rate === 0 ? count(query.rate) : query.rate.toFixed(1));
      put(cells.cti, shortTime(query.cti));
      put(cells.lag, seconds(query.lag));
      put(cells.corrections, count(query.corrections));
      cells.corrections.classList.toggle("queries-some", query.corrections > 0);
      put(cells.diverted, count(query.diverted));
      cells.diverted.classList.toggle("queries-some", query.diverted > 0);
      put(cells.size, bytes(query.state_bytes));
      spark.set(query.curve);
    },
  };
}

/** Change a text only if it is another: screen readers and selections stay where they are. */
function put(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

/** A time as people read it; before the first promise there is none. */
export function shortTime(cti) {
  if (!cti || cti === "-∞" || Number(cti) <= -(2 ** 62)) return "–";
  return cti.replace("T", " ").replace("Z", "").replace(/(\.\d{3})\d+$/, "$1");
}

const WIDTH = 120;
const HEIGHT = 24;

function curve() {
  const path = h("polyline", { class: "queries-path" });
  const element = h("svg", { class: "queries-spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", preserveAspectRatio: "none" }, path);
  return {
    element,
    set(values) {
      const most = Math.max(...values, 1);
      const points = values.map((value, i) => `${((i * WIDTH) / (values.length - 1)).toFixed(1)},${(HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1)}`);
      path.setAttribute("points", points.join(" "));
      element.setAttribute("aria-label", `rows in each second of the last minute: now ${values.at(-1)}, at most ${Math.max(...values)}`);
    },
  };
}
