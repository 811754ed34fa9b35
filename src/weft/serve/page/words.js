// The page's words in the reader's language. Each area of the page has a file per language in texts/.

const LANGUAGES = { en: "English", zh: "中文" };
const loaded = {};
let language = "en";

export { LANGUAGES };

/** The reader's choice, or the browser's first language that the page has. */
export function preferredLanguage() {
  const kept = localStorage.getItem("weft.language");
  if (kept in LANGUAGES) return kept;
  const wanted = (navigator.languages || [navigator.language]).map((one) => one.slice(0, 2).toLowerCase());
  return wanted.find((one) => one in LANGUAGES) || "en";
}

export function currentLanguage() {
  return language;
}

/** Loads the words of some areas, and makes `chosen` the language of the page. */
export async function loadLanguage(chosen, areas) {
  for (const area of areas) {
    loaded[chosen] = { ...loaded[chosen], ...(await import(`./texts/${chosen}/${area}.js`)).default };
  }
  language = chosen;
  document.documentElement.lang = chosen === "zh" ? "zh-CN" : "en";
}

/** The words for `key`, with {name} replaced by values. */
export function t(key, values = {}) {
  const found = loaded[language]?.[key] ?? key;
  return found.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

export function number(value, digits = 3) {
  return typeof value === "number" && Number.isFinite(value)
    ? value.toLocaleString(language, { maximumSignificantDigits: digits })
    : "–";
}

export function count(value) {
  return typeof value === "number" ? value.toLocaleString(language) : "–";
}
