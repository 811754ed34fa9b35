// Names and other parts of a text, coloured where they stand.

import { html } from "../lib/preact.js";
import { TextField } from "../parts.js";
import { t } from "../words.js";
import { taskOption } from "./classify.js";
import { textRows } from "./row_runner.js";
import { pythonValue, weftCommand } from "./snippets.js";
import { MarkedText, short, tonesOf } from "./text.js";
import { Answer, Panel, percent, useAnswer, useText } from "./work.js";

const MOST_LISTED = 100;

export default function Tag({ model, place }) {
  const [text, setText] = useText(place, "text", "tag.example");
  const own = taskOption(model, "tag");
  const request = {
    path: "/v1/tasks/tag",
    body: { model: model.id, inputs: text },
    library: () => `print(model.predict(${pythonValue(text)}${own.python}))`,
    command: () => weftCommand("predict", [text], own.shell.trim()),
  };
  const asked = useAnswer(place, request);
  const rows = textRows(request, (found) => ({ entities: found.map((one) => `${one.word} (${kindOf(one)})`).join("; ") }));
  return html`<${Panel} name="tag" model=${model} place=${place} requests=${[request]} rows=${rows}>
    <${TextField} label=${t("input.text")} value=${text} onChange=${setText} rows=${4} />
    <${Answer} asked=${asked} isReady=${text !== ""}>${({ body, answer }) => html`<${Tagged} text=${body.inputs}
      found=${answer} />`}<//>
  <//>`;
}

const kindOf = (one) => one.entity_group ?? one.entity;

function Tagged({ text, found }) {
  const tones = tonesOf(found.map(kindOf));
  if (!found.length) return html`<${MarkedText} text=${text} spans=${[]} /><p class="hint">${t("tag.none")}</p>`;
  const spans = found.map((one) => ({
    start: one.start, end: one.end, label: kindOf(one), tone: tones.get(kindOf(one)), note: `${kindOf(one)} ${percent(one.score)}`,
  }));
  return html`<${MarkedText} text=${text} spans=${spans} />
    <p class="legend">${[...tones].map(
      ([kind, tone]) => html`<span key=${kind}><mark
        class=${`m${tone}`}><bdi>${short(kind, 60)}</bdi></mark> ${found.filter((one) => kindOf(one) === kind).length}</span> `,
    )}</p>
    <${Found}
      items=${found.map((one) => ({ kind: kindOf(one), word: one.word, score: one.score, tone: tones.get(kindOf(one)) }))} />`;
}

/** What was found, as a table. */
export function Found({ items }) {
  const shown = items.slice(0, MOST_LISTED);
  return html`<div class="scroll"><table class="found">
      <thead><tr><th scope="col">${t("found.word")}</th><th scope="col">${t("found.kind")}</th><th scope="col" class="right">${t("found.score")}</th></tr></thead>
      <tbody>${shown.map(
        (one, place) => html`<tr key=${place}><td><bdi>${short(one.word, 120)}</bdi></td><td><mark
          class=${`m${one.tone}`}><bdi>${short(one.kind, 60)}</bdi></mark></td>
          <td class="right">${percent(one.score)}</td></tr>`,
      )}</tbody>
    </table></div>
    ${items.length > shown.length && html`<p class="hint">${t("rows.first", { count: shown.length })}</p>`}`;
}
