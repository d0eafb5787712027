// Curves over time (uPlot), in the colours of the theme, with a text for those who do not see them.
import "uplot/dist/uPlot.min.css";
import "./chart.css";
import uPlot from "uplot";
import { fill, h } from "../dom.js";
import { colour } from "../theme.js";

/**
 * A chart of curves `series`: [{title, colour, points}] over seconds; `format` writes a value. `chart.show(at, values)`
 * replaces the curves: `at` in seconds since 1970, `values` one list for each curve, null where there is nothing.
 */
export function chart({ title, series, format, signal }) {
  const room = h("div", { class: "chart-room", "aria-hidden": "true" });
  const summary = h("p", { class: "note chart-summary" });
  const rows = h("tbody", {});
  const body = h("table", { class: "plain" }, h("thead", {}, h("tr", {}, ["time", ...series.map((one) => one.title)].map((name) => h("th", { scope: "col" }, name)))), rows);
  const table = h("details", { class: "chart-table" }, h("summary", {}, "as a table"), h("div", { class: "scroll" }, body));
  const element = h("section", { class: "chart", "aria-label": title }, h("h3", {}, title), room, summary, table);
  const soft = () => colour("soft");
  const grid = { stroke: () => colour("line"), width: 1 };
  const axis = { stroke: soft, grid, ticks: grid, font: "11px sans-serif" };
  const options = {
    width: 300,
    height: 170,
    legend: { show: false },
    cursor: { y: false },
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "UTC"),
    scales: { y: { range: (_, least, most) => [Math.min(0, least ?? 0), most > 0 ? most * 1.08 : 1] } },
    axes: [
      { ...axis, values: (_, splits) => splits.map((at) => new Date(at * 1000).toISOString().slice(11, 19)), space: 70, size: 34 },
      { ...axis, size: 62, values: (_, splits) => splits.map(format) },
    ],
    series: [{}, ...series.map((one) => ({ label: one.title, stroke: () => colour(one.colour), width: 1.6, spanGaps: true, points: { show: one.points ?? false, size: 4, fill: () => colour(one.colour) } }))],
  };
  let plot = null;
  let data = [[], ...series.map(() => [])];

  function size() {
    if (!room.clientWidth) return;
    if (plot === null) plot = new uPlot({ ...options, width: room.clientWidth }, data, room);
    else if (plot.width !== room.clientWidth) plot.setSize({ width: room.clientWidth, height: options.height });
  }
  const observer = new ResizeObserver(size);
  observer.observe(room);
  const again = () => plot?.redraw(false, true);
  window.addEventListener("headrace-theme", again, { signal });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again, { signal });
  signal?.addEventListener("abort", () => (observer.disconnect(), plot?.destroy()), { once: true });

  return {
    element,
    show(at, values) {
      data = [at, ...values];
      size();
      plot?.setData(data);
      const texts = series.map((one, i) => {
        const there = values[i].filter((value) => value !== null);
        return there.length ? `${one.title}: now ${format(there.at(-1))}, at most ${format(there.reduce((a, b) => Math.max(a, b)))}` : `${one.title}: nothing yet`;
      });
      fill(summary, texts.map((text, i) => [i ? " · " : "", h("span", { class: "chart-key", style: { color: `var(--${series[i].colour})` } }, "■ "), text]));
      if (!table.open) return;
      const from = Math.max(0, at.length - 20);
      fill(rows, at.slice(from).map((time, i) => h("tr", {}, h("td", {}, new Date(time * 1000).toISOString().slice(11, 19)), values.map((list) => h("td", { class: "number" }, list[from + i] === null ? "–" : format(list[from + i]))))).reverse());
    },
  };
}
