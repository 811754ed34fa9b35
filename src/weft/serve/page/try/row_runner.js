// Rows of a file sent to the service in small batches, and their answers as files to save.

import { ask } from "../api.js";
import { t } from "../words.js";
import { readRows } from "./row_reader.js";

export const PREVIEW = 20; // answers that are shown
const FOLD = 1_000_000; // characters of an output that are joined to a blob

/** The columns of a file, and its first rows. `hasNames`: the first row of a table names the columns. */
export async function lookInto(file, hasNames, most = 5) {
  const rows = [];
  let columns = null;
  for await (const row of readRows(file)) {
    if (row.error) {
      rows.push(row);
    } else if (row.cells) {
      columns ??= columnNames(row.cells, hasNames);
      if (!hasNames || row.number > 1) rows.push(asObject(row.cells, columns));
    } else {
      columns = [...new Set([...(columns || []), ...(typeof row.value === "string" ? ["text"] : Object.keys(row.value))])];
      rows.push(typeof row.value === "string" ? { text: row.value } : row.value);
    }
    if (rows.length >= most) break;
  }
  return { columns: (columns || []).slice(0, 100), rows };
}

function columnNames(cells, hasNames) {
  const found = [];
  for (const [number, cell] of cells.entries()) {
    const name = (hasNames && cell.trim()) || t("rows.column", { number: number + 1 });
    found.push(found.includes(name) ? `${name} (${number + 1})` : name);
  }
  return found;
}

function asObject(cells, columns) {
  return Object.fromEntries(columns.map((name, number) => [name, cells[number] ?? ""]));
}

const words = (text) => text.split(" ");
const OTHER_NAMES = {
  text: words("sentence sentence1 premise question1 text1 first source content review input document article command utterance title question"),
  second: words("sentence2 hypothesis question2 text2 text_pair"),
  prompt: words("text input instruction question"),
  message: words("text prompt question input"),
  question: words("query"),
  context: words("text passage paragraph document"),
};

/** For each input of a panel the column with its name, or one of the names that people use for it. */
export function matchColumns(inputs, columns) {
  const lower = columns.map((one) => one.toLowerCase());
  const found = {};
  for (const name of inputs) {
    const isFree = (place) => place >= 0 && !Object.values(found).includes(columns[place]);
    const wanted = [name, ...OTHER_NAMES[name]].map((one) => lower.indexOf(one)).find(isFree);
    found[name] = columns[wanted ?? columns.findIndex((_, place) => isFree(place))] ?? "";
  }
  return found;
}

/** Of a file, long texts are cut and counted, as weft predict does. A single text is refused, to be shortened. */
export const CUT = { parameters: { truncate: true } };

/** Rows of one text each, for a route that takes a list of `inputs` and gives a list of answers. */
export function textRows({ path, body }, columns) {
  const request = (items) => ({ path, body: { ...body, inputs: items.map((one) => one.text) } });
  return { inputs: ["text"], request, columns };
}

/** Sends all rows. `onProgress` is told after each batch. A row that the service refuses keeps its sentence. */
export async function runRows({ file, hasNames, columns, mapping, rows, signal, onProgress }) {
  const result = new Results(columns);
  let batch = [];
  const flush = async (read) => {
    await answerBatch(rows, batch, signal, (texts) => {
      result.counts.cut += texts;
    });
    for (const one of batch) result.add(one, rows.columns);
    batch = [];
    onProgress({ ...result.counts, read, preview: result.preview });
  };
  try {
    for await (const row of readRows(file)) {
      if (hasNames && row.cells && row.number === 1) continue;
      batch.push(prepared(row, columns, mapping, rows.inputs));
      if (batch.length >= (rows.batch || 16)) await flush(row.read);
    }
    if (batch.length) await flush(1);
    onProgress({ ...result.counts, read: 1, preview: result.preview, isDone: true });
  } finally {
    onProgress({ ...result.counts, preview: result.preview, result });
  }
}

function prepared(row, columns, mapping, inputs) {
  if (row.error) return { row: row.number, given: {}, error: t(row.error) };
  const given = row.cells
    ? asObject(row.cells, columns)
    : typeof row.value === "string" ? { text: row.value } : row.value;
  const item = {};
  for (const name of inputs) {
    const value = given[mapping[name]];
    if (value === undefined || value === null) return { row: row.number, given, error: t("rows.missing", { name }) };
    item[name] = typeof value === "string" ? value : JSON.stringify(value);
  }
  return { row: row.number, given, item };
}

async function answerBatch(rows, batch, signal, onCut) {
  const good = batch.filter((one) => one.item);
  if (!good.length) return;
  try {
    await answerTogether(rows, good, signal, onCut);
  } catch (error) {
    if (error.name === "AbortError" || !isOfRow(error)) throw error;
    if (good.length === 1) {
      good[0].error = error.message;
      return;
    }
    for (const one of good) await answerBatch(rows, [one], signal, onCut); // which of them is it?
  }
}

/** Whether the service refuses what it was given, rather than everything. */
const isOfRow = (error) => [400, 413, 422, 500, 504].includes(error.status);

const asList = (answer) => answer;

async function answerTogether(rows, good, signal, onCut) {
  const { path, body } = rows.request(good.map((one) => one.item));
  const told = (headers) => onCut(Number(headers.get("x-weft-truncated")) || 0);
  for (;;) {
    try {
      const answers = (rows.answers || asList)(await ask(path, body, signal, told), good.length);
      good.forEach((one, number) => {
        one.answer = answers[number];
      });
      return;
    } catch (error) {
      if (error.status !== 429) throw error;
      await pause((error.retryAfter ?? 1) * 1000, signal);
    }
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("", "AbortError"));
    });
  });
}

class Results {
  counts = { done: 0, failed: 0, cut: 0, first: null }; // `first`: a row with an error, which the preview may not show
  preview = [];
  json = { blobs: [], text: "" };
  csv = { blobs: [], text: "" };

  constructor(given) {
    this.given = given;
    this.names = null;
  }

  add({ row, given, answer, error }, columnsOf) {
    const flat = error === undefined ? columnsOf(answer) : {};
    this.counts.done += 1;
    if (error !== undefined) {
      this.counts.failed += 1;
      this.counts.first ??= { row, error };
    }
    if (this.preview.length < PREVIEW) this.preview.push({ row, given, flat, error });
    this.append(this.json, `${JSON.stringify(error === undefined ? { row, input: given, answer } : { row, input: given, error })}\n`);
    if (error === undefined) this.names ??= Object.keys(flat);
    // The first line with the names is added in the end: rows before the first answer have none.
    const cells = [row, ...this.given.map((name) => given[name]), error ?? "", ...(this.names || []).map((name) => flat[name])];
    this.append(this.csv, cells.map(csvCell).join(",") + "\r\n");
  }

  append(output, text) {
    output.text += text;
    if (output.text.length < FOLD) return;
    output.blobs.push(new Blob([output.text]));
    output.text = "";
  }

  blob(kind) {
    const { blobs, text } = this[kind];
    const names = ["row", ...this.given, "error", ...(this.names || [])];
    // Spreadsheets read UTF-8 only after a byte order mark.
    const head = kind === "csv" ? [`\ufeff${names.map(csvCell).join(",")}\r\n`] : [];
    return new Blob([...head, ...blobs, text], { type: kind === "csv" ? "text/csv" : "application/jsonl" });
  }
}

function csvCell(value) {
  const text = value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
