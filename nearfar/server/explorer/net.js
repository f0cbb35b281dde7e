// Asking the server: JSON, arrays, and things that take a while.

import { find } from "./dom.js";

export class Problem extends Error {}

async function ask(path, options) {
  const answer = await fetch(path, options);
  if (answer.status === 401) {
    await askToken();
    return ask(path, options);
  }
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new Problem(said.error || `the server answered ${answer.status}`);
  }
  return answer;
}

// Whatever is not ready is asked for again; `watch(doing, share)` hears how far it is.
async function ready(path, watch = () => {}, options = undefined) {
  for (let pause = 100; ; pause = Math.min(2 * pause, 1500)) {
    const answer = await ask(path, options);
    if (answer.status !== 202) return answer;
    const { doing, share } = await answer.json();
    watch(doing, share);
    await new Promise((resume) => setTimeout(resume, pause));
  }
}

export const getJSON = async (path, watch) => (await ready(path, watch)).json();

export const getArray = async (path, Type, watch) => new Type(await (await ready(path, watch)).arrayBuffer());

export async function getColumn(path, watch) {
  const answer = await ready(path, watch);
  return { buffer: await answer.arrayBuffer(), range: answer.headers.get("X-Column")?.split(",").map(Number) };
}

export const search = async (body) => (await (body instanceof FormData
  ? ask("/search", { method: "POST", body })
  : ask("/search", { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } })
)).json();

let asking = null;

// One question for all requests that wait for it.
function askToken() {
  asking ??= new Promise((resume) => {
    const dialog = find("token"), form = dialog.querySelector("form");
    form.onsubmit = async (event) => {
      event.preventDefault();
      const body = JSON.stringify({ token: form.token.value });
      const answer = await fetch("/session", { method: "POST", body, headers: { "Content-Type": "application/json" } });
      form.querySelector(".problem").textContent = answer.ok ? "" : "This is not the token.";
      if (!answer.ok) return;
      dialog.close();
      asking = null;
      resume();
    };
    dialog.showModal();
  });
  return asking;
}
