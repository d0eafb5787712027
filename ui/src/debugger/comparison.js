// Two traces side by side: before and after a change of the query, its input or its batches; or of two queries.
import { count, fill, h, problem, text } from "../dom.js";
import { table } from "../parts/table.js";
import { readable, time } from "./rows.js";

/** Compare the trace that is shown with another; `names` says what each of them is called. */
export async function showComparison(root, shown, other, names = ["now", "before"]) {
  try {
    const found = await shown.part("compare", { other: other.graph.trace });
    fill(root, panel(found, names, () => fill(root)));
  } catch (error) {
    fill(root, problem(error));
  }
}

function panel({ operators, columns, answers, total, apart }, [ours, theirs], close) {
  const sides = { left: `only ${ours}`, right: `only ${theirs}`, both: "both" };
  const pairs = table({
    label: "Pairs of operators",
    height: 200,
    columns: [
      { name: "text_right", title: theirs, width: 380, cell: (row) => (row.right === null ? "–" : readable(`#${row.right} ${row.text_right}`)) },
      { name: "text_left", title: ours, width: 380, cell: (row) => (row.left === null ? "–" : readable(`#${row.left} ${row.text_left}`)) },
      { name: "batch", title: "differs from batch", width: 150, number: true, cell: (row) => (row.left === null || row.right === null ? "not in both" : row.batch === null ? "the same" : count(row.batch)) },
    ],
    rowClass: (row) => (row.batch === null && row.left !== null && row.right !== null ? "" : "changed"),
  });
  pairs.show(operators);
  const shown = table({
    label: "Answers of both runs",
    height: 240,
    columns: columns.map((column) => ({
      ...column,
      width: { side: 110, weight: 70, le: 180, re: 180 }[column.name] ?? 130,
      title: { side: "in", le: "from", re: "to" }[column.name],
      cell: (row) => (column.name === "side" ? sides[row.side] : ["le", "re"].includes(column.name) ? time(row[column.name]) : text(row[column.name])),
    })),
    rowClass: (row) => ({ left: "dbg-add", right: "dbg-remove" })[row.side] ?? "",
  });
  shown.show(answers, total > answers.length ? `the first ${count(answers.length)} of ${count(total)} rows` : "");
  return h(
    "section",
    { class: "panel dbg-comparison", "aria-label": "Comparison" },
    h("h2", {}, apart ? `${count(apart)} rows of the answers differ` : "The answers are the same"),
    pairs.element,
    h("h3", {}, "Answers at the end"),
    shown.element,
    h("div", { class: "bar" }, h("button", { type: "button", onclick: close }, "Close")),
  );
}
