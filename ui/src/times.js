// Times as the server writes them: ISO texts for dates, numbers (or texts of large ones) for plain times.

/** Microseconds since 1970, or the plain number; `null` and "inf" are the end of a lifetime without one. */
export function ticks(value) {
  if (value === null || value === undefined || value === "inf" || value === "Infinity") return Infinity;
  if (typeof value === "number") return value;
  if (!isDate(value)) return Number(value);
  const fraction = /\.(\d+)/.exec(value)?.[1] ?? "";
  return Date.parse(value) * 1000 + Number(fraction.slice(3, 6).padEnd(3, "0"));
}

/** Whether a time is a date. */
export function isDate(value) {
  return typeof value === "string" && value.length > 9 && value[4] === "-" && value[10] === "T";
}

/** The rows that a table has always had begin here. */
const BEGINNING = -62135596800000000;

/** A time in ticks, as people read it: dates in UTC, without the parts that are zero. */
export function timeText(at, dates) {
  if (at === Infinity) return "∞";
  if (at === -Infinity || at === BEGINNING) return "−∞";
  if (!dates) return Number.isInteger(at) ? at.toLocaleString("en").replaceAll(",", " ") : String(at);
  const date = new Date(Math.floor(at / 1000));
  if (Number.isNaN(date.getTime())) return String(at);
  const whole = date.toISOString();
  const rest = String(((at % 1e6) + 1e6) % 1e6).padStart(6, "0").replace(/0+$/, "");
  return `${whole.slice(0, 10)} ${whole.slice(11, 19)}${rest ? `.${rest}` : ""}`;
}

/** A value of a row as text: dates as dates, NULL as an empty mark. */
export function valueText(value) {
  if (value === null || value === undefined) return "∅";
  if (isDate(value)) return timeText(ticks(value), true);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
