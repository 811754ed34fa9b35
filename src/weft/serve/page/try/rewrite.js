// A text made from another: a translation, a summary, a reply. Several are written, and one is chosen.

import { html, useState } from "../lib/preact.js";
import { Code, NumberField, TextField } from "../parts.js";
import { useLinked } from "../state.js";
import { t } from "../words.js";
import { textRows } from "./row_runner.js";
import { optionWords } from "./settings.js";
import { pythonArguments, pythonValue, weftCommand } from "./snippets.js";
import { short } from "./text.js";
import { Answer, Bars, Panel, percent, useAnswer, useText } from "./work.js";

const KEYS = { translate: "translation_text", summarize: "summary_text", reply: "generated_text" };

export default function Rewrite({ model, place, panel }) {
  const [text, setText] = useText(place, "text", `${panel}.example`);
  const [settings, setSettings] = useLinked(place, "settings", { number: 4 });
  const set = (name) => (value) => setSettings({ ...settings, [name]: value });
  const number = settings.number ?? 1;
  const parameters = { num_return_sequences: number };
  if (settings.beams) parameters.num_beams = settings.beams;
  if (settings.tokens) parameters.max_new_tokens = settings.tokens;
  const given = librarySettings(model, parameters);
  const request = {
    path: `/v1/tasks/${panel}`,
    body: { model: model.id, inputs: text, parameters },
    library: () => `print(model.predict(${pythonValue(text)}))  # the best one\nprint(model.generate(${pythonValue(text)}, ${pythonArguments(given)}))`,
    command: () => weftCommand("generate", [text], optionWords(given)),
  };
  const asked = useAnswer(place, request);
  const best = { path: request.path, body: { model: model.id, parameters: { ...parameters, num_return_sequences: undefined } } };
  const rows = { ...textRows(best, (one) => ({ [panel]: one[KEYS[panel]] })), batch: 4 };
  return html`<${Panel} name=${panel} model=${model} place=${place} requests=${[request]} rows=${rows}>
    <${TextField} label=${t("input.source")} value=${text} onChange=${setText} rows=${5} />
    <div class="fields">
      <${NumberField} label=${t("rewrite.number")} help=${t("rewrite.number.help")} min=${1} max=${64}
        value=${settings.number} onChange=${set("number")} />
      <${NumberField} label=${t("set.beams")} help=${t("rewrite.beams.help")} min=${1} max=${64} value=${settings.beams}
        placeholder=${model.task_settings.beams} onChange=${set("beams")} />
      <${NumberField} label=${t("set.max_tokens")} help=${t("set.max_tokens.help")} min=${1} value=${settings.tokens}
        placeholder=${model.task_settings.max_new_tokens} onChange=${set("tokens")} />
    </div>
    <${Answer} asked=${asked} isReady=${text !== ""}>${({ answer }) => html`<${Candidates}
      key=${JSON.stringify(answer).slice(0, 200)} panel=${panel} answer=${answer} />`}<//>
  <//>`;
}

/** The settings of `model.generate` that the service uses for its task. */
function librarySettings(model, { num_return_sequences: n, num_beams: beams, max_new_tokens: most }) {
  const { beams: own, strategy, ...others } = model.task_settings;
  const given = { ...others, n, max_new_tokens: most ?? others.max_new_tokens };
  if (strategy === "sample" && !beams) return { strategy, ...given };
  const { repetition_penalty: penalty, max_new_tokens: tokens } = given;
  const width = Math.max(beams ?? own ?? 1, n);
  return { ...(width > 1 ? { beams: width } : { strategy: "greedy" }), repetition_penalty: penalty, n, max_new_tokens: tokens };
}

function Candidates({ panel, answer }) {
  const [chosen, setChosen] = useState(0);
  const items = answer.map((one, number) => ({ number, text: one[KEYS[panel]], share: one.score === null ? 0 : Math.exp(one.score) }));
  const bars = items.map((one) => ({ ...one, label: one.text || "∅", shown: percent(one.share) }));
  return html`<div class="prose"><${Code} text=${short(items[Math.min(chosen, items.length - 1)].text, 20_000)}
    label=${t("rewrite.chosen")} /></div>
    <h3>${t("rewrite.all")}</h3>
    <${Bars} isTall items=${bars} title=${t("rewrite.all")} isChosen=${(one) => one.number === chosen}
      onChoose=${(one) => setChosen(one.number)} />
    <small>${t("rewrite.score")}</small>`;
}
