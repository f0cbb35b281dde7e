// @ts-check
// Colors of the points: load a column, turn its values into colors, and build the legend.

import { element, formatCount, formatNumber } from "./dom.js";
import { getColumn } from "./requests.js";
import { color, colorScale, palette } from "./theme.js";

/** @typedef {import("./types").CategoryColumn} CategoryColumn */
/** @typedef {import("./types").ColorScale} ColorScale */
/** @typedef {import("./types").Column} Column */
/** @typedef {import("./types").LoadedCategoryColumn} LoadedCategoryColumn */
/** @typedef {import("./types").LoadedColumn} LoadedColumn */
/** @typedef {import("./types").LoadedNumberColumn} LoadedNumberColumn */
/** @typedef {import("./types").Marker} Marker */
/** @typedef {import("./types").ReportProgress} ReportProgress */

/** Column of clusters. The user chooses their number. @type {CategoryColumn} */
export const CLUSTER_COLUMN = { name: "cluster", kind: "category", about: "k-means" };

/** Columns that the server computes on request. @type {Column[]} */
export const COMPUTED_COLUMNS = [
  CLUSTER_COLUMN,
  { name: "crowding", kind: "number", about: "mean cosine similarity to the 10 nearest neighbors" },
];

const LEGEND_ENTRIES = 60;

/** @type {Map<string, LoadedColumn>} */
const loadedColumns = new Map();

/**
 * Load the values of a column, or return them if they are already loaded.
 *
 * @param {Column} column
 * @param {number} clusters - number of clusters for the column of clusters
 * @param {ReportProgress} [onProgress]
 */
export async function loadColumn(column, clusters, onProgress) {
  const key = column === CLUSTER_COLUMN ? `${column.name} ${clusters}` : column.name;
  const known = loadedColumns.get(key);
  if (known) return known;
  const loaded = await fetchColumn(column, clusters, onProgress);
  loadedColumns.set(key, loaded);
  return loaded;
}

/**
 * @param {Column} column
 * @param {number} clusters
 * @param {ReportProgress} [onProgress]
 * @returns {Promise<LoadedColumn>}
 */
async function fetchColumn(column, clusters, onProgress) {
  const path = `/explorer/column?name=${encodeURIComponent(column.name)}&k=${clusters}`;
  const { buffer, range: [low, high] } = await getColumn(path, onProgress);
  if (column.kind === "number") return { ...column, low, high, data: new Float32Array(buffer) };
  const values = column.values ?? Array.from({ length: clusters }, (_, i) => `cluster ${i + 1}`);
  return { ...column, values, data: new Uint32Array(buffer) };
}

/**
 * Create the Plotly marker of a column. If `only` is a category, all other points are gray (code -1).
 *
 * @param {LoadedColumn} column
 * @param {number | null} [only]
 * @returns {Marker}
 */
export function createMarker(column, only = null) {
  if (column.kind === "number") {
    return { color: column.data, colorscale: colorScale(), cmin: column.low, cmax: column.high };
  }
  const k = column.values.length;
  /** @type {ColorScale} */
  const steps = [color.rule, ...palette(k)]
    .flatMap((hex, i) => [[i / (k + 1), hex], [(i + 1) / (k + 1), hex]]);
  const codes = Float32Array.from(column.data, (code) => (only === null || code === only ? code : -1));
  return { color: codes, colorscale: steps, cmin: -1.5, cmax: k - 0.5 };
}

/**
 * Create the legend of a column: a color bar for numbers, a button per category otherwise.
 * `onSelect` gets the selected category, or null if none is selected.
 *
 * @param {LoadedColumn} column
 * @param {(category: number | null) => void} onSelect
 */
export function createLegend(column, onSelect) {
  return column.kind === "number" ? createColorBar(column) : createCategoryButtons(column, onSelect);
}

/**
 * Create the buttons. Pressing a button selects its category. Pressing it again clears the selection.
 *
 * @param {LoadedCategoryColumn} column
 * @param {(category: number | null) => void} onSelect
 */
function createCategoryButtons(column, onSelect) {
  const sizes = new Uint32Array(column.values.length);
  for (const code of column.data) sizes[code]++;
  const colors = palette(column.values.length);
  /** @type {number | null} */
  let selected = null;
  /** @param {number} category */
  const toggle = (category) => {
    selected = selected === category ? null : category;
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === selected)));
    onSelect(selected);
  };
  const buttons = column.values.slice(0, LEGEND_ENTRIES).map((value, i) => element("button", {
    type: "button", "aria-pressed": "false", title: `${value}: ${formatCount(sizes[i])}`,
    onclick: () => toggle(i),
  }, element("i", { style: `background: ${colors[i]}` }), value));
  return element("div", { class: "legend", role: "group", "aria-label": column.name }, buttons);
}

/** @param {LoadedNumberColumn} column */
function createColorBar(column) {
  const stops = colorScale().map(([, hex]) => hex).join(", ");
  return element("div", { class: "color-bar" }, element("span", {}, formatNumber(column.low)),
    element("i", { style: `background: linear-gradient(90deg, ${stops})` }),
    element("span", {}, formatNumber(column.high)),
    column.about !== "" && element("small", {}, column.about));
}
