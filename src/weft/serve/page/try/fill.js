// Words for the gaps of a text. A click puts one in.

import { html, useRef } from "../lib/preact.js";
import { NumberField, TextField } from "../parts.js";
import { useLinked } from "../state.js";
import { t } from "../words.js";
import { textRows } from "./row_runner.js";
import { pythonValue, weftCommand } from "./snippets.js";
import { Answer, Bars, Panel, useAnswer, useText } from "./work.js";

export default function Fill({ model, place }) {
  const [text, setText] = useText(place, "text", "fill.example");
  const [top, setTop] = useLinked(place, "top", 8);
  const box = useRef(null);
  const requestOf = (given) => ({
    path: "/v1/tasks/fill",
    body: { model: model.id, inputs: given, parameters: { top_k: top ?? 8 } },
    library: () => `print(model.fill(${pythonValue(given)}, top=${top ?? 8}))`,
    command: () => weftCommand("fill", [given], `--top ${top ?? 8}`),
  });
  const request = requestOf(text);
  const asked = useAnswer(place, request);
  const insert = () => {
    const area = box.current.querySelector("textarea");
    setText(`${text.slice(0, area.selectionStart)}[MASK]${text.slice(area.selectionEnd)}`);
    area.focus();
  };
  const put = (number, word) => {
    const next = withWord(text, masksOf(model), number, word);
    setText(next);
    if (masksOf(model).test(next)) asked.send(requestOf(next)); // the other gaps depend on it
  };
  const rows = textRows(request, (answer) =>
    Object.fromEntries(listed(answer).map((words, number) => [`mask_${number + 1}`, words.map((one) => one.token_str.trim()).join("; ")])),
  );
  return html`<${Panel} name="fill" model=${model} place=${place} requests=${[request]} rows=${rows}>
    <div ref=${box}><${TextField} label=${t("input.masked")} help=${t("fill.help")} value=${text}
      onChange=${setText} /></div>
    <div class="row bottom">
      <${NumberField} label=${t("fill.top")} value=${top} min=${1} max=${100} onChange=${setTop} />
      <button type="button" onClick=${insert}>${t("fill.insert")}</button>
    </div>
    <${Answer} asked=${asked} isReady=${masksOf(model).test(text)} missing=${t("fill.missing")}>${({ answer }) => html`<div class="gaps">${
      listed(answer).map((words, number) => html`<div key=${number} class="stack">
        <h3>${t("fill.mask", { number: number + 1 })}</h3>
        <${Bars} title=${t("fill.mask", { number: number + 1 })} onChoose=${(one) => put(number, one.word)}
          items=${words.map((one) => ({ label: one.token_str.trim() || one.token_str, word: one.token_str, score: one.score }))} />
      </div>`)}</div>`}<//>
  <//>`;
}

/** A list of suggestions per mask; the service leaves out the outer list of one mask. */
const listed = (answer) => (Array.isArray(answer[0]) ? answer : [answer]);

/** "[MASK]", or the model's own mask token. */
function masksOf(model) {
  const own = (model.mask || "[MASK]").replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`\\[MASK\\]|${own}`, "g");
}

/** The text with a word in place of a mask. A part of a word (##ing) joins what stands before it. */
function withWord(text, masks, number, word) {
  const mask = [...text.matchAll(masks)][number];
  if (!mask) return text;
  const before = text.slice(0, mask.index);
  const after = text.slice(mask.index + mask[0].length);
  return (word.startsWith("##") ? before.trimEnd() + word.slice(2) : before + word.trim()) + after;
}
