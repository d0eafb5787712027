// The fold of a subscription: physical events (inserts, retractions, CTIs) become the history, the rows that hold when.
//
// A history is a bag: equal rows with equal lifetimes are one entry with `copies`. It keeps the newest `most` entries and
// counts those that it dropped; `changes` and `events` keep the newest `log`. Nothing here knows of the page or the server.
import { isDate, ticks } from "./times.js";

/** Milliseconds for which a removed row stays to be seen, and for which a correction shows its old value. */
export const STAYS = 2500;
/** A batch arrives in pieces, on a busy machine slowly: while changes arrive, removed rows wait so long for successors. */
const BURST = 3000;
const WAITS = 30_000;
export const SHOWN = 6000;
/** Removed rows among which the predecessor of a new one is looked for. */
const CANDIDATES = 16;

/** The rows of a stream, a query, a table or a view with these payload columns. */
export class Fold {
  constructor(columns, { most = 100_000, log = 20_000, relation = false } = {}) {
    this.columns = columns;
    this.most = most;
    this.log = log;
    /** Whether its rows are those of a table, where a change ends a row and begins another. */
    this.relation = relation;
    this.reset();
  }

  /** Begin again: a snapshot follows. */
  reset() {
    this.entries = new Map();
    /** Rows that were removed a moment ago, in that order. */
    this.leaving = new Set();
    this.changes = [];
    this.events = [];
    this.cti = null;
    this.dates = false;
    /** Rows of snapshots, changes after them, entries that were dropped to save memory, and retractions of nothing. */
    this.counts = { snapshot: 0, changes: 0, corrections: 0, dropped: 0, unknown: 0 };
    /** Whether equal rows were seen. */
    this.several = false;
    /** When the last change was taken. */
    this.changed = -Infinity;
    this.serial = 0;
    /** Removed rows by their times, and by their times and first column. */
    this.lives = new Map();
    this.gone = new Map();
    this.fresh = [];
    /** Of a table: rows that a moment ago ended, and began, without a successor and a predecessor. */
    this.ended = [];
    this.begun = [];
  }

  /** Take rows of the server, {kind, le, re, re_new, …payload}. Call `settle` at the end of a piece. */
  take(rows, snapshot = false, now = 0) {
    for (const row of rows) {
      if (row.kind === "cti") this.cti = row.le;
      else if (row.kind === "insert") this.#insert(row, snapshot, now);
      else this.#retract(row, now);
      if (snapshot) this.counts.snapshot += row.kind === "insert" ? 1 : 0;
      else this.#note(this.events, row);
    }
    for (const entry of this.entries.values()) {
      if (this.entries.size <= this.most) break;
      this.entries.delete(entry.key);
      this.counts.dropped += 1;
    }
  }

  /** Pair what a piece removed with what it inserted: a pair is a correction. */
  settle(now = 0) {
    if (this.leaving.size) {
      const among = new Map();
      for (const entry of this.fresh) among.set(life(entry), (among.get(life(entry)) ?? 0) + 1);
      for (const entry of this.fresh) this.#pair(entry, among, now);
    }
    if (this.relation) this.#succeed(now);
    this.fresh = [];
  }

  /** Forget removed rows that were seen long enough. */
  expire(now) {
    const wait = now - this.changed < BURST ? WAITS : STAYS;
    for (const entry of this.leaving) {
      if (entry.at + wait > now && this.leaving.size <= this.most) break;
      this.#forget(entry);
    }
  }

  /** The rows, with their copies, as a list: of `rows` those that hold now. */
  list(view = "history", now = 0) {
    if (view === "changes") return this.changes.filter((one) => !one.hidden).reverse();
    if (view === "events") return this.events.toReversed();
    const all = [...this.entries.values(), ...[...this.leaving].filter((one) => one.at + STAYS > now)];
    if (view !== "rows") return all;
    return all.filter((one) => one.re === Infinity || (one.mark === "ended" && one.at + STAYS > now && one.at > 0));
  }

