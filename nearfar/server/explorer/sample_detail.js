// Panel next to the map: the selected sample or a search query, with its nearest neighbors.

import { element, find, formatNumber } from "./dom.js";
import { getJSON, RequestError } from "./requests.js";
import { createDifference, createMedia } from "./sample_media.js";

const PIXELS_NOTE = " · right: pixel difference";
const WORDS_NOTE = " · highlighted: words that the selected sample does not contain";
const DIFFERENCE_NOTES = { image: PIXELS_NOTE, "image-text": PIXELS_NOTE, text: WORDS_NOTE };

// Create the panel in `container`. `onSelect(row)` is called when a neighbor is clicked.
// `onShow(row, neighbors)` is called with the rows that the panel shows. For a search, `row` is null.
export function createSampleDetail(container, about, { onSelect, onShow }) {
  // Create the list entry of a neighbor. `sample` is null if the query is not a sample of the dataset.
  const neighborEntry = (neighbor, rank, sample) => {
    const otherLabel = sample && neighbor.label !== sample.label;
    const difference = sample && createDifference(sample, neighbor, about.modality);
    const media = neighbor.text != null && sample
      ? [difference]
      : [createMedia(neighbor, about.modality), difference].flat();
    return element("li", {},
      element("button", {
        type: "button", class: otherLabel ? "hit other-label" : "hit", onclick: () => onSelect(neighbor.row),
      },
      element("span", { class: "rank" }, String(rank + 1)),
      element("span", { class: "media" }, media),
      element("span", { class: "said" }, element("b", {}, formatNumber(neighbor.score)),
        element("span", {}, neighbor.label ?? neighbor.name))));
  };
  const neighborList = (neighbors, sample) => element("ol", { class: "hits" },
    neighbors.map((neighbor, rank) => neighborEntry(neighbor, rank, sample)));

  const heading = (sample) => element("div", { class: "chosen" }, createMedia(sample, about.modality, true),
    element("div", {}, element("h2", {}, sample.label ?? sample.name),
      element("p", { class: "quiet" }, sample.label == null ? `row ${sample.row}` : sample.name)));

  return {
    async show(row) {
      try {
        const { sample, neighbors } = await getJSON(`/explorer/neighbors/${row}`);
        const labeled = sample.label != null && neighbors.length > 0;
        const same = neighbors.filter((neighbor) => neighbor.label === sample.label).length;
        const note = labeled
          ? `${same} of ${neighbors.length} nearest neighbors have the same label`
          : `${neighbors.length} nearest neighbors`;
        const differenceNote = DIFFERENCE_NOTES[about.modality] ?? "";
        container.replaceChildren(heading(sample), element("p", { class: "quiet" }, note + differenceNote),
          neighborList(neighbors, sample));
        onShow(row, neighbors.map((neighbor) => neighbor.row));
      } catch (error) {
        this.showMessage(error instanceof RequestError ? error.message : "The server does not respond.");
      }
    },
    showHits(title, hits) {
      container.replaceChildren(element("h2", {}, title), neighborList(hits, null));
      onShow(null, hits.map((hit) => hit.row));
    },
    showMessage(text, isError = true) {
      const attributes = isError ? { class: "problem", role: "alert" } : { class: "quiet", role: "status" };
      container.replaceChildren(element("p", attributes, text));
    },
  };
}

// Create the small card next to the pointer. Returns a function that shows a row, or hides the card for null.
export function createHoverCard(about) {
  const card = find("hover");
  let shownRow = null;
  return async (row, event) => {
    shownRow = row;
    if (row == null) {
      card.hidden = true;
      return;
    }
    const sample = await getJSON(`/explorer/sample/${row}`).catch(() => null);
    if (!sample || shownRow !== row) return;
    card.replaceChildren(...createMedia(sample, about.modality),
      element("b", {}, sample.label ?? sample.name),
      sample.label != null && element("small", {}, sample.name));
    card.hidden = false;
    const { width, height } = card.getBoundingClientRect();
    card.style.left = `${Math.max(8, Math.min(event.clientX + 16, innerWidth - width - 8))}px`;
    card.style.top = `${Math.max(8, Math.min(event.clientY + 16, innerHeight - height - 8))}px`;
  };
}
