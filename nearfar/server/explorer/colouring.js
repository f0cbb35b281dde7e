// From a column to colours: categories get a step each, numbers a ramp; and the legend that says so.

import { count, h, short } from "./dom.js";
import { colour, palette, ramp } from "./look.js";
import { getColumn } from "./net.js";

export const COMPUTED = [
  { name: "cluster", kind: "category", about: "k-means" },
  { name: "crowding", kind: "number", about: "mean cosine with the ten nearest" },
];

const cache = new Map();

export async function loadColumn(column, clusters, watch) {
  const name = column.name === "cluster" ? `cluster ${clusters}` : column.name;
  if (!cache.has(name)) {
    const { buffer, range } = await getColumn(`/explorer/column?name=${encodeURIComponent(column.name)}&k=${clusters}`, watch);
    const values = column.values ?? Array.from({ length: clusters }, (_, i) => `cluster ${i + 1}`);
    cache.set(name, column.kind === "category"
      ? { ...column, values, data: new Uint32Array(buffer) }
      : { ...column, low: range[0], high: range[1], data: new Float32Array(buffer) });
  }
  return cache.get(name);
}

// Code -1 is grey: what is not meant while one category is.
export function markerOf(column, only = null) {
  if (column.kind === "number") return { color: column.data, colorscale: ramp(), cmin: column.low, cmax: column.high };
  const k = column.values.length, colours = [colour.rule, ...palette(k)], scale = [];
  colours.forEach((c, i) => scale.push([i / (k + 1), c], [(i + 1) / (k + 1), c]));
  const codes = new Float32Array(column.data.length);
  for (let i = 0; i < codes.length; i++) codes[i] = only === null || column.data[i] === only ? column.data[i] : -1;
  return { color: codes, colorscale: scale, cmin: -1.5, cmax: k - 0.5 };
}

// A button for each category; pressing one greys out the others.
export function legendOf(column, onpick) {
  if (column.kind === "number") {
    const stops = ramp().map(([, c]) => c).join(", ");
    return h("div", { class: "ramp" }, h("span", {}, short(column.low)), h("i", { style: `background: linear-gradient(90deg, ${stops})` }),
      h("span", {}, short(column.high)), column.about && h("small", {}, column.about));
  }
  const sizes = new Uint32Array(column.values.length);
  for (const code of column.data) sizes[code]++;
  const colours = palette(column.values.length);
  let picked = null;
  const buttons = column.values.slice(0, 60).map((value, i) => h("button", {
    type: "button", "aria-pressed": "false", title: `${value}: ${count(sizes[i])}`,
    onclick: () => {
      picked = picked === i ? null : i;
      buttons.forEach((button, j) => button.setAttribute("aria-pressed", String(j === picked)));
      onpick(picked);
    },
  }, h("i", { style: `background: ${colours[i]}` }), value));
  return h("div", { class: "legend", role: "group", "aria-label": column.name }, buttons);
}
