// Elements from plain values. Text only ever becomes a text node: whatever a sample is called, it cannot become markup.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

export const find = (id) => document.getElementById(id);

export function choice(label, options, value, onchange) {
  const select = h("select", { onchange: (event) => onchange(event.target.value) },
    options.map(([name, shown]) => h("option", { value: name, selected: name === value }, shown)));
  return h("label", { class: "field" }, h("span", {}, label), select);
}

export const count = (number) => number.toLocaleString("en");

export function short(value) {
  if (!Number.isFinite(value)) return "–";
  return Math.abs(value) >= 1000 || (value !== 0 && Math.abs(value) < 0.001) ? value.toPrecision(3) : String(+value.toFixed(3));
}
