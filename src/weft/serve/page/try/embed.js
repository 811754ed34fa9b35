// Search by meaning: the texts of a list, ranked by how near their vectors are to that of a query.

import { html } from "../lib/preact.js";
import { Field, TextField } from "../parts.js";
import { count, number, t } from "../words.js";
import { pythonValue } from "./snippets.js";
import { Answer, Bars, Panel, Rough, useAnswer, useText } from "./work.js";

const MOST = 500; // texts

export default function Embed({ model, place }) {
  const [query, setQuery] = useText(place, "query", "embed.example");
  const [list, setList] = useText(place, "texts", "embed.example2");
  const all = list.split("\n").map((one) => one.trim()).filter(Boolean);
  const texts = all.slice(0, MOST);
  const request = {
    path: "/v1/embeddings",
    body: { model: model.id, input: [query, ...texts], encoding_format: "base64" },
    client: { method: "embeddings", use: USE },
    library: () => `import numpy as np\n\nvectors = model.embed(${pythonValue([query, ...texts])})\nvectors /= np.linalg.norm(vectors, axis=1, keepdims=True)\nprint(vectors[1:] @ vectors[0])`,
  };
  const asked = useAnswer(place, request, ranked);
  const rows = {
    inputs: ["text"],
    request: (items) => ({ path: request.path, body: { model: model.id, input: items.map((one) => one.text), truncate: true } }),
    answers: (answer) => answer.data.map((one) => one.embedding),
    columns: (vector) => ({ embedding: vector }),
  };
  return html`<${Panel} name="embed" model=${model} place=${place} requests=${[request]} rows=${rows}>
    <${Field} label=${t("input.query")} wide>${(its) => html`<input ...${its} type="text" value=${query}
      onInput=${(event) => setQuery(event.target.value)}
      onKeyDown=${(event) => event.key === "Enter" && !event.isComposing && asked.send()} />`}<//>
    <${TextField} label=${t("input.texts")}
      help=${all.length > MOST ? t("similarity.most", { count: MOST, all: count(all.length) }) : t("perline")}
      rows=${7} value=${list} onChange=${setList} />
    <${Answer} asked=${asked} label=${t("embed.run")}
      isReady=${query !== "" && texts.length > 0}>${({ body, answer }) => html`
      <${Bars} isTall title=${t("embed.title")}
        items=${answer.order.map((place_) => ({ label: body.input[place_ + 1], share: answer.scores[place_], shown: number(answer.scores[place_]) }))} />
      <p class="hint">${t("embed.size", { size: count(answer.size) })}</p><${Rough} model=${model} />`}<//>
  <//>`;
}

const USE = `import numpy as np

vectors = np.array([one.embedding for one in answer.data])
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
print(vectors[1:] @ vectors[0])`;

/** The cosine of each text's vector with the query's, which comes first. */
function ranked(answer) {
  const [query, ...others] = answer.data.map((one) => numbersOf(one.embedding));
  const scores = others.map((one) => cosine(query, one));
  return { scores, order: scores.map((_, place) => place).sort((a, b) => scores[b] - scores[a]), size: query.length };
}

/** float32 numbers, little-endian. */
function numbersOf(base64) {
  const view = new DataView(Uint8Array.from(atob(base64), (one) => one.charCodeAt(0)).buffer);
  return Float32Array.from({ length: view.byteLength / 4 }, (_, place) => view.getFloat32(4 * place, true));
}

function cosine(one, other) {
  let [product, first, second] = [0, 0, 0];
  for (let place = 0; place < one.length; place += 1) {
    product += one[place] * other[place];
    first += one[place] ** 2;
    second += other[place] ** 2;
  }
  return product / (Math.sqrt(first * second) || 1);
}
