// The same request as a command or a program, quoted so that any text arrives as it is.

import { serviceKey } from "../api.js";

export const FOLDER = "FOLDER"; // stands for the model's folder, which the service does not tell
export const LONGEST_COMMAND = 20_000; // characters; longer requests are put into a file
const OPENAI = new Set(
  ("model prompt messages input max_tokens temperature top_p n stop presence_penalty frequency_penalty seed logprobs " +
    "top_logprobs echo logit_bias stream encoding_format response_format").split(" "),
);
// Characters that cannot be seen, or that change the order of what is seen: written as escapes.
const UNSEEN = /[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
const escaped = (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`;

export function jsonText(value) {
  return JSON.stringify(value).replace(UNSEEN, escaped);
}

/** A word of a shell's command. Bash's $'…' is for what single quotes would show as something else. */
export function shellWord(text) {
  if (/^[\w./:=@%+,-]+$/.test(text) && !text.startsWith("-")) return text;
  const isPlain = text.search(UNSEEN) < 0 && !/[\u0000-\u0009\u000b-\u001f]/.test(text);
  if (isPlain) return `'${text.replaceAll("'", "'\\''")}'`;
  const inner = text.replace(/[\\']/g, "\\$&").replaceAll("\n", "\\n");
  return `$'${inner.replace(/[\u0000-\u001f]/g, escaped).replace(UNSEEN, escaped)}'`;
}

/** A command of weft with its texts. None for NUL, which no command can be given. A text that is only "-" would mean
 *  standard input, so it comes from there. */
export function weftCommand(verb, texts, options = "") {
  const start = `weft ${verb} ${FOLDER}${options ? ` ${options}` : ""}`;
  if (texts.some((text) => text.includes("\0"))) return null;
  if (texts.length === 1 && texts[0] === "-") return `echo - | ${start} -`;
  return `${start} ${texts.some((text) => text.startsWith("-")) ? "-- " : ""}${texts.map(shellWord).join(" ")}`;
}

/** A JSON value as a Python literal. */
export function pythonValue(value, indent = "") {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return jsonText(value);
  const deeper = `${indent}    `;
  const items = Array.isArray(value)
    ? value.map((one) => pythonValue(one, deeper))
    : Object.entries(value).map(([name, one]) => `${jsonText(name)}: ${pythonValue(one, deeper)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const line = `${open}${items.join(", ")}${close}`;
  return line.length < 80 ? line : `${open}\n${items.map((one) => `${deeper}${one},\n`).join("")}${indent}${close}`;
}

/** Arguments of a Python call by name. */
export function pythonArguments(values) {
  const items = Object.entries(values).map(([name, value]) => `${name}=${pythonValue(value, "    ")}`);
  const line = items.join(", ");
  return line.length < 90 ? line : `\n${items.map((one) => `    ${one},\n`).join("")}`;
}

const isLong = (body) => JSON.stringify(body).length > LONGEST_COMMAND;

export function curlCommand({ path, body }) {
  const key = serviceKey.get() ? ` -H "Authorization: Bearer $KEY"` : "";
  const data = isLong(body) ? "@request.json" : shellWord(jsonText(body));
  return `curl ${location.origin}${path} -H 'Content-Type: application/json'${key} \\\n  -d ${data}`;
}

export function pythonProgram(request) {
  return request.client && !isLong(request.body) ? openaiProgram(request) : urllibProgram(request);
}

/** `client`: the method of the openai client, such as completions, and what to do with its answer. */
function openaiProgram({ client, body }) {
  const known = Object.entries(body).filter(([name]) => OPENAI.has(name));
  const others = Object.entries(body).filter(([name]) => !OPENAI.has(name));
  const given = Object.fromEntries(known);
  if (others.length) given.extra_body = Object.fromEntries(others);
  const key = serviceKey.get() ? 'os.environ["KEY"]' : '"none"';
  return `${serviceKey.get() ? "import os\n\n" : ""}import openai

client = openai.OpenAI(base_url="${location.origin}/v1", api_key=${key})
answer = client.${client.method}.create(${pythonArguments(given)})
${client.use}`;
}

function urllibProgram({ path, body }) {
  const key = serviceKey.get() ? ', "Authorization": "Bearer " + os.environ["KEY"]' : "";
  const [data, given] = isLong(body)
    ? ['open("request.json", "rb").read()', ""]
    : ["json.dumps(body).encode()", `body = ${pythonValue(body)}\n`];
  return `import json
${key ? "import os\n" : ""}import urllib.request

${given}request = urllib.request.Request(
    "${location.origin}${path}",
    ${data},
    {"Content-Type": "application/json"${key}},
)
print(json.load(urllib.request.urlopen(request)))`;
}

/** `lines`: what is done with `model`; none if there is nothing like it. */
export function libraryProgram(lines) {
  return lines && `import weft

model = weft.load("${FOLDER}")
${lines}`;
}
