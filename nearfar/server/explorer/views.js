// Tab "Views": positive pairs of the first training step.

import { element } from "./dom.js";
import { getJSON } from "./requests.js";

const createView = (view) => (view.picture
  ? element("img", { src: view.picture, alt: "view" })
  : element("q", {}, view.text));

export async function renderViewsTab(panel, about) {
  const note = element("p", { class: "quiet", role: "status" }, "Loading views…");
  panel.append(element("h2", {}, "Views"), note);
  const pairs = about.views ? await getJSON("/explorer/views") : [];
  note.textContent = pairs.length
    ? "Each pair shows two views of one sample. Training uses them as a positive pair."
    : "There are no views. Either the method does not use two views of a sample, "
      + "or the server does not serve the training data.";
  const pairClass = (pair) => (pair.every((view) => view.picture) ? "twin" : "twin worded");
  panel.append(element("div", { class: "views" },
    pairs.map((pair) => element("div", { class: pairClass(pair) }, pair.map(createView)))));
}
