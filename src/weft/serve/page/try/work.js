// What all panels share: the last answer, kept in the tab; bars; the shell of a panel with its request and its file.

import { ask } from "../api.js";
import { html, useState } from "../lib/preact.js";
import { Bar, Code, ErrorBox, PanelTitle, RunButton, Tabs, useWork } from "../parts.js";
import { useLinked } from "../state.js";
import { ofTab } from "../storage.js";
import { example as exampleOf, number, t } from "../words.js";
import { FileRows } from "./file_rows.js";
import { curlCommand, libraryProgram, LONGEST_COMMAND, pythonProgram } from "./snippets.js";
import { save } from "./save.js";
import { short } from "./text.js";

const MOST_BARS = 20;
const CODES = ["", "curl", "python", "library", "command"]; // "": none is shown

export const percent = (share) => `${number(share * 100)} %`;

/** A value in the tab's storage: it outlives a reload, but is no part of a link. */
export function useStored(place, name, initial = null) {
  const key = `weft.${place}.${name}`;
  const [value, setValue] = useState(() => {
    try {
      return JSON.parse(ofTab.get(key)) ?? initial;
    } catch {
      return initial;
    }
  });
  const set = (next) => {
    setValue(next);
    ofTab.set(key, JSON.stringify(next));
  };
  return [value, set];
}

/** A text that is typed; until then an example. */
export function useText(place, name, example) {
  const [value, setValue] = useLinked(place, name, null);
  return [typeof value === "string" ? value : example ? exampleOf(example) : "", setValue];
}

/** The last answer of a panel, with the body that was asked. `isStale`: the fields have changed since. `read`: what is
 *  kept of the answer. */
export function useAnswer(place, request, read = (answer) => answer) {
  const [found, setFound] = useStored(place, "answer");
  const [state, run, stop] = useWork();
  const send = (other = request) =>
    run(async (signal) => setFound({ body: other.body, answer: read(await ask(other.path, other.body, signal)) }));
  const isStale = found !== null && JSON.stringify(found.body) !== JSON.stringify(request.body);
  return { found, state, send, stop, isStale };
}

/** The button that asks, what went wrong, and the answer. `children` shows it: ({body, answer}) => … `missing`: what
 *  to do first if it is not ready. */
export function Answer({ asked, label, children, isReady = true, missing = t("empty") }) {
  const { found, state, send, stop, isStale } = asked;
  return html`<div class="row actions">
      <${RunButton} state=${state} onRun=${() => isReady && send()} onStop=${stop}>${label || t("run")}<//>
      ${!isReady && html`<span class="hint">${missing}</span>`}
    </div>
    <${ErrorBox} error=${state.error} />
    <div class="result" aria-live="polite" aria-busy=${state.isBusy}>
      ${found && isStale && !state.isBusy && html`<p class="hint">${t("stale")}</p>`}
      ${found && children(found)}
    </div>`;
}

/** Vectors of a model that never learnt what is alike. */
export const Rough = ({ model }) => !model.compares && html`<p class="hint">${t("similarity.rough")}</p>`;

/** Bars of labels with their scores, best first. `isTall`: the labels are texts, each on lines of its own. */
export function Bars({ items, isChosen = () => false, onChoose, title, isTall }) {
  const [isAll, setAll] = useState(false);
  const shown = isAll ? items : items.slice(0, MOST_BARS);
  const bar = (one) => html`<${Bar} label=${short(one.label, isTall ? 600 : 200)} share=${one.share ?? one.score}
    shown=${one.shown ?? percent(one.score)}
    tone=${isChosen(one) ? "b" : "a"} />`;
  return html`<ol class=${isTall ? "list bars tall" : "list bars"} aria-label=${title}>
      ${shown.map(
        (one, place) => html`<li key=${place}>${onChoose
          ? html`<button type="button" aria-pressed=${isChosen(one)} onClick=${() => onChoose(one)}>${bar(one)}</button>`
          : bar(one)}</li>`,
      )}
    </ol>
    ${items.length > shown.length &&
    html`<button type="button" class="quiet" onClick=${() => setAll(true)}>${t("all", { count: items.length })}</button>`}`;
}

/** A panel: its title, fields and answer (`children`), the request elsewhere, a file of rows. */
export function Panel({ name, model, place, requests, rows, children }) {
  const [dropped, setDropped] = useState(null);
  const [isOver, setOver] = useState(false);
  const over = (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    setOver(true);
  };
  const drop = (event) => {
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    setOver(false);
    setDropped(event.dataTransfer.files[0]);
  };
  const pressed = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.querySelector(".primary:enabled")?.click();
  };
  return html`<section class=${isOver ? "panel over" : "panel"} aria-label=${t(`${name}.title`)} onDragOver=${over}
      onDragLeave=${(event) => event.currentTarget === event.target && setOver(false)} onDrop=${drop}>
    <div class="card" onKeyDown=${pressed}>
      <${PanelTitle} note=${t(`${name}.note`)}>${t(`${name}.title`)}<//>
      <div class="stack">${children}</div>
    </div>
    <${Elsewhere} place=${place} requests=${requests} />
    ${rows && html`<${FileRows} rows=${rows} model=${model} place=${place} dropped=${dropped} />`}
  </section>`;
}

/** The request as curl, Python and the command line. */
function Elsewhere({ place, requests }) {
  const [chosen, setChosen] = useLinked(place, "code", "", (one) => CODES.includes(one));
  const [which, setWhich] = useState(0);
  const request = requests[Math.min(which, requests.length - 1)];
  const texts = {
    curl: () => curlCommand(request),
    python: () => pythonProgram(request),
    library: () => libraryProgram(request.library?.()),
    command: () => request.command?.(),
  };
  const shown = chosen ? texts[chosen]?.() : null;
  const isLong = chosen && JSON.stringify(request.body).length > LONGEST_COMMAND;
  const usesFolder = chosen === "library" || chosen === "command";
  const body = () => save("request.json", new Blob([JSON.stringify(request.body)], { type: "application/json" }));
  return html`<details class="card more" open=${Boolean(chosen)}
      onToggle=${(event) => event.currentTarget.open !== Boolean(chosen) && setChosen(event.currentTarget.open ? "curl" : "")}>
    <summary>${t("code.title")}</summary>
    ${chosen &&
    html`<${Tabs} label=${t("code.title")} chosen=${chosen} onChoose=${setChosen}
        tabs=${Object.keys(texts).map((key) => [key, t(`code.${key}`)])} />
      ${requests.length > 1 &&
      html`<div class="row">${requests.map(
        (_, place_) => html`<button type="button" class="quiet" aria-pressed=${which === place_}
          onClick=${() => setWhich(place_)}>${t("write.settings", { number: place_ + 1 })}</button>`,
      )}</div>`}
      ${shown && !(usesFolder && isLong)
        ? html`<${Code} text=${shown} label=${t(`code.${chosen}`)} />`
        : html`<p class="hint">${t(usesFolder && isLong ? "code.long" : "code.none")}</p>`}
      ${usesFolder && shown && html`<small>${t("code.folder")}</small>`}
      ${isLong && !usesFolder && html`<p><button type="button" onClick=${body}>${t("code.body")}</button></p>`}`}
  </details>`;
}
