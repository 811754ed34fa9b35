// How alike texts are, each with each: a table whose colours show the numbers.

import { html } from "../lib/preact.js";
import { TextField } from "../parts.js";
import { count, number, t } from "../words.js";
import { CUT } from "./row_runner.js";
import { pythonValue, weftCommand } from "./snippets.js";
import { short } from "./text.js";
import { Answer, Panel, Rough, useAnswer, useText } from "./work.js";

const MOST = 30; // texts: a request has their square

export default function Similarity({ model, place }) {
  const [list, setList] = useText(place, "texts", "similarity.example");
  const all = list.split("\n").map((one) => one.trim()).filter(Boolean);
  const texts = all.slice(0, MOST);
  const isTuned = model.task === "similarity";
  const request = {
    path: "/v1/tasks/similarity",
    body: { model: model.id, inputs: texts.map((one) => ({ source_sentence: one, sentences: texts })) },
    library: () => isTuned
      ? `texts = ${pythonValue(texts)}\nprint([[model.predict((one, other))["score"] for other in texts] for one in texts])`
      : `vectors = model.embed(${pythonValue(texts)})\nvectors /= (vectors**2).sum(1, keepdims=True) ** 0.5\nprint(vectors @ vectors.T)`,
    command: () => (isTuned && texts.length < 6 ? weftCommand("predict", texts.flatMap((one) => texts.flatMap((other) => [one, other]))) : null),
  };
  const asked = useAnswer(place, request);
  const rows = {
    inputs: ["text", "second"],
    request: (items) => ({
      path: request.path,
      body: { model: model.id, inputs: items.map((one) => ({ source_sentence: one.text, sentences: [one.second] })), ...CUT },
    }),
    answers: (answer) => answer.map(([score]) => score),
    columns: (score) => ({ score }),
  };
  return html`<${Panel} name="similarity" model=${model} place=${place} requests=${[request]} rows=${rows}>
    <${TextField} label=${t("input.texts")}
      help=${all.length > MOST ? t("similarity.most", { count: MOST, all: count(all.length) }) : t("perline")}
      rows=${6} value=${list} onChange=${setList} />
    <${Answer} asked=${asked} isReady=${texts.length > 1} missing=${t("perline")}>${({ body, answer }) => html`<${HeatMap}
      texts=${body.inputs[0].sentences} values=${answer} />
      <${Rough} model=${model} />`}<//>
  <//>`;
}

function HeatMap({ texts, values }) {
  const all = values.flat();
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const share = (value) => (most > least ? (value - least) / (most - least) : 0);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${t("similarity.title")}>
    <table class="heat">
      <caption>${t("similarity.range", { least: number(least), most: number(most) })}</caption>
      <thead><tr><td></td>${texts.map((one, place) => html`<th key=${place} scope="col"><span
        title=${short(one)}>${place + 1}</span><span
        class="visually-hidden"><bdi>${short(one, 80)}</bdi></span></th>`)}</tr></thead>
      <tbody>${texts.map(
        (one, row) => html`<tr key=${row}><th scope="row">${row + 1} <bdi>${short(one, 60)}</bdi></th>${values[row].map(
          (value, column) => html`<td key=${column}
            style=${{ "--share": `${Math.round(share(value) * 45)}%` }}>${value.toFixed(2)}</td>`,
        )}</tr>`,
      )}</tbody>
    </table>
  </div>`;
}
