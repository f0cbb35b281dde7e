// @ts-check
// Dialog that asks for the token of the server and exchanges it for a cookie.

import { find } from "./dom.js";

/** @type {Promise<void> | null} */
let openDialog = null;

/** Ask for the token. All requests that wait for it share one dialog. */
export function askForToken() {
  openDialog ??= showDialog().finally(() => { openDialog = null; });
  return openDialog;
}

/** @returns {Promise<void>} */
function showDialog() {
  const dialog = find("token", HTMLDialogElement), form = find("token-form", HTMLFormElement);
  dialog.showModal();
  return new Promise((resolve) => {
    form.onsubmit = async (event) => {
      event.preventDefault();
      const accepted = await sendToken(new FormData(form).get("token"));
      find("token-problem", HTMLElement).textContent = accepted ? "" : "This is not the token.";
      if (!accepted) return;
      dialog.close();
      resolve();
    };
  });
}

/** @param {FormDataEntryValue | null} token */
async function sendToken(token) {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch("/session", { method: "POST", body: JSON.stringify({ token }), headers });
  return response.ok;
}
