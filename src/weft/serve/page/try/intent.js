// A command as fields: what is wanted, and the values in it.

import { html } from "../lib/preact.js";
import { TextField } from "../parts.js";
import { t } from "../words.js";
import { textRows } from "./row_runner.js";
import { pythonValue, weftCommand } from "./snippets.js";
import { Found } from "./tag.js";
import { MarkedText, short, tonesOf } from "./text.js";
import { Answer, Bars, Panel, percent, useAnswer, useText } from "./work.js";

export default function Intent({ model, place }) {
  const [text, setText] = useText(place, "text", "intent.example");
  const request = {
    path: "/v1/tasks/intent",
    body: { model: model.id, inputs: text, parameters: { top_k: 20 } },
    library: () => `print(model.predict(${pythonValue(text)}))`,
    command: () => weftCommand("predict", [text]),
  };
  const asked = useAnswer(place, request);
  const rows = textRows(request, ({ intent, score, slots }) => ({
    intent, score, slots: slotsOf(slots).map((one) => `${one.kind}=${one.word}`).join("; "),
  }));
  return html`<${Panel} name="intent" model=${model} place=${place} requests=${[request]} rows=${rows}>
    <${TextField} label=${t("input.command")} value=${text} onChange=${setText} rows=${2} />
    <${Answer} asked=${asked} isReady=${text !== ""}>${({ body, answer }) => html`<${Command} text=${body.inputs}
      answer=${answer} />`}<//>
  <//>`;
}

function slotsOf(slots) {
  return Object.entries(slots).flatMap(([kind, all]) => all.map((one) => ({ ...one, kind }))).sort((a, b) => a.start - b.start);
}

function Command({ text, answer }) {
  const slots = slotsOf(answer.slots);
  const tones = tonesOf(slots.map((one) => one.kind));
  const toned = slots.map((one) => ({ ...one, tone: tones.get(one.kind) }));
  const spans = toned.map((one) => ({ ...one, label: one.kind, note: `${one.kind} ${percent(one.score)}` }));
  return html`<p class="verdict"><bdi class="chip">${short(answer.intent)}</bdi></p>
    <${MarkedText} text=${text} spans=${spans} />
    ${slots.length > 0 ? html`<${Found} items=${toned} />` : html`<p class="hint">${t("intent.noslots")}</p>`}
    <h3>${t("intent.all")}</h3>
    <${Bars} items=${answer.intents} title=${t("intent.all")} isChosen=${(one) => one.label === answer.intent} />`;
}
