// Requests to the service this page came from. Errors are the service's own sentences.

import { ofTab } from "./storage.js";

const KEY = "weft.key";

export class ServiceError extends Error {
  constructor(message, status, code, retryAfter) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter; // seconds, of a service that is too busy
  }
}

export const serviceKey = {
  get: () => ofTab.get(KEY) || "",
  set: (key) => ofTab.set(KEY, key),
};

const listeners = new Set();

/** Calls `listener` when the service asks for a key. Returns what ends that. */
export function onKeyNeeded(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** A connection that was lost, unless we ended it. */
function lost(error) {
  throw error.name === "AbortError" ? error : new ServiceError("", 0, "unreachable");
}

async function send(path, body, signal) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (serviceKey.get()) headers.Authorization = `Bearer ${serviceKey.get()}`;
  const text = body === undefined ? undefined : JSON.stringify(body);
  const answer = await fetch(path, { method: text === undefined ? "GET" : "POST", headers, body: text, signal }).catch(lost);
  if (answer.ok) return answer;
  if (answer.status === 401) for (const listener of listeners) listener();
  let said;
  try {
    said = (await answer.json()).error;
  } catch {
    said = null;
  }
  const wait = Number(answer.headers.get("retry-after")) || undefined;
  throw new ServiceError(said?.message || `${answer.status} ${answer.statusText}`, answer.status, said?.code, wait);
}

/** The JSON answer of a route. `body` undefined: GET. `onHeaders` is given the answer's headers. */
export async function ask(path, body, signal, onHeaders) {
  const answer = await send(path, body, signal);
  onHeaders?.(answer.headers);
  return answer.json().catch(lost);
}

/** The events of a stream. A character or an event may be cut anywhere between two reads. */
export async function* events(path, body, signal) {
  const answer = await send(path, body, signal);
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(lost);
      rest += decoder.decode(value, { stream: !done });
      const parts = rest.split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        if (!part.startsWith("data:")) continue;
        const data = part.slice(5).trim();
        if (data === "[DONE]") return;
        const event = JSON.parse(data);
        if (event.error) throw new ServiceError(event.error.message, 200, event.error.code);
        yield event;
      }
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
