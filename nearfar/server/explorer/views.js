// @ts-check
// Tab "Views": positive pairs of the first training step.

import { element } from "./dom.js";
import { getJSON } from "./requests.js";

/** @typedef {import("./types").About} About */
/** @typedef {import("./types").View} View */
/** @typedef {import("./types").ViewPairs} ViewPairs */

const PAIRS_NOTE = "Each pair shows two views of one sample. Training uses them as a positive pair.";
const NO_PAIRS_NOTE = "There are no views. Either the method does not use two views of a sample, "
  + "or the server does not serve the training data.";

/**
 * @param {HTMLElement} panel
 * @param {About} about
 */
export async function renderViewsTab(panel, about) {
  const note = element("p", { class: "quiet", role: "status" }, "Loading views…");
  panel.append(element("h2", {}, "Views"), note);
  /** @type {ViewPairs} */
  const pairs = about.views ? await getJSON("/explorer/views") : [];
  note.textContent = pairs.length ? PAIRS_NOTE : NO_PAIRS_NOTE;
  panel.append(element("div", { class: "views" }, pairs.map(createPair)));
}

/** @param {View[]} pair */
function createPair(pair) {
  const hasText = pair.some((view) => view.picture === undefined);
  return element("div", { class: hasText ? "view-pair with-text" : "view-pair" }, pair.map(createView));
}

/** @param {View} view */
function createView(view) {
  if (view.picture === undefined) return element("q", {}, view.text);
  return element("img", { src: view.picture, alt: "view" });
}
