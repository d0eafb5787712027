// Lifetimes as bars on an axis of time that moves with the promise (CTI): what is final is solid, what is open is pale.
//
// It takes plain data and knows neither the server nor the screen. It draws some hundred events of those in view, and says
// how many of how many. Keys: ← → pan, + − zoom, ↑ ↓ go from event to event, 0 shows all, End follows what is new.
import "./timeline.css";
import { count, fill, h } from "../dom.js";
import { ticks, timeText, valueText } from "../times.js";
import { axis } from "./axis.js";

const ROW = 26;
const GAP = 10;
const TOP = 30;
const COLOURS = 8;

/**
 * `show({rows: [{le, re, …}], columns, cti, key, dates})` draws: `key` is the column that divides the lanes ("" for none),
 * times are ticks, ISO texts, or null and "inf" for no end. `values(row)` are the columns of a row (the row itself unless
 * given), `mark(row)` is {kind, age} for one that has just changed: "corrected", "new" or "removed", milliseconds ago.
 * `onRow(row)` for a click or Enter. The user may choose another column for the lanes.
 */
export function timeline({ label = "Timeline", values = (one) => one, mark = () => null, onRow = () => {}, most = 300, lanes = 60, height = 460 } = {}) {
  let data = { rows: [], columns: [], cti: null, key: "", dates: false };
  let view = null; // [start, end] that the user chose; else it follows
  let span = null; // of a view that follows
  let drawn = []; // the bars, by time: {one, bar}
  let current = null;
  let planned = false;
  let scale = null;
  let chosen = null; // the column that the user chose for the lanes

  const picture = h("svg", { class: "tl-picture", role: "img", "aria-label": label });
  const place = h("div", { class: "tl-place", tabindex: 0, role: "application", "aria-label": `${label}: arrow keys pan and choose, plus and minus zoom`, style: { maxHeight: `${height}px` }, onkeydown: key }, picture);
  const readout = h("p", { class: "tl-readout", role: "status" });
  const note = h("p", { class: "note tl-note" });
  const follows = h("button", { type: "button", "aria-pressed": "true", onclick: () => follow() }, "Follow");
  const buttons = h(
    "div",
    { class: "bar tl-buttons" },
    [
      ["←", "Earlier", () => pan(-0.3)],
      ["→", "Later", () => pan(0.3)],
      ["+", "Zoom in", () => zoom(0.5)],
      ["−", "Zoom out", () => zoom(2)],
    ].map(([sign, name, act]) => h("button", { type: "button", "aria-label": name, title: name, onclick: act }, sign)),
    h("button", { type: "button", onclick: () => fit() }, "All"),
    follows,
  );
  const division = h("select", { "aria-label": "Lanes by", onchange: () => ((chosen = division.value), redraw()) });
  buttons.append(h("label", { class: "tl-division" }, "Lanes by ", division));
  const element = h("div", { class: "tl" }, buttons, place, readout, note);
  new ResizeObserver(() => redraw()).observe(place);
  place.addEventListener("wheel", wheel, { passive: false });
  place.addEventListener("pointerdown", drag);

  const keyColumn = () => chosen ?? data.key ?? "";

  function offer(columns) {
    fill(division, h("option", { value: "" }, "(none)"), columns.map((name) => h("option", { value: name }, name)));
  }

  // --- which times ---------------------------------------------------------------------------------------------------

  /** The earliest and the latest time of the rows, without the ends that there are none of. */
  function extent(rows) {
    let low = Infinity;
    let high = -Infinity;
    for (const one of rows) {
      const le = ticks(one.le);
      const re = ticks(one.re);
      if (le > -6e16 && le < low) low = le;
      if (le > high && le > -6e16) high = le;
      if (re !== Infinity && re > high) high = re;
    }
    const cti = promise();
    if (cti !== null && cti > low && cti - high < (high - low) * 2) high = Math.max(high, cti);
    return low > high ? null : [low, high];
  }

  const promise = () => (data.cti === null || data.cti === undefined || !Number.isFinite(ticks(data.cti)) ? null : ticks(data.cti));

  /** The times to draw: those that the user chose, or the newest. */
  function range() {
    if (view) return view;
    const newest = data.rows.length > most ? data.rows.toSorted((a, b) => ticks(b.le) - ticks(a.le)).slice(0, most) : data.rows;
    const all = extent(newest) ?? [0, 1];
    const room = all[1] > all[0] ? (all[1] - all[0]) * 0.06 : data.dates ? 1e6 : 1;
    const end = all[1] + Math.max(room, Math.abs(all[1]) * 1e-15); // large times are not told apart by less
    return span === null ? [all[0] - room / 2, end] : [end - span, end];
  }

  function choose(next) {
    if (next[1] - next[0] < 2 || next[1] - next[0] > 1e17) return;
    view = next;
    follows.setAttribute("aria-pressed", "false");
    redraw();
  }

  function pan(part) {
    const [start, end] = range();
    choose([start + (end - start) * part, end + (end - start) * part]);
  }

  /** Make the range larger or smaller around a time; when it follows, it goes on to follow. */
  function zoom(factor, around = null) {
    const [start, end] = range();
    if (!view && around === null) {
      span = Math.max(2, (end - start) * factor);
      return redraw();
    }
    const at = around ?? (start + end) / 2;
    choose([at - (at - start) * factor, at + (end - at) * factor]);
  }

  function fit() {
    const all = extent(data.rows);
    if (all) choose([all[0] - (all[1] - all[0]) * 0.03 - 1, all[1] + (all[1] - all[0]) * 0.06 + 1]);
  }

  function follow() {
    view = null;
    span = null;
    follows.setAttribute("aria-pressed", "true");
    redraw();
  }

  // --- keys and pointers ---------------------------------------------------------------------------------------------

  function key(event) {
    const acts = {
      ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), ArrowUp: () => step(-1), ArrowDown: () => step(1), "+": () => zoom(0.5), "=": () => zoom(0.5),
      "-": () => zoom(2), 0: fit, End: follow, Enter: () => current && onRow(current.one),
    }; // prettier-ignore
    if (event.ctrlKey || event.metaKey || event.altKey || !acts[event.key]) return;
    acts[event.key]();
    event.preventDefault();
  }

  function step(by) {
    if (!drawn.length) return;
    const at = drawn.findIndex((bar) => bar.one === current?.one);
    select(drawn[Math.min(drawn.length - 1, Math.max(0, at < 0 ? (by > 0 ? 0 : drawn.length - 1) : at + by))]);
  }

  function select(bar) {
    current?.shape.classList.remove("tl-current");
    current = bar;
    if (!bar) return fill(readout);
    bar.shape.classList.add("tl-current");
    const row = values(bar.one);
    const times = [bar.one.le, bar.one.re].map((at) => timeText(ticks(at), data.dates)).join(" – ");
    fill(readout, h("b", {}, times), data.columns.map((name) => [" · ", h("span", { class: "soft" }, `${name} `), valueText(row[name])]));
  }

  function wheel(event) {
    if (!scale || (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY))) return; // the page scrolls
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) zoom(event.deltaY < 0 ? 0.8 : 1.25, scale.time(event.clientX - picture.getBoundingClientRect().left));
    else pan(event.deltaX / 600);
  }

  function drag(event) {
    if (event.button || !scale) return;
    const from = event.clientX;
    const [start, end] = range();
    const perPixel = scale.time(1) - scale.time(0);
    const move = (now) => Math.abs(now.clientX - from) > 3 && choose([start - (now.clientX - from) * perPixel, end - (now.clientX - from) * perPixel]);
    const stop = () => (window.removeEventListener("pointermove", move), window.removeEventListener("pointerup", stop), window.removeEventListener("pointercancel", stop));
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", stop);
    window.addEventListener("pointercancel", stop);
  }

  // --- drawing -------------------------------------------------------------------------------------------------------

  function redraw() {
    if (planned) return;
    planned = true;
    requestAnimationFrame(() => {
      planned = false;
      if (element.isConnected) draw();
    });
  }

  function draw() {
    const width = Math.max(280, place.clientWidth - 2);
    const [start, end] = range();
    const seen = data.rows.filter((one) => ticks(one.le) < end && ticks(one.re) > start);
    const groups = grouped(seen.length > most ? sample(seen) : seen);
    const left = keyColumn() ? Math.min(width * 0.3, 24 + 7 * Math.max(4, ...[...groups.keys()].map((name) => Math.min(name.length, 24)))) : 12;
    scale = axis({ start, end, left, right: width - 14, dates: data.dates });
    const shapes = [];
    const names = [];
    drawn = [];
    let row = 0;
    let top = TOP;
    let lost = 0;
    let number = 0;
    for (const [name, members] of groups) {
      if (row >= lanes) {
        lost += members.length;
        continue;
      }
      const ends = [];
      for (const one of members.sort((a, b) => ticks(a.le) - ticks(b.le) || ticks(a.re) - ticks(b.re))) {
        const x = scale.x(ticks(one.le));
        let lane = ends.findIndex((edge) => edge <= x + 0.5);
        if (lane < 0) lane = ends.length;
        if (row + lane >= lanes) {
          lost += 1;
          continue;
        }
        ends[lane] = Math.max(scale.x(ticks(one.re)), x + 12);
        drawn.push({ one, shape: bar(one, top + lane * ROW + ROW / 2, number % COLOURS), y: top + lane * ROW });
      }
      if (keyColumn()) names.push(h("text", { class: "tl-name", x: 8, y: top + 17 }, clipped(name, Math.floor((left - 16) / 7))));
      const tall = Math.max(1, ends.length) * ROW + GAP;
      shapes.push(h("line", { class: "tl-grid", x1: 0, x2: width, y1: top + tall - GAP / 2, y2: top + tall - GAP / 2 }));
      top += tall;
      row += ends.length;
      number += 1;
    }
    drawn.sort((a, b) => ticks(a.one.le) - ticks(b.one.le) || a.y - b.y);
    const bottom = Math.max(top, TOP + ROW);
    picture.setAttribute("width", width);
    picture.setAttribute("height", bottom + 38);
    fill(picture, grid(bottom), shapes, names, drawn.map(({ shape }) => shape), promised(bottom, width));
    const again = current && drawn.find((one) => one.one === current.one);
    current = null;
    select(again ?? null);
    describe(seen.length, drawn.length, lost);
  }

  /** Of too many rows, some from the beginning to the end. */
  function sample(rows) {
    const inOrder = rows.toSorted((a, b) => ticks(a.le) - ticks(b.le));
    return Array.from({ length: most }, (_, i) => inOrder[Math.floor(((i + 1) * inOrder.length) / most) - 1]);
  }

  function describe(seen, shown, lost) {
    const parts = [`${count(shown)} of ${count(seen)} in view shown`, `${count(data.rows.length)} in all`];
    if (seen > most) parts.push("a sample: zoom in for the others");
    const cti = promise();
    if (cti !== null && (cti < scale.start || cti > scale.end)) parts.push(`final up to ${timeText(cti, data.dates)}`);
    if (lost) parts.push(`there is room for ${count(lanes)} lines`);
    fill(note, data.rows.length ? `${parts.join(" · ")} · solid: final, pale: may still change` : "no events yet");
  }

  function grouped(rows) {
    const groups = new Map();
    const key = keyColumn();
    for (const one of rows) {
      const name = key ? valueText(values(one)[key]) : "";
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(one);
    }
    return new Map([...groups].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  function grid(bottom) {
    const days = scale.days();
    return scale.marks.map((at) => [
      h("line", { class: "tl-grid", x1: scale.x(at), x2: scale.x(at), y1: TOP - 6, y2: bottom }),
      h("text", { class: "tl-time", x: scale.x(at), y: bottom + 14 }, scale.label(at)),
      days.has(at) && h("text", { class: "tl-time", x: scale.x(at), y: bottom + 29 }, days.get(at)),
    ]);
  }

  function promised(bottom, width) {
    const cti = promise();
    if (cti === null || cti < scale.start || cti > scale.end) return null;
    const x = scale.x(cti);
    const anchor = x < 110 ? "start" : x > width - 110 ? "end" : "middle";
    return h("g", { class: "tl-cti" }, h("line", { x1: x, x2: x, y1: TOP - 8, y2: bottom }), h("text", { x, y: TOP - 13, "text-anchor": anchor }, `final up to ${scale.label(cti)}`));
  }

  /** A lifetime: ● from, ○ until, an arrow if it goes on; up to the CTI it is solid. */
  function bar(one, y, colour) {
    const [le, re] = [ticks(one.le), ticks(one.re)];
    const cti = promise() ?? (data.cti === "inf" ? Infinity : -Infinity);
    const endless = re === Infinity || re > scale.end;
    const left = scale.x(le);
    const right = scale.x(re) - (endless || scale.x(re) - left < 16 ? 0 : 6); // the next one may begin where it ends
    const middle = Math.min(right, Math.max(left, scale.x(cti === Infinity ? scale.end : cti)));
    const solid = cti >= re ? right : cti <= le ? left : middle;
    const changed = mark(one);
    const shape = h("g", { class: `tl-bar tl-colour-${colour} ${changed ? `tl-${changed.kind}` : ""}` });
    const box = { x: left - 6, y: y - ROW / 2, width: Math.max(12, right - left + 11), height: ROW };
    if (changed) shape.append(h("rect", { class: "tl-flash", rx: 4, ...box, style: { animationDelay: `${-changed.age}ms` } }));
    const act = { onpointerenter: () => select(drawn.find((bar) => bar.one === one)), onclick: () => onRow(one) };
    const area = h("rect", { class: "tl-hit", ...box, ...act });
    if (right - left < 8) {
      shape.append(h("circle", { class: cti >= re ? "tl-dot" : "tl-ring", cx: left, cy: y, r: 4.5 }), area);
      return shape;
    }
    if (solid < right) shape.append(h("line", { class: "tl-open", x1: solid, x2: right - (endless ? 8 : 4), y1: y, y2: y }));
    if (solid > left) shape.append(h("line", { class: "tl-final", x1: left, x2: Math.min(solid, right - (endless ? 8 : 4)), y1: y, y2: y }));
    if (le >= scale.start) shape.append(h("circle", { class: "tl-dot", cx: left, cy: y, r: 4.5 }));
    shape.append(endless ? h("path", { class: "tl-head", d: `M${right - 9},${y - 5} L${right},${y} L${right - 9},${y + 5} z` }) : h("circle", { class: "tl-ring", cx: right, cy: y, r: 4 }));
    const words = wordsOf(one);
    if (right - left > 26 && words) shape.append(h("text", { class: "tl-words", x: Math.max(left, scale.x(scale.start)) + 9, y: y - 4 }, clipped(words, Math.floor((right - left - 14) / 6))));
    shape.append(area);
    return shape;
  }

  function wordsOf(one) {
    const row = values(one);
    return data.columns.filter((name) => name !== keyColumn()).map((name) => valueText(row[name])).join(" · ");
  }

  return {
    element,
    show(next) {
      if (next.columns && next.columns.join("\0") !== data.columns.join("\0")) offer(next.columns);
      data = { ...data, ...next };
      division.value = keyColumn();
      redraw();
    },
    zoom,
    pan,
    fit,
    follow,
  };
}

function clipped(value, most) {
  if (most < 2) return "";
  return value.length > most ? `${value.slice(0, most - 1)}…` : value;
}
