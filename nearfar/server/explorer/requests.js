// @ts-check
// Requests to the server. Answers are JSON or binary arrays. Some answers take a while to compute.

import { askForToken } from "./token_dialog.js";

/** @typedef {import("./types").ReportProgress} ReportProgress */
/** @typedef {import("./types").SearchAnswer} SearchAnswer */
/** @typedef {import("./types").SearchBody} SearchBody */
/** @typedef {import("./types").TaskProgress} TaskProgress */

// Milliseconds between two requests for an answer that is not ready.
const FIRST_DELAY = 100, LONGEST_DELAY = 1500;

/** Error that the server reported. Its message is meant for the user. */
export class RequestError extends Error {}

/**
 * Send a request. After a 401, ask for the token and send the request again.
 *
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 * @throws {RequestError} for every other error status
 */
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

/**
 * Repeat a request until the answer is ready. Call `onProgress` until then.
 *
 * @param {string} path
 * @param {ReportProgress} [onProgress]
 */
async function fetchWhenReady(path, onProgress) {
  for (let delay = FIRST_DELAY; ; delay = Math.min(2 * delay, LONGEST_DELAY)) {
    const response = await fetchChecked(path);
    if (response.status !== 202) return response;
    /** @type {TaskProgress} */
    const { doing, share } = await response.json();
    onProgress?.(doing, share);
    await new Promise((resolve) => setTimeout(resolve, delay));
  }
}

/**
 * Get an answer in JSON. The caller declares its type.
 *
 * @template Answer
 * @param {string} path
 * @param {ReportProgress} [onProgress]
 * @returns {Promise<Answer>}
 */
export async function getJSON(path, onProgress) {
  const response = await fetchWhenReady(path, onProgress);
  return response.json();
}

/**
 * Get a binary array.
 *
 * @template {Float32Array | Uint32Array} Numbers
 * @param {string} path
 * @param {new (buffer: ArrayBuffer) => Numbers} ArrayType
 * @param {ReportProgress} [onProgress]
 */
export async function getArray(path, ArrayType, onProgress) {
  const response = await fetchWhenReady(path, onProgress);
  return new ArrayType(await response.arrayBuffer());
}

/**
 * Get the values of a column. The range [low, high] is empty for columns of categories.
 *
 * @param {string} path
 * @param {ReportProgress} [onProgress]
 */
export async function getColumn(path, onProgress) {
  const response = await fetchWhenReady(path, onProgress);
  const range = response.headers.get("X-Column")?.split(",").map(Number) ?? [];
  return { buffer: await response.arrayBuffer(), range };
}

/**
 * Search for texts (JSON) or for an uploaded file (form).
 *
 * @param {SearchBody | FormData} body
 * @returns {Promise<SearchAnswer>}
 */
export async function search(body) {
  const options = body instanceof FormData
    ? { method: "POST", body }
    : { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const response = await fetchChecked("/search", options);
  return response.json();
}
