// @ts-check
// Texts of status lines: the progress of a request, or its error.

/**
 * Describe the progress of a request, such as "drawing the map… 40%".
 *
 * @param {string} description
 * @param {number} progress - from 0 to 1
 */
export function formatProgress(description, progress) {
  return progress > 0 ? `${description}… ${Math.round(100 * progress)}%` : `${description}…`;
}

/**
 * Return the message of an error.
 *
 * @param {unknown} error
 */
export function describeError(error) {
  return error instanceof Error ? error.message : String(error);
}

/**
 * Run an action. If it fails, show the error in the status line.
 *
 * @param {HTMLElement} status
 * @param {() => Promise<void>} action
 */
export async function showErrors(status, action) {
  try {
    await action();
  } catch (error) {
    status.textContent = describeError(error);
  }
}
