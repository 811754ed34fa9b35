// Watch: the runs below a folder, live. The address has which are chosen and how they are seen.

import { html, useEffect, useMemo, useRef, useState } from "../lib/preact.js";
import { Tabs } from "../parts.js";
import { linkTo, useLinked } from "../state.js";
import { t } from "../words.js";
import { Curves, isAxis, isZoom } from "./curves.js";
import { Feed, useFeed } from "./feed.js";
import { isOrder, MOST_CHOSEN, RunList, sortedRuns } from "./list.js";
import { Folder, Log, Plan, Report, Samples, Settings } from "./panels.js";
import { Heading } from "./run.js";
import { areKeys } from "./series.js";
import { duration } from "./show.js";

const TABS = ["curves", "settings", "samples", "plan", "log", "report"];
const PLACE = "watch";
const SIDE_BY_SIDE = 6; // runs whose samples are shown together

export default function WatchRoom({ route, language }) {
  const feed = useRef(null);
  feed.current ??= new Feed();
  useEffect(() => feed.current.open(), []);
  useFeed(feed.current);
  // A link that is followed shows what it says: the view is made anew.
  const visits = useRef({ route, number: 0 });
  if (visits.current.route !== route) visits.current = { route, number: visits.current.number + 1 };
  if (!feed.current.isLoaded) return html`<p class="empty" role="status">${t(feed.current.gone ? "unreachable" : "loading")}</p>`;
  return html`<${View} key=${visits.current.number} feed=${feed.current} route=${route} language=${language} />`;
}

const idsIn = (route) => [...new Set((route.parts[1] || "").split(","))].filter((id) => /^[0-9a-f]{16}$/.test(id)).slice(0, MOST_CHOSEN);

function View({ feed, route }) {
  const [wanted, setWanted] = useState(() => idsIn(route));
  const [x, setX] = useLinked(PLACE, "x", "step", isAxis);
  const [isLog, setLog] = useLinked(PLACE, "log", false);
  const [smoothing, setSmoothing] = useLinked(PLACE, "smooth", 0.6, (one) => one >= 0 && one < 1);
  const [zoom, setZoom] = useLinked(PLACE, "zoom", null, isZoom);
  const [more, setMore] = useLinked(PLACE, "more", [], areKeys);
  const [tab, setTab] = useLinked(PLACE, "tab", "curves", (one) => TABS.includes(one));
  const [at, setAt] = useLinked(PLACE, "at", null);
  const [one, setOne] = useLinked(PLACE, "run", null);
  const [order, setOrder] = useLinked(PLACE, "order", "news", isOrder);
  const [filter, setFilter] = useLinked(PLACE, "filter", "");

  const runs = sortedRuns(feed, order, filter);
  const other = feed.others.find((folder) => wanted.includes(folder.id));
  const known = wanted.filter((id) => feed.runs.has(id));
  const isLost = wanted.length > 0 && !known.length && !other;
  const first = useRef(null); // what is shown if nothing was chosen
  if (!feed.runs.has(first.current)) first.current = runs[0]?.id;
  const chosen = known.length || other || isLost || !first.current ? known : [first.current];
  const picked = useMemo(() => chosen.map((id) => feed.runs.get(id)), [chosen.join(), ...chosen.map((id) => feed.runs.get(id))]);

  const choose = (ids) => {
    setWanted(ids);
    setZoom(null);
    const values = { x, log: isLog, smooth: smoothing, more, tab, order, filter };
    const usual = { x: "step", log: false, smooth: 0.6, more: [], tab: "curves", order: "news", filter: "" };
    const told = Object.entries(values).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(usual[name]));
    history.pushState(null, "", linkTo(["watch", ids.join()], Object.fromEntries(told.map(([name, value]) => [name, JSON.stringify(value)]))));
  };
  useEffect(() => {
    document.title = `${picked.map((run) => run.name).join(", ").slice(0, 80) || t("room.watch")} · weft`;
  }, [picked]);

  return html`<div class="watch">
    ${feed.gone && html`<p class="error gone" role="alert">${t("gone", { age: duration((Date.now() - feed.gone) / 1000) })}</p>`}
    <${RunList} feed=${feed} runs=${runs} chosen=${other ? [other.id] : chosen} onChoose=${choose} order=${order} onOrder=${setOrder} filter=${filter} onFilter=${setFilter} />
    <div class="seen">
      ${isLost && html`<p class="error" role="alert">${t("runs.lost")}</p>`}
      ${other && html`<${Folder} key=${other.id} folder=${other} />`}
      ${!picked.length && !other && !isLost && html`<p class="empty card">${t("runs.start", { folder: feed.folder })}</p>`}
      ${picked.length > 0 &&
      html`<${Heading} feed=${feed} runs=${picked} />
        <${Tabs} tabs=${TABS.map((name) => [name, t(`tab.${name}`)])} chosen=${tab} onChoose=${setTab} label=${t("tabs")} />
        <${Panel} feed=${feed} runs=${picked} tab=${tab} one=${one} onOne=${setOne} at=${at} onAt=${setAt}
          view=${{ x, setX, isLog, setLog, smoothing, setSmoothing, zoom, setZoom, more, setMore }} />`}
    </div>
  </div>`;
}

function Panel({ feed, runs, tab, one, onOne, at, onAt, view }) {
  const run = runs.find((each) => each.id === one) || runs[0];
  const whole = runs.map((each) => each.id).join();
  if (tab === "settings") return html`<${Settings} key=${whole} feed=${feed} runs=${runs} />`;
  if (tab === "samples") {
    return html`<div class="stack">${runs.slice(0, SIDE_BY_SIDE).map((each, place) => html`<${Samples} key=${each.id} feed=${feed} run=${each} place=${place} at=${at} onAt=${onAt} />`)}
      ${runs.length > SIDE_BY_SIDE && html`<p class="hint">${t("samples.many", { count: SIDE_BY_SIDE })}</p>`}</div>`;
  }
  const single = { plan: Plan, log: Log }[tab];
  if (!single && tab !== "report") return html`<${Curves} feed=${feed} runs=${runs} view=${view} />`;
  return html`<div class="stack">
    ${runs.length > 1 &&
    html`<label class="which">${t("runs.which")}<select value=${run.id} onChange=${(event) => onOne(event.target.value)}>${runs.map((each) => html`<option key=${each.id} value=${each.id}>${each.name}</option>`)}</select></label>`}
    ${tab === "report"
      ? run.has_report
        ? html`<${Report} key=${run.id} id=${run.id} name=${run.name} />`
        : html`<p class="empty">${t("report.none")}</p>`
      : html`<${single} key=${run.id} feed=${feed} run=${run} />`}
  </div>`;
}
