// @ts-check
// Tab "Health": singular values of the vectors, and the findings of `nearfar diagnose`.

import { element, formatNumber } from "./dom.js";
import { getJSON } from "./requests.js";
import { formatProgress } from "./status.js";
import { color, plotAxis, plotConfig, plotLayout } from "./theme.js";

/** @typedef {import("./types").Diagnostics} Diagnostics */
/** @typedef {import("./types").Findings} Findings */

const SMALLEST_VALUE = 1e-7; // a logarithmic axis cannot show 0
const SPECTRUM_NOTE = "Singular values of the centered vectors, relative to the largest. "
  + "A steep drop or a floor means dimensional collapse: the vectors use only a few directions.";

/** @param {HTMLElement} panel */
export async function renderDiagnosticsTab(panel) {
  const note = element("p", { class: "quiet", role: "status" });
  panel.append(element("h2", {}, "Spectrum"), note);
  /** @type {Diagnostics} */
  const diagnostics = await getJSON("/explorer/health", (description, progress) => {
    note.textContent = formatProgress(description, progress);
  });
  note.textContent = SPECTRUM_NOTE;
  const plot = element("div", { class: "chart tall" });
  panel.append(plot, createTable(diagnostics));
  drawSpectra(plot, diagnostics);
  await appendFindings(panel);
}

/**
 * Draw one line per encoder.
 *
 * @param {HTMLElement} plot
 * @param {Diagnostics} diagnostics
 */
function drawSpectra(plot, diagnostics) {
  const lines = [{ color: color.accent, width: 2.4 }, { color: color.soft, width: 1.6, dash: "dot" }];
  const traces = Object.entries(diagnostics).map(([name, { spectrum }], i) => ({
    type: "scatter", mode: "lines", name, line: lines[i],
    x: spectrum.map((_, k) => k + 1), y: spectrum.map((value) => Math.max(value, SMALLEST_VALUE)),
  }));
  Plotly.newPlot(plot, traces, plotLayout({
    showlegend: true, legend: { orientation: "h", y: 1.1 }, xaxis: plotAxis("component"),
    yaxis: plotAxis("singular value", { type: "log", dtick: 1, exponentformat: "power" }),
  }), plotConfig);
}

/**
 * Create a table with one row per measure and one column per encoder.
 *
 * @param {Diagnostics} diagnostics
 */
function createTable(diagnostics) {
  const encoders = Object.keys(diagnostics);
  const measures = Object.keys(diagnostics[encoders[0]]).filter((measure) => measure !== "spectrum");
  /** @param {string} measure */
  const cells = (measure) => encoders.map((name) =>
    element("td", {}, formatNumber(Number(diagnostics[name][measure]))));
  return element("div", { class: "scroll" }, element("table", { class: "results" },
    element("thead", {},
      element("tr", {}, element("th", {}), encoders.map((name) => element("th", {}, name)))),
    element("tbody", {},
      measures.map((measure) => element("tr", {}, element("td", {}, measure), cells(measure))))));
}

/** @param {HTMLElement} panel */
async function appendFindings(panel) {
  /** @type {Findings} */
  const findings = await getJSON("/explorer/findings");
  panel.append(element("h2", {}, "Findings"));
  if (!findings.length) panel.append(element("p", { class: "quiet" }, "No problems found."));
  for (const { name, says: description, tries: remedies } of findings) {
    panel.append(element("div", { class: "verdict" }, element("b", {}, name), element("p", {}, description),
      element("ul", {}, remedies.map((remedy) => element("li", {}, remedy)))));
  }
}
