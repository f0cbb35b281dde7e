// Tabs of the explorer. A tab is rendered when it is first opened, and again when the color scheme changes.

import { renderCompareTab } from "./compare.js";
import { renderCurvesTab } from "./curves.js";
import { renderDiagnosticsTab } from "./diagnostics.js";
import { element, find, formatCount } from "./dom.js";
import { renderMapTab } from "./map_view.js";
import { getJSON } from "./requests.js";
import { renderRunsTab } from "./runs.js";
import { darkMode } from "./theme.js";
import { renderViewsTab } from "./views.js";

const TABS = {
  map: { title: "Map", render: renderMapTab },
  compare: { title: "Compare", render: renderCompareTab },
  views: { title: "Views", render: renderViewsTab },
  curves: { title: "Curves", render: renderCurvesTab },
  runs: { title: "Runs", render: renderRunsTab },
  health: { title: "Health", render: renderDiagnosticsTab },
};
const TAB_NAMES = Object.keys(TABS);

const panels = {};

// The part of the address after # names the tab. On the tab Map, a row may follow: #map/17.
function tabInAddress() {
  const name = location.hash.slice(1).split("/")[0];
  return name in TABS ? name : "map";
}

const goTo = (name) => { location.hash = name; };

async function openTab(name, about) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    tab.setAttribute("aria-selected", String(tab.dataset.name === name));
    tab.tabIndex = tab.dataset.name === name ? 0 : -1;
  }
  for (const [other, panel] of Object.entries(panels)) panel.hidden = other !== name;
  const panel = panels[name];
  if (panel.childElementCount) {
    dispatchEvent(new Event("resize"));
    return;
  }
  await TABS[name].render(panel, about).catch((error) => {
    panel.append(element("p", { class: "problem", role: "alert" }, error.message));
  });
}

function createTabs(about) {
  for (const name of TAB_NAMES) {
    find("tabs").append(element("button", { type: "button", role: "tab", id: `tab-${name}`, "data-name": name,
      "aria-controls": `panel-${name}`, onclick: () => goTo(name), onkeydown: moveFocus }, TABS[name].title));
    panels[name] = element("section", {
      id: `panel-${name}`, role: "tabpanel", "aria-labelledby": `tab-${name}`, hidden: true,
    });
    find("panels").append(panels[name]);
  }
  addEventListener("hashchange", () => openTab(tabInAddress(), about));
  darkMode.addEventListener("change", () => {
    for (const name of TAB_NAMES) {
      if (name !== "map") panels[name].replaceChildren(); // the map updates its own colors
    }
    openTab(tabInAddress(), about);
  });
  addEventListener("keydown", handleShortcut);
  return openTab(tabInAddress(), about);
}

// Move from tab to tab with the left and right arrow keys.
function moveFocus(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const index = TAB_NAMES.indexOf(event.target.dataset.name) + step;
  const next = TAB_NAMES[(index + TAB_NAMES.length) % TAB_NAMES.length];
  goTo(next);
  document.querySelector(`[data-name=${next}]`).focus();
}

// Keys on the whole page: Escape hides the hover card, / moves to the search box, 1 to 6 open a tab.
function handleShortcut(event) {
  if (event.key === "Escape") find("hover").hidden = true;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea")) return;
  if (event.key === "/") {
    event.preventDefault();
    goTo("map");
    find("search")?.focus();
  } else if (/^[1-6]$/.test(event.key)) goTo(TAB_NAMES[event.key - 1]);
}

const about = await getJSON("/explorer/about");
document.title = `${about.title} · nearfar`;
find("title").textContent = about.title;
find("facts").textContent = [
  `${formatCount(about.rows)} rows`, `${about.dim} dimensions`, about.run && `run ${about.run}`,
  about.step != null && `step ${formatCount(about.step)}`,
].filter(Boolean).join(" · ");
find("loading").remove();
await createTabs(about);
