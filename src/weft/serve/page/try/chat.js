// A conversation: its history, replies as they are written, another reply instead of the last.

import { events } from "../api.js";
import { html, useEffect, useRef, useState } from "../lib/preact.js";
import { ErrorBox, TextField, useWork } from "../parts.js";
import { useLinked } from "../state.js";
import { t } from "../words.js";
import { librarySettings, Settings, settingsBody, SettingsInWords, settingsOptions } from "./settings.js";
import { FOLDER, pythonArguments, pythonValue, shellWord } from "./snippets.js";
import { Shown } from "./text.js";
import { Panel, useText } from "./work.js";

const PATH = "/v1/chat/completions";
const NOT_HERE = ["n", "beams", "length_penalty", "early_stopping", "echo"];

export default function Chat({ model, place }) {
  const [linked, setMessages] = useLinked(place, "messages", []);
  const messages = linked.filter((one) => typeof one?.content === "string"); // a link may hold anything
  const [system, setSystem] = useLinked(place, "system", "");
  const [draft, setDraft] = useText(place, "draft", messages.length ? "" : "chat.example");
  const [settings, setSettings] = useLinked(place, "settings", {});
  const [live, setLive] = useState(null);
  const [state, work, stop] = useWork();
  const log = useRef(null);
  useEffect(() => {
    log.current.scrollTop = log.current.scrollHeight;
  }, [messages.length, live]);

  const send = (before) =>
    work(async (signal) => {
      let reply = "";
      setMessages(before);
      setLive("");
      try {
        for await (const event of events(PATH, { ...bodyOf(model, system, before, settings), stream: true }, signal)) {
          reply += event.choices[0]?.delta.content || "";
          setLive(reply);
        }
      } finally {
        setLive(null);
        if (reply) setMessages([...before, { role: "assistant", content: reply }]);
      }
    });
  const say = () => {
    if (!draft || state.isBusy) return;
    setDraft("");
    send([...messages, { role: "user", content: draft }]);
  };
  const answered = messages.slice(0, messages.findLastIndex((one) => one.role === "user") + 1); // without the last reply
  const again = () => send(answered);
  // Enter sends; while Chinese is composed it only ends the word.
  const pressed = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    say();
  };
  const asked = draft ? [...messages, { role: "user", content: draft }] : answered;
  const shown = live === null ? messages : [...messages, { role: "assistant", content: live, isLive: true }];
  return html`<${Panel} name="chat" model=${model} place=${place} requests=${[requestOf(model, system, asked, settings)]}
    rows=${rowsOf(model, system, settings)}>
    <div ref=${log} class="talk" role="log" aria-label=${t("chat.title")} aria-busy=${state.isBusy} tabindex="0">
      ${shown.length === 0 && html`<p class="empty">${t("chat.empty")}</p>`}
      ${shown.map(
        (one, number) => html`<div key=${number} class=${`said ${one.role}`}>
          <span class="visually-hidden">${t(`chat.${one.role}`)}: </span>
          <p class="text">${one.content ? html`<${Shown} text=${one.content} />` : html`<span
            class="hint">${t("chat.writing")}</span>`}</p>
        </div>`,
      )}
    </div>
    <${ErrorBox} error=${state.error} />
    <div onKeyDown=${pressed}><${TextField} label=${t("chat.you")} help=${t("chat.keys")} rows=${2} value=${draft}
      onChange=${setDraft} /></div>
    <div class="row actions">
      ${state.isBusy
        ? html`<button type="button" class="primary" onClick=${stop}>${t("stop")}</button>`
        : html`<button type="button" class="primary" onClick=${say} disabled=${!draft}>${t("chat.send")}</button>`}
      <button type="button" onClick=${again} disabled=${state.isBusy || !answered.length}>${t("chat.again")}</button>
      <button type="button" class="quiet" onClick=${() => setMessages([])} disabled=${state.isBusy || !messages.length}>${t("chat.clear")}</button>
    </div>
    ${model.chat === "template" && html`<${TextField} label=${t("chat.system")} help=${t("chat.system.help")} rows=${2}
      value=${system} onChange=${setSystem} />`}
    <details class="boxed"><summary>${t("write.settings", { number: "" })}<${SettingsInWords} values=${settings} /></summary>
      <${Settings} values=${settings} onChange=${setSettings} without=${NOT_HERE} defaults=${model.defaults} />
    </details>
  <//>`;
}

function bodyOf(model, system, messages, settings) {
  const first = system && model.chat === "template" ? [{ role: "system", content: system }] : [];
  return { model: model.id, messages: [...first, ...messages], ...settingsBody(settings) };
}

function rowsOf(model, system, settings) {
  return {
    inputs: ["message"],
    batch: 1, // a request has one conversation
    request: ([{ message }]) => ({ path: PATH, body: bodyOf(model, system, [{ role: "user", content: message }], settings) }),
    answers: (answer) => [answer.choices[0].message.content],
    columns: (reply) => ({ reply }),
  };
}

function requestOf(model, system, messages, settings) {
  const body = bodyOf(model, system, messages, settings);
  const common = { path: PATH, body, client: { method: "chat.completions", use: "print(answer.choices[0].message.content)" } };
  const given = librarySettings(body);
  if (!given) return common;
  if (model.chat === "template") {
    return {
      ...common,
      library: () => `from weft.generate.chat_template import ChatTemplate

template = ChatTemplate.of(model.tokenizer)
prompt = template.render(${pythonValue(body.messages)})
ids = model.tokenizer.engine.encode(prompt, add_special_tokens=False).ids
print(model.tokenizer.decode(model.generate(ids, ${pythonArguments(given)})))`,
    };
  }
  const history = [];
  for (let place = 0; place + 1 < messages.length; place += 2) history.push([messages[place].content, messages[place + 1].content]);
  const last = messages[messages.length - 1]?.content ?? "";
  const isPlain = !/[\n\0]/.test(messages.map((one) => one.content).join(""));
  const said = messages.filter((one) => one.role === "user").map((one) => shellWord(one.content)).join(" ");
  return {
    ...common,
    library: () => `history = [${history.map(([one, other]) => `(${pythonValue(one)}, ${pythonValue(other)})`).join(", ")}]
for piece in model.stream(${pythonValue(last)}, history=history, ${pythonArguments(given)}):
    print(piece, end="")`,
    command: () => isPlain && said && settingsOptions(body) !== null ? `printf '%s\\n' ${said} | weft generate ${FOLDER} ${settingsOptions(body)}` : null,
  };
}
