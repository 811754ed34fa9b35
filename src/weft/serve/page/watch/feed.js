// What the service says about all runs, asked again every second or two while somebody looks.

import { ask } from "../api.js";
import { useEffect, useRef, useState } from "../lib/preact.js";

const PAUSE = 1500; // milliseconds between two requests
const LONGEST_PAUSE = 12000; // while the service does not answer
const PATIENCE = 10000; // for one answer

export class Feed {
  runs = new Map(); // by id, in the service's order
  others = []; // corpora, tokenizers, models, reports
  problems = [];
  folder = "";
  isCut = false;
  control = false;
  isLoaded = false;
  gone = null; // since when the service does not answer, in milliseconds
  #version = null;
  #ahead = 0; // seconds by which the service's clock is ahead of ours
  #listeners = new Set();
  #wake = () => {};
  #isOpen = false;

  /** Calls `listener` after each answer. Returns what ends that. */
  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  get now() {
    return Date.now() / 1000 + this.#ahead;
  }

  open() {
    this.#isOpen = true;
    const seen = () => this.hurry();
    document.addEventListener("visibilitychange", seen);
    this.#loop();
    return () => {
      this.#isOpen = false;
      document.removeEventListener("visibilitychange", seen);
      this.hurry();
    };
  }

  /** Asks at once: something was done, or the page is seen again. */
  hurry() {
    this.#wake();
  }

  async #loop() {
    let pause = PAUSE;
    while (this.#isOpen) {
      if (document.visibilityState === "visible") pause = (await this.#ask()) ? PAUSE : Math.min(2 * pause, LONGEST_PAUSE);
      if (!this.#isOpen) return;
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, pause);
      });
    }
  }

  async #ask() {
    try {
      const path = this.#version === null ? "/runs" : `/runs?since=${this.#version}`;
      this.#take(await ask(path, undefined, AbortSignal.timeout(PATIENCE)));
      this.gone = null;
    } catch (error) {
      if (error.status === 401) return false; // the page asks for the key
      this.gone ??= Date.now();
    }
    for (const listener of this.#listeners) listener();
    return this.gone === null;
  }

  #take(told) {
    const known = this.runs;
    for (const run of told.runs) known.set(run.id, run);
    this.runs = new Map(told.ids.filter((id) => known.has(id)).map((id) => [id, known.get(id)]));
    this.#version = told.version;
    this.#ahead = told.now - Date.now() / 1000;
    this.control = told.control;
    this.isLoaded = true;
    if (told.others) {
      this.others = told.others;
      this.problems = told.problems;
      this.folder = told.folder;
      this.isCut = told.cut;
    }
  }
}

/** Draws the component again after each answer of the feed. */
export function useFeed(feed) {
  const [, setCount] = useState(0);
  useEffect(() => feed.listen(() => setCount((count) => count + 1)), [feed]);
}

/** What the service says about one run (`parts` of it), asked again when the run has news. */
export function useDetails(feed, id, parts) {
  const [found, setFound] = useState({ id: null, details: null, error: null });
  const asked = useRef({ stamp: null });
  const run = feed.runs.get(id);
  const news = { samples: run?.validation_step, recipe: run?.steps }[parts] ?? run?.updated;
  const stamp = `${id} ${parts} ${news} ${run?.state} ${run?.starting} ${feed.gone === null}`;
  const isRead = found.id === id && (found.details?.read ?? 0) >= 1;
  useEffect(() => {
    if (!id || (asked.current.stamp === stamp && (isRead || found.error))) return undefined;
    asked.current.stamp = stamp;
    const control = new AbortController();
    ask(`/runs/${id}?only=${parts}`, undefined, control.signal).then(
      (details) => setFound({ id, details, error: null }),
      (error) => error.name !== "AbortError" && setFound((before) => ({ id, details: before.id === id ? before.details : null, error })),
    );
    return () => control.abort();
  }, [stamp, isRead ? 1 : found]);
  return found.id === id ? found : { id, details: null, error: null };
}
