// One chart: curves of several runs over each other, values at the pointer, zoom by dragging, a table for those who
// hear the page.

import { html, useEffect, useRef, useState } from "../lib/preact.js";
import uPlot from "../lib/uplot.js";
import { currentLanguage, t } from "../words.js";
import { forget, inItsOwnFrame } from "./frames.js";
import { gridOf, onGrid, smoothed } from "./series.js";
import { colourClass, colourOf, dashOf, keyTitle, onAxis, precise, short } from "./show.js";

const HEIGHT = 230;
const MOST_READ = 8; // runs whose values are shown at the pointer; of more, the nearest
const TABLE_ROWS = 12;
const NOISY = ["loss", "grad_norm", "tokens_per_second"];
const CROWD = 16; // runs
const LEAST_DRAG = 6; // pixels
let numbered = 0;

/** `runs`: the chosen, `entries`: their curves, `view`: {x, isLog, smoothing, range, first, last, width}. */
export function Chart({ name, runs, entries, view, count, theme, onZoom }) {
  const place = useRef(null);
  const readout = useRef(null);
  const plot = useRef(null);
  const [id] = useState(() => `chart${(numbered += 1)}`);
  const latest = useRef(null);
  latest.current = { name, runs, entries, view, onZoom };
  const [isTable, setTable] = useState(false);
  const isSeen = useRef(true);
  const structure = JSON.stringify([runs.map((run) => run.id), view.isLog, isSmoothed(name, view.smoothing), view.x, theme, currentLanguage()]);

  useEffect(() => {
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf(latest, place.current, readout), dataOf(latest.current), place.current);
    };
    inItsOwnFrame(id, draw);
    const sizes = new ResizeObserver(() => {
      const width = place.current?.clientWidth;
      if (plot.current && width && width !== plot.current.width) inItsOwnFrame(`${id} size`, () => plot.current?.setSize({ width, height: HEIGHT }));
    });
    sizes.observe(place.current);
    const sight = new IntersectionObserver(([one]) => {
      isSeen.current = one.isIntersecting;
      if (isSeen.current && plot.current) inItsOwnFrame(id, () => plot.current?.setData(dataOf(latest.current)));
    }, { rootMargin: "200px" });
    sight.observe(place.current);
    return () => {
      forget(id);
      sizes.disconnect();
      sight.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [structure]);

  // Out of sight, a curve is drawn when it comes, but need not follow its growth.
  const drawn = useRef(0);
  useEffect(() => {
    const isDue = isSeen.current || drawn.current !== entries.size;
    drawn.current = entries.size;
    if (plot.current && isDue) inItsOwnFrame(id, () => plot.current?.setData(dataOf(latest.current)));
  }, [count, view.first, view.last, view.width, view.smoothing, String(view.range)]);

  const pressed = (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
    if (move && plot.current) {
      event.preventDefault();
      moveCursor(plot.current, move);
    } else if (event.key === "Escape") onZoom(null);
  };
  const title = keyTitle(name);
  return html`<figure class="card chart">
    <figcaption><h3>${title}</h3><span class="readout" ref=${readout} aria-live="polite"></span></figcaption>
    <div class="plot" ref=${place} tabindex="0" role="group" aria-label=${t("chart.label", { title })} onKeyDown=${pressed}></div>
    <details onToggle=${(event) => setTable(event.target.open)}>
      <summary>${t("chart.table")}</summary>
      ${isTable && html`<${CurveTable} name=${name} runs=${runs} entries=${entries} view=${view} />`}
    </details>
  </figure>`;
}

/** Validations are few and rates have no noise: they are drawn as they are. */
const isSmoothed = (name, smoothing) => smoothing > 0 && NOISY.includes(name);

/** Dashes, thick lines and noise of very many runs would take long to draw and could not be told apart. */
const isCrowd = (runs) => runs.length > CROWD;
const hasNoise = (name, runs, view) => isSmoothed(name, view.smoothing) && !isCrowd(runs);

function dataOf({ name, runs, entries, view }) {
  const { first, last, width, isLog, smoothing } = view;
  const data = [gridOf(first, last, width)];
  for (const run of runs) {
    const entry = entries.get(run.id);
    const isSmooth = isSmoothed(name, smoothing);
    if (!isSmooth || hasNoise(name, runs, view)) data.push(onGrid(entry, name, first, last, isLog));
    if (isSmooth) data.push(smoothed(entry, name, first, last, smoothing, isLog));
  }
  return data;
}

