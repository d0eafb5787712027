// What a query did: curves over time, and batches with where their time was spent.
import { bytes, count, fill, h, seconds } from "../dom.js";
import { chart } from "../parts/chart.js";
import { table } from "../parts/table.js";
import { timeText } from "../times.js";
import { shortTime } from "./queries.js";

const SHOWN = 600;
/** The phases of a batch, with what they are and a colour each. */
const PHASES = {
  plan: ["writes down what is read", "soft"],
  run: ["reads and computes", "accent"],
  commit: ["writes the state, and waits until the batch before is delivered", "marked"],
  deliver: ["hands the answers over", "added"],
  tidy: ["removes old files", "changed"],
};

export function charts(panel, query, signal) {
  const all = {
    rate: chart({ title: "Rows and changes in each second", format: short, signal, series: [{ title: "rows read", colour: "accent" }, { title: "changes out", colour: "added" }, { title: "corrections", colour: "changed" }] }),
    seconds: chart({ title: "Time of a batch", format: seconds, signal, series: [{ title: "mean of the second", colour: "marked", points: true }] }),
    lag: chart({ title: "Lag of the CTI behind the clock", format: seconds, signal, series: [{ title: "lag", colour: "changed" }] }),
    state: chart({ title: "State", format: bytes, signal, series: [{ title: "bytes", colour: "accent" }] }),
  };
  const empty = h("p", { class: "note" }, "No batch has run since the server was started: curves begin with the first one.");
  fill(panel, empty, h("div", { class: "query-charts" }, Object.values(all).map((one) => one.element)));
  const draw = () => {
    const { at = [] } = query.points;
    empty.hidden = at.length > 0;
    if (!at.length || !query.now) return;
    const whole = everySecond(query.points, Math.max(query.points.at[0], Math.floor(query.now.now) - 1)); // the present second is not over
    all.rate.show(whole.at, [whole.rows, whole.changes, whole.corrections]);
    all.seconds.show(whole.at, [whole.seconds]);
    all.lag.show(whole.at, [whole.lag]);
    all.state.show(whole.at, [whole.state_bytes]);
  };
  query.parts.push(draw);
  draw();
}

/** A value for each second: between batches nothing is read, and the state stays as it is. */
function everySecond(points, now) {
  const from = Math.max(points.at[0], now - SHOWN);
  const place = new Map(points.at.map((at, i) => [at, i]));
  const found = { at: [], rows: [], changes: [], corrections: [], seconds: [], lag: [], state_bytes: [] };
  let state = null;
  for (let at = from; at <= now; at += 1) {
    const i = place.get(at);
    found.at.push(at);
    for (const key of ["rows", "changes", "corrections"]) found[key].push(i === undefined ? 0 : points[key][i]);
    for (const key of ["seconds", "lag"]) found[key].push(i === undefined ? null : points[key][i]);
    if (i !== undefined) state = points.state_bytes[i];
    found.state_bytes.push(state);
  }
  return found;
}

function short(value) {
  if (Math.abs(value) < 10_000) return count(value);
  return new Intl.NumberFormat("en", { notation: "compact" }).format(value);
}

export function batches(panel, query) {
  const details = h("div", { class: "panel query-batch", hidden: true });
  let slowest = 1e-9;
  const rows = table({
    label: `batches of ${query.name}`,
    height: 420,
    empty: "no batch has run since the server was started",
    onRow(batch) {
      details.hidden = false;
      fill(details, oneBatch(batch));
    },
    columns: [
      { name: "batch", number: true, width: 80, cell: (batch) => count(batch.batch) },
      { name: "at", title: "committed", width: 130, cell: (batch) => timeText(Math.round(batch.at * 1e6), true).slice(11, 23) },
      { name: "rows", number: true, width: 80, cell: (batch) => count(batch.rows) },
      { name: "changes", number: true, width: 90, cell: (batch) => count(batch.changes) },
      { name: "corrections", number: true, width: 110, cell: (batch) => count(batch.corrections) },
      { name: "diverted", number: true, width: 90, cell: (batch) => count(batch.diverted) },
      { name: "lag", title: "CTI lag", number: true, width: 90, cell: (batch) => seconds(batch.lag) },
      { name: "state_bytes", title: "state", number: true, width: 90, cell: (batch) => bytes(batch.state_bytes) },
      { name: "seconds", title: "time", number: true, width: 80, cell: (batch) => seconds(batch.seconds) },
      { name: "phases", title: "where it was spent", cell: (batch) => bar(batch, slowest) },
    ],
  });
  const key = h("p", { class: "note query-key" }, Object.entries(PHASES).map(([phase, [text, colour]]) => h("span", { title: text }, h("i", { style: { background: `var(--${colour})` } }), phase)));
  fill(panel, key, rows.element, details);
  const draw = () => {
    const { current } = rows;
    slowest = query.batches.reduce((most, batch) => Math.max(most, batch.seconds), 1e-9);
    rows.show(query.batches, query.batches.length ? `the newest ${count(query.batches.length)} batches; the server keeps 600. Bars: the longest took ${seconds(slowest)}. Enter or a click shows more.` : "");
    if (current) rows.choose(query.batches.indexOf(current), false); // it moves down as others are added
  };
  query.parts.push(draw);
  draw();
}

function bar(batch, slowest) {
  const text = Object.keys(PHASES).map((phase) => `${phase} ${seconds(batch.phases[phase])}`).join(", ");
  return h(
    "div",
    { class: "query-bar", role: "img", "aria-label": text, title: text },
    Object.entries(PHASES).map(([phase, [, colour]]) => h("span", { style: { width: `${(100 * batch.phases[phase]) / slowest}%`, background: `var(--${colour})` } })),
  );
}

function oneBatch(batch) {
  const sources = Object.entries(batch.sources).map(([source, fates]) => `${source}: ${Object.entries(fates).map(([fate, n]) => `${count(n)} ${fate}`).join(", ")}`);
  const facts = [
    ["committed at", timeText(Math.round(batch.at * 1e6), true)],
    ["read", sources.join("; ") || "nothing"],
    ["changes", `${count(batch.changes)}, of which ${count(batch.corrections)} take answers back`],
    ["CTI", `${shortTime(batch.cti)}${batch.lag === null ? "" : `, ${seconds(batch.lag)} behind the clock`}`],
    ["state", `${count(batch.state_rows)} rows, ${bytes(batch.state_bytes)}`],
    ...Object.entries(PHASES).map(([phase, [text]]) => [phase, `${seconds(batch.phases[phase])}: ${text}`]),
  ];
  return [h("h2", {}, `Batch ${count(batch.batch)}, ${seconds(batch.seconds)}`), h("dl", { class: "query-facts" }, facts.map(([title, text]) => [h("dt", {}, title), h("dd", {}, text)]))];
}
