// The chosen runs in figures: one large, several as a table. Stop and resume, if the service allows it.

import { ask } from "../api.js";
import { html, useRef, useState } from "../lib/preact.js";
import { ErrorBox } from "../parts.js";
import { count, t } from "../words.js";
import { useDetails } from "./feed.js";
import { colourClass, duration, percent, precise, shareDone, short, stateOf, stateText } from "./show.js";

const LIVELY = ["running", "stale"]; // states with a time that changes: not to be read aloud again and again

export function Heading({ feed, runs }) {
  return runs.length === 1 ? html`<${OneRun} feed=${feed} run=${runs[0]} />` : html`<${SeveralRuns} feed=${feed} runs=${runs} />`;
}

function OneRun({ feed, run }) {
  const done = shareDone(run);
  const kind = [t(`stage.${run.stage}`), run.task, run.family, run.size, run.parameters && t("run.parameters", { count: short(run.parameters) })];
  const figures = [
    [run.steps ? "tile.steps" : "tile.step", count(run.step)],
    ["tile.loss", run.loss_text || precise(run.loss)],
    ["tile.validation", precise(run.validation_loss)],
    ["tile.speed", short(run.tokens_per_second)],
    ["tile.share", percent(run.share_of_peak)],
    ["tile.time", duration(run.seconds)],
    ["tile.left", run.state === "running" ? duration(run.seconds_left ?? NaN) : "–"],
  ].filter(([, value]) => value !== "–");
  return html`<section class="card run-head">
    <header>
      <div><h2><bdi>${run.name}</bdi></h2><p class="hint">${kind.filter(Boolean).join(" · ")}</p></div>
      <p class="state" role=${LIVELY.includes(stateOf(run)) ? undefined : "status"}><span class=${`dot ${stateOf(run)}`}></span>${stateText(run, feed.now)}</p>
      ${feed.control && html`<${Control} key=${run.id} feed=${feed} run=${run} />`}
    </header>
    ${done !== null && html`<div class="done wide" role="progressbar" aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round(100 * done)} aria-label=${t("run.progress")}><span style=${{ width: `${100 * done}%` }}></span></div>`}
    ${figures.length > 0 && html`<div class="tiles">${figures.map(([key, value]) => html`<div class="tile" key=${key}><b>${value}</b><span>${t(key, { steps: count(run.steps) })}</span></div>`)}</div>`}
    ${run.updated && html`<p class="hint small">${t("run.updated", { age: duration(feed.now - run.updated) })}${run.holder && ` · ${t("run.holder", { process: run.holder.process, host: run.holder.host })}`}</p>`}
    ${(run.problem || run.resume_failure) && html`<p class="error"><bdi>${run.problem || run.resume_failure}</bdi></p>`}
  </section>`;
}

function SeveralRuns({ feed, runs }) {
  const columns = ["tile.step", "tile.loss", "tile.validation", "tile.speed", "tile.share", "tile.time"];
  const row = (run) => [`${short(run.step)}${run.steps ? ` / ${short(run.steps)}` : ""}`, run.loss_text || precise(run.loss), precise(run.validation_loss), short(run.tokens_per_second), percent(run.share_of_peak), duration(run.seconds)];
  return html`<section class="card run-head"><div class="scroll legend" tabindex="0" role="group" aria-label=${t("runs.chosen")}><table>
    <thead><tr><th scope="col">${t("runs.chosen")}</th><th scope="col">${t("run.state")}</th>${columns.map((key) => html`<th scope="col" class="figure" key=${key}>${t(key)}</th>`)}</tr></thead>
    <tbody>${runs.map(
      (run, place) => html`<tr key=${run.id}>
        <th scope="row"><span class=${colourClass(place)}></span> <bdi>${run.name}</bdi></th>
        <td><span class=${`dot ${stateOf(run)}`}></span>${stateText(run, feed.now)}</td>
        ${row(run).map((value, at) => html`<td class="figure" key=${at}>${value}</td>`)}
      </tr>`,
    )}</tbody>
  </table></div>${runs.length <= FEW && html`<${Unlike} key=${runs.map((run) => run.id).join()} feed=${feed} runs=${runs} />`}</section>`;
}

const FEW = 8; // runs whose settings are read at once
const OF_LOSS = /^(tokenizer|corpus|finetune\.(data|task))\b|objective$/;

/** A loss per token cannot be compared with that of other tokens, texts or objectives. */
function Unlike({ feed, runs }) {
  const all = runs.map((run) => useDetails(feed, run.id, "recipe").details?.settings).filter(Boolean);
  const kinds = all.map((one) => Object.keys(one).filter((key) => OF_LOSS.test(key)).map((key) => key + one[key]).sort().join());
  return new Set(kinds).size > 1 && html`<p class="hint small">${t("runs.unlike")}</p>`;
}

function Control({ feed, run }) {
  const dialog = useRef(null);
  const [state, setState] = useState({ isBusy: false, error: null });
  const [asks, setAsks] = useState("stop");
  const way = run.is_seed || run.state === "finished" ? null : run.state === "running" ? "stop" : "resume";
  const isBusy = Boolean(state.isBusy || run.stopping || run.starting);
  const open = () => {
    if (isBusy) return;
    setAsks(way);
    setState({ isBusy: false, error: null });
    dialog.current.showModal();
  };
  const act = async () => {
    dialog.current.close();
    setState({ isBusy: true, error: null });
    try {
      await ask(`/runs/${run.id}/${asks}`, {});
      setState({ isBusy: false, error: null });
    } catch (error) {
      setState({ isBusy: false, error });
    }
    feed.hurry();
  };
  return html`<div class="control">
    ${/* The same button throughout, and never disabled: it would lose the focus. */ ""}
    ${way && html`<button type="button" class=${way === "stop" ? "danger" : ""} aria-disabled=${isBusy} onClick=${open}>${t(`control.${way}`)}</button>`}
    <${ErrorBox} error=${state.error} />
    <dialog ref=${dialog} aria-label=${t(`control.${asks}`)}>
      <h3>${t(`control.${asks}`)}: <bdi>${run.name}</bdi></h3>
      <p>${t(`control.${asks}.what`)}</p>
      <div class="row">
        <button type="button" class=${asks === "stop" ? "danger" : "primary"} onClick=${act}>${t(`control.${asks}`)}</button>
        <button type="button" onClick=${() => dialog.current.close()}>${t("control.cancel")}</button>
      </div>
    </dialog>
  </div>`;
}
