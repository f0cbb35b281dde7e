// @ts-check
// Panel next to the map: the selected sample or a search query, with its nearest neighbors.

import { element, formatNumber } from "./dom.js";
import { getJSON, RequestError } from "./requests.js";
import { createDifference, createMedia } from "./sample_media.js";

/** @typedef {import("./types").Neighbor} Neighbor */
/** @typedef {import("./types").NeighborsAnswer} NeighborsAnswer */
/** @typedef {import("./types").Sample} Sample */
/** @typedef {import("./types").SampleMedia} SampleMedia */

export class SampleDetail {
  /**
   * Create the panel. `onSelect(row)` is called when a neighbor is clicked. `onShow(row, neighbors)` is
   * called with the rows that the panel shows. For a search, its `row` is null.
   *
   * @param {SampleMedia} media
   * @param {(row: number) => void} onSelect
   * @param {(row: number | null, neighbors: number[]) => void} onShow
   */
  constructor(media, onSelect, onShow) {
    this.media = media;
    this.onSelect = onSelect;
    this.onShow = onShow;
    this.panel = element("aside", { "aria-live": "polite" });
  }

  /**
   * Show a sample and its nearest neighbors.
   *
   * @param {number} row
   */
  async showSample(row) {
    try {
      /** @type {NeighborsAnswer} */
      const { sample, neighbors } = await getJSON(`/explorer/neighbors/${row}`);
      const note = summarizeNeighbors(sample, neighbors) + (this.media.difference ?? "");
      this.panel.replaceChildren(this.createHeading(sample), element("p", { class: "quiet" }, note),
        this.createList(neighbors, sample));
      this.onShow(row, neighbors.map((neighbor) => neighbor.row));
    } catch (error) {
      this.showMessage(error instanceof RequestError ? error.message : "The server does not respond.");
    }
  }

  /**
   * Show the hits of a search.
   *
   * @param {string} title
   * @param {Neighbor[]} hits
   */
  showHits(title, hits) {
    this.panel.replaceChildren(element("h2", {}, title), this.createList(hits, null));
    this.onShow(null, hits.map((hit) => hit.row));
  }

  /**
   * @param {string} text
   * @param {boolean} [isError]
   */
  showMessage(text, isError = true) {
    const attributes = isError ? { class: "problem", role: "alert" } : { class: "quiet", role: "status" };
    this.panel.replaceChildren(element("p", attributes, text));
  }

  /** @param {Sample} sample */
  createHeading(sample) {
    return element("div", { class: "selected-sample" }, createMedia(sample, this.media, true),
      element("div", {}, element("h2", {}, sample.label ?? sample.name),
        element("p", { class: "quiet" }, sample.label === null ? `row ${sample.row}` : sample.name)));
  }

  /**
   * @param {Neighbor[]} neighbors
   * @param {Sample | null} sample - null if the query is not a sample of the collection
   */
  createList(neighbors, sample) {
    return element("ol", { class: "hits" },
      neighbors.map((neighbor, i) => element("li", {}, this.createEntry(neighbor, i + 1, sample))));
  }

  /**
   * @param {Neighbor} neighbor
   * @param {number} rank
   * @param {Sample | null} sample
   */
  createEntry(neighbor, rank, sample) {
    const hasOtherLabel = sample !== null && neighbor.label !== sample.label;
    return element("button", {
      type: "button", class: hasOtherLabel ? "hit other-label" : "hit",
      onclick: () => this.onSelect(neighbor.row),
    },
    element("span", { class: "rank" }, String(rank)),
    element("span", { class: "media" }, this.createEntryMedia(neighbor, sample)),
    element("span", { class: "score" }, element("b", {}, formatNumber(neighbor.score)),
      element("span", {}, neighbor.label ?? neighbor.name)));
  }

  /**
   * Create the media of a neighbor and its difference from the sample. For texts, the difference is enough.
   *
   * @param {Neighbor} neighbor
   * @param {Sample | null} sample
   */
  createEntryMedia(neighbor, sample) {
    if (sample === null) return createMedia(neighbor, this.media);
    const difference = createDifference(sample, neighbor, this.media);
    return neighbor.text === undefined ? [...createMedia(neighbor, this.media), difference] : [difference];
  }
}

/**
 * Return a sentence about the number of neighbors, and about their labels if the sample has one.
 *
 * @param {Sample} sample
 * @param {Neighbor[]} neighbors
 */
function summarizeNeighbors(sample, neighbors) {
  if (sample.label === null || !neighbors.length) return `${neighbors.length} nearest neighbors`;
  const same = neighbors.filter((neighbor) => neighbor.label === sample.label).length;
  return `${same} of ${neighbors.length} nearest neighbors have the same label`;
}
