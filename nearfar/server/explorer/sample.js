// How a sample looks: its picture, its text, its sound; and how two of them differ.

import { h } from "./dom.js";

const PICTURED = ["image", "image-text", "audio"];

export function media(item, modality, large = false) {
  const parts = [];
  if (PICTURED.includes(modality)) {
    const picture = h("img", { src: `/explorer/picture/${item.row}`, alt: item.name ?? "", loading: "lazy", class: large ? "large" : "" });
    picture.onerror = () => picture.remove();
    parts.push(picture);
  }
  if (modality === "audio" && large) parts.push(h("audio", { src: `/explorer/sound/${item.row}`, controls: true, preload: "none" }));
  if (item.text != null) parts.push(h("q", {}, large || item.text.length < 160 ? item.text : `${item.text.slice(0, 160)}…`));
  if (modality === "words") parts.push(h("q", {}, item.name));
  return parts;
}

let playing = null;

export function play(row) {
  stop();
  playing = new Audio(`/explorer/sound/${row}`);
  playing.play().catch(() => {}); // browsers stay silent until somebody has touched the page
}

export function stop() {
  playing?.pause();
  playing = null;
}

const words = (text) => text.match(/[\p{L}\p{N}]+|[^\p{L}\p{N}]+/gu) ?? [];

// What the other does not have is marked: words of a text; of two pictures the difference is shown.
export function difference(item, other, modality) {
  if (item.text != null && other.text != null) {
    const own = new Set(words(item.text).map((w) => w.toLowerCase()));
    return h("q", {}, words(other.text).map((w) => (/[\p{L}\p{N}]/u.test(w) && !own.has(w.toLowerCase()) ? h("mark", {}, w) : w)));
  }
  if (modality !== "image" && modality !== "image-text") return null;
  const layer = (row, name) => h("img", { src: `/explorer/picture/${row}`, alt: name });
  return h("span", { class: "difference", title: "the difference of the two pictures" }, layer(item.row, ""), layer(other.row, "difference"));
}
