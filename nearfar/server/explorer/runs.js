// @ts-check
// Tab "Runs": alignment and uniformity of all runs in the folder. Lower is better on both axes.

import { element, formatNumber } from "./dom.js";
import { getJSON } from "./requests.js";
import { formatProgress } from "./status.js";
import { color, palette, plotAxis, plotConfig, plotLayout } from "./theme.js";

/** @typedef {import("./types").About} About */
/** @typedef {import("./types").RunMeasures} RunMeasures */

const HEADER = ["run", "alignment", "uniformity", "effective rank", "spread"];
const MAX_NAMED_RUNS = 40;
const MEASURES_NOTE = "Alignment: distance between two views of a sample. "
  + "Uniformity: how unevenly the vectors cover the unit sphere. Lower is better for both.";

/**
 * @param {HTMLElement} panel
 * @param {About} about
 */
export async function renderRunsTab(panel, about) {
  const note = element("p", { class: "quiet", role: "status" });
  panel.append(element("h2", {}, "Alignment and uniformity"), note);
  /** @type {RunMeasures[]} */
  const runs = await getJSON("/explorer/plane", (description, progress) => {
    note.textContent = formatProgress(description, progress);
  });
  note.textContent = MEASURES_NOTE;
  const plot = element("div", { class: "chart tall" });
  panel.append(plot, createTable(runs, about));
  const measured = runs.filter((run) => run.alignment !== undefined);
  if (measured.length) drawPlane(plot, measured, about);
  else plot.remove();
}

/**
 * Draw each run as a point.
 *
 * @param {HTMLElement} plot
 * @param {RunMeasures[]} measured
 * @param {About} about
 */
function drawPlane(plot, measured, about) {
  const recipes = [...new Set(measured.map((run) => run.recipe))];
  const layout = plotLayout({ showlegend: recipes.length > 1, legend: { orientation: "h", y: 1.1 },
    xaxis: plotAxis("uniformity"), yaxis: plotAxis("alignment") });
  const colors = palette(recipes.length);
  const traces = recipes.map((recipe, i) => {
    const runs = measured.filter((run) => run.recipe === recipe);
    const named = runs.length + measured.length < MAX_NAMED_RUNS;
    return {
      type: "scatter", name: recipe, mode: named ? "markers+text" : "markers", textposition: "top center",
      x: runs.map((run) => run.uniformity), y: runs.map((run) => run.alignment),
      text: runs.map((run) => run.name), marker: createMarker(runs, colors[i], about),
    };
  });
  Plotly.newPlot(plot, traces, layout, plotConfig);
}

/**
 * Create the Plotly marker of some runs. The run that is served is larger.
 *
 * @param {RunMeasures[]} runs
 * @param {string} fill
 * @param {About} about
 */
function createMarker(runs, fill, about) {
  const served = runs.map((run) => run.name === about.run);
  return {
    color: fill, size: served.map((large) => (large ? 16 : 10)),
    line: { color: color.ink, width: served.map((large) => (large ? 2 : 0)) },
  };
}

/**
 * Create a table with one row per run.
 *
 * @param {RunMeasures[]} runs
 * @param {About} about
 */
function createTable(runs, about) {
  return element("div", { class: "scroll" }, element("table", { class: "results" },
    element("thead", {}, element("tr", {}, HEADER.map((name) => element("th", {}, name)))),
    element("tbody", {}, runs.map((run) => element("tr", { class: run.name === about.run ? "trained" : "" },
      element("td", {}, run.name), createCells(run))))));
}

/** @param {RunMeasures} run */
function createCells(run) {
  if (run.problem) return [element("td", { colspan: HEADER.length - 1 }, run.problem)];
  return [run.alignment, run.uniformity, run.effective_rank, run.spread]
    .map((value) => element("td", {}, formatNumber(value ?? NaN)));
}
