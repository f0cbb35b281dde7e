// Search box. Every model accepts a row number. Text models also accept text.
// Image and audio models also accept a file. Image-text models accept both.

import { element } from "./dom.js";
import { search } from "./requests.js";

const ACCEPTED_FILES = { images: "image/png,image/jpeg,image/webp,image/bmp,image/gif", sounds: "audio/*" };
const HITS = 12;

export function createSearchBox(about, detail, onSelect) {
  const acceptsText = about.takes.includes("texts");
  const fileType = about.takes.find((type) => type in ACCEPTED_FILES);
  const input = element("input", { type: "search", id: "search", "aria-label": "Search",
    placeholder: acceptsText ? "Text or row number" : "Row number" });
  const run = async (title, body) => {
    detail.showMessage("Searching…", false);
    try {
      detail.showHits(title, (await search(body)).hits[0]);
    } catch (error) {
      detail.showMessage(error.message);
    }
  };
  const k = Math.min(HITS, about.rows);
  const hint = fileType
    ? `This model accepts ${fileType}. Upload a file or enter a row number.`
    : "Enter a row number.";
  const submit = (event) => {
    event.preventDefault();
    const query = input.value.trim();
    if (/^\d+$/.test(query)) onSelect(Number(query));
    else if (query && acceptsText) run(`Nearest to “${query}”`, { texts: [query], k });
    else if (query) detail.showMessage(hint);
  };
  const upload = (file) => {
    const form = new FormData();
    form.append(fileType, file);
    form.append("k", String(k));
    run(`Nearest to ${file.name}`, form);
  };
  const form = element("form", { class: "search", role: "search", onsubmit: submit }, input,
    element("button", { type: "submit" }, "Search"));
  if (!fileType) return form;
  const fileInput = element("input", {
    type: "file", accept: ACCEPTED_FILES[fileType], class: "visually-hidden", id: "file",
    onchange: () => fileInput.files[0] && upload(fileInput.files[0]),
  });
  form.append(fileInput,
    element("label", { for: "file", class: "button", title: "or drop a file here" }, "Upload…"));
  form.addEventListener("dragover", (event) => event.preventDefault());
  form.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files[0]) upload(event.dataTransfer.files[0]);
  });
  return form;
}
