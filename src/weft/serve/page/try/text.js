// Texts of users and models: always text nodes, isolated from our words, and never more than a page can show.

import { html } from "../lib/preact.js";
import { count, t } from "../words.js";

export const MOST_SHOWN = 20_000; // characters

/** Half a surrogate pair is never left at the end. */
export function cutText(text, most) {
  if (text.length <= most) return text;
  const isHalf = text.codePointAt(most - 1) > 0xffff;
  return text.slice(0, isHalf ? most - 1 : most);
}

/** The beginning of a text in a line. */
export function short(text, most = 200) {
  return text.length > most ? `${cutText(text, most)}…` : text;
}

export function Shown({ text, most = MOST_SHOWN }) {
  const cut = cutText(String(text), most);
  return html`<bdi>${cut}</bdi><${Hidden} count=${String(text).length - cut.length} />`;
}

export function Hidden({ count: hidden }) {
  return hidden > 0 ? html` <span class="hint">${t("hidden", { count: count(hidden) })}</span>` : null;
}

/** Places in a JavaScript string of places in code points, which the service counts in. */
export function unitPlaces(text, places) {
  const found = new Map();
  let unit = 0;
  let point = 0;
  for (const place of [...new Set(places)].sort((a, b) => a - b)) {
    while (point < place && unit < text.length) {
      unit += text.codePointAt(unit) > 0xffff ? 2 : 1;
      point += 1;
    }
    found.set(place, unit);
  }
  return found;
}

/** Each label's number for its colour, in the order in which labels come. */
export function tonesOf(labels) {
  return new Map([...new Set(labels)].map((label, number) => [label, (number % 6) + 1]));
}

/** A text with marked parts. `spans`: {start, end, label, tone, note}, in code points; they may touch and overlap. */
export function MarkedText({ text, spans }) {
  const places = unitPlaces(text, spans.flatMap(({ start, end }) => [start, end]));
  const marks = spans
    .map((one) => ({ ...one, start: places.get(one.start), end: places.get(one.end) }))
    .filter((one) => one.end > one.start)
    .sort((a, b) => a.start - b.start || b.end - a.end);
  // Of a long text, the part around the first mark.
  const begin = Math.max(0, Math.min((marks[0]?.start ?? 0) - MOST_SHOWN / 2, text.length - MOST_SHOWN));
  const end = Math.min(text.length, begin + MOST_SHOWN);
  const edges = new Set([begin, end]);
  for (const mark of marks) for (const edge of [mark.start, mark.end]) if (edge > begin && edge < end) edges.add(edge);
  const sorted = [...edges].sort((a, b) => a - b);
  const open = [];
  let next = 0;
  const parts = sorted.slice(0, -1).map((from, number) => {
    const to = sorted[number + 1];
    while (next < marks.length && marks[next].start <= from) open.push(marks[next++]);
    for (let place = open.length - 1; place >= 0; place -= 1) if (open[place].end <= from) open.splice(place, 1);
    const part = text.slice(from, to);
    const inner = open[open.length - 1];
    if (!inner) return part;
    const ending = open.filter((one) => one.end === to && one.label);
    return html`<mark key=${from} class=${`m${inner.tone || 1}`} title=${inner.note}><bdi>${part}</bdi>${ending.map(
      (one) => html`<span class="tag"><bdi>${short(one.label, 40)}</bdi></span>`,
    )}</mark>`;
  });
  return html`<p class="text marked">${begin > 0 && html`<${Hidden} count=${begin} /> `}${parts}<${Hidden}
    count=${text.length - end} /></p>`;
}
