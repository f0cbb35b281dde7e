// @ts-check
// Tabs of the explorer. A tab is rendered when it is first opened, and again when the color scheme changes.

import { renderCompareTab } from "./compare.js";
import { renderCurvesTab } from "./curves.js";
import { renderDiagnosticsTab } from "./diagnostics.js";
import { element, find, formatCount } from "./dom.js";
import { renderMapTab } from "./map_view.js";
import { getJSON } from "./requests.js";
import { renderRunsTab } from "./runs.js";
import { describeError } from "./status.js";
import { darkMode } from "./theme.js";
import { renderViewsTab } from "./views.js";

/** @typedef {import("./types").About} About */
/** @typedef {import("./types").Tab} Tab */

/** @type {Record<string, Tab>} */
const TABS = {
  map: { title: "Map", render: renderMapTab },
  compare: { title: "Compare", render: renderCompareTab },
  views: { title: "Views", render: renderViewsTab },
  curves: { title: "Curves", render: renderCurvesTab },
  runs: { title: "Runs", render: renderRunsTab },
  health: { title: "Health", render: renderDiagnosticsTab },
};
const TAB_NAMES = Object.keys(TABS);
const FIRST_TAB = TAB_NAMES[0];

/** Button of each tab, by the name of the tab. @type {Record<string, HTMLElement>} */
const buttons = {};

/** Panel of each tab, by the name of the tab. @type {Record<string, HTMLElement>} */
const panels = {};

/** Return the tab that the address names after #. On the tab Map, a row may follow: #map/17. */
function readTabFromAddress() {
  const name = location.hash.slice(1).split("/")[0];
  return TAB_NAMES.includes(name) ? name : FIRST_TAB;
}

/** @param {string} name */
function goTo(name) {
  location.hash = name;
}

/**
 * Show a tab, and render it if it is empty.
 *
 * @param {string} name
 * @param {About} about
 */
async function openTab(name, about) {
  for (const other of TAB_NAMES) {
    buttons[other].setAttribute("aria-selected", String(other === name));
    buttons[other].tabIndex = other === name ? 0 : -1;
    panels[other].hidden = other !== name;
  }
  const panel = panels[name];
  if (panel.childElementCount) {
    dispatchEvent(new Event("resize")); // charts fit their size to the panel, which is visible now
    return;
  }
  await TABS[name].render(panel, about).catch((error) => {
    panel.append(element("p", { class: "problem", role: "alert" }, describeError(error)));
  });
}

/** @param {string} name */
function createTab(name) {
  buttons[name] = element("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`,
    onclick: () => goTo(name), onkeydown: (event) => moveFocus(event, name),
  }, TABS[name].title);
  panels[name] = element("section", {
    id: `panel-${name}`, role: "tabpanel", "aria-labelledby": `tab-${name}`, hidden: true,
  });
  find("tabs", HTMLElement).append(buttons[name]);
  find("panels", HTMLElement).append(panels[name]);
}

/**
 * Move from tab to tab with the left and right arrow keys.
 *
 * @param {KeyboardEvent} event
 * @param {string} name - tab that has the focus
 */
function moveFocus(event, name) {
  if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
  const index = TAB_NAMES.indexOf(name) + (event.key === "ArrowRight" ? 1 : -1);
  const next = TAB_NAMES[(index + TAB_NAMES.length) % TAB_NAMES.length];
  goTo(next);
  buttons[next].focus();
}

/**
 * Handle keys on the whole page: Escape hides the hover card, / moves to the search box, 1 to 6 open a tab.
 *
 * @param {KeyboardEvent} event
 */
function handleShortcut(event) {
  if (event.key === "Escape") find("hover", HTMLElement).hidden = true;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target instanceof Element && event.target.matches("input, select, textarea")) return;
  if (event.key === "/") {
    event.preventDefault();
    goTo("map");
    document.getElementById("search")?.focus(); // absent until the tab is rendered
  } else if (/^[1-6]$/.test(event.key)) goTo(TAB_NAMES[Number(event.key) - 1]);
}

/**
 * Empty all tabs except the map, which updates its own colors, and render the open tab again.
 *
 * @param {About} about
 */
function updateTheme(about) {
  for (const name of TAB_NAMES) {
    if (TABS[name].render !== renderMapTab) panels[name].replaceChildren();
  }
  return openTab(readTabFromAddress(), about);
}

/** @param {About} about */
function showFacts(about) {
  document.title = `${about.title} · nearfar`;
  find("title", HTMLElement).textContent = about.title;
  find("facts", HTMLElement).textContent = [
    `${formatCount(about.rows)} rows`, `${about.dim} dimensions`, about.run && `run ${about.run}`,
    about.step !== null && `step ${formatCount(about.step)}`,
  ].filter(Boolean).join(" · ");
  find("loading", HTMLElement).remove();
}

/** @type {About} */
const about = await getJSON("/explorer/about");
showFacts(about);
TAB_NAMES.forEach(createTab);
addEventListener("hashchange", () => openTab(readTabFromAddress(), about));
addEventListener("keydown", handleShortcut);
darkMode.addEventListener("change", () => updateTheme(about));
await openTab(readTabFromAddress(), about);
