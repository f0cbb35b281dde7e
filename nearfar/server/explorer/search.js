// @ts-check
// Search box. Every model accepts a row number. Some models also accept a text, an uploaded file, or both.

import { element } from "./dom.js";
import { search } from "./requests.js";
import { describeError } from "./status.js";

/** @typedef {import("./types").About} About */
/** @typedef {import("./types").SearchBody} SearchBody */
/** @typedef {import("./sample_detail.js").SampleDetail} SampleDetail */

/** File types for the inputs of a model that are files. @type {Map<string, string>} */
const FILE_TYPES = new Map([
  ["images", "image/png,image/jpeg,image/webp,image/bmp,image/gif"],
  ["sounds", "audio/*"],
]);
const HITS = 12;

/**
 * Create the search box. Hits are shown in `detail`.
 *
 * @param {About} about
 * @param {SampleDetail} detail
 * @param {(row: number) => void} onSelect - called if the user enters a row number
 */
export function createSearchBox(about, detail, onSelect) {
  const acceptsText = about.takes.includes("texts");
  const fileInput = about.takes.find((input) => FILE_TYPES.has(input));
  const hint = fileInput
    ? `This model accepts ${fileInput}. Upload a file or enter a row number.`
    : "Enter a row number.";
  const k = Math.min(HITS, about.rows);
  const box = element("input", { type: "search", id: "search", "aria-label": "Search",
    placeholder: acceptsText ? "Text or row number" : "Row number" });
  /** @param {SubmitEvent} event */
  const submit = (event) => {
    event.preventDefault();
    const query = box.value.trim();
    if (/^\d+$/.test(query)) onSelect(Number(query));
    else if (query && acceptsText) showHits(detail, `Nearest to “${query}”`, { texts: [query], k });
    else if (query) detail.showMessage(hint);
  };
  const form = element("form", { class: "search", role: "search", onsubmit: submit }, box,
    element("button", { type: "submit" }, "Search"));
  if (fileInput) addUpload(form, fileInput, (file) => searchFile(detail, fileInput, file, k));
  return form;
}

/**
 * @param {SampleDetail} detail
 * @param {string} title
 * @param {SearchBody | FormData} body
 */
async function showHits(detail, title, body) {
  detail.showMessage("Searching…", false);
  try {
    const { hits: [hits] } = await search(body);
    detail.showHits(title, hits);
  } catch (error) {
    detail.showMessage(describeError(error));
  }
}

/**
 * @param {SampleDetail} detail
 * @param {string} input - name of the input that the file is sent as
 * @param {File} file
 * @param {number} k
 */
function searchFile(detail, input, file, k) {
  const body = new FormData();
  body.append(input, file);
  body.append("k", String(k));
  return showHits(detail, `Nearest to ${file.name}`, body);
}

/**
 * Add a button that chooses a file. A file can also be dropped on the form.
 *
 * @param {HTMLFormElement} form
 * @param {string} input
 * @param {(file: File) => void} onFile
 */
function addUpload(form, input, onFile) {
  const chooser = element("input", {
    type: "file", accept: FILE_TYPES.get(input), class: "visually-hidden", id: "file",
    onchange: () => takeFirst(chooser.files),
  });
  /** @param {FileList | null | undefined} files */
  const takeFirst = (files) => {
    if (files?.length) onFile(files[0]);
  };
  form.append(chooser,
    element("label", { for: "file", class: "button", title: "or drop a file here" }, "Upload…"));
  form.addEventListener("dragover", (event) => event.preventDefault());
  form.addEventListener("drop", (event) => {
    event.preventDefault();
    takeFirst(event.dataTransfer?.files);
  });
}
