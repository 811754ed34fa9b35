// The part of a text that answers a question, marked where it stands.

import { html, useState } from "../lib/preact.js";
import { TextField } from "../parts.js";
import { t } from "../words.js";
import { taskOption } from "./classify.js";
import { pythonValue, weftCommand } from "./snippets.js";
import { MarkedText, short } from "./text.js";
import { Answer, Bars, Panel, useAnswer, useText } from "./work.js";

export default function AnswerPanel({ model, place }) {
  const [question, setQuestion] = useText(place, "question", "answer.example");
  const [context, setContext] = useText(place, "context", "answer.example2");
  const own = taskOption(model, "answer");
  const request = {
    path: "/v1/tasks/answer",
    body: { model: model.id, inputs: { question, context }, parameters: { top_k: 5 } },
    library: () => `print(model.predict((${pythonValue(question)}, ${pythonValue(context)}), details=True${own.python}))`,
    command: () => weftCommand("predict", [question, context], `--details${own.shell}`),
  };
  const asked = useAnswer(place, request);
  const rows = {
    inputs: ["question", "context"],
    request: (items) => ({ path: request.path, body: { model: model.id, inputs: items } }),
    columns: ({ answer, score, start, end }) => ({ answer, score, start, end }),
  };
  return html`<${Panel} name="answer" model=${model} place=${place} requests=${[request]} rows=${rows}>
    <${TextField} label=${t("input.question")} value=${question} onChange=${setQuestion} rows=${1} />
    <${TextField} label=${t("input.context")} value=${context} onChange=${setContext} rows=${6} />
    <${Answer} asked=${asked} isReady=${question !== "" && context !== ""}>${(found) => html`<${Answers}
      key=${found.body.inputs.question} ...${found} />`}<//>
  <//>`;
}

function Answers({ body, answer }) {
  const [chosen, setChosen] = useState(0);
  const answers = Array.isArray(answer) ? answer : [answer];
  const one = answers[Math.min(chosen, answers.length - 1)];
  const shown = answers.map((each, number) => ({ ...each, number, label: each.answer || t("answer.none") }));
  return html`<p class="verdict"><bdi class="chip">${short(one.answer || t("answer.none"))}</bdi></p>
    <${MarkedText} text=${body.inputs.context} spans=${one.answer ? [{ start: one.start, end: one.end, tone: 1 }] : []} />
    <h3>${t("answer.others")}</h3>
    <${Bars} isTall items=${shown} title=${t("answer.others")} isChosen=${(each) => each.number === chosen}
      onChoose=${(each) => setChosen(each.number)} />`;
}
