// What there is to see of a run beside its curves: settings, samples, plan, log, report.

import { ask } from "../api.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib/preact.js";
import { Code, ErrorBox } from "../parts.js";
import { linkTo } from "../state.js";
import { count, t } from "../words.js";
import { useDetails } from "./feed.js";
import { bytes, colourClass, duration, precise, short } from "./show.js";

const Waiting = ({ found }) => (found.error ? html`<${ErrorBox} error=${found.error} />` : html`<p class="empty" role="status">${t("loading")}</p>`);

/** Log lines as the run writes them; the newest are in sight until somebody scrolls up. */
export function Log({ feed, run }) {
  const found = useDetails(feed, run.id, "log");
  const box = useRef(null);
  const isAtEnd = useRef(true);
  const lines = found.details?.log.lines;
  useLayoutEffect(() => {
    if (box.current && isAtEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines]);
  if (!lines) return html`<${Waiting} found=${found} />`;
  const scrolled = (event) => {
    const { scrollTop, scrollHeight, clientHeight } = event.target;
    isAtEnd.current = scrollTop + clientHeight > scrollHeight - 30;
  };
  const { cut, problem } = found.details.log;
  if (problem) return html`<p class="error">${problem}</p>`;
  if (!lines.length) return html`<p class="empty">${t("log.none")}</p>`;
  return html`<div class="card">${cut && html`<p class="hint small">${t("log.cut", { count: lines.length })}</p>`}
    <pre class="log text" ref=${box} tabindex="0" aria-label=${t("tab.log")} onScroll=${scrolled}>${lines.join("\n")}</pre></div>`;
}

/** The texts that the model wrote during training, at a step that the slider chooses. */
export function Samples({ feed, run, place, at, onAt }) {
  const found = useDetails(feed, run.id, "samples");
  const list = found.details?.samples.list;
  if (!list) return html`<${Waiting} found=${found} />`;
  const title = html`<h3><span class=${colourClass(place)}></span> <bdi>${run.name}</bdi></h3>`;
  if (!list.length) return html`<section class="card sample">${title}<p class="empty">${t("samples.none")}</p></section>`;
  const wanted = at ?? Infinity;
  const chosen = list.reduce((best, one, index) => (one.step <= wanted ? index : best), 0);
  const sample = list[chosen];
  const move = (event) => {
    const index = Number(event.target.value);
    onAt(index === list.length - 1 ? null : list[index].step);
  };
  return html`<section class="card sample">
    ${title}
    <label>${t("samples.step", { step: count(sample.step), number: chosen + 1, of: list.length })}
      ${list.length > 1 && html`<input type="range" min="0" max=${list.length - 1} step="1" value=${chosen} onInput=${move} aria-valuetext=${t("samples.at", { step: count(sample.step) })} />`}</label>
    ${found.details.samples.cut && html`<p class="hint small">${t("samples.cut")}</p>`}
    <p class="text written" aria-live="polite">${sample.text}</p>
  </section>`;
}

/** What was planned beside what happened; checkpoints; where the run comes from. */
export function Plan({ feed, run }) {
  const found = useDetails(feed, run.id, "facts,plan,lineage,checkpoints");
  const { details } = found;
  if (!details) return html`<${Waiting} found=${found} />`;
  const shown = (what, value) => (value == null ? "–" : what === "seconds" ? duration(value) : what === "validation_loss" ? precise(value) : count(Math.round(value)));
  const notes = (row) => [
    row.first && row.first !== row.planned && t("plan.first", { count: count(row.first) }),
    row.baseline != null && t("plan.baseline", { value: precise(row.baseline) }),
  ].filter(Boolean).join(" ");
  const columns = ["planned", "actual", "expected"];
  return html`<div class="stack">
    <section class="card"><h3>${t("plan.title")}</h3><div class="scroll" tabindex="0" role="group" aria-label=${t("plan.title")}><table>
      <thead><tr><td></td>${columns.map((one) => html`<th scope="col" class="figure" key=${one}>${t(`plan.${one}`)}</th>`)}</tr></thead>
      <tbody>${details.plan.map(
        (row) => html`<tr key=${row.what}><th scope="row">${t(`plan.${row.what}`)}<small>${notes(row)}</small></th>${columns.map((one) => html`<td class="figure" key=${one}>${shown(row.what, row[one])}</td>`)}</tr>`,
      )}</tbody></table></div><p class="hint small">${t("plan.note")}</p></section>
    <section class="card"><h3>${t("checkpoints.title")}</h3>
      ${details.checkpoints.length === 0 ? html`<p class="empty">${t("checkpoints.none")}</p>` : html`<div class="scroll" tabindex="0" role="group" aria-label=${t("checkpoints.title")}><table>
        <thead><tr><th scope="col">${t("axis.step")}</th><th scope="col">${t("checkpoints.saved")}</th><th scope="col">${t("checkpoints.size")}</th></tr></thead>
        <tbody>${details.checkpoints.map((one) => html`<tr key=${one.step}><td>${count(one.step)} ${one.best && html`<span class="mark">${t("checkpoints.best", { loss: precise(one.best_loss) })}</span>`}</td><td>${t("ago", { age: duration(details.now - one.saved) })}</td><td>${bytes(one.bytes)}</td></tr>`)}</tbody>
      </table></div>`}</section>
    <${Lineage} details=${details}><tr><th scope="row">${t("lineage.inputs")}</th><td class="hash">${details.inputs || "–"}</td></tr><//>
    ${Object.keys(details.results).length > 0 && html`<section class="card"><h3>${t("results.title")}</h3><${Code} text=${JSON.stringify(details.results, null, 2)} label=${t("results.title")} /></section>`}
  </div>`;
}

function Lineage({ details, children }) {
  return html`<section class="card"><h3>${t("lineage.title")}</h3><div class="scroll" tabindex="0" role="group" aria-label=${t("lineage.title")}><table>
    <tbody>${details.lineage.map((one) => html`<tr key=${one.setting}><th scope="row">${t(`lineage.${one.role}`)}</th><td>${one.id ? html`<a href=${linkTo(["watch", one.id])}><bdi>${one.path}</bdi></a>` : html`<bdi>${one.path}</bdi>`}${one.sha256 && html`<small class="hash">SHA-256 ${one.sha256}</small>`}</td></tr>`)}
      ${children}
      <tr><th scope="row">${t("lineage.folder")}</th><td><bdi>${details.folder}</bdi> ${details.weft && html`<small>weft ${details.weft}</small>`}</td></tr>
    </tbody></table></div></section>`;
}

/** A corpus, tokenizer, model or evaluation: its report, what it says of itself, its files. */
export function Folder({ folder }) {
  const [found, setFound] = useState({ details: null, error: null });
  useEffect(() => {
    ask(`/runs/${folder.id}`).then((details) => setFound({ details, error: null }), (error) => setFound({ details: null, error }));
  }, [folder.id]);
  const { details } = found;
  return html`<section class="card run-head"><h2><bdi>${folder.name}</bdi></h2><p class="hint">${t(`kind.${folder.kind}`)}</p></section>
    ${folder.has_report && html`<${Report} id=${folder.id} name=${folder.name} />`}
    ${!details ? html`<${Waiting} found=${found} />` : html`<${Lineage} details=${details} />
      <section class="card"><h3>weft.json</h3><${Code} text=${JSON.stringify(details.facts, null, 2)} label="weft.json" /></section>
      ${details.files.length > 0 && html`<section class="card"><h3>${t("files.title")}</h3><div class="scroll" tabindex="0" role="group" aria-label=${t("files.title")}><table><tbody>
        ${details.files.map((one) => html`<tr key=${one.name}><th scope="row"><bdi>${one.name}</bdi></th><td class="figure">${bytes(one.bytes)}</td><td class="hash">${one.sha256 || ""}</td></tr>`)}
      </tbody></table></div></section>`}`}`;
}

/** report.html in a frame of an origin of its own. */
export function Report({ id, name }) {
  const [found, setFound] = useState({ path: null, error: null });
  useEffect(() => {
    ask(`/runs/${id}/report.json`).then((told) => setFound({ path: told.report, error: null }), (error) => setFound({ path: null, error }));
  }, [id]);
  if (found.error) return html`<${ErrorBox} error=${found.error} />`;
  if (!found.path) return html`<p class="empty" role="status">${t("loading")}</p>`;
  return html`<div class="card framed"><p class="row"><a href=${found.path} target="_blank" rel="noopener">${t("report.alone")}</a></p>
    <iframe class="report" sandbox="allow-scripts" referrerpolicy="no-referrer" src=${found.path} title=${t("report.of", { name })}></iframe></div>`;
}

/** The settings of several runs: what differs first; of one run its recipe. */
export function Settings({ feed, runs }) {
  const all = runs.map((run) => useDetails(feed, run.id, "recipe").details?.settings);
  const [isWhole, setWhole] = useState(false);
  const rows = useMemo(() => {
    const keys = [...new Set(all.flatMap((one) => Object.keys(one || {})))];
    const known = all.filter(Boolean);
    return keys.map((key) => [key, all.map((one) => one?.[key]), new Set(known.map((one) => one[key])).size > 1]);
  }, all);
  if (!all.some(Boolean)) return html`<p class="empty">${t("settings.none")}</p>`;
  const differing = rows.filter(([, , differs]) => differs);
  const shown = runs.length > 1 && !isWhole ? differing : rows;
  return html`<section class="card">
    ${runs.length > 1 && html`<div class="row between"><h3>${t("settings.differ", { count: differing.length, of: rows.length })}</h3>
      <label class="check"><input type="checkbox" checked=${isWhole} onChange=${(event) => setWhole(event.target.checked)} /> ${t("settings.all")}</label></div>`}
    ${shown.length === 0 ? html`<p class="empty">${t("settings.same")}</p>` : html`<div class="scroll" tabindex="0" role="group" aria-label=${t("tab.settings")}><table class="settings">
      ${runs.length > 1 && html`<thead><tr><th scope="col">${t("settings.key")}</th>${runs.map((run, place) => html`<th scope="col" key=${run.id}><span class=${colourClass(place)}></span> <bdi>${run.name}</bdi></th>`)}</tr></thead>`}
      <tbody>${shown.map(([key, values, differs]) => html`<tr key=${key} class=${differs && isWhole ? "differs" : ""}><th scope="row"><bdi>${key}</bdi></th>${values.map((value, at) => html`<td key=${at}><bdi>${value ?? "–"}</bdi></td>`)}</tr>`)}</tbody>
    </table></div>`}
    ${runs.length === 1 && html`<${Recipe} feed=${feed} run=${runs[0]} />`}
  </section>`;
}

function Recipe({ feed, run }) {
  const { details } = useDetails(feed, run.id, "recipe");
  return details?.recipe_text ? html`<details><summary>recipe.yml (${short(details.recipe_text.length)})</summary><${Code} text=${details.recipe_text} label="recipe.yml" /></details>` : null;
}
