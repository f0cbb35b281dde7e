// Tab "Health": singular values of the vectors, and the findings of `nearfar diagnose`.

import { element, formatNumber } from "./dom.js";
import { getJSON } from "./requests.js";
import { color, plotAxis, plotConfig, plotLayout } from "./theme.js";

const SMALLEST_VALUE = 1e-7; // a logarithmic axis cannot show 0

export async function renderDiagnosticsTab(panel) {
  const note = element("p", { class: "quiet", role: "status" });
  panel.append(element("h2", {}, "Spectrum"), note);
  const diagnostics = await getJSON("/explorer/health", (description) => {
    note.textContent = `${description}…`;
  });
  note.textContent = "Singular values of the centered vectors, relative to the largest. "
    + "A steep drop or a floor means dimensional collapse: the vectors use only a few directions.";
  const encoders = Object.keys(diagnostics), plot = element("div", { class: "chart tall" });
  panel.append(plot, createTable(diagnostics, encoders));
  const lines = [{ color: color.accent, width: 2.4 }, { color: color.soft, width: 1.6, dash: "dot" }];
  const traces = encoders.map((name, i) => {
    const spectrum = diagnostics[name].spectrum;
    return { type: "scatter", mode: "lines", name, line: lines[i], x: spectrum.map((_, k) => k + 1),
      y: spectrum.map((value) => Math.max(value, SMALLEST_VALUE)) };
  });
  Plotly.newPlot(plot, traces, plotLayout({
    showlegend: true, legend: { orientation: "h", y: 1.1 }, xaxis: plotAxis("component"),
    yaxis: plotAxis("singular value", { type: "log", dtick: 1, exponentformat: "power" }),
  }), plotConfig);
  await appendFindings(panel);
}

// Create a table with one row per measure and one column per encoder.
function createTable(diagnostics, encoders) {
  const measures = Object.keys(diagnostics[encoders[0]]).filter((measure) => measure !== "spectrum");
  return element("div", { class: "scroll" }, element("table", { class: "results" },
    element("thead", {},
      element("tr", {}, element("th", {}), encoders.map((name) => element("th", {}, name)))),
    element("tbody", {}, measures.map((measure) => element("tr", {}, element("td", {}, measure),
      encoders.map((name) => element("td", {}, formatNumber(diagnostics[name][measure]))))))));
}

async function appendFindings(panel) {
  const findings = await getJSON("/explorer/findings");
  panel.append(element("h2", {}, "Findings"));
  if (!findings.length) panel.append(element("p", { class: "quiet" }, "No problems found."));
  for (const { name, says: description, tries: remedies } of findings) {
    panel.append(element("div", { class: "verdict" }, element("b", {}, name), element("p", {}, description),
      element("ul", {}, remedies.map((remedy) => element("li", {}, remedy)))));
  }
}
