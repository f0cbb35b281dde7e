// Colors of the points: load a column, turn its values into colors, and build the legend.

import { element, formatCount, formatNumber } from "./dom.js";
import { getColumn } from "./requests.js";
import { color, colorScale, palette } from "./theme.js";

// Columns that the server computes on request.
export const COMPUTED_COLUMNS = [
  { name: "cluster", kind: "category", about: "k-means" },
  { name: "crowding", kind: "number", about: "mean cosine similarity to the 10 nearest neighbors" },
];

const LEGEND_ENTRIES = 60;

const loadedColumns = new Map();

export async function loadColumn(column, clusters, onProgress) {
  const key = column.name === "cluster" ? `cluster ${clusters}` : column.name;
  if (!loadedColumns.has(key)) {
    const path = `/explorer/column?name=${encodeURIComponent(column.name)}&k=${clusters}`;
    const { buffer, range } = await getColumn(path, onProgress);
    const values = column.values ?? Array.from({ length: clusters }, (_, i) => `cluster ${i + 1}`);
    loadedColumns.set(key, column.kind === "category"
      ? { ...column, values, data: new Uint32Array(buffer) }
      : { ...column, low: range[0], high: range[1], data: new Float32Array(buffer) });
  }
  return loadedColumns.get(key);
}

// Create the Plotly marker of a column. If `only` is a category, all other points are gray (code -1).
export function createMarker(column, only = null) {
  if (column.kind === "number") {
    return { color: column.data, colorscale: colorScale(), cmin: column.low, cmax: column.high };
  }
  const k = column.values.length, steps = [];
  [color.rule, ...palette(k)].forEach((hex, i) => steps.push([i / (k + 1), hex], [(i + 1) / (k + 1), hex]));
  const codes = new Float32Array(column.data.length);
  column.data.forEach((code, i) => { codes[i] = only === null || code === only ? code : -1; });
  return { color: codes, colorscale: steps, cmin: -1.5, cmax: k - 0.5 };
}

// Create the legend of a column: a color bar for numbers, a button per category otherwise.
// Pressing a button selects its category. Pressing it again clears the selection.
export function createLegend(column, onSelect) {
  if (column.kind === "number") return createColorBar(column);
  const sizes = new Uint32Array(column.values.length);
  for (const code of column.data) sizes[code]++;
  const colors = palette(column.values.length);
  let selected = null;
  const buttons = column.values.slice(0, LEGEND_ENTRIES).map((value, i) => element("button", {
    type: "button", "aria-pressed": "false", title: `${value}: ${formatCount(sizes[i])}`,
    onclick: () => {
      selected = selected === i ? null : i;
      buttons.forEach((button, j) => button.setAttribute("aria-pressed", String(j === selected)));
      onSelect(selected);
    },
  }, element("i", { style: `background: ${colors[i]}` }), value));
  return element("div", { class: "legend", role: "group", "aria-label": column.name }, buttons);
}

function createColorBar(column) {
  const stops = colorScale().map(([, hex]) => hex).join(", ");
  return element("div", { class: "ramp" }, element("span", {}, formatNumber(column.low)),
    element("i", { style: `background: linear-gradient(90deg, ${stops})` }),
    element("span", {}, formatNumber(column.high)), column.about && element("small", {}, column.about));
}
