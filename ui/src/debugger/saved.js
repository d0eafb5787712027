// A saved query: what `headrace checkpoint show` prints.
import { bytes, count, fill, h, text } from "../dom.js";
import { time } from "./rows.js";

export function showSaved(root, saved, traced) {
  const line = (name, value) => value !== undefined && value !== null && h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value));
  fill(
    root,
    h("h1", {}, saved.path),
    traced ? h("p", {}, h("a", { href: "#/debug/trace" }, "Trace the batches that are kept")) : h("p", { class: "note" }, "With --query FILE:NAME, the batches that are kept can be traced."),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "plain" },
        line("Last batch", saved.batch === null ? "none yet" : count(saved.batch)),
        line("Committed", saved.time && time(saved.time)),
        line("Buckets", saved.buckets),
        line("On disk", `${count(saved.files)} files, ${bytes(saved.bytes)}`),
        line("Driver", saved.driver && text(saved.driver)),
      ),
    ),
    h("h2", {}, "Plan"),
    h("pre", {}, Array.isArray(saved.plan) ? saved.plan.join("\n") : text(saved.plan)),
    list("Sources", saved.sources),
    list("Operators", saved.operators),
    list("Sinks", saved.sinks),
    list("Rows", saved.counts && Object.entries(saved.counts).map(([source, counts]) => ({ source, ...counts }))),
  );
}

function list(title, rows) {
  if (!rows?.length) return null;
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return [
    h("h2", {}, title),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "plain" },
        h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name.replaceAll("_", " "))))),
        h("tbody", {}, rows.map((row) => h("tr", {}, names.map((name) => h("td", { class: typeof row[name] === "number" ? "number" : "" }, row[name] === undefined ? "" : text(row[name])))))),
      ),
    ),
  ];
}
