// One chapter at a time, a search over all of them, and the same chapter in the other language.
const articles = [...document.querySelectorAll("article")];
const nav = document.querySelector("nav"), menu = document.getElementById("menu");
const search = document.getElementById("search"), results = document.getElementById("results");
const other = document.querySelector("nav .other"), otherPage = other.getAttribute("href");
document.documentElement.classList.add("scripted");
for (const part of [menu, search, document.getElementById("all")]) part.hidden = false;

function show() {
  const anchor = decodeURIComponent(location.hash.slice(1));
  const target = anchor && document.getElementById(anchor);
  const isAll = anchor === "all";
  const article = (target && target.closest("article")) || articles[0];
  document.documentElement.classList.toggle("all", isAll);
  for (const one of articles) one.hidden = !isAll && one !== article;
  for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
  for (const item of nav.querySelectorAll(".toc > ol > li"))
    item.classList.toggle("here", item.querySelector("a").hash === "#" + article.dataset.chapter);
  other.href = otherPage + "#" + article.dataset.chapter;
  close();
  document.fonts.ready.then(() => articles.filter(one => !one.hidden).forEach(tightenRoots));
  if (target && article !== target && target.tagName !== "H1") target.scrollIntoView();
  else scrollTo(0, 0);
}

// Chromium leaves room behind a root for the widest root sign of the font.
function tightenRoots(article) {
  for (const root of article.querySelectorAll("msqrt:not([style])")) {
    const gap = root.getBoundingClientRect().right - root.lastElementChild.getBoundingClientRect().right;
    if (gap > 1) root.style.marginRight = -gap + "px";
  }
}

function close() {
  nav.classList.remove("open");
  menu.setAttribute("aria-expanded", "false");
}

menu.addEventListener("click", () => menu.setAttribute("aria-expanded", nav.classList.toggle("open")));
nav.addEventListener("click", event => { if (event.target.closest(".toc a, .name")) close(); });
addEventListener("hashchange", show);
show();

let index;
function blocks() {
  return (index ??= articles.filter(one => !one.classList.contains("sources")).flatMap(article => {
    let heading = article.querySelector("h1").textContent;
    return [...article.querySelectorAll("h1, h2, h3, p, li, td, figcaption, pre")].map(element => {
      if (/^H[1-3]$/.test(element.tagName)) heading = element.textContent;
      return { element, article, heading, text: element.textContent, lower: element.textContent.toLowerCase() };
    });
  }));
}

function mark(text, words) {
  const lower = text.toLowerCase(), at = Math.max(0, Math.min(...words.map(word => lower.indexOf(word))) - 40);
  const snippet = (at ? "…" : "") + text.slice(at, at + 150).replace(/\s+/g, " ");
  const span = document.createElement("span");
  const pattern = new RegExp("(" + words.map(word => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|") + ")", "gi");
  for (const [place, part] of snippet.split(pattern).entries())
    span.append(place % 2 ? Object.assign(document.createElement("mark"), { textContent: part }) : part);
  return span;
}

search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  results.replaceChildren();
  if (!words.length) return;
  const found = blocks().filter(block => words.every(word => block.lower.includes(word)));
  const heading = document.createElement("p");
  heading.textContent = found.length ? `${found.length} ${search.dataset.found}` : search.dataset.none;
  results.append(heading);
  for (const block of found.slice(0, 20)) {
    const link = document.createElement("a");
    link.href = "#" + block.article.dataset.chapter;
    link.append(Object.assign(document.createElement("b"), { textContent: block.heading }), mark(block.text, words));
    link.addEventListener("click", event => {
      event.preventDefault();
      history.pushState(null, "", link.href);
      show();
      for (let one = block.element; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
      block.element.scrollIntoView({ block: "center" });
      block.element.classList.add("flash");
      setTimeout(() => block.element.classList.remove("flash"), 2500);
    });
    results.append(link);
  }
});
