// Elements of the page. Everything that is shown goes through text nodes and attributes, never through HTML: payloads
// are hostile.

/** An element: h("p", { class: "note", onclick }, "text", child, [children], null). */
export function h(tag, attributes = {}, ...children) {
  const element = tag === "svg" || SVG.has(tag) ? document.createElementNS(NAMESPACE, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on") && typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value); // allowed by the policy: it is no attribute
    else if (name === "value" && "value" in element) element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

const NAMESPACE = "http://www.w3.org/2000/svg";
const SVG = new Set(["g", "path", "rect", "line", "polyline", "circle", "text", "tspan", "defs", "marker", "clipPath"]);

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replace what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** A number as people read it: 1,234,567. */
export function count(value) {
  return value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en");
}

/** How many of something: 1 row, 2 rows. */
export function counted(value, word) {
  return `${count(value)} ${word}${value === 1 ? "" : "s"}`;
}

/** Bytes as people read them. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** Seconds as people read them. */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 120) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} d`;
}

/** A value of a row as text; `null` is shown as an empty mark. */
export function text(value) {
  if (value === null || value === undefined) return "∅";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** A message at the bottom of the page, for some seconds. */
export function notice(message, kind = "info") {
  const shown = h("p", { class: `notice ${kind}` }, message);
  document.getElementById("notices").append(shown);
  setTimeout(() => shown.remove(), 8000);
}

/** An error of the server: what was given, what is allowed, what to write instead. */
export function problem(error) {
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("p", { class: "message" }, error.message),
    error.given !== undefined && error.given !== null && error.given !== "" && h("p", {}, h("b", {}, "given "), text(error.given)),
    error.allowed && h("p", {}, h("b", {}, "allowed "), error.allowed),
    error.instead && h("p", {}, h("b", {}, "instead "), h("code", {}, error.instead)),
  );
}
