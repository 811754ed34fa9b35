// Rows of a file, read slice by slice: a file of many megabytes neither fills the memory nor stops the page.

const SLICE = 262_144; // bytes
const LONGEST_ROW = 1_000_000; // characters
const ENDINGS = { csv: "csv", tsv: "tsv", tab: "tsv", jsonl: "jsonl", ndjson: "jsonl" }; // others: lines of text

export function kindOf(name) {
  return ENDINGS[name.split(".").pop().toLowerCase()] || "txt";
}

/** A row as it is read: `cells` (csv, tsv), or `value` (txt: a text, jsonl: an object), or `error`; its `number`
 *  in the file, and the share of the file that has been `read`. */
export async function* readRows(file) {
  const kind = kindOf(file.name);
  const split = kind === "csv" ? new QuotedRows() : new Lines();
  let number = 0;
  for await (const { text, before, after, isLast } of slices(file)) {
    const rows = [...split.add(text, isLast)];
    for (const [place, row] of rows.entries()) {
      const read = before + ((after - before) * (place + 1)) / rows.length;
      number += 1;
      if (row.error || kind === "csv") {
        yield { ...row, number, read };
        continue;
      }
      if (row.text === "" && kind !== "txt") continue;
      if (kind === "tsv") yield { cells: row.text.split("\t"), number, read };
      else if (kind === "txt") yield { value: row.text, number, read };
      else yield { ...parsed(row.text), number, read };
    }
  }
}

function parsed(text) {
  try {
    const value = JSON.parse(text);
    if (value === null || typeof value !== "object" || Array.isArray(value)) return { error: "rows.object" };
    return { value };
  } catch {
    return { error: "rows.json" };
  }
}

async function* slices(file) {
  let decoder = null;
  for (let offset = 0; offset < file.size || !decoder; offset += SLICE) {
    const bytes = new Uint8Array(await file.slice(offset, offset + SLICE).arrayBuffer());
    decoder ??= new TextDecoder(encodingOf(bytes), { fatal: true });
    const isLast = offset + SLICE >= file.size;
    const [before, after] = [offset, Math.min(offset + SLICE, file.size)].map((place) => place / (file.size || 1));
    yield { text: decoder.decode(bytes, { stream: !isLast }), before, after, isLast };
  }
}

/** UTF-8; or UTF-16 and GB18030, which spreadsheets write. */
function encodingOf(bytes) {
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return "utf-16le";
  if (bytes[0] === 0xfe && bytes[1] === 0xff) return "utf-16be";
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
    return "utf-8";
  } catch {
    return "gb18030";
  }
}

/** Lines, in any way that they may be cut. A line without end is given up, so that the memory is not. */
class Lines {
  rest = "";
  isSkipping = false;

  *add(text, isLast) {
    const lines = (this.rest + text).split("\n");
    this.rest = isLast ? "" : lines.pop();
    if (isLast && lines[lines.length - 1] === "") lines.pop();
    for (const line of lines) {
      const isRest = this.isSkipping; // the end of a line that was too long
      this.isSkipping = false;
      if (isRest) continue;
      if (line.length > LONGEST_ROW) yield { error: "rows.long" };
      else yield { text: line.endsWith("\r") ? line.slice(0, -1) : line };
    }
    if (this.rest.length > LONGEST_ROW) {
      if (!this.isSkipping) yield { error: "rows.long" };
      this.isSkipping = true;
      this.rest = "";
    }
  }
}

/** Rows of comma-separated values (RFC 4180): quotes hold a field together, newlines included. */
class QuotedRows {
  cells = [];
  cell = "";
  size = 0;
  isQuoted = false;
  wasQuote = false; // the last character was a quote in a quoted field: its end, or the first of two
  separator = null;

  *add(text, isLast) {
    this.separator ??= mostFrequent(text.slice(0, text.search(/[\r\n]|$/)));
    for (const one of text) {
      if (this.isQuoted && !this.wasQuote) {
        if (one === '"') this.wasQuote = true;
        else this.put(one);
        continue;
      }
      if (this.wasQuote) {
        this.wasQuote = false;
        if (one === '"') {
          this.put(one);
          continue;
        }
        this.isQuoted = false;
      }
      if (one === '"' && this.cell === "") this.isQuoted = true;
      else if (one === this.separator) this.endCell();
      else if (one === "\n") yield* this.endRow();
      else if (one !== "\r") this.put(one);
    }
    if (isLast) yield* this.endRow();
  }

  put(one) {
    this.size += 1;
    if (this.size <= LONGEST_ROW) this.cell += one;
  }

  endCell() {
    this.cells.push(this.cell);
    this.cell = "";
  }

  *endRow() {
    this.endCell();
    const { cells, size } = this;
    this.cells = [];
    this.size = 0;
    this.isQuoted = this.wasQuote = false;
    if (size > LONGEST_ROW) yield { error: "rows.long" };
    else if (cells.length > 1 || cells[0] !== "") yield { cells };
  }
}

/** Comma or semicolon, as the first line has it. */
function mostFrequent(line) {
  return line.split(";").length > line.split(",").length ? ";" : ",";
}
