// How the model's tokenizer cuts a text.

import { html } from "../lib/preact.js";
import { TextField, Toggle } from "../parts.js";
import { useLinked } from "../state.js";
import { count, number, t } from "../words.js";
import { textRows } from "./row_runner.js";
import { pythonValue } from "./snippets.js";
import { Hidden, short } from "./text.js";
import { visible } from "./token_text.js";
import { Answer, Panel, useAnswer, useText } from "./work.js";

const MOST = 2_000; // tokens shown

export default function Tokens({ model, place }) {
  const [text, setText] = useText(place, "text", "tokens.example");
  const [isSpecial, setSpecial] = useLinked(place, "special", true);
  const [hasIds, setIds] = useLinked(place, "ids", false);
  const request = {
    path: "/tokenize",
    body: { model: model.id, inputs: text, add_special_tokens: isSpecial },
    library: () => `print(model.tokenizer.engine.encode(${pythonValue(text)}, add_special_tokens=${pythonValue(isSpecial)}).tokens)`,
  };
  const asked = useAnswer(place, request);
  const rows = textRows(request, (tokens) => ({ count: tokens.length, tokens: tokens.map((one) => one.text).join("|") }));
  return html`<${Panel} name="tokens" model=${model} place=${place} requests=${[request]} rows=${rows}>
    <${TextField} label=${t("input.text")} value=${text} onChange=${setText} rows=${4} />
    <div class="row">
      <${Toggle} label=${t("tokens.special")} value=${isSpecial} onChange=${setSpecial} />
      <${Toggle} label=${t("tokens.ids")} value=${hasIds} onChange=${setIds} />
    </div>
    <${Answer} asked=${asked} isReady=${text !== ""}>${({ body, answer: [tokens] }) => {
      const characters = [...body.inputs].length;
      const facts = { tokens: tokens.length, characters, bytes: new TextEncoder().encode(body.inputs).length };
      return html`<div class="tiles">${Object.entries(facts).map(([name, value]) => html`<div key=${name}
        class="tile"><b>${count(value)}</b><span>${t(`tokens.${name}`)}</span></div>`)}
          <div class="tile"><b>${number(characters / Math.max(1, tokens.filter((one) => !one.special).length))}</b><span>${t("tokens.each")}</span></div></div>
        <ol class="pieces">${tokens.slice(0, MOST).map(
          (one, place_) => html`<li key=${place_} class=${one.special ? "special" : one.unknown ? "unknown" : ""}
            title=${`#${one.id}`}><bdi>${one.special ? one.text : visible(short(one.text, 60))}</bdi>${hasIds && html`<small>${one.id}</small>`}</li>`,
        )}</ol>
        <${Hidden} count=${tokens.length - MOST} />
        ${tokens.some((one) => one.unknown) && html`<p class="hint">${t("tokens.unknown", { count: count(tokens.filter((one) => one.unknown).length) })}</p>`}`;
    }}<//>
  <//>`;
}
