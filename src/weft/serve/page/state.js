// What is seen, in the address: #/try/MODEL/PANEL?name=value. A link reproduces it, and a reload loses nothing.
// Texts that are too long for an address are kept in the tab's storage only; the address then has a mark for them.

import { useCallback, useEffect, useState } from "./lib/preact.js";
import { ofBrowser, ofTab } from "./storage.js";

const LONGEST = 6000; // characters of an address
const IN_STORAGE = "…"; // what the address has for a value that is too long
const WAIT = 250; // milliseconds: browsers allow few changes of the address in a second

export function readRoute() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decode), values: new URLSearchParams(query || "") };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function linkTo(parts, values = {}) {
  const query = new URLSearchParams(values).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

export function useRoute() {
  const [route, setRoute] = useState(readRoute);
  useEffect(() => {
    const changed = () => setRoute(readRoute());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** A value of the page at `place` (such as "try/story/write"), in the address and in the tab's storage. A link may hold
 *  anything: what is not of the same kind, or not good, is not taken. */
export function useLinked(place, name, initial, isGood = () => true) {
  const stored = `weft.${place}.${name}`;
  const [value, setValue] = useState(() => {
    const found = readValue(stored, name, initial);
    return (initial === null || kindOf(found) === kindOf(initial)) && isGood(found) ? found : initial;
  });
  const set = useCallback(
    (next) => {
      setValue((before) => {
        const now = typeof next === "function" ? next(before) : next;
        ofTab.set(stored, JSON.stringify(now));
        writeLink(name, now, initial);
        return now;
      });
    },
    [stored],
  );
  // What came from the storage is part of the address again.
  useEffect(() => writeLink(name, value, initial), []);
  return [value, set];
}

function readValue(stored, name, initial) {
  const { values } = readRoute();
  const linked = values.get(name);
  try {
    if (linked !== null && linked !== IN_STORAGE) return JSON.parse(linked);
    if (linked === null && values.size) return initial; // the link says all that is not as at first
    const kept = ofTab.get(stored);
    return kept === null ? initial : JSON.parse(kept);
  } catch {
    return initial;
  }
}

const kindOf = (one) => (Array.isArray(one) ? "list" : one === null ? "null" : typeof one);

const waiting = { path: "", values: new Map(), timer: 0 };

function writeLink(name, value, initial) {
  const path = linkTo(readRoute().parts);
  if (path !== waiting.path) waiting.values.clear();
  waiting.path = path;
  const text = JSON.stringify(value);
  waiting.values.set(name, text === JSON.stringify(initial) ? null : text);
  clearTimeout(waiting.timer);
  waiting.timer = setTimeout(writeWaiting, WAIT);
}

function writeWaiting() {
  clearTimeout(waiting.timer);
  const { parts, values } = readRoute();
  if (!waiting.values.size || linkTo(parts) !== waiting.path) return;
  for (const [name, text] of waiting.values) {
    values.delete(name);
    if (text === null) continue;
    values.set(name, text.length < LONGEST ? text : IN_STORAGE);
    if (linkTo(parts, values).length > LONGEST) values.set(name, IN_STORAGE);
  }
  waiting.values.clear();
  history.replaceState(null, "", linkTo(parts, values));
}

addEventListener("pagehide", writeWaiting);

/** A value kept in the browser for all visits, such as the theme. */
export function useKept(name, initial) {
  const key = `weft.${name}`;
  const [value, setValue] = useState(() => ofBrowser.get(key) ?? initial);
  const set = (next) => {
    ofBrowser.set(key, next);
    setValue(next);
  };
  return [value, set];
}
