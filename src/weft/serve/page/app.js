// The page: a bar with the two rooms (Try, Watch), language and theme. Each room is a module, loaded when it is entered.

import { ask, onKeyNeeded, ServiceError, serviceKey } from "./api.js";
import { html, render, useEffect, useErrorBoundary, useState } from "./lib/preact.js";
import { ErrorBox } from "./parts.js";
import { linkTo, useKept, useRoute } from "./state.js";
import { ofBrowser } from "./storage.js";
import { LANGUAGES, loadLanguage, preferredLanguage, t } from "./words.js";

const DARK = matchMedia("(prefers-color-scheme: dark)");
const ROOMS = { try: () => import("./try/room.js"), watch: () => import("./watch/room.js") };

/** `isLocked`: until a key is given, nothing is known of the service. */
function App({ start, isLocked }) {
  const route = useRoute();
  const [language, setLanguage] = useState(preferredLanguage());
  const [theme, setTheme] = useKept("theme", "auto");
  const [needsKey, setNeedsKey] = useState(isLocked);
  const [service, setService] = useState(start);
  const [room, setRoom] = useState({ name: null, Room: null });
  const rooms = [service?.models?.length ? "try" : null, service?.runs ? "watch" : null].filter(Boolean);
  const name = rooms.includes(route.parts[0]) ? route.parts[0] : rooms[0];

  useEffect(() => onKeyNeeded(() => setNeedsKey(true)), []);
  useEffect(() => applyTheme(theme), [theme]);
  useEffect(() => {
    if (!name) return undefined;
    let isCurrent = true;
    Promise.all([ROOMS[name](), loadLanguage(language, ["common", name])]).then(([module]) => {
      if (isCurrent) setRoom({ name, Room: module.default });
    });
    return () => {
      isCurrent = false;
    };
  }, [name, language]);

  const choose = async (chosen) => {
    ofBrowser.set("weft.language", chosen);
    await loadLanguage(chosen, ["common", ...(name ? [name] : [])]);
    setLanguage(chosen);
  };
  const enter = async (key) => {
    serviceKey.set(key);
    const found = await ask("/page.json");
    setNeedsKey(false);
    setService(found);
  };

  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>${t("skip")}</a>
    <header class="top">
      <a class="logo" href="#/"><img src="/page/icon.svg" alt="" width="26" height="26" /> weft</a>
      <nav aria-label=${t("rooms")}>
        ${rooms.map((one) => html`<a key=${one} href=${linkTo([one])} aria-current=${one === name ? "page" : undefined}>${t(`room.${one}`)}</a>`)}
      </nav>
      <div class="choices">
        <select aria-label=${t("theme")} value=${theme} onChange=${(event) => setTheme(event.target.value)}>
          ${["auto", "light", "dark"].map((one) => html`<option key=${one} value=${one}>${t(`theme.${one}`)}</option>`)}
        </select>
        <select aria-label=${t("language")} value=${language} onChange=${(event) => choose(event.target.value)}>
          ${Object.entries(LANGUAGES).map(([key, shown]) => html`<option key=${key} value=${key} lang=${key}>${shown}</option>`)}
        </select>
      </div>
    </header>
    <main id="main" tabindex="-1">
      ${needsKey
        ? html`<${KeyForm} onEnter=${enter} />`
        : !service
          ? html`<p class="error" role="alert">${t("unreachable")}</p>`
          : !name
            ? html`<p class="empty">${t("nothing")}</p>`
            : room.name === name && html`<${Guarded} route=${route}><${room.Room} key=${name} service=${service} route=${route} language=${language} /><//>`}
    </main>`;
}

/** What a room cannot draw, such as the values of a link that somebody made up, does not take the rest of the page. */
function Guarded({ route, children }) {
  const [problem, reset] = useErrorBoundary((error) => console.error(error));
  useEffect(() => reset(), [route]);
  return problem ? html`<p class="error" role="alert">${t("broken")} <a href="#/">${t("restart")}</a></p>` : children;
}

/** Colours as chosen, or as the system has them. Returns what ends that. */
function applyTheme(theme) {
  const apply = () => {
    document.documentElement.dataset.theme = theme === "auto" ? (DARK.matches ? "dark" : "light") : theme;
  };
  apply();
  DARK.addEventListener("change", apply);
  return () => DARK.removeEventListener("change", apply);
}

function KeyForm({ onEnter }) {
  const [key, setKey] = useState("");
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await onEnter(key.trim());
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<form class="card narrow" onSubmit=${submit}>
    <h2>${t("key.title")}</h2>
    <label for="key">${t("key.label")}</label>
    <input id="key" type="password" autocomplete="off" value=${key} onInput=${(event) => setKey(event.target.value)} />
    <${ErrorBox} error=${error} />
    <button class="primary">${t("key.enter")}</button>
  </form>`;
}

async function start() {
  await loadLanguage(preferredLanguage(), ["common"]);
  let found = null;
  let isLocked = false;
  try {
    found = await ask("/page.json");
  } catch (error) {
    isLocked = error instanceof ServiceError && error.status === 401;
  }
  render(html`<${App} start=${found} isLocked=${isLocked} />`, document.getElementById("app"));
}

start();
