// An axis of time: which instants it names, and how they are written there.
import { timeText } from "../times.js";

const SECOND = 1e6;
const DAY = 86400 * SECOND;
const CALENDAR = [
  ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800].map((n) => n * SECOND),
  ...[1, 2, 3, 6, 12].map((n) => n * 3600 * SECOND),
  ...[1, 2, 7, 14, 28, 91, 182, 364, 728].map((n) => n * DAY),
];

/** The times from `start` to `end` on the pixels from `left` to `right`. */
export function axis({ start, end, left, right, dates }) {
  const scale = (right - left) / (end - start);
  const step = roundStep((end - start) / Math.max(2, Math.floor((right - left) / (dates ? 90 : 60))), dates);
  const marks = [];
  for (let at = Math.ceil(start / step) * step + 0; at <= end && marks.length < 100; at += step) marks.push(at);
  return {
    start,
    end,
    marks,
    x: (time) => left + (Math.min(Math.max(time, start), end) - start) * scale,
    time: (x) => start + (x - left) / scale,
    label(time) {
      const words = timeText(time, dates);
      if (!dates || words.length < 12) return words;
      return step >= DAY ? words.slice(0, 10) : words.slice(11);
    },
    /** The days to write below clock times: at the first mark, and where a day begins. */
    days() {
      const found = new Map();
      if (!dates || step >= DAY) return found;
      for (const mark of marks) {
        const day = timeText(mark, true).slice(0, 10);
        if (![...found.values()].includes(day)) found.set(mark, day);
      }
      return found;
    },
  };
}

/** A round distance of at least so many ticks. */
function roundStep(least, dates) {
  if (dates && least >= SECOND) return CALENDAR.find((step) => step >= least) ?? Math.ceil(least / (728 * DAY)) * 728 * DAY;
  let power = 1;
  while (power * 10 < least) power *= 10;
  return [1, 2, 5].map((n) => n * power).find((step) => step >= least) ?? 10 * power;
}
