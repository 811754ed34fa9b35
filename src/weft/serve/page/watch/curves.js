// The curves of the chosen runs: what is on the axes, how smooth, which part.

import { html, useEffect, useMemo, useRef, useState } from "../lib/preact.js";
import { ErrorBox } from "../parts.js";
import { t } from "../words.js";
import { Chart } from "./chart.js";
import { bucketWidth, CurveStore, otherKeys } from "./series.js";
import { keyTitle, onAxis, percent, useTheme } from "./show.js";

const USUAL = ["loss", "validation_loss", "grad_norm", "lr", "tokens_per_second", "share_of_peak"];
const POINTS = 500; // buckets of a chart
const FEW = 8; // runs; of more, each has fewer points
const [NARROWEST, FARTHEST] = [1e-6, 1e15]; // bucket, end: the service takes no others
const AXES = ["step", "tokens", "seconds"]; // figures of a run's summary

export const isAxis = (x) => AXES.includes(x);
export const isZoom = (range) => range === null || (Array.isArray(range) && range.length === 2 && range.every((at) => at >= 0 && at <= FARTHEST && Number.isFinite(at)));

export function Curves({ feed, runs, view }) {
  const { x, setX, isLog, setLog, smoothing, setSmoothing, zoom, setZoom, more, setMore } = view;
  const [count, setCount] = useState(0);
  const theme = useTheme();
  const store = useRef(null);
  store.current ??= new CurveStore(feed, () => setCount((before) => before + 1));
  const ids = runs.map((run) => run.id);
  const keys = useMemo(() => [...USUAL, ...more], [more]);
  const end = Math.min(FARTHEST, Math.max(0, ...runs.map((run) => run[x] || 0)));
  const range = zoom && zoom[1] > zoom[0] ? zoom : null;
  const points = runs.length > FEW ? POINTS / 2 : POINTS;
  const width = Math.max(NARROWEST, bucketWidth(range ? range[1] - range[0] : end, points, x === "step"));
  const first = range ? Math.max(0, Math.floor(range[0] / width)) : 0;
  const last = Math.max(first, Math.ceil((range ? Math.min(range[1], end) : end) / width) - 1);

  useEffect(() => store.current.show({ ids, x, keys, width, range }), [ids.join(), x, keys, width, String(range)]);
  useEffect(() => feed.listen(() => store.current.refresh()), [feed]);
  useEffect(() => () => store.current.close(), []);

  const { entries } = store.current;
  const shown = { x, isLog, smoothing, range, first, last, width };
  const charts = keys.filter((key) => USUAL.slice(0, 2).includes(key) || hasSome(entries, key));
  const wait = [...entries.values()].reduce((least, one) => Math.min(least, one.read), 1);
  return html`<div class="stack">
    <${Axes} ...${{ x, isLog, setLog, smoothing, setSmoothing, range, end, setZoom, more, setMore, entries }} setX=${(next) => { setZoom(null); setX(next); }} />
    <${ErrorBox} error=${store.current.error} />
    ${(wait < 1 || entries.size < runs.length) && html`<p class="hint reading" role="status">${t("curves.reading", { share: percent(entries.size < runs.length ? entries.size / runs.length : wait) })}</p>`}
    ${runs.every((run) => run.step == null) && html`<p class="hint" role="status">${t("curves.none")}</p>`}
    <${Notes} runs=${runs} entries=${entries} />
    <div class="charts">${charts.map(
      (key) => html`<${Chart} key=${key} name=${key} runs=${runs} entries=${entries} view=${shown} count=${count} theme=${theme} onZoom=${setZoom} />`,
    )}</div>
  </div>`;
}

const hasSome = (entries, key) => [...entries.values()].some((entry) => entry.series[key]?.mean.length);

/** What was left out, and why. */
function Notes({ runs, entries }) {
  const said = runs.flatMap((run) => {
    const entry = entries.get(run.id);
    if (!entry) return [];
    return [entry.bad > 0 && t("curves.bad", { name: run.name, count: entry.bad }), entry.thinned && t("curves.thinned", { name: run.name })].filter(Boolean);
  });
  return said.length > 0 && html`<div class="hint small">${said.map((one) => html`<p key=${one}><bdi>${one}</bdi></p>`)}</div>`;
}

function Axes({ x, setX, isLog, setLog, smoothing, setSmoothing, range, end, setZoom, more, setMore, entries }) {
  const whole = range || [0, end];
  const zoomBy = (factor, shift) => {
    const size = (whole[1] - whole[0]) * factor;
    const from = Math.max(0, Math.min(end - size, (whole[0] + whole[1] - size) / 2 + shift * size));
    const next = [from, Math.min(end, from + size)];
    setZoom(next[0] <= 0 && next[1] >= end ? null : next);
  };
  const offered = otherKeys(entries, USUAL, more);
  return html`<div class="card axes" role="group" aria-label=${t("axes.title")}>
    <label>${t("axes.x")}<select value=${x} onChange=${(event) => setX(event.target.value)}>
      ${AXES.map((one) => html`<option key=${one} value=${one}>${t(`axis.${one}`)}</option>`)}
    </select></label>
    <label>${t("axes.smoothing")}<input type="range" min="0" max="0.98" step="0.02" value=${smoothing} onInput=${(event) => setSmoothing(Number(event.target.value))} /></label>
    <label class="check"><input type="checkbox" checked=${isLog} onChange=${(event) => setLog(event.target.checked)} /> ${t("axes.log")}</label>
    ${(offered.length > 0 || more.length > 0) &&
    html`<label>${t("axes.more")}<select value="" onChange=${(event) => setMore(event.target.value === "-" ? [] : [...more, event.target.value])}>
      <option value="">${t("axes.add")}</option>
      ${offered.map((key) => html`<option key=${key} value=${key}>${keyTitle(key)}</option>`)}
      ${more.length > 0 && html`<option value="-">${t("axes.fewer")}</option>`}
    </select></label>`}
    <div class="zoom" role="group" aria-label=${t("zoom.title")}>
      <button type="button" onClick=${() => zoomBy(0.5, 0)} aria-label=${t("zoom.in")}>+</button>
      <button type="button" onClick=${() => zoomBy(2, 0)} disabled=${!range} aria-label=${t("zoom.out")}>−</button>
      <button type="button" onClick=${() => zoomBy(1, -0.5)} disabled=${!range} aria-label=${t("zoom.left")}>‹</button>
      <button type="button" onClick=${() => zoomBy(1, 0.5)} disabled=${!range} aria-label=${t("zoom.right")}>›</button>
      ${range && html`<button type="button" class="quiet" onClick=${() => setZoom(null)}>${t("zoom.all")}</button>`}
      <small>${range ? `${onAxis(x, range[0])} – ${onAxis(x, range[1])}` : t("zoom.drag")}</small>
    </div>
  </div>`;
}
