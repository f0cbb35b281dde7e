// What the model saw as alike: positive pairs of the first training step.

import { h } from "./dom.js";
import { getJSON } from "./net.js";

export async function gallery(panel, about) {
  const note = h("p", { class: "quiet", role: "status" }, "Drawing…");
  panel.append(h("h2", {}, "Views"), note);
  const pairs = about.views ? await getJSON("/explorer/views") : [];
  note.textContent = pairs.length
    ? "Each pair was one sample. The method was told that the two are alike, and that all others are not."
    : "This method has no two views of a sample, or its own data are not what is served.";
  const view = (shown) => (shown.picture ? h("img", { src: shown.picture, alt: "a view" }) : h("q", {}, shown.text));
  const twin = (pair) => (pair.every((shown) => shown.picture) ? "twin" : "twin worded");
  panel.append(h("div", { class: "views" }, pairs.map((pair) => h("div", { class: twin(pair) }, pair.map(view)))));
}
