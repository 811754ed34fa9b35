// A text that a model wrote, token by token: each can be hovered or reached by the arrow keys, and shows how probable
// it was and what else was possible.

import { html, useState } from "../lib/preact.js";
import { Bar } from "../parts.js";
import { count, t } from "../words.js";
import { MOST_SHOWN, short, Shown } from "./text.js";
import { percent } from "./work.js";

const MOST_TOKENS = 3_000; // that are shown one by one
const NO_LOG_PROB = -9999; // the service's number for probability 0

/** `answer`: {text, tokens, logProbs, top}. `isTinted`: coloured by probability. */
export function TokenText({ answer, isTinted, label }) {
  const [chosen, setChosen] = useState(null);
  const groups = groupTokens(answer);
  if (!groups) return html`<p class="text"><${Shown} text=${answer.text} /></p>`;
  const last = groups.length - 1;
  const pressed = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const next = { Home: 0, End: last }[event.key] ?? (step ? Math.max(0, Math.min(last, (chosen ?? 0) + step)) : null);
    if (next === null) return;
    event.preventDefault();
    setChosen(next);
    event.currentTarget.children[next]?.focus();
  };
  const rest = answer.text.slice(groups.reduce((sum, group) => sum + group.text.length, 0));
  return html`<div class="tokens-of">
    <p class="text" role="group" aria-label=${label} onKeyDown=${pressed}>${groups.map(
      (group, place) => html`<span key=${place} role="button" class=${tokenClass(group, isTinted)}
        aria-pressed=${chosen === place}
        tabindex=${place === (chosen ?? 0) ? 0 : -1} aria-label=${spoken(group)} onMouseEnter=${() => setChosen(place)}
        onFocus=${() => setChosen(place)} onClick=${(event) => event.currentTarget.scrollIntoView({ block: "nearest" })}>${group.text}</span>`,
    )}${rest && html`<${Shown} text=${rest} />`}</p>
    ${chosen !== null && groups[chosen] && html`<${Inspector} group=${groups[chosen]} />`}
  </div>`;
}

function tokenClass(group, isTinted) {
  return `token${isTinted ? ` p${Math.min(4, Math.floor(group.share * 5))}` : ""}`;
}

function spoken(group) {
  return t("token.spoken", { text: visible(group.text), share: percent(group.share) });
}

/** Blanks that would not be seen. */
export function visible(text) {
  const shown = text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(" ", "␣") || "∅";
  return shown.replace(/[\0-\x1f]/g, (one) => String.fromCharCode(0x2400 + one.charCodeAt(0)));
}

function Inspector({ group }) {
  return html`<div class="inspector">${group.tokens.map(
    ({ text, logProb, top }, place) => html`<div key=${place} class="bars">
      <p><code><bdi>${visible(short(text, 60))}</bdi></code> ${logProb === null ? t("token.first") : t("token.share", { share: percent(probability(logProb)) })}</p>
      ${Object.entries(top || {})
        .sort((a, b) => b[1] - a[1])
        .map(([other, its]) => html`<${Bar} key=${other} label=${visible(short(other, 60))} share=${probability(its)}
          shown=${percent(probability(its))}
          tone=${other === text ? "b" : "a"} />`)}
    </div>`,
  )}</div>`;
}

const probability = (logProb) => (logProb === null ? 1 : logProb <= NO_LOG_PROB ? 0 : Math.exp(logProb));

/** The tokens with their parts of the text. A character that several tokens share is one group. None if the tokens are
 *  not known, or do not make up the text. */
function groupTokens({ text, tokens, logProbs, top }) {
  if (!tokens?.length || text.length > 10 * MOST_SHOWN) return null;
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const found = [];
  let at = 0;
  let held = [];
  for (let place = 0; place < Math.min(tokens.length, MOST_TOKENS) && at < text.length; place += 1) {
    held.push({ text: tokens[place], logProb: logProbs[place], top: top[place] });
    let part = decoder.decode(bytesOf(tokens[place]), { stream: place + 1 < tokens.length });
    if (part === "") continue; // the rest of a character is to come
    if (!text.startsWith(part, at)) {
      // The tokenizer drops the blank before the first word, and special tokens; a stop string cuts the last token.
      if (at === 0 && part.startsWith(" ") && text.startsWith(part.slice(1))) part = part.slice(1);
      else if (part.startsWith(text.slice(at))) part = text.slice(at);
      else if (/^[<[].*[>\]]$/.test(part)) part = "";
      else return null;
    }
    if (part) found.push({ text: part, tokens: held, share: held.reduce((product, one) => product * probability(one.logProb), 1) });
    at += part.length;
    held = [];
  }
  return found;
}

/** bytes:\xe7\x88 is a part of a character. */
function bytesOf(token) {
  if (!/^bytes:(\\x[0-9a-f]{2})+$/.test(token)) return new TextEncoder().encode(token);
  return Uint8Array.from(token.match(/[0-9a-f]{2}(?=\\|$)/g), (two) => parseInt(two, 16));
}

/** What is said below an answer: how it ended, its tokens, its speed. */
export function AnswerFacts({ answer, seconds, tokens, isBusy }) {
  const parts = [answer.finish ? t(`finish.${answer.finish}`) : isBusy ? t("finish.busy") : t("finish.stopped")];
  if (tokens) parts.push(t("facts.tokens", { count: count(tokens) }));
  if (tokens && seconds) parts.push(t("facts.speed", { speed: count(Math.round(tokens / seconds)) }));
  return html`<p class="hint facts">${parts.join(" · ")}</p>`;
}
