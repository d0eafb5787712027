// The names that statements may use, for completion: what SHOW and DESCRIBE list.
import { quoted, sql } from "./api.js";

/** A list of {label, kind, detail, of}; columns have the relation that they are `of`. */
export async function catalogNames(signal) {
  const [streams, tables, views, queries, functions, modules] = await sql("SHOW STREAMS; SHOW TABLES; SHOW VIEWS; SHOW QUERIES; SHOW FUNCTIONS; SHOW MODULES", signal);
  const relations = [
    ...streams.rows.map((row) => [row.stream, "stream", row.columns]),
    ...tables.rows.map((row) => [row.table, "table", row.columns]),
    ...views.rows.map((row) => [row.view, row.kind, row.columns]),
  ];
  const known = new Set(relations.map(([name]) => name));
  const asked = queries.rows.filter((row) => row.kind === "query" && !known.has(row.query) && !row.state.startsWith("failed"));
  const described = await Promise.all(asked.map((row) => sql(`DESCRIBE ${quoted(row.query)}`, signal).catch(() => [{ rows: [] }])));
  asked.forEach((row, i) => relations.push([row.query, "query", described[i][0].rows.map((column) => `${column.column} ${column.type}`).join(", ")]));
  return [
    ...relations.map(([label, kind]) => ({ label, kind, detail: kind })),
    ...relations.flatMap(([of, , columns]) => columnsOf(columns).map(({ name, type }) => ({ label: name, kind: "column", detail: `${type} of ${of}`, of }))),
    ...functions.rows.map((row) => ({ label: row.function, kind: "function", detail: row.kind })),
    ...modules.rows.map((row) => ({ label: row.module, kind: "module", detail: row.kind })),
  ];
}

/** The columns of a text such as `item STRING, price DECIMAL(10, 2)`. */
export function columnsOf(text) {
  const parts = [];
  let depth = 0;
  let part = "";
  for (const letter of text ?? "") {
    if ("(<[".includes(letter)) depth += 1;
    if (")>]".includes(letter)) depth -= 1;
    if (letter === "," && !depth) {
      parts.push(part);
      part = "";
    } else part += letter;
  }
  return [...parts, part]
    .map((one) => one.trim())
    .filter(Boolean)
    .map((one) => {
      const [, name, type] = /^("(?:[^"]|"")*"|\S+)\s*(.*)$/.exec(one);
      return { name: name.startsWith('"') ? name.slice(1, -1).replaceAll('""', '"') : name, type };
    });
}
