// Small parts that all panels use.

import { html, useEffect, useRef, useState } from "./lib/preact.js";
import { t } from "./words.js";

let numbered = 0;

/** An id for a label and its field. */
export function useId() {
  const [id] = useState(() => `f${(numbered += 1)}`);
  return id;
}

/** A field with its label and, below it, what it means. */
export function Field({ label, help, children, wide }) {
  const id = useId();
  return html`<div class=${wide ? "field wide" : "field"}>
    <label for=${id}>${label}</label>
    ${children({ id, "aria-describedby": help ? `${id}h` : undefined })}
    ${help && html`<small id=${`${id}h`}>${help}</small>`}
  </div>`;
}

export function TextField({ label, help, value, onChange, rows = 3, placeholder }) {
  const typed = (event) => onChange(event.target.value);
  return html`<${Field} label=${label} help=${help} wide>
    ${(its) => html`<textarea ...${its} rows=${rows} value=${value} placeholder=${placeholder || ""}
      onInput=${typed} spellcheck=${false}></textarea>`}
  <//>`;
}

export function NumberField({ label, help, value, onChange, min, max, step = 1, placeholder }) {
  const typed = (event) => onChange(event.target.value === "" ? null : Number(event.target.value));
  return html`<${Field} label=${label} help=${help}>
    ${(its) => html`<input ...${its} type="number" value=${value ?? ""} min=${min} max=${max} step=${step}
      placeholder=${placeholder ?? ""} onInput=${typed} inputmode="decimal" />`}
  <//>`;
}

export function Choice({ label, help, value, onChange, options }) {
  return html`<${Field} label=${label} help=${help}>
    ${(its) => html`<select ...${its} value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${options.map(([key, shown]) => html`<option key=${key} value=${key}>${shown}</option>`)}
    </select>`}
  <//>`;
}

export function Toggle({ label, help, value, onChange }) {
  const id = useId();
  return html`<div class="field toggle">
    <label><input type="checkbox" checked=${value} aria-describedby=${help ? id : undefined}
      onChange=${(event) => onChange(event.target.checked)} /> ${label}</label>
    ${help && html`<small id=${id}>${help}</small>`}
  </div>`;
}

/** A service's error as it says it. */
export function ErrorBox({ error }) {
  if (!error) return null;
  if (error.status === 429) {
    return html`<div class="error busy" role="alert"><p>${t("busy", { seconds: error.retryAfter ?? 1 })}</p><small>${error.message}</small></div>`;
  }
  return html`<p class="error" role="alert">${error.code === "unreachable" ? t("unreachable") : error.message}</p>`;
}

/** Text to copy: a command, a program. */
export function Code({ text, label }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      return; // the browser does not allow it: the text can still be selected
    }
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<div class="code">
    <button type="button" class="quiet" onClick=${copy}>${isCopied ? t("copied") : t("copy")}</button>
    <pre tabindex="0" aria-label=${label}><code>${text}</code></pre>
  </div>`;
}

/** Tabs by arrow keys or click. `tabs`: [key, title] pairs. */
export function Tabs({ tabs, chosen, onChoose, label }) {
  const pressed = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = tabs.findIndex(([key]) => key === chosen);
    const [next] = tabs[(at + step + tabs.length) % tabs.length];
    onChoose(next);
    event.currentTarget.querySelector(`[data-tab="${CSS.escape(next)}"]`)?.focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${pressed}>
    ${tabs.map(
      ([key, title]) => html`<button type="button" role="tab" key=${key} data-tab=${key} aria-selected=${key === chosen}
        tabindex=${key === chosen ? 0 : -1} onClick=${() => onChoose(key)}>${title}</button>`,
    )}
  </div>`;
}

/** A horizontal bar from 0 to 1 with its label and value. */
export function Bar({ label, share, shown, tone = "a" }) {
  const width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
  return html`<div class="bar">
    <span class="bar-label"><bdi>${label}</bdi></span>
    <span class="bar-track"><span class=${`bar-fill ${tone}`} style=${{ width }}></span></span>
    <span class="bar-value">${shown}</span>
  </div>`;
}

/** The heading of a panel, and what it does. */
export function PanelTitle({ children, note }) {
  return html`<header class="panel-title"><h2>${children}</h2>${note && html`<p>${note}</p>`}</header>`;
}

/** Runs `work(signal)`; a newer run or leaving the panel ends an older one. Returns [state, run, stop]. */
export function useWork() {
  const [state, setState] = useState({ isBusy: false, error: null });
  const current = useRef(null);
  useEffect(() => () => current.current?.abort(), []);
  const run = async (work) => {
    current.current?.abort();
    const control = new AbortController();
    current.current = control;
    setState({ isBusy: true, error: null });
    try {
      await work(control.signal);
      if (current.current === control) setState({ isBusy: false, error: null });
    } catch (error) {
      if (current.current === control) setState({ isBusy: false, error: error.name === "AbortError" ? null : error });
    }
  };
  const stop = () => {
    current.current?.abort();
    setState({ isBusy: false, error: null });
  };
  return [state, run, stop];
}

/** The button that runs a panel; while it runs, it stops it. */
export function RunButton({ state, onRun, onStop, children }) {
  return state.isBusy
    ? html`<button type="button" class="primary" onClick=${onStop} aria-live="polite">${t("stop")}</button>`
    : html`<button type="button" class="primary" onClick=${onRun}>${children || t("run")}</button>`;
}
