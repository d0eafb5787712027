// A query: its plan with live numbers, curves over time, batches, log, diverted rows, checkpoint and SQL.
import "./query.css";
import { get, poll, quoted, ServerError, sql } from "../api.js";
import { bytes, count, fill, h, problem, seconds } from "../dom.js";
import { control, stateMark } from "../parts/control.js";
import { graph } from "../parts/graph.js";
import { table } from "../parts/table.js";
import { tabs } from "../parts/tabs.js";
import { valueText } from "../times.js";
import { shortTime } from "./queries.js";
import { batches, charts } from "./query_past.js";

export async function show(root, context) {
  const name = context.path[0];
  if (!name) return location.replace("#/queries");
  const { signal } = context;
  const encoded = encodeURIComponent(name);
  const plan = await get(`/ui/data/query/plan?name=${encoded}`, signal);
  const query = { name, plan, now: null, points: {}, batches: [], since: 0, parts: [] };
  const page = frame(query, context, () => update(signal));
  fill(root, page.element);
  page.tabs.first();

  async function update() {
    let now;
    try {
      now = await get(`/ui/data/query?name=${encoded}&since=${query.since}`, signal);
    } catch (error) {
      if (error instanceof ServerError && error.status >= 500) return;
      throw error;
    }
    take(query, now);
    if (query.plan.graph.nodes.some((node) => !(node.fingerprint in now.nodes))) {
      query.plan = await get(`/ui/data/query/plan?name=${encoded}`, signal); // it was started, or created anew
    }
    page.set(now);
    for (const part of query.parts) part(query);
  }
  await poll(update, 1000, signal);
}

/** Add what is new: points of the same second are replaced, and a server that was started again begins anew. */
function take(query, now) {
  const from = now.points.at[0] ?? Infinity;
  const before = query.points.at ?? [];
  let kept = before.findIndex((at) => at >= from);
  if (kept < 0) kept = before.length;
  const first = Math.max(0, kept + now.points.at.length - 600);
  for (const [key, values] of Object.entries(now.points)) query.points[key] = [...(query.points[key] ?? []).slice(0, kept), ...values].slice(first);
  const known = new Set(query.batches.map((batch) => batch.at));
  query.batches = [...now.batches.filter((batch) => !known.has(batch.at)), ...query.batches].slice(0, 600);
  query.since = query.batches[0]?.at ?? query.points.at?.at(-1) ?? 0;
  query.now = now;
}

function frame(query, context, update) {
  const state = stateMark();
  const button = control(query.name, update);
  const error = h("div", {});
  const about = h("span", { class: "soft" });
  const tiles = Object.fromEntries(
    [
      ["rate", "rows/s"],
      ["lag", "CTI lag"],
      ["cti", "CTI"],
      ["corrections", "corrections, last minute"],
      ["diverted", "diverted rows"],
      ["size", "state"],
    ].map(([key, title]) => [key, { value: h("dd", {}), title: h("dt", {}, title) }]),
  );
  const encoded = encodeURIComponent(query.name);
  const links = [
    ["answers", "Answers"],
    ["debug", "Debugger"],
  ]
    .filter(([screen]) => context.about.screens.includes(screen))
    .map(([screen, title]) => h("a", { href: `#/${screen}/${encoded}`, "data-screen": screen }, title));
  const parts = tabs({
    label: "Parts of the query",
    chosen: context.query.get("tab"),
    onChoice: () => (query.parts = []),
    tabs: {
      plan: { title: "Plan", show: (panel) => planTab(panel, query) },
      charts: { title: "Charts", show: (panel) => charts(panel, query, context.signal) },
      batches: { title: "Batches", show: (panel) => batches(panel, query) },
      log: { title: "Log", show: (panel) => asked(panel, query, context.signal, "LOG", LOG) },
      diverted: { title: "Diverted", show: (panel) => asked(panel, query, context.signal, "DIVERTED", DIVERTED) },
      checkpoint: { title: "Checkpoint", show: (panel) => checkpoint(panel, query, context.signal) },
      sql: { title: "SQL", show: (panel) => fill(panel, h("h2", {}, "SQL"), h("pre", {}, query.plan.sql), h("h2", {}, "EXPLAIN"), h("pre", {}, query.plan.explain)) },
    },
  });
  const element = h(
    "div",
    { class: "query" },
    h("p", { class: "note" }, h("a", { href: "#/queries" }, "Queries")),
    h("div", { class: "bar query-head" }, h("h1", {}, query.name), state.element, about, h("span", { class: "space" }), links, button.element),
    error,
    h("dl", { class: "query-tiles" }, Object.entries(tiles).map(([key, { title, value }]) => h("div", { "data-tile": key }, title, value))),
    parts.element,
  );
  return {
    element,
    tabs: parts,
    set(now) {
      state.set(now);
      button.set(now.state);
      put(about, alone(now));
      for (const link of links) link.hidden = link.dataset.screen === "answers" && !now.published; // they go to a sink
      about.title = now.runs_with.join(", ");
      if (error.textContent !== (now.error ?? "")) fill(error, now.error && h("pre", { class: "problem", role: "alert" }, now.error));
      put(tiles.rate.value, rateText(now.rate));
      put(tiles.lag.value, seconds(now.lag));
      put(tiles.cti.value, shortTime(now.cti));
      put(tiles.corrections.value, count(now.corrections));
      put(tiles.diverted.value, count(now.diverted));
      put(tiles.size.value, bytes(query.batches[0]?.state_bytes));
    },
  };
}

