// The page's words in the reader's language. Each area of the page has a file per language in texts/.

import { ofBrowser } from "./storage.js";

const LANGUAGES = { en: "English", zh: "中文" };
const loaded = {};
let language = "en";
let readable = []; // languages of the page that the model in view can read; empty: not known

export { LANGUAGES };

/** The reader's choice, or the browser's first language that the page has. */
export function preferredLanguage() {
  const kept = ofBrowser.get("weft.language");
  if (kept in LANGUAGES) return kept;
  const wanted = (navigator.languages || [navigator.language]).map((one) => one.slice(0, 2).toLowerCase());
  return wanted.find((one) => one in LANGUAGES) || "en";
}

export function currentLanguage() {
  return language;
}

async function load(chosen, areas) {
  for (const area of areas) {
    loaded[chosen] = { ...loaded[chosen], ...(await import(`./texts/${chosen}/${area}.js`)).default };
  }
}

/** Loads the words of some areas, and makes `chosen` the language of the page. */
export async function loadLanguage(chosen, areas) {
  await load(chosen, areas);
  language = chosen;
  document.documentElement.lang = chosen === "zh" ? "zh-CN" : "en";
}

/** The words for `key`, with {name} replaced by values. */
export function t(key, values = {}) {
  const found = loaded[language]?.[key] ?? key;
  return found.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

const exampleLanguage = () => (readable.includes(language) ? language : readable[0] || language);

/** Examples will be in a language that the model reads: the reader's own, if it does. */
export async function loadExamples(languages = []) {
  readable = languages.filter((one) => one in LANGUAGES);
  await load(exampleLanguage(), ["try"]);
}

export const example = (key) => loaded[exampleLanguage()]?.[key] ?? t(key);

export function number(value, digits = 3) {
  return typeof value === "number" && Number.isFinite(value)
    ? value.toLocaleString(language, { maximumSignificantDigits: digits })
    : "–";
}

export function count(value) {
  return typeof value === "number" ? value.toLocaleString(language) : "–";
}
