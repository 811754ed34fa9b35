// The runs: what each is doing, to choose one or to lay several over each other; and the other folders that were found.

import { html, useMemo } from "../lib/preact.js";
import { linkTo } from "../state.js";
import { t } from "../words.js";
import { colourClass, precise, shareDone, short, stateOf, stateText } from "./show.js";

const MOST_SHOWN = 300;
export const MOST_CHOSEN = 50;
const [WIDE, HIGH] = [84, 26]; // of a small curve

// Runs that are running keep their places: they all have news all the time.
const ORDERS = {
  news: (a, b) => (b.state === "running") - (a.state === "running") || (a.state === "running" ? ORDERS.name(a, b) : (b.updated || 0) - (a.updated || 0)),
  name: (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }),
  loss: (a, b) => (a.validation_loss ?? a.loss ?? Infinity) - (b.validation_loss ?? b.loss ?? Infinity),
};

export const isOrder = (order) => Object.hasOwn(ORDERS, order);

export function sortedRuns(feed, order, filter) {
  const wanted = filter.trim().toLowerCase();
  const runs = [...feed.runs.values()].filter((run) => !wanted || textOf(run).includes(wanted));
  return runs.sort(ORDERS[order]);
}

const textOf = (run) => [run.name, run.recipe, run.family, run.task, t(`state.${stateOf(run)}`)].join(" ").toLowerCase();

export function RunList({ feed, runs, chosen, onChoose, order, onOrder, filter, onFilter }) {
  const others = useMemo(() => feed.others.filter((one) => !one.inside), [feed.others]);
  const toggle = (id) => onChoose(chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id].slice(0, MOST_CHOSEN));
  return html`<section class="card runs" aria-label=${t("runs.title")}>
    <div class="runs-head">
      <h2>${t("runs.title")}</h2><small>${runs.length} / ${feed.runs.size}</small>
      <input type="search" aria-label=${t("runs.filter")} placeholder=${t("runs.filter")} value=${filter} onInput=${(event) => onFilter(event.target.value)} />
      <select aria-label=${t("runs.order")} value=${order} onChange=${(event) => onOrder(event.target.value)}>
        ${Object.keys(ORDERS).map((one) => html`<option key=${one} value=${one}>${t(`order.${one}`)}</option>`)}
      </select>
    </div>
    ${feed.runs.size > 1 && chosen.length < 2 && html`<p class="hint small">${t("runs.tick")}</p>`}
    <ul class="list run-list">${runs.slice(0, MOST_SHOWN).map(
      (run) => html`<${RunRow} key=${run.id} run=${run} now=${feed.now} place=${chosen.indexOf(run.id)} onToggle=${toggle} onOnly=${(id) => onChoose([id])} />`,
    )}</ul>
    ${runs.length > MOST_SHOWN && html`<p class="hint">${t("runs.more", { count: runs.length - MOST_SHOWN })}</p>`}
    ${runs.length === 0 && html`<p class="hint">${t(feed.runs.size ? "runs.nomatch" : "runs.none")}</p>`}
    ${others.length > 0 &&
    html`<details><summary>${t("others.title", { count: others.length })}</summary>
      <ul class="list">${others.slice(0, MOST_SHOWN).map(
        (one) => html`<li key=${one.id}><a href=${linkTo(["watch", one.id])} aria-current=${chosen.includes(one.id) ? "true" : undefined}><bdi>${one.name}</bdi><small>${t(`kind.${one.kind}`)}</small></a></li>`,
      )}</ul>
    </details>`}
    ${(feed.problems.length > 0 || feed.isCut) &&
    html`<div class="hint small">${feed.isCut && html`<p>${t("runs.cut")}</p>`}${feed.problems.map((one) => html`<p key=${one}><bdi>${one}</bdi></p>`)}</div>`}
  </section>`;
}

function RunRow({ run, now, place, onToggle, onOnly }) {
  const isChosen = place >= 0;
  const done = shareDone(run);
  const only = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a new tab
    event.preventDefault();
    onOnly(run.id);
  };
  return html`<li class=${isChosen ? "run-row chosen" : "run-row"}>
    <label class="tick"><input type="checkbox" checked=${isChosen} aria-label=${t("runs.compare", { name: run.name })} onChange=${() => onToggle(run.id)} />
      <span class=${isChosen ? colourClass(place) : ""}></span></label>
    <a href=${linkTo(["watch", run.id])} onClick=${only} aria-current=${isChosen ? "true" : undefined}>
      <span class="run-name"><bdi>${run.name}</bdi></span>
      <${Shape} points=${run.shape} />
      <small class="run-state"><span class=${`dot ${stateOf(run)}`}></span>${stateText(run, now)}</small>
      <small class="run-loss">${run.loss_text || precise(run.validation_loss ?? run.loss)}</small>
      ${done !== null && done < 1 && html`<span class="done"><span style=${{ width: `${100 * done}%` }}></span></span><span class="visually-hidden">${t("runs.steps", { step: short(run.step), steps: short(run.steps) })}</span>`}
    </a>
  </li>`;
}

/** The loss so far, small. */
function Shape({ points }) {
  const path = useMemo(() => {
    if (points.length < 2) return "";
    const [from, to] = [points[0][0], points[points.length - 1][0]];
    const values = points.map(([, value]) => Math.log(Math.max(value, 1e-9)));
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return points
      .map(([step], at) => {
        const x = ((step - from) / (to - from || 1)) * WIDE;
        const y = 2 + (1 - (values[at] - low) / (high - low || 1)) * (HIGH - 4);
        return `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
      })
      .join("");
  }, [points]);
  return html`<svg class="shape" viewBox=${`0 0 ${WIDE} ${HIGH}`} aria-hidden="true"><path d=${path} /></svg>`;
}