function optionsOf(latest, element, readout) {
  const { name, runs, view } = latest.current;
  const style = getComputedStyle(document.documentElement);
  const [ink, line] = [style.getPropertyValue("--soft").trim(), style.getPropertyValue("--line").trim()];
  const grid = { stroke: line, width: 1 };
  const axis = { stroke: ink, grid, ticks: { ...grid, size: 4 }, font: "12px system-ui, sans-serif" };
  const series = [{}];
  runs.forEach((run, at) => {
    const plain = { stroke: colourOf(at), width: isCrowd(runs) ? 1 : 1.75, spanGaps: true };
    const curve = isCrowd(runs) ? { ...plain, points: { show: false } } : { ...plain, dash: dashOf(at), points: { show: hasFewPoints, size: 5 } };
    if (hasNoise(name, runs, view)) series.push({ ...plain, stroke: `${colourOf(at)}30`, width: 1, points: { show: false } });
    series.push(curve);
  });
  const isLog = view.isLog;
  return {
    width: element.clientWidth || 600,
    height: HEIGHT,
    padding: [8, 24, 0, 0],
    legend: { show: false },
    series,
    scales: {
      x: { time: false, range: () => rangeOf(latest.current.view) },
      y: { distr: isLog ? 3 : 1, range: isLog ? undefined : (_, low, high) => spaced(low, high) },
    },
    axes: [
      { ...axis, size: 34, space: 70, values: (_, places) => places.map((value) => onAxis(latest.current.view.x, value)) },
      { ...axis, size: 58, values: (_, places) => places.map((value) => (value === null ? "" : axisValue(value))) },
    ],
    cursor: {
      sync: { key: "watch", setSeries: false },
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 },
      y: false,
      bind: { dblclick: () => () => latest.current.onZoom(null) },
    },
    hooks: {
      setCursor: [(plot) => requestAnimationFrame(() => readout.current && tell(plot, latest.current, readout.current))],
      setSelect: [
        (plot) => {
          const { left, width } = plot.select;
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          if (width >= LEAST_DRAG) latest.current.onZoom([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
        },
      ],
    },
  };
}

function axisValue(value) {
  const size = Math.abs(value);
  if (size >= 10000) return short(value);
  return size !== 0 && size < 0.001 ? Number(value.toPrecision(3)).toExponential() : precise(value);
}

function rangeOf({ range, first, last, width }) {
  return range || [first * width, Math.max((last + 1) * width, first * width + 1e-9)];
}

function spaced(low, high) {
  if (low === null || high === null) return [0, 1];
  // Values that are equal but for rounding have no scale of their own.
  const isFlat = high - low <= Math.abs(high) * 1e-9;
  const room = isFlat ? Math.abs(high) * 0.1 || 1 : (high - low) * 0.06;
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}

function hasFewPoints(plot, place) {
  return plot.data[place].reduce((sum, value) => sum + (value !== null), 0) <= 60;
}

function moveCursor(plot, move) {
  const xs = plot.data[0];
  const at = Math.max(0, Math.min(xs.length - 1, (plot.cursor.idx ?? xs.length - 1) + 2 * move));
  plot.setCursor({ left: plot.valToPos(xs[at], "x"), top: plot.bbox.height / devicePixelRatio / 2 });
}

/** The last value at or before a place of the grid. */
function valueAt(values, at) {
  for (let place = at; place >= 0 && place > at - 400; place -= 1) if (values[place] !== null) return values[place];
  return null;
}

/** Shows the values at the pointer. */
function tell(plot, { name, runs, view }, element) {
  const at = plot.cursor.idx;
  element.replaceChildren();
  if (at === null || at === undefined || plot.cursor.left < 0) return;
  const each = hasNoise(name, runs, view) ? 2 : 1;
  let values = runs.map((run, place) => [valueAt(plot.data[each * place + each], at), run, place]).filter(([value]) => value !== null);
  if (values.length > MOST_READ) {
    const height = plot.posToVal(plot.cursor.top, "y");
    values = [values.reduce((best, one) => (Math.abs(one[0] - height) < Math.abs(best[0] - height) ? one : best))];
  }
  element.append(`${t(`axis.${view.x}`)} ${onAxis(view.x, plot.data[0][at])}`);
  for (const [value, run, place] of values) {
    const mark = document.createElement("span");
    mark.className = colourClass(place);
    element.append(" ", mark, ` ${values.length === 1 && runs.length > 1 ? `${run.name} ` : ""}${precise(value)}`);
  }
}

function CurveTable({ name, runs, entries, view }) {
  const places = view.last - view.first;
  const rows = [...new Set(Array.from({ length: TABLE_ROWS }, (_, at) => view.first + Math.round((at * places) / (TABLE_ROWS - 1))))];
  const means = (run) => {
    const entry = entries.get(run.id);
    return (at) => {
      const found = entry?.series[name]?.mean || [];
      for (let place = at - (entry?.first ?? 0); place >= 0; place -= 1) if (found[place] != null) return found[place];
      return null;
    };
  };
  const columns = runs.map(means);
  return html`<div class="scroll" tabindex="0" role="group" aria-label=${keyTitle(name)}><table>
    <thead><tr><th scope="col">${t(`axis.${view.x}`)}</th>${runs.map((run) => html`<th scope="col" key=${run.id}><bdi>${run.name}</bdi></th>`)}</tr></thead>
    <tbody>${rows.map(
      (at) => html`<tr key=${at}><th scope="row">${onAxis(view.x, (at + 1) * view.width)}</th>${columns.map((value) => html`<td>${precise(value(at))}</td>`)}</tr>`,
    )}</tbody>
  </table></div>`;
}
