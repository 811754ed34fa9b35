// The labels of a text, with the probability of each.

import { html } from "../lib/preact.js";
import { NumberField, TextField } from "../parts.js";
import { useLinked } from "../state.js";
import { t } from "../words.js";
import { CUT, textRows } from "./row_runner.js";
import { pythonValue, weftCommand } from "./snippets.js";
import { short } from "./text.js";
import { Answer, Bars, Panel, useAnswer, useText } from "./work.js";

export default function Classify({ model, place }) {
  const [text, setText] = useText(place, "text", "classify.example");
  const own = taskOption(model, "classify");
  const request = {
    path: "/v1/tasks/classify",
    body: { model: model.id, inputs: text },
    library: () => `print(model.predict(${pythonValue(text)}, details=True${own.python}))`,
    command: () => weftCommand("predict", [text], `--details${own.shell}`),
  };
  return html`<${LabelPanel} name="classify" model=${model} place=${place} request=${request}
    rows=${textRows({ ...request, body: { ...request.body, ...CUT } }, labelColumns(model))} isReady=${text !== ""}>
    <${TextField} label=${t("input.text")} value=${text} onChange=${setText} />
  <//>`;
}

/** Fields (`children`), and bars of all labels. A model that gives several has one threshold, or one for each. */
export function LabelPanel({ name, model, place, request, rows, isReady, children }) {
  const asked = useAnswer(place, request);
  const [threshold, setThreshold] = useLinked(place, "threshold", hasOwn(model) ? null : model.threshold);
  const isSeveral = model.threshold !== null && model.task === name;
  return html`<${Panel} name=${name} model=${model} place=${place} requests=${[request]} rows=${rows}>
    ${children}
    ${isSeveral && html`<div class="fields"><${NumberField} label=${t("threshold")} help=${t("threshold.help")}
      value=${threshold} min=${0} max=${1} step=${0.05} onChange=${setThreshold} /></div>`}
    <${Answer} asked=${asked} isReady=${isReady}>${({ answer }) => {
      const isAbove = (one) => one.score > (threshold ?? thresholdOf(model, one.label));
      const chosen = isSeveral ? answer[0].filter(isAbove) : answer[0].slice(0, 1);
      return html`<p class="verdict">${chosen.length ? chosen.map((one) => html`<bdi key=${one.label}
        class="chip">${short(one.label)}</bdi> `) : t("nolabel")}</p>
        <${Bars} items=${answer[0]} title=${t("labels")} isChosen=${(one) => chosen.includes(one)} />`;
    }}<//>
  <//>`;
}

const hasOwn = (model) => Object.keys(model.thresholds ?? {}).length > 0;
const thresholdOf = (model, label) => model.thresholds?.[label] ?? model.threshold;

/** The label of a row; several with a threshold. */
export const labelColumns = (model) => (labels) =>
  model.threshold === null
    ? { label: labels[0].label, score: labels[0].score }
    : { labels: labels.filter((one) => one.score > thresholdOf(model, one.label)).map((one) => one.label).join("; ") };

/** A task that the model was not tuned for has to be named. */
export function taskOption(model, task) {
  return model.task === task ? { python: "", shell: "" } : { python: `, task="${task}"`, shell: ` --task ${task}` };
}