  #identity(row, re) {
    const values = [timeKey(row.le), timeKey(re)];
    for (const name of this.columns) values.push(row[name]);
    return JSON.stringify(values);
  }

  /** What rows have in common of which one may be the correction of the other: their times and their first column. */
  #place(row) {
    return JSON.stringify([timeKey(row.le), timeKey(row.re), row[this.columns[0]]]);
  }

  #insert(row, snapshot, now) {
    const key = this.#identity(row, row.re);
    const found = this.entries.get(key);
    const entry = found ?? this.#entry(key, row);
    if (found) this.#copy(found);
    if (snapshot) return;
    entry.at = now;
    if (!found) entry.mark = "new";
    entry.change = this.#change("+", row, null, now);
    if (!found) this.fresh.push(entry);
  }

  #copy(entry) {
    entry.copies += 1;
    this.several = true;
  }

  #entry(key, row) {
    this.dates ||= isDate(row.le);
    const entry = { key, row, le: ticks(row.le), re: ticks(row.re), copies: 1, order: (this.serial += 1), at: 0, mark: "", before: null, change: null };
    this.entries.set(key, entry);
    return entry;
  }

  #retract(row, now) {
    const key = this.#identity(row, row.re);
    const found = this.entries.get(key);
    if (!found && !this.counts.dropped) this.counts.unknown += 1;
    if (found) {
      found.copies -= 1;
      if (!found.copies) this.entries.delete(key);
    }
    this.counts.corrections += 1;
    if (timeKey(row.re_new) === timeKey(row.le)) this.#remove(row, found, now);
    else this.#move(row, found, now);
  }

  #remove(row, found, now) {
    const change = this.#change("−", row, null, now);
    if (!found || found.copies) return;
    Object.assign(found, { at: now, mark: "removed", before: null, change });
    this.leaving.add(found);
    put(this.gone, this.#place(row), found);
    put(this.lives, life(found), found);
  }

  #move(row, found, now) {
    const next = { ...row, kind: "insert", re: row.re_new, re_new: null };
    const key = this.#identity(next, next.re);
    const there = this.entries.get(key);
    const entry = there ?? this.#entry(key, next);
    if (there) this.#copy(there);
    if (found && !there) entry.order = found.order;
    const mark = this.relation && ticks(row.re) === Infinity ? "ended" : "corrected";
    Object.assign(entry, { at: now, mark, before: { re: row.re }, change: this.#change("±", next, { re: row.re }, now) });
    if (mark === "ended") this.ended.push(entry);
  }

  /** The removed row that a new one replaces: of equal times and the same first column, or the only one of these times. */
  #pair(entry, among, now) {
    if (this.entries.get(entry.key) !== entry) return;
    let best = null;
    let most = 0;
    let seen = 0;
    for (const old of this.gone.get(this.#place(entry.row)) ?? []) {
      if ((seen += 1) > CANDIDATES) break;
      let common = 0;
      while (common < this.columns.length && same(old.row[this.columns[common]], entry.row[this.columns[common]])) common += 1;
      if (common > most || !best) [best, most] = [old, common];
    }
    const only = this.lives.get(life(entry));
    if (!best && only?.size === 1 && among.get(life(entry)) === 1) [best] = only;
    if (!best) return;
    this.#forget(best);
    const before = {};
    for (const name of this.columns) if (!same(best.row[name], entry.row[name])) before[name] = best.row[name];
    const mark = Object.keys(before).length ? "corrected" : "";
    Object.assign(entry, { order: best.order, mark, before, at: now });
    Object.assign(best.change, { mark: "±", row: entry.row, before });
    this.#unlist(entry.change);
    entry.change = best.change;
  }

  /** Rows of a table that begin where another of the same first column ends: its successors, also of another piece. */
  #succeed(now) {
    for (const entry of this.fresh) this.begun.push(entry);
    const place = (time, row) => JSON.stringify([ticks(time), row[this.columns[0]]]);
    const before = new Map(this.ended.map((old) => [place(old.row.re, old.row), old]));
    const only = this.ended.length === 1 && this.begun.length === 1 ? this.ended[0] : null;
    for (const entry of before.size ? this.begun : []) {
      const old = before.get(place(entry.row.le, entry.row)) ?? (only?.re === entry.le ? only : null);
      if (!old) continue;
      entry.previous = {};
      for (const name of this.columns) if (!same(old.row[name], entry.row[name])) entry.previous[name] = old.row[name];
      entry.order = old.order;
      old.mark = "corrected";
    }
    this.ended = this.ended.filter((one) => one.mark === "ended" && one.at + STAYS > now);
    this.begun = this.begun.filter((one) => !one.previous && one.at + STAYS > now);
  }

  #forget(entry) {
    this.leaving.delete(entry);
    drop(this.gone, this.#place(entry.row), entry);
    drop(this.lives, life(entry), entry);
  }

  #change(mark, row, before, now) {
    this.counts.changes += 1;
    this.changed = now;
    const change = { mark, row, before, at: now, hidden: false };
    this.#note(this.changes, change);
    return change;
  }

  #unlist(change) {
    this.counts.changes -= 1;
    change.hidden = true;
  }

  #note(list, item) {
    list.push(item);
    if (list.length > this.log * 1.5) list.splice(0, list.length - this.log);
  }
}

/** A time as a key, the same for a date and its ticks, and exact for large numbers. */
function timeKey(value) {
  if (value === null || value === undefined) return "inf";
  return isDate(value) ? String(ticks(value)) : String(value);
}

function life(entry) {
  return `${timeKey(entry.row.le)} ${timeKey(entry.row.re)}`;
}

function put(index, key, entry) {
  if (!index.has(key)) index.set(key, new Set());
  index.get(key).add(entry);
}

function drop(index, key, entry) {
  const left = index.get(key);
  left?.delete(entry);
  if (!left?.size) index.delete(key);
}

function same(left, right) {
  return left === right || (typeof left === "object" && JSON.stringify(left) === JSON.stringify(right));
}
