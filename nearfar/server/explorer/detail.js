// The panel beside the map: one sample, or the hits of a search, and what is nearest.

import { find, h, short } from "./dom.js";
import { getJSON, Problem } from "./net.js";
import { difference, media } from "./sample.js";

export function createDetail(element, about, { onpick, onshown }) {
  const neighbour = (item) => (other, rank) => h("li", {},
    h("button", { type: "button", class: item && other.label !== item.label ? "hit no" : "hit", onclick: () => onpick(other.row) },
      h("span", { class: "rank" }, String(rank + 1)),
      h("span", { class: "looks" }, other.text != null && item ? difference(item, other, about.modality) : media(other, about.modality),
        item && other.text == null && difference(item, other, about.modality)),
      h("span", { class: "said" }, h("b", {}, short(other.score)), h("span", {}, other.label ?? other.name))));

  const heading = (item) => h("div", { class: "chosen" }, media(item, about.modality, true),
    h("div", {}, h("h2", {}, item.label ?? item.name), h("p", { class: "quiet" }, item.label == null ? `row ${item.row}` : item.name)));

  return {
    async show(row) {
      try {
        const { item, neighbours } = await getJSON(`/explorer/neighbours/${row}`);
        const labelled = item.label != null && neighbours.length > 0;
        const same = neighbours.filter((other) => other.label === item.label).length;
        const note = labelled ? `${same} of ${neighbours.length} share its label` : `the ${neighbours.length} nearest`;
        const pixels = " · right: the difference in pixels";
        const how = { image: pixels, "image-text": pixels, text: " · marked: words it does not have" }[about.modality] ?? "";
        element.replaceChildren(heading(item), h("p", { class: "quiet" }, note + how), h("ol", { class: "hits" }, neighbours.map(neighbour(item))));
        onshown(row, neighbours.map((other) => other.row));
      } catch (e) {
        this.say(e instanceof Problem ? e.message : "The server does not answer.");
      }
    },
    hits(title, found) {
      element.replaceChildren(h("h2", {}, title), h("ol", { class: "hits" }, found.map(neighbour(null))));
      onshown(null, found.map((hit) => hit.row));
    },
    say(text, bad = true) {
      element.replaceChildren(h("p", { class: bad ? "problem" : "quiet", role: bad ? "alert" : "status" }, text));
    },
  };
}

// The small card under the pointer.
export function hoverCard(about) {
  const card = find("hover");
  let shown = null;
  return async (row, event) => {
    shown = row;
    if (row == null) {
      card.hidden = true;
      return;
    }
    const item = await getJSON(`/explorer/item/${row}`).catch(() => null);
    if (!item || shown !== row) return;
    card.replaceChildren(...media(item, about.modality), h("b", {}, item.label ?? item.name), item.label != null && h("small", {}, item.name));
    card.hidden = false;
    const { width, height } = card.getBoundingClientRect();
    card.style.left = `${Math.max(8, Math.min(event.clientX + 16, innerWidth - width - 8))}px`;
    card.style.top = `${Math.max(8, Math.min(event.clientY + 16, innerHeight - height - 8))}px`;
  };
}
