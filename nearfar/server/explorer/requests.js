// Requests to the server. Answers are JSON or binary arrays. Some answers take a while to compute.

import { find } from "./dom.js";

export class RequestError extends Error {}

const JSON_HEADERS = { "Content-Type": "application/json" };

// Send a request. Asks for the token after a 401. Throws a RequestError for every other error status.
async function fetchChecked(path, options) {
  const response = await fetch(path, options);
  if (response.status === 401) {
    await askForToken();
    return fetchChecked(path, options);
  }
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    throw new RequestError(body.error || `The server returned status ${response.status}.`);
  }
  return response;
}

// Repeat a request until the answer is ready. Until then, calls `onProgress(description, progress)`.
async function fetchWhenReady(path, onProgress = () => {}, options = undefined) {
  for (let delay = 100; ; delay = Math.min(2 * delay, 1500)) {
    const response = await fetchChecked(path, options);
    if (response.status !== 202) return response;
    const { doing: description, share: progress } = await response.json();
    onProgress(description, progress);
    await new Promise((resolve) => setTimeout(resolve, delay));
  }
}

export const getJSON = async (path, onProgress) => (await fetchWhenReady(path, onProgress)).json();

export async function getArray(path, ArrayType, onProgress) {
  const response = await fetchWhenReady(path, onProgress);
  return new ArrayType(await response.arrayBuffer());
}

// Get the values of a column. The range [low, high] is only known for columns of numbers.
export async function getColumn(path, onProgress) {
  const response = await fetchWhenReady(path, onProgress);
  const range = response.headers.get("X-Column")?.split(",").map(Number);
  return { buffer: await response.arrayBuffer(), range };
}

export async function search(body) {
  const options = body instanceof FormData
    ? { method: "POST", body }
    : { method: "POST", body: JSON.stringify(body), headers: JSON_HEADERS };
  return (await fetchChecked("/search", options)).json();
}

let tokenPrompt = null;

// Show the token dialog. All requests that wait for the token share one dialog.
function askForToken() {
  tokenPrompt ??= new Promise((resolve) => {
    const dialog = find("token"), form = dialog.querySelector("form");
    form.onsubmit = async (event) => {
      event.preventDefault();
      const body = JSON.stringify({ token: form.token.value });
      const response = await fetch("/session", { method: "POST", body, headers: JSON_HEADERS });
      form.querySelector(".problem").textContent = response.ok ? "" : "This is not the token.";
      if (!response.ok) return;
      dialog.close();
      tokenPrompt = null;
      resolve();
    };
    dialog.showModal();
  });
  return tokenPrompt;
}
