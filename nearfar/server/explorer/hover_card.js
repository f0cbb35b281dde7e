// @ts-check
// Small card next to the pointer. It shows the sample under the pointer.

import { element, find, keepChildren } from "./dom.js";
import { getJSON } from "./requests.js";
import { createMedia } from "./sample_media.js";

/** @typedef {import("./types").Sample} Sample */
/** @typedef {import("./types").SampleMedia} SampleMedia */

const POINTER_DISTANCE = 16, WINDOW_MARGIN = 8; // pixels

export class HoverCard {
  /** @param {SampleMedia} media */
  constructor(media) {
    this.media = media;
    this.card = find("hover", HTMLElement);
    /** @type {number | null} */
    this.row = null;
  }

  /**
   * Show a sample next to the pointer. If the pointer has moved on before the sample arrives, do nothing.
   *
   * @param {number} row
   * @param {MouseEvent} pointer
   */
  async show(row, pointer) {
    this.row = row;
    /** @type {Sample | null} */
    const sample = await getJSON(`/explorer/sample/${row}`).catch(() => null);
    if (!sample || this.row !== row) return;
    this.card.replaceChildren(...keepChildren([
      ...createMedia(sample, this.media),
      element("b", {}, sample.label ?? sample.name),
      sample.label !== null && element("small", {}, sample.name),
    ]));
    this.card.hidden = false;
    this.moveTo(pointer);
  }

  hide() {
    this.row = null;
    this.card.hidden = true;
  }

  /**
   * Place the card next to the pointer, inside the window.
   *
   * @param {MouseEvent} pointer
   */
  moveTo(pointer) {
    const { width, height } = this.card.getBoundingClientRect();
    this.card.style.left = `${placeInside(pointer.clientX, width, innerWidth)}px`;
    this.card.style.top = `${placeInside(pointer.clientY, height, innerHeight)}px`;
  }
}

/**
 * @param {number} pointer
 * @param {number} size
 * @param {number} windowSize
 */
function placeInside(pointer, size, windowSize) {
  return Math.max(WINDOW_MARGIN, Math.min(pointer + POINTER_DISTANCE, windowSize - size - WINDOW_MARGIN));
}
