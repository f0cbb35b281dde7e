// @ts-check
// Helpers that create and find HTML elements, and format numbers.
// Strings are always added as text nodes, so the name of a sample can never become markup.

/** @typedef {import("./types").Attributes} Attributes */
/** @typedef {import("./types").Child} Child */

/**
 * Create an element. A function as the attribute `onclick` listens to the event `click`.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      // The type `Attributes` ties the name of each event to the type of its listener.
      node.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    } else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...keepChildren(children.flat()));
  return node;
}

/**
 * Leave out the children that are null, undefined or false.
 *
 * @param {Child[]} children
 */
export function keepChildren(children) {
  return children.filter((child) => child !== null && child !== undefined && child !== false);
}

/**
 * Find an element of index.html by its id.
 *
 * @template {HTMLElement} E
 * @param {string} id
 * @param {new () => E} type
 * @returns {E}
 */
export function find(id, type) {
  const node = document.getElementById(id);
  if (!(node instanceof type)) throw new Error(`The page has no ${type.name} with the id "${id}".`);
  return node;
}

/**
 * Create a labeled drop-down list. Each option is a pair [value, text].
 *
 * @param {string} label
 * @param {[string, string][]} options
 * @param {string} selected
 * @param {(value: string) => void} onChange
 */
export function select(label, options, selected, onChange) {
  const list = element("select", { onchange: () => onChange(list.value) },
    options.map(([value, text]) => element("option", { value, selected: value === selected }, text)));
  return element("label", { class: "field" }, element("span", {}, label), list);
}

/** @param {number} number */
export const formatCount = (number) => number.toLocaleString("en");

/** @param {number} value */
export function formatNumber(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  return size >= 1000 || (value !== 0 && size < 0.001) ? value.toPrecision(3) : String(+value.toFixed(3));
}
