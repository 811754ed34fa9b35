// Try: the models, what each can do, and a panel to do it.

import { ask } from "../api.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/preact.js";
import { ErrorBox } from "../parts.js";
import { linkTo, readRoute } from "../state.js";
import { currentLanguage, loadExamples, t } from "../words.js";
import { PANELS, panelsOf } from "./panels.js";
import { short } from "./text.js";

export default function TryRoom({ service, route }) {
  const [models, setModels] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    ask("/v1/models").then((found) => setModels(found.data), setError);
  }, [service]);
  if (error) return html`<${ErrorBox} error=${error} />`;
  if (!models) return html`<p class="empty" role="status">${t("loading")}</p>`;
  const wanted = route.parts[1];
  const model = models.find((one) => one.id === wanted) || models[0];
  const panels = panelsOf(model);
  const panel = panels.includes(route.parts[2]) ? route.parts[2] : panels[0];
  return html`<div class="split try">
    <${Models} models=${models} model=${model} panels=${panels} panel=${panel} />
    <div>
      ${wanted && wanted !== model.id && html`<p class="error" role="alert">${t("nomodel")} <bdi>${short(wanted)}</bdi></p>`}
      <${Opened} route=${route} model=${model} panel=${panel} />
    </div>
  </div>`;
}

function Models({ models, model, panels, panel }) {
  return html`<nav class="models" aria-label=${t("models")}>
    ${models.length > 1 &&
    html`<select aria-label=${t("models")} value=${model.id}
      onChange=${(event) => { location.hash = linkTo(["try", event.target.value]); }}>
      ${models.map((one) => html`<option key=${one.id} value=${one.id}>${short(one.id, 60)}</option>`)}
    </select>`}
    <ul class="list">${models.map(
      (one) => html`<li key=${one.id} class=${one === model ? "chosen" : ""}>
        <a class="model" href=${linkTo(["try", one.id])} aria-current=${one === model ? "true" : undefined}><bdi>${short(one.id, 80)}</bdi><small>${factsOf(one)}</small></a>
        ${one === model &&
        html`<ul class="list panels">${panels.map(
          (name) => html`<li key=${name}><a href=${linkTo(["try", one.id, name])}
            aria-current=${name === panel ? "page" : undefined}>${t(`${name}.title`)}</a></li>`,
        )}</ul>`}
      </li>`,
    )}</ul>
  </nav>`;
}

function factsOf(model) {
  const size = model.parameters.toLocaleString(currentLanguage(), { notation: "compact", maximumSignificantDigits: 3 });
  return [model.family, t("parameters", { count: size }), model.task && t(`${model.task}.title`)].filter(Boolean).join(" · ");
}

/** The panel, made anew for each link that is followed, so that it shows what the link says. */
function Opened({ route, model, panel }) {
  const [loaded, setLoaded] = useState({ name: null });
  const visits = useRef({ route, number: 0 });
  if (visits.current.route !== route) visits.current = { route, number: visits.current.number + 1 };
  // Before the panel writes its values into the address.
  useLayoutEffect(() => {
    const { parts, values } = readRoute();
    const whole = ["try", model.id, panel];
    if (linkTo(parts) !== linkTo(whole)) history.replaceState(null, "", linkTo(whole, values));
    document.title = `${model.id} · ${t(`${panel}.title`)} · weft`;
  }, [route, model.id, panel]);
  useEffect(() => {
    let isCurrent = true;
    Promise.all([PANELS[panel](), loadExamples(model.languages)]).then(([module]) => isCurrent && setLoaded({ name: panel, id: model.id, Panel: module.default }));
    return () => {
      isCurrent = false;
    };
  }, [panel, model.id]);
  if (loaded.name !== panel || loaded.id !== model.id) return html`<p class="empty" role="status">${t("loading")}</p>`;
  const place = `try/${encodeURIComponent(model.id)}/${panel}`;
  return html`<${loaded.Panel} key=${`${visits.current.number}/${place}`} model=${model} place=${place} panel=${panel} />`;
}
