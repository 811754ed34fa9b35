// What can be tried with a model, and the module of each panel, loaded when it is opened.

const rewrite = () => import("./rewrite.js");
export const PANELS = {
  chat: () => import("./chat.js"),
  translate: rewrite,
  summarize: rewrite,
  reply: rewrite,
  write: () => import("./write.js"),
  classify: () => import("./classify.js"),
  pair: () => import("./pair.js"),
  tag: () => import("./tag.js"),
  answer: () => import("./answer.js"),
  intent: () => import("./intent.js"),
  fill: () => import("./fill.js"),
  similarity: () => import("./similarity.js"),
  embed: () => import("./embed.js"),
  tokens: () => import("./tokens.js"),
};
const ALWAYS = ["embed", "similarity", "tokens"];

/** Its own task first. Every model that writes could be asked to translate: only one that was tuned to it is. */
export function panelsOf(model) {
  const can = {
    chat: Boolean(model.chat),
    write: model.writes,
    ...Object.fromEntries(["translate", "summarize", "reply"].map((task) => [task, model.task === task])),
  };
  const fitting = Object.keys(PANELS).filter((name) => can[name] ?? (ALWAYS.includes(name) || model.abilities.includes(name)));
  return fitting.sort((a, b) => (b === model.task) - (a === model.task));
}
