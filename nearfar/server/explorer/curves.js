// @ts-check
// Tab "Curves": learning curves of all metrics that the run logged.

import { element } from "./dom.js";
import { getJSON } from "./requests.js";
import { color, plotAxis, plotConfig, plotLayout } from "./theme.js";

/** @typedef {import("./types").Curves} Curves */

const LEADING_CURVES = ["loss", "spread", "effective_rank", "lr"];

/** @param {HTMLElement} panel */
export async function renderCurvesTab(panel) {
  /** @type {Curves} */
  const curves = await getJSON("/explorer/curves");
  const names = Object.keys(curves).sort((a, b) => findPosition(a) - findPosition(b) || a.localeCompare(b));
  panel.append(element("h2", {}, "Learning curves"));
  if (!names.length) panel.append(element("p", { class: "quiet" }, "This run logged no metrics."));
  const charts = element("div", { class: "charts" });
  panel.append(charts);
  for (const name of names) {
    const chart = element("div", { class: "chart" });
    const title = element("figcaption", {}, element("b", {}, name.replaceAll("_", " ")));
    charts.append(element("figure", {}, title, chart));
    drawCurve(chart, name, curves[name]);
  }
}

/**
 * Return the position of a curve on the page. Curves with the same position are sorted by name.
 *
 * @param {string} name
 */
function findPosition(name) {
  const index = LEADING_CURVES.indexOf(name);
  return index >= 0 ? index : LEADING_CURVES.length;
}

/**
 * @param {HTMLElement} chart
 * @param {string} name
 * @param {[number, number][]} points - step and value
 */
function drawCurve(chart, name, points) {
  const trace = {
    type: "scatter", mode: points.length > 1 ? "lines" : "markers", name,
    x: points.map(([step]) => step), y: points.map(([, value]) => value),
    line: { color: color.accent, width: 1.8 },
  };
  Plotly.newPlot(chart, [trace], plotLayout({ xaxis: plotAxis("step"), yaxis: plotAxis("") }), plotConfig);
}
