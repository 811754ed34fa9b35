// Text that goes on from a prompt, streamed; with two settings side by side if wanted.

import { ask, events } from "../api.js";
import { html, useRef, useState } from "../lib/preact.js";
import { ErrorBox, RunButton, TextField, Toggle, useWork } from "../parts.js";
import { useLinked } from "../state.js";
import { t } from "../words.js";
import { isBeamSearch, librarySettings, Settings, settingsBody, SettingsInWords, settingsOptions } from "./settings.js";
import { pythonArguments, pythonValue, weftCommand } from "./snippets.js";
import { AnswerFacts, TokenText } from "./token_text.js";
import { Panel, useStored, useText } from "./work.js";

const PATH = "/v1/completions";
const NEW_TOKENS = 64; // unless another number is set; the service's own default is 16

export default function Write({ model, place }) {
  const [prompt, setPrompt] = useText(place, "prompt", "write.example");
  const [isCompared, setCompared] = useLinked(place, "compare", false);
  const [isTinted, setTinted] = useLinked(place, "tint", false);
  const columns = [useColumn(model, place, "a", prompt), useColumn(model, place, "b", prompt)];
  const shown = isCompared ? columns : columns.slice(0, 1);
  const run = () => shown.forEach((one) => one.run());
  const busy = shown.find((one) => one.state.isBusy)?.state || shown[0].state;
  const rows = {
    inputs: ["prompt"],
    batch: 4,
    request: (items) => ({ path: PATH, body: { ...shown[0].request.body, logprobs: undefined, prompt: items.map((one) => one.prompt) } }),
    answers: (answer, size) => {
      const each = answer.choices.length / size;
      return Array.from({ length: size }, (_, row) => answer.choices.slice(row * each, (row + 1) * each).map((one) => one.text));
    },
    columns: (texts) => Object.fromEntries(texts.map((text, place_) => [texts.length > 1 ? `text_${place_ + 1}` : "generated", text])),
  };
  return html`<${Panel} name="write" model=${model} place=${place} requests=${shown.map((one) => one.request)} rows=${rows}>
    <${TextField} label=${t("input.prompt")} value=${prompt} onChange=${setPrompt} rows=${4} />
    <div class="row">
      <${Toggle} label=${t("write.compare")} value=${isCompared} onChange=${setCompared} />
      <${Toggle} label=${t("write.tint")} value=${isTinted} onChange=${setTinted} />
    </div>
    <div class="row actions"><${RunButton} state=${busy} onRun=${run}
      onStop=${() => shown.forEach((one) => one.stop())}>${t("write.run")}<//></div>
    <div class=${isCompared ? "pair" : "stack"}>
      ${shown.map((one, number) => html`<${Column} key=${number} column=${one} number=${isCompared ? number + 1 : 0}
        model=${model} isTinted=${isTinted} />`)}
    </div>
  <//>`;
}

function Column({ column, number, model, isTinted }) {
  const { settings, setSettings, state, found } = column;
  const title = t("write.settings", { number: number || "" }).trim();
  return html`<div class="stack column">
    <details class="boxed"><summary>${title}<${SettingsInWords} values=${settings} /></summary>
      <${Settings} values=${settings} onChange=${setSettings}
        defaults=${{ temperature: 1, top_p: 1, ...model.defaults, max_tokens: NEW_TOKENS, n: 1, beams: 1 }} />
    </details>
    <${ErrorBox} error=${state.error} />
    <div class="result" aria-live="polite" aria-busy=${state.isBusy}>
      ${found?.answers.map(
        (answer, place) => html`<div key=${place} class="answer">
          <${TokenText} answer=${answer} isTinted=${isTinted} label=${t("write.answer", { number: place + 1 })} />
          <${AnswerFacts} answer=${answer} isBusy=${state.isBusy} seconds=${found.seconds}
            tokens=${place === 0 ? found.tokens : 0} />
        </div>`,
      )}
    </div>
  </div>`;
}

/** One set of settings with its answer. */
function useColumn(model, place, side, prompt) {
  const [settings, setSettings] = useLinked(place, side, {});
  const [stored, setStored] = useStored(place, `answer.${side}`);
  const [live, setLive] = useState(null); // while it is written
  const [state, work, stop] = useWork();
  const latest = useRef(null);
  const request = requestOf(model, prompt, settings);
  const run = () =>
    work(async (signal) => {
      const answers = [];
      const found = { answers, tokens: 0, seconds: 0 };
      latest.current = found;
      const show = () => setLive({ ...found, answers: answers.map((one) => ({ ...one })) });
      show();
      try {
        await (isBeamSearch(request.body) ? writeWhole : writeStream)(request.body, found, show, signal);
      } finally {
        if (latest.current === found) {
          setStored(found);
          setLive(null);
        }
      }
    });
  return { settings, setSettings, state, run, stop, found: live || stored, request };
}

async function writeWhole(body, found, show, signal) {
  const answer = await ask(PATH, body, signal);
  for (const choice of answer.choices) add(found.answers, choice);
  found.tokens = answer.usage.completion_tokens;
}

async function writeStream(body, found, show, signal) {
  let frame = 0;
  const began = performance.now();
  const asked = { ...body, stream: true, stream_options: { include_usage: true } };
  try {
    for await (const event of events(PATH, asked, signal)) {
      for (const choice of event.choices) add(found.answers, choice);
      if (event.usage) found.tokens = event.usage.completion_tokens;
      // At most once for each picture of the screen.
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        if (!signal.aborted) show();
      });
    }
    found.seconds = (performance.now() - began) / 1000;
  } finally {
    cancelAnimationFrame(frame);
  }
}

function add(answers, { index, text, logprobs, finish_reason: finish }) {
  for (let place = 0; place <= index; place += 1) answers[place] ??= { text: "", tokens: [], logProbs: [], top: [], finish: null };
  const its = answers[index];
  its.text += text;
  if (finish) its.finish = finish;
  if (!logprobs) return;
  its.tokens.push(...logprobs.tokens);
  its.logProbs.push(...logprobs.token_logprobs);
  its.top.push(...logprobs.top_logprobs);
}

function requestOf(model, prompt, settings) {
  const body = { model: model.id, prompt, max_tokens: NEW_TOKENS, ...settingsBody(settings), logprobs: 5 };
  // Small models read little at once. Beam search cannot slide, and an encoder's source is not the context.
  if (model.max_model_len && !model.task && !isBeamSearch(body)) body.slide = true;
  const library = librarySettings(body);
  const options = settingsOptions(body);
  return {
    path: PATH,
    body,
    client: { method: "completions", use: "for choice in answer.choices:\n    print(choice.text)" },
    library: () => library && `print(model.generate(${pythonValue(prompt)}, ${pythonArguments(library)}))`,
    command: () => options === null ? null : weftCommand("generate", [prompt], options),
  };
}
