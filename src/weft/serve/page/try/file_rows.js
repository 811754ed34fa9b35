// A file of rows on a panel: dropped or chosen, its columns matched to the panel's inputs, its answers to save.

import { html, useEffect, useRef, useState } from "../lib/preact.js";
import { Choice, ErrorBox, RunButton, Toggle, useWork } from "../parts.js";
import { count, number, t } from "../words.js";
import { kindOf } from "./row_reader.js";
import { lookInto, matchColumns, runRows } from "./row_runner.js";
import { save } from "./save.js";
import { short } from "./text.js";

const MOST_COLUMNS = 8; // of the preview

export function FileRows({ rows, dropped }) {
  const [file, setFile] = useState(null);
  const [isOpen, setOpen] = useState(false);
  const input = useRef(null);
  useEffect(() => {
    if (!dropped) return;
    setFile(dropped);
    setOpen(true);
  }, [dropped]);
  return html`<details class="card more" open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>${t("rows.title")}</summary>
    <div class="stack">
      <p class="hint">${t("rows.note")}</p>
      <div class="row">
        <button type="button" onClick=${() => input.current.click()}>${t("rows.choose")}</button>
        <input ref=${input} hidden type="file" accept=".txt,.csv,.tsv,.jsonl,.ndjson" onChange=${(event) => setFile(event.target.files[0] || null)} />
        ${file && html`<span><bdi>${short(file.name, 60)}</bdi> · ${fileSize(file.size)}</span>`}
      </div>
      ${file && html`<${Loaded} key=${`${file.name}/${file.size}/${file.lastModified}`} file=${file} rows=${rows} />`}
    </div>
  </details>`;
}

function fileSize(bytes) {
  return bytes < 1e6 ? `${count(Math.ceil(bytes / 1e3))} kB` : `${count(Math.round(bytes / 1e5) / 10)} MB`;
}

function Loaded({ file, rows }) {
  const isTable = ["csv", "tsv"].includes(kindOf(file.name));
  const [hasNames, setNames] = useState(isTable);
  const [look, setLook] = useState(null);
  const [mapping, setMapping] = useState({});
  const [progress, setProgress] = useState(null);
  const [state, run, stop] = useWork();
  useEffect(() => {
    run(async () => {
      const found = await lookInto(file, hasNames);
      setLook(found);
      setMapping(matchColumns(rows.inputs, found.columns));
      setProgress(null);
    });
  }, [file, hasNames]);
  if (!look) return html`<${ErrorBox} error=${readable(state.error)} />`;
  const start = () =>
    run((signal) =>
      runRows({ file, hasNames, columns: look.columns, mapping, rows, signal, onProgress: (news) => setProgress((before) => ({ ...before, ...news })) }),
    );
  const missing = rows.inputs.filter((name) => !mapping[name]);
  const repeated = new Set(Object.values(mapping)).size < rows.inputs.length;
  return html`
    ${isTable && html`<${Toggle} label=${t("rows.names")} value=${hasNames} onChange=${setNames} />`}
    <div class="fields">
      ${rows.inputs.map(
        (name) => html`<${Choice} key=${name} label=${t("rows.from", { name: t(`input.${name}`) })}
          value=${mapping[name] || ""}
          onChange=${(column) => setMapping({ ...mapping, [name]: column })}
          options=${look.columns.map((column) => [column, short(column, 60)])} />`,
      )}
    </div>
    ${!progress && html`<${RowTable} columns=${look.columns}
      rows=${look.rows.map((given) => (given.error ? { given: {}, error: t(given.error) } : { given }))} />`}
    <div class="row">
      ${missing.length || repeated
        ? html`<p class="error"
          role="alert">${t("rows.needs", { count: rows.inputs.length, names: rows.inputs.map((name) => t(`input.${name}`)).join(", ") })}</p>`
        : html`<${RunButton} state=${state} onRun=${start} onStop=${stop}>${t("rows.start")}<//>`}
      ${progress && html`<${Progress} progress=${progress} isBusy=${state.isBusy} />`}
    </div>
    ${progress?.cut > 0 && html`<p class="hint">${t("rows.cut", { count: count(progress.cut) })}</p>`}
    ${progress?.first && html`<p class="hint">${t("rows.why", progress.first)}</p>`}
    <${ErrorBox} error=${readable(state.error)} />
    ${progress?.preview?.length > 0 &&
    html`<${RowTable} columns=${look.columns.filter((one) => Object.values(mapping).includes(one))}
      rows=${progress.preview} />
      ${progress.done > progress.preview.length && html`<p
        class="hint">${t("rows.first", { count: progress.preview.length })}</p>`}`}
    ${progress?.result &&
    !state.isBusy &&
    html`<div class="row">${["json", "csv"].map(
      (kind) => html`<button type="button" key=${kind}
        onClick=${() => save(`answers.${kind === "csv" ? "csv" : "jsonl"}`, progress.result.blob(kind))}>
        ${t(`rows.${kind === "csv" ? "csv" : "jsonl"}`)}</button>`,
    )}</div>`}`;
}

/** A decoder's error is not a sentence of the service. */
function readable(error) {
  return error && error.status === undefined ? { message: t("rows.unreadable") } : error;
}

function Progress({ progress, isBusy }) {
  const share = progress.read ?? 0;
  return html`<div class="progress" role="status">
    <progress value=${share} max="1" aria-label=${t("rows.progress")}></progress>
    <span>${t(isBusy ? "rows.doing" : progress.isDone ? "rows.done" : "rows.stopped", { count: count(progress.done), failed: count(progress.failed) })}</span>
  </div>`;
}

function shownValue(value) {
  if (typeof value === "number") return number(value, 4);
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}

function RowTable({ columns, rows }) {
  const shown = columns.slice(0, MOST_COLUMNS);
  const answers = [...new Set(rows.flatMap((one) => Object.keys(one.flat || {})))].slice(0, MOST_COLUMNS);
  const cell = (value) => html`<td><bdi>${short(shownValue(value), 160)}</bdi></td>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${t("rows.table")}>
    <table class="rows">
      <thead><tr>${shown.map((name) => html`<th scope="col"><bdi>${short(name, 40)}</bdi></th>`)}
        ${answers.map((name) => html`<th scope="col" class="new">${name}</th>`)}</tr></thead>
      <tbody>${rows.map(
        (one, place) => html`<tr key=${place}>${shown.map((name) => cell(one.given[name]))}${one.error !== undefined
          ? html`<td class="failed" colspan=${Math.max(1, answers.length)}>${one.error}</td>`
          : answers.map((name) => cell(one.flat?.[name]))}</tr>`,
      )}</tbody>
    </table>
  </div>`;
}
