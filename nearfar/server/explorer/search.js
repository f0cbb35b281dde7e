// The search box: words for models of text, a file for models of pictures and sounds, a row number for all. Models of both take both.

import { h } from "./dom.js";
import { search } from "./net.js";

const FILES = { images: "image/png,image/jpeg,image/webp,image/bmp,image/gif", sounds: "audio/*" };
const K = 12;

export function searchBox(about, detail, onpick) {
  const texts = about.takes.includes("texts");
  const files = about.takes.find((kind) => kind in FILES);
  const input = h("input", { type: "search", id: "search", "aria-label": "Search",
    placeholder: texts ? "Search for a text, or a row number" : "A row number" });
  const run = async (title, body) => {
    detail.say("Searching…", false);
    try {
      detail.hits(title, (await search(body)).hits[0]);
    } catch (e) {
      detail.say(e.message);
    }
  };
  const k = Math.min(K, about.rows);
  const submit = (event) => {
    event.preventDefault();
    const said = input.value.trim();
    if (/^\d+$/.test(said)) onpick(Number(said));
    else if (said && texts) run(`Nearest to “${said}”`, { texts: [said], k });
    else if (said) detail.say(`This model takes ${files ?? "vectors"}: upload a file, or give a row number.`);
  };
  const upload = (file) => {
    const form = new FormData();
    form.append(files, file);
    form.append("k", String(k));
    run(`Nearest to ${file.name}`, form);
  };
  const form = h("form", { class: "search", role: "search", onsubmit: submit }, input, h("button", { type: "submit" }, "Search"));
  if (!files) return form;
  const file = h("input", { type: "file", accept: FILES[files], class: "unseen", id: "file", onchange: () => file.files[0] && upload(file.files[0]) });
  form.append(file, h("label", { for: "file", class: "button", title: "or drop a file here" }, "Upload…"));
  form.addEventListener("dragover", (event) => event.preventDefault());
  form.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files[0]) upload(event.dataTransfer.files[0]);
  });
  return form;
}