function alone(now) {
  if (now.runs_with.length) return `${now.kind}; runs together with ${now.runs_with.length} more`;
  return `${now.kind}${now.alone_because ? `; alone: ${now.alone_because}` : ""}`;
}

function put(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

function rateText(rate) {
  if (rate === null || rate === undefined) return "–";
  return rate >= 10 || rate === 0 ? count(rate) : rate.toFixed(1);
}

// --- the plan

function planTab(panel, query) {
  const side = h("div", { class: "panel query-side", role: "region", "aria-label": "The operator", "aria-live": "off" });
  let shown = query.plan;
  let chosen = null;
  const live = (node) => query.now?.nodes[node.fingerprint] ?? {};
  const picture = graph({
    label: `The plan of ${query.name}`,
    onSelect(node) {
      chosen = node;
      paint();
    },
    badge: (node) => badges(live(node)),
    edgeLabel: (from) => (live(from).rate === null || live(from).rate === undefined ? "" : `${rateText(live(from).rate)}/s`),
    nodeClass: (node) => (live(node).skew > 1.5 ? "query-skewed" : ""),
  });
  const hint = h("p", { class: "note" }, "Choose an operator, by a click or with the keyboard, for how it runs, its state and what holds it.");
  const sides = [];

  function paint() {
    if (!chosen) return fill(side, hint);
    const content = operator(chosen, live(chosen));
    const text = content.map((one) => one.textContent).join("");
    if (text === sides[0]) return; // else texts that someone selects would be gone
    sides[0] = text;
    fill(side, content);
  }
  picture.show(shown.graph);
  fill(panel, h("div", { class: "query-plan" }, picture.element, side), h("p", { class: "note" }, legend(shown.graph.nodes)));
  paint();
  query.parts.push(() => {
    if (shown === query.plan) picture.paint();
    else {
      shown = query.plan;
      chosen = shown.graph.nodes.find((node) => node.id === chosen?.id) ?? null;
      picture.show(shown.graph);
    }
    paint();
  });
}

function legend(nodes) {
  const loops = nodes.some((node) => node.loop) ? " An arrow from a box to itself is a loop." : "";
  return `Frames are stages: rows are brought together between them. On an arrow: rows in each second, the mean of the last five.${loops}`;
}

function badges(live) {
  const first = [
    live.counts && live.counts.diverted ? `${count(live.counts.diverted)} diverted` : "",
    live.lag !== undefined && live.lag !== null ? `lag ${seconds(live.lag)}` : "",
    live.skew > 1.5 ? `skew ${live.skew} ×` : "",
  ];
  const state = live.state_bytes === undefined ? "" : `${count(live.state_rows)} rows, ${bytes(live.state_bytes)}`;
  return [first.filter(Boolean).join(" · "), state];
}

/** All that is known of an operator. */
function operator(node, live) {
  const rows = [
    ["rows out", live.rate === null || live.rate === undefined ? "not counted inside of the intake" : `${rateText(live.rate)} in a second`],
    live.counts && ["last minute", Object.entries(live.counts).map(([fate, n]) => `${count(n)} ${fate}`).join(", ")],
    live.cti !== undefined && ["CTI", `${shortTime(String(live.cti))}${live.lag === null ? "" : `, ${seconds(live.lag)} behind the clock`}`],
    live.state_bytes !== undefined && ["state now", `${count(live.state_rows)} rows, ${bytes(live.state_bytes)}${live.segments ? `, ${live.segments} segments` : ""}`],
    live.held_by && live.held_by !== node.state && ["held by", live.held_by],
    ["state", node.state],
    ["runs", node.runs],
    ["CTI by plan", node.cti],
    ["CTI delay", node.delay],
    ["corrects", node.corrects ? "its answers may change until they are final" : "never: what it has answered stays"],
    live.skew_text && ["buckets", live.skew_text],
    node.shared.length > 0 && ["shared with", node.shared.length > 12 ? `${node.shared.slice(0, 12).join(", ")} and ${node.shared.length - 12} more` : node.shared.join(", ")],
  ].filter(Boolean);
  return [
    h("h2", {}, `#${node.id} ${node.title}`),
    h("p", { class: "mono query-text" }, node.text),
    h("dl", { class: "query-facts" }, rows.map(([title, text]) => [h("dt", {}, title), h("dd", {}, text)])),
    ...node.advice.map((text) => h("p", { class: "query-advice" }, h("b", {}, "advice "), text)),
    node.lines.length ? h("pre", {}, node.lines.join("\n")) : h("span", {}),
  ];
}

// --- what statements show

const LOG = {
  columns: [
    { name: "at", title: "time", width: 225, cell: (row) => (row.at === null ? "so far" : valueText(row.at)) },
    { name: "level", width: 90 },
    { name: "message" },
  ],
  rowClass: (row) => (row.level === "error" ? "query-bad" : row.level === "warning" || row.level === "losses" ? "query-warned" : ""),
  empty: "the log is empty",
};
const DIVERTED = {
  columns: [
    { name: "at", title: "CTI then", width: 225, cell: (row) => valueText(row.at) },
    { name: "source", width: 180 },
    { name: "reason" },
    { name: "row" },
    { name: "file", width: 140, cell: (row) => row.file ?? "" },
    { name: "line", number: true, width: 70, cell: (row) => (row.line === null ? "" : String(row.line)) },
  ],
  empty: "no row was diverted",
};

/** A tab that is a statement, asked again every few seconds; a click shows the whole of a line. */
function asked(panel, query, signal, what, { columns, rowClass, empty }) {
  const whole = h("pre", { class: "query-whole", hidden: true });
  const rows = table({ columns, rowClass, empty, height: 480, label: `${what.toLowerCase()} of ${query.name}`, onRow: (row) => ((whole.hidden = false), fill(whole, Object.entries(row).map(([key, value]) => (value === null || key === "query" ? "" : `${key}: ${valueText(value)}\n`)))) });
  const failed = h("div", {});
  fill(panel, h("p", { class: "note" }, `SHOW ${what} FOR ${quoted(query.name)}; the newest first. Enter or a click shows a line as a whole.`), failed, rows.element, whole);
  let asking = false;
  let due = 0;
  const ask = async () => {
    if (asking || performance.now() < due) return;
    asking = true;
    try {
      const [reply] = await sql(`SHOW ${what} FOR ${quoted(query.name)} LIMIT 1000`, signal);
      rows.show([...reply.rows].reverse(), reply.notes.join(" "));
      fill(failed);
    } catch (error) {
      if (error instanceof ServerError) fill(failed, problem(error));
    }
    asking = false;
    due = performance.now() + 2500;
  };
  query.parts.push(ask);
  ask();
}

function checkpoint(panel, query, signal) {
  const body = h("div", {});
  const again = h("button", { type: "button", onclick: ask }, "Read it again");
  fill(panel, h("div", { class: "bar" }, h("p", { class: "note" }, "What headrace checkpoint show prints: the last commit, from which the query goes on after a crash."), again), body);

  async function ask() {
    try {
      const saved = await get(`/ui/data/query/checkpoint?name=${encodeURIComponent(query.name)}`, signal);
      fill(body, saved.batch === null ? h("p", {}, "No batch is committed yet.") : savedParts(saved));
    } catch (error) {
      if (error instanceof ServerError) fill(body, problem(error));
    }
  }
  ask();
}

function savedParts(saved) {
  const facts = [
    ["batch", `${count(saved.batch)}, committed at ${valueText(saved.time)}`],
    ["kept commits", `${saved.kept.length}, from batch ${count(saved.kept[0])} on`],
    ["size", `${bytes(saved.bytes)} in ${count(saved.files)} files, ${count(saved.buckets)} buckets`],
    ["loops", saved.circulating ? "changes go round: the next batch continues with them" : "nothing goes round"],
  ];
  const offsets = (source) => (source.offsets ? Object.entries(source.offsets).map(([name, offset]) => `${name}: ${count(offset)}`).join(", ") : source.newest_file ? `${count(source.files_read)} files, the newest ${source.newest_file}` : "");
  return [
    h("dl", { class: "query-facts" }, facts.map(([title, text]) => [h("dt", {}, title), h("dd", {}, text)])),
    plain("Sources", ["source", "CTI", "read up to"], saved.sources.map((one) => [one.source, shortTime(String(one.cti)), offsets(one)])),
    plain("State", ["operator", "rows", "bytes", "held by"], saved.operators.map((one) => [one.operator, count(one.rows), bytes(one.bytes), one.held_by ?? ""]), [1, 2]),
    plain("Sinks", ["sink", "CTI", "batches"], saved.sinks.map((one) => [`${one.sink} ${one.path ?? ""}`, shortTime(String(one.cti)), one.batches === undefined ? "" : count(one.batches)]), [2]),
    h("details", {}, h("summary", {}, "Plan, with the stage of each operator"), h("pre", {}, saved.plan.join("\n"))),
  ];
}

function plain(title, heads, rows, numbers = []) {
  const cell = (tag) => (text, i) => h(tag, { class: numbers.includes(i) ? "number" : "", scope: tag === "th" ? "col" : undefined }, text);
  return [
    h("h2", {}, title),
    rows.length
      ? h("div", { class: "scroll" }, h("table", { class: "plain" }, h("thead", {}, h("tr", {}, heads.map(cell("th")))), h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell("td")))))))
      : h("p", { class: "note" }, "none"),
  ];
}
