// Figures in words: durations, ages, axes, the colours of runs.

import { useEffect, useState } from "../lib/preact.js";
import { currentLanguage, t } from "../words.js";

const COLOURS = 8; // --run0 … of watch.css
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];

/** 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return t("time.s", { s: whole });
  if (whole < 3600) return t("time.m", { m: Math.floor(whole / 60), s: whole % 60 });
  if (whole < 86400) return t("time.h", { h: Math.floor(whole / 3600), m: Math.floor((whole % 3600) / 60) });
  return t("time.d", { d: Math.floor(whole / 86400), h: Math.floor((whole % 86400) / 3600) });
}

const formats = new Map();

/** A number in the reader's language. A format takes long to make, so each is made once. */
function formatted(value, options) {
  const name = `${currentLanguage()} ${JSON.stringify(options)}`;
  if (!formats.has(name)) formats.set(name, new Intl.NumberFormat(currentLanguage(), options));
  return formats.get(name).format(value);
}

/** 1.2M; 120万. */
export function short(value, digits = 3) {
  return Number.isFinite(value) ? formatted(value, { notation: "compact", maximumSignificantDigits: digits }) : "–";
}

/** A value of a curve: a learning rate needs other digits than a count. */
export function precise(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e7)) return value.toExponential(2);
  return formatted(value, { maximumSignificantDigits: size >= 1000 ? 6 : 4 });
}

export function percent(share) {
  return Number.isFinite(share) ? formatted(share, { style: "percent", maximumFractionDigits: 1 }) : "–";
}

export function bytes(size) {
  if (!Number.isFinite(size)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (size >= 1000 && at < units.length - 1) [size, at] = [size / 1000, at + 1];
  return `${formatted(size, { maximumSignificantDigits: 3 })} ${units[at]}`;
}

/** A place on the x axis. */
export function onAxis(x, value) {
  return x === "seconds" ? duration(value) : x === "tokens" ? short(value, 4) : formatted(value, { maximumFractionDigits: 0 });
}

export function keyTitle(key) {
  const title = t(`curve.${key}`);
  return title === `curve.${key}` ? key.replaceAll("_", " ") : title;
}

/** Class of a run's colour, by its place among the chosen. */
export const colourClass = (place) => `run-colour c${place % COLOURS} d${Math.floor(place / COLOURS) % DASHES.length}`;
export const dashOf = (place) => DASHES[Math.floor(place / COLOURS) % DASHES.length];

export function colourOf(place) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--run${place % COLOURS}`).trim();
}

/** How a run is: its state, or that it says nothing any more. */
export function stateOf(run) {
  if (run.stopping) return "stopping";
  if (run.starting) return "starting";
  return run.stale ? "stale" : run.state;
}

export function stateText(run, now) {
  const state = stateOf(run);
  if (state === "stale") return t("state.stale", { age: duration(now - run.updated) });
  if (state === "running" && run.step == null) return t("state.preparing");
  if (state === "running" && run.seconds_left != null) return t("state.left", { left: duration(run.seconds_left) });
  return t(`state.${state}`);
}

export function shareDone(run) {
  return run.steps && run.step != null ? Math.min(1, run.step / run.steps) : null;
}

/** A number that changes when the colours of the page do. */
export function useTheme() {
  const [count, setCount] = useState(0);
  useEffect(() => {
    const changed = () => setCount((before) => before + 1);
    const watcher = new MutationObserver(changed);
    watcher.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => watcher.disconnect();
  }, []);
  return count;
}
