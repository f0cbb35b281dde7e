// Media of a sample: its image, text or sound. Also shows the difference between two samples.

import { element } from "./dom.js";

const IMAGE_MODALITIES = ["image", "image-text", "audio"]; // the image of a sound is its spectrogram
const PREVIEW_LENGTH = 160;

export function createMedia(sample, modality, large = false) {
  const parts = [];
  if (IMAGE_MODALITIES.includes(modality)) {
    const image = element("img", {
      src: `/explorer/picture/${sample.row}`, alt: sample.name ?? "", loading: "lazy",
      class: large ? "large" : "",
    });
    image.onerror = () => image.remove();
    parts.push(image);
  }
  if (modality === "audio" && large) {
    parts.push(element("audio", { src: `/explorer/sound/${sample.row}`, controls: true, preload: "none" }));
  }
  if (sample.text != null) {
    const short = large || sample.text.length < PREVIEW_LENGTH;
    parts.push(element("q", {}, short ? sample.text : `${sample.text.slice(0, PREVIEW_LENGTH)}…`));
  }
  if (modality === "words") parts.push(element("q", {}, sample.name));
  return parts;
}

let playing = null;

export function playSound(row) {
  stopSound();
  playing = new Audio(`/explorer/sound/${row}`);
  playing.play().catch(() => {}); // browsers block sound until the user has interacted with the page
}

export function stopSound() {
  playing?.pause();
  playing = null;
}

const splitWords = (text) => text.match(/[\p{L}\p{N}]+|[^\p{L}\p{N}]+/gu) ?? [];

// Show how `other` differs from `sample`. Texts: highlight the words that only `other` contains.
// Images: show the pixel difference. Returns null for other modalities.
export function createDifference(sample, other, modality) {
  if (sample.text != null && other.text != null) return createTextDifference(sample.text, other.text);
  if (modality !== "image" && modality !== "image-text") return null;
  const layer = (row, alt) => element("img", { src: `/explorer/picture/${row}`, alt });
  return element("span", { class: "difference", title: "pixel difference of the two images" },
    layer(sample.row, ""), layer(other.row, "difference"));
}

function createTextDifference(text, otherText) {
  const known = new Set(splitWords(text).map((word) => word.toLowerCase()));
  const isNew = (word) => /[\p{L}\p{N}]/u.test(word) && !known.has(word.toLowerCase());
  const highlight = (word) => (isNew(word) ? element("mark", {}, word) : word);
  return element("q", {}, splitWords(otherText).map(highlight));
}
