// Helpers that create and find HTML elements, and format numbers.
// Strings are always added as text nodes, so the name of a sample can never become markup.

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child != null && child !== false));
  return node;
}

export const find = (id) => document.getElementById(id);

// Create a labeled drop-down list. Each option is a pair [value, text].
export function select(label, options, selected, onChange) {
  const list = element("select", { onchange: (event) => onChange(event.target.value) },
    options.map(([value, text]) => element("option", { value, selected: value === selected }, text)));
  return element("label", { class: "field" }, element("span", {}, label), list);
}

export const formatCount = (number) => number.toLocaleString("en");

export function formatNumber(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  return size >= 1000 || (value !== 0 && size < 0.001) ? value.toPrecision(3) : String(+value.toFixed(3));
}
