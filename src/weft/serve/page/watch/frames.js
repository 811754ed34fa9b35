// Drawing, one chart in each animation frame: many charts at once would make the page stutter.

const waiting = new Map();
let isAsked = false;

/** Runs `work` in a frame of its own; of several with one `name` only the last. */
export function inItsOwnFrame(name, work) {
  waiting.set(name, work);
  if (!isAsked) {
    isAsked = true;
    requestAnimationFrame(next);
  }
}

export function forget(name) {
  waiting.delete(name);
}

function next() {
  const [first] = waiting;
  if (first) {
    waiting.delete(first[0]);
    first[1]();
  }
  isAsked = waiting.size > 0;
  if (isAsked) requestAnimationFrame(next);
}
