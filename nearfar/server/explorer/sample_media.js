// @ts-check
// Media of a sample: its picture, text or sound. Also shows the difference between two samples.

import { element } from "./dom.js";

/** @typedef {import("./types").Sample} Sample */
/** @typedef {import("./types").SampleMedia} SampleMedia */

const PREVIEW_LENGTH = 160;

/**
 * Create the elements that show a sample. Only the large form has a sound player and the whole text.
 *
 * @param {Sample} sample
 * @param {SampleMedia} media
 * @param {boolean} [large]
 */
export function createMedia(sample, media, large = false) {
  const parts = [];
  if (media.picture) parts.push(createPicture(sample, large));
  if (media.sound && large) {
    parts.push(element("audio", { src: soundPath(sample.row), controls: true, preload: "none" }));
  }
  if (sample.text !== undefined) {
    const short = large || sample.text.length < PREVIEW_LENGTH;
    parts.push(element("q", {}, short ? sample.text : `${sample.text.slice(0, PREVIEW_LENGTH)}…`));
  }
  if (media.quote) parts.push(element("q", {}, sample.name));
  return parts;
}

/** @param {number} row */
const picturePath = (row) => `/explorer/picture/${row}`;

/** @param {number} row */
const soundPath = (row) => `/explorer/sound/${row}`;

/**
 * Create the picture of a sample. A picture that cannot be loaded removes itself.
 *
 * @param {Sample} sample
 * @param {boolean} large
 */
function createPicture(sample, large) {
  const picture = element("img", {
    src: picturePath(sample.row), alt: sample.name ?? "", loading: "lazy", class: large ? "large" : "",
    onerror: () => picture.remove(),
  });
  return picture;
}

/** @type {HTMLAudioElement | null} */
let playing = null;

/**
 * Play the sound of a row instead of the sound that is playing.
 *
 * @param {number} row
 */
export function playSound(row) {
  stopSound();
  playing = new Audio(soundPath(row));
  playing.play().catch(() => {}); // browsers block sound until the user has interacted with the page
}

export function stopSound() {
  playing?.pause();
  playing = null;
}

/**
 * Show how `other` differs from `sample`. Texts: highlight the words that only `other` contains.
 * Pictures: show the pixel difference. Returns null if the media have no difference to show.
 *
 * @param {Sample} sample
 * @param {Sample} other
 * @param {SampleMedia} media
 */
export function createDifference(sample, other, media) {
  if (sample.text !== undefined && other.text !== undefined) {
    return createTextDifference(sample.text, other.text);
  }
  if (!media.picture || media.difference === null) return null;
  return element("span", { class: "difference", title: "pixel difference of the two images" },
    element("img", { src: picturePath(sample.row), alt: "" }),
    element("img", { src: picturePath(other.row), alt: "difference" }));
}

/** @param {string} text */
const splitWords = (text) => text.match(/[\p{L}\p{N}]+|[^\p{L}\p{N}]+/gu) ?? [];

/**
 * @param {string} text
 * @param {string} otherText
 */
function createTextDifference(text, otherText) {
  const known = new Set(splitWords(text).map((word) => word.toLowerCase()));
  /** @param {string} word */
  const isNew = (word) => /[\p{L}\p{N}]/u.test(word) && !known.has(word.toLowerCase());
  /** @param {string} word */
  const highlight = (word) => (isNew(word) ? element("mark", {}, word) : word);
  return element("q", {}, splitWords(otherText).map(highlight));
}
