// The settings of generation: fields with their meaning, grouped; the request they make, and the same for the library
// and the command line.

import { html } from "../lib/preact.js";
import { Field, NumberField, TextField, Toggle } from "../parts.js";
import { t } from "../words.js";
import { shellWord } from "./snippets.js";
import { short } from "./text.js";

const number = (min, max, step = 1) => ({ kind: "number", min, max, step });
const GROUPS = {
  basic: { max_tokens: number(1, 1_048_576), temperature: number(0, 100, 0.1), top_p: number(0, 1, 0.05), seed: number(0) },
  sampling: { top_k: number(0), min_p: number(0, 1, 0.01), typical_p: number(0, 1, 0.05) },
  repeats: {
    repetition_penalty: number(0.01, 100, 0.05), presence_penalty: number(-2, 2, 0.1),
    frequency_penalty: number(-2, 2, 0.1), no_repeat_ngram: number(1, 1000),
  },
  ending: { stop: { kind: "lines" }, stop_token_ids: { kind: "ids" }, min_tokens: number(0), ignore_eos: { kind: "toggle" } },
  several: { n: number(1, 64), beams: number(1, 64), length_penalty: number(-20, 20, 0.1), early_stopping: { kind: "toggle" } },
  shape: { guided_choice: { kind: "lines" }, guided_regex: { kind: "text" }, guided_json: { kind: "text" } },
  tokens: { bad_words: { kind: "lines" }, logit_bias: { kind: "biases" }, speculate: number(0, 64), echo: { kind: "toggle" } },
};
const KINDS = Object.assign({}, ...Object.values(GROUPS));

/** `without`: settings that do not apply. `defaults`: what the service uses where nothing is given. */
export function Settings({ values, onChange, without = [], defaults = {} }) {
  const set = (name, value) => {
    const next = { ...values, [name]: value };
    if (value === null || value === "" || value === false) delete next[name];
    onChange(next);
  };
  const groups = Object.entries(GROUPS).map(([group, fields]) => [group, Object.keys(fields).filter((name) => !without.includes(name))]);
  return html`<div class="settings">${groups.map(([group, names]) => {
    const fields = html`<div class="fields">${names.map(
      (name) => html`<${Setting} key=${name} name=${name} value=${values[name]} onChange=${(value) => set(name, value)}
        preset=${defaults[name]} />`,
    )}</div>`;
    if (group === "basic") return fields;
    const chosen = names.filter((name) => name in values).length;
    return names.length > 0 && html`<details key=${group}><summary>${t(`group.${group}`)}${chosen > 0 && html` <span
      class="badge">${chosen}</span>`}</summary>${fields}</details>`;
  })}
  ${Object.keys(values).length > 0 && html`<button type="button" class="quiet"
    onClick=${() => onChange({})}>${t("defaults")}</button>`}
  </div>`;
}

/** What is set, beside the title of the settings. */
export function SettingsInWords({ values }) {
  const words = Object.entries(values).map(([name, value]) => t(`set.${name}`) + (value === true ? "" : ` ${short(String(value), 20)}`));
  return words.length > 0 ? html` <small><bdi>${words.join(" · ")}</bdi></small>` : null;
}

function Setting({ name, value, onChange, preset }) {
  const { kind, ...limits } = KINDS[name];
  const words = { label: t(`set.${name}`), help: t(`set.${name}.help`) };
  if (kind === "number") {
    return html`<${NumberField} ...${words} ...${limits} value=${value} onChange=${onChange}
      placeholder=${preset ?? t("default")} />`;
  }
  if (kind === "toggle") return html`<${Toggle} ...${words} value=${Boolean(value)} onChange=${onChange} />`;
  if (kind === "text" || kind === "ids") {
    return html`<${Field} ...${words}>${(its) => html`<input ...${its} type="text" value=${value ?? ""} spellcheck=${false}
      onInput=${(event) => onChange(event.target.value)} />`}<//>`;
  }
  return html`<${TextField} ...${words} rows=${2} value=${value ?? ""} onChange=${onChange} />`;
}

const lines = (text) => String(text).split("\n").filter(Boolean).map((line) => line.replaceAll("\\n", "\n"));
const READ = {
  lines,
  ids: (text) => String(text).split(/[\s,]+/).filter(Boolean).map(Number),
  biases: (text) => Object.fromEntries(lines(text).map((line) => line.trim().split(/[\s:=]+/)).map(([id, bias]) => [id, Number(bias)])),
};

/** The fields of a request: only what was set. */
export function settingsBody(values) {
  const found = Object.entries(values)
    .filter(([name]) => name in KINDS)
    .map(([name, value]) => [name, READ[KINDS[name].kind]?.(value) ?? value]);
  return Object.fromEntries(found.filter(([, value]) => !Array.isArray(value) || value.length));
}

export const isBeamSearch = (body) => (body.beams ?? 1) > 1;

const RENAMED = {
  max_tokens: "max_new_tokens", min_tokens: "min_new_tokens", stop_token_ids: "stop_tokens", bad_words: "banned",
  guided_json: "json_schema", guided_regex: "regex", guided_choice: "choice",
};
const OF_SAMPLING = ["temperature", "top_p", "top_k", "min_p", "typical_p", "seed"];
const OF_BEAMS = ["beams", "length_penalty", "early_stopping"];

const ONLY_HERE = ["ignore_eos", "echo", "logit_bias"];

/** The settings for `model.generate` that do what the request does. None if there are none. */
export function librarySettings(body) {
  if (ONLY_HERE.some((name) => name in body)) return null;
  const found = {};
  const isGreedy = body.temperature !== undefined && body.temperature < 1e-4 && (body.n ?? 1) === 1;
  found.strategy = isBeamSearch(body) ? "beam" : isGreedy ? "greedy" : "sample";
  for (const name of Object.keys(KINDS)) {
    if (!(name in body)) continue;
    if (OF_SAMPLING.includes(name) && found.strategy !== "sample") continue;
    if (OF_BEAMS.includes(name) && found.strategy !== "beam") continue;
    if (name === "top_k" && body.top_k <= 0) continue;
    found[RENAMED[name] || name] = body[name];
  }
  if (body.slide) found.slide = true;
  if (found.strategy === "beam") found.beams = Math.max(found.beams, body.n ?? 1);
  if (found.temperature < 1e-4) Object.assign(found, { temperature: 1, top_k: 1, seed: 0 }); // several greedy answers
  return found;
}

const OPTIONS = { banned: "--ban", choice: "--one-of", n: "-n" };
const NO_OPTION = ["stop_tokens", "early_stopping"];

/** The same as options of `weft generate`. None if there are none. */
export function settingsOptions(body) {
  const settings = librarySettings(body);
  if (!settings || NO_OPTION.some((name) => name in settings)) return null;
  return optionWords(settings);
}

export function optionWords(settings) {
  return Object.entries(settings)
    .flatMap(([name, value]) => {
      const option = OPTIONS[name] || `--${name.replaceAll("_", "-")}`;
      if (value === true) return [option];
      return (Array.isArray(value) ? value : [value]).map((one) => optionWord(option, String(one)));
    })
    .join(" ");
}

/** With "=" where the value could be taken for an option. */
function optionWord(option, value) {
  return value.startsWith("-") && option.startsWith("--") ? `${option}=${shellWord(value)}` : `${option} ${shellWord(value)}`;
}
