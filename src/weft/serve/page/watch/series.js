// The curves of the chosen runs: only what is new is asked for, and every run has its buckets at the same places.

import { ask } from "../api.js";

const AT_ONCE = 3; // requests
const MOST_MORE = 14; // curves beside the usual six: the service gives twenty at once

/** Whether these are keys that the service can be asked for. */
export const areKeys = (keys) => keys.length <= MOST_MORE && keys.every((one) => /^[\p{L}\p{N}_+./ -]{1,80}$/u.test(one));

/** 1, 2 or 5 times a power of ten: the least with which `points` buckets reach over `extent`. As the service does it. */
export function bucketWidth(extent, points, isWhole) {
  if (!(extent > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(extent / points));
  const width = [1, 2, 5, 10].map((factor) => unit * factor).find((one) => one * points >= extent * (1 - 1e-12));
  return isWhole ? Math.max(1, Math.round(width)) : Number(width.toPrecision(12));
}

export class CurveStore {
  entries = new Map(); // by run
  error = null;
  #view = { key: "" };
  #feed;
  #onChange;
  #queue = [];
  #busy = 0;
  #control = new AbortController();

  constructor(feed, onChange) {
    this.#feed = feed;
    this.#onChange = onChange;
  }

  /** What is to be drawn: {ids, x, keys, width, range}. Others are forgotten. */
  show(view) {
    const key = JSON.stringify([view.x, view.keys, view.width, view.range]);
    if (key !== this.#view.key) {
      this.#control.abort();
      this.#control = new AbortController();
      this.#queue = [];
    }
    this.#view = { ...view, key };
    for (const id of this.entries.keys()) if (!view.ids.includes(id)) this.entries.delete(id);
    this.refresh();
  }

  /** Asks for what has changed. */
  refresh() {
    for (const id of this.#view.ids || []) {
      const run = this.#feed.runs.get(id);
      const entry = this.entries.get(id);
      const isCurrent = entry && entry.key === this.#view.key && entry.updated === run?.updated && entry.read >= 1;
      if (run && !isCurrent && !this.#queue.includes(id)) this.#queue.push(id);
    }
    while (this.#busy < AT_ONCE && this.#queue.length) this.#ask(this.#queue.shift());
  }

  close() {
    this.#control.abort();
    this.#queue = [];
  }

  async #ask(id) {
    this.#busy += 1;
    const { x, keys, width, range, key } = this.#view;
    const updated = this.#feed.runs.get(id)?.updated;
    const before = this.entries.get(id);
    const isSame = before?.key === key;
    const values = new URLSearchParams({ x, keys: keys.join(","), width });
    if (range) [["from", range[0]], ["to", range[1]]].forEach(([name, value]) => values.set(name, Math.max(0, value)));
    if (isSame) values.set("since", before.cursor);
    try {
      const told = await ask(`/runs/${id}/curves?${values}`, undefined, this.#control.signal);
      if (key === this.#view.key) this.entries.set(id, merged(told, isSame ? before : null, key, updated));
      this.error = null;
      this.#onChange();
    } catch (error) {
      if (error.name !== "AbortError" && error.code !== "run_not_found") this.error = error;
    }
    this.#busy -= 1;
    if (this.entries.get(id)?.read < 1 && this.#view.ids.includes(id) && !this.#queue.includes(id)) this.#queue.push(id);
    while (this.#busy < AT_ONCE && this.#queue.length) this.#ask(this.#queue.shift());
  }
}

/** An answer, put behind what was there before it. */
function merged(told, before, key, updated) {
  const isMore = before && !told.is_new;
  const first = isMore ? before.first : told.first;
  const skip = told.first - first;
  const series = {};
  for (const [name, { mean, ends }] of Object.entries(told.series)) {
    const old = isMore ? before.series[name] : { mean: [], ends: [] };
    const pairs = ends || mean.flatMap((value) => [null, value]);
    series[name] = { mean: joined(old.mean, skip, mean), ends: joined(old.ends, 2 * skip, pairs) };
  }
  return { key, updated, first, series, cursor: told.cursor, keys: told.keys, read: told.read, bad: told.bad_lines, thinned: told.thinned };
}

function joined(old, skip, added) {
  const kept = old.slice(0, skip);
  while (kept.length < skip) kept.push(null);
  return added.length ? kept.concat(added) : old;
}

/** Keys that some of the runs have, without those of which a chart is there: the usual ones, and `more`. */
export function otherKeys(entries, usual, more) {
  const found = new Set();
  for (const entry of entries.values()) for (const key of entry.keys) found.add(key);
  return [...found].filter((key) => !usual.includes(key) && !more.includes(key) && areKeys([...more, key])).sort();
}

/** The x values of a chart: two in each bucket, so that its lowest and highest value have a place. */
export function gridOf(first, last, width) {
  const xs = new Array(2 * Math.max(0, last - first + 1));
  for (let at = first; at <= last; at += 1) {
    xs[2 * (at - first)] = (at + 0.5) * width;
    xs[2 * (at - first) + 1] = (at + 1) * width;
  }
  return xs;
}

/** The values of one curve on that grid. `isLog`: what a logarithm cannot show is left out. */
export function onGrid(entry, key, first, last, isLog) {
  const values = new Array(2 * Math.max(0, last - first + 1)).fill(null);
  const ends = entry?.series[key]?.ends;
  if (!ends) return values;
  const shift = 2 * (entry.first - first);
  for (let at = Math.max(0, -shift); at < ends.length && at + shift < values.length; at += 1) {
    const value = ends[at];
    if (value !== null && !(isLog && value <= 0)) values[at + shift] = value;
  }
  return values;
}

/** An exponential moving average of the buckets' means, without the bias of its beginning. */
export function smoothed(entry, key, first, last, weight, isLog) {
  const values = new Array(2 * Math.max(0, last - first + 1)).fill(null);
  const means = entry?.series[key]?.mean;
  if (!means) return values;
  const shift = entry.first - first;
  let [sum, total] = [0, 0];
  for (let at = 0; at < means.length; at += 1) {
    if (means[at] === null) continue;
    sum = sum * weight + means[at] * (1 - weight);
    total = total * weight + (1 - weight);
    const place = 2 * (at + shift) + 1;
    if (place >= 0 && place < values.length && !(isLog && sum <= 0)) values[place] = sum / total;
  }
  return values;
}
