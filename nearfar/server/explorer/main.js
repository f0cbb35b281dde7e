// The tabs. Each is built when it is first opened, and rebuilt for the other mood of the screen.

import { atlas } from "./atlas.js";
import { compare } from "./compare.js";
import { curves } from "./curves.js";
import { count, find, h } from "./dom.js";
import { gallery } from "./gallery.js";
import { health } from "./health.js";
import { dark } from "./look.js";
import { getJSON } from "./net.js";
import { plane } from "./plane.js";

const TABS = { map: ["Map", atlas], compare: ["Compare", compare], views: ["Views", gallery], curves: ["Curves", curves],
  runs: ["Runs", plane], health: ["Health", health] };

const panels = {};

async function open(name, about) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    tab.setAttribute("aria-selected", String(tab.dataset.name === name));
    tab.tabIndex = tab.dataset.name === name ? 0 : -1;
  }
  for (const [other, panel] of Object.entries(panels)) panel.hidden = other !== name;
  if (panels[name].childElementCount) return void dispatchEvent(new Event("resize"));
  await TABS[name][1](panels[name], about).catch((e) => panels[name].append(h("p", { class: "problem", role: "alert" }, e.message)));
}

function tabs(about) {
  const names = Object.keys(TABS);
  const go = (name) => { location.hash = name; };
  const arrows = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = names[(names.indexOf(event.target.dataset.name) + step + names.length) % names.length];
    go(next);
    document.querySelector(`[data-name=${next}]`).focus();
  };
  find("tabs").append(...names.map((name) => h("button", { type: "button", role: "tab", id: `tab-${name}`, "data-name": name,
    "aria-controls": `panel-${name}`, onclick: () => go(name), onkeydown: arrows }, TABS[name][0])));
  for (const name of names) {
    panels[name] = h("section", { id: `panel-${name}`, role: "tabpanel", "aria-labelledby": `tab-${name}`, hidden: true });
    find("panels").append(panels[name]);
  }
  const current = () => { const name = location.hash.slice(1).split("/")[0]; return name in TABS ? name : "map"; };
  addEventListener("hashchange", () => open(current(), about));
  dark.addEventListener("change", () => {
    for (const name of names) if (name !== "map") panels[name].replaceChildren();
    open(current(), about);
  });
  addEventListener("keydown", (event) => shortcut(event, names, go));
  return open(current(), about);
}

function shortcut(event, names, go) {
  if (event.key === "Escape") find("hover").hidden = true;
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  if (event.key === "/") {
    event.preventDefault();
    go("map");
    find("search")?.focus();
  } else if (/^[1-6]$/.test(event.key)) go(names[event.key - 1]);
}

const about = await getJSON("/explorer/about");
document.title = `${about.title} · nearfar`;
find("title").textContent = about.title;
find("facts").textContent = [`${count(about.rows)} rows`, `${about.dim} numbers each`, about.run && `run ${about.run}`,
  about.step != null && `step ${count(about.step)}`].filter(Boolean).join(" · ");
find("waiting").remove();
await tabs(about);
