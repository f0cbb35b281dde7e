// Tab "Runs": alignment and uniformity of all runs in the folder. Lower is better on both axes.

import { element, formatNumber } from "./dom.js";
import { getJSON } from "./requests.js";
import { color, palette, plotAxis, plotConfig, plotLayout } from "./theme.js";

const MEASURES = ["alignment", "uniformity", "effective_rank", "spread"];
const HEADER = ["run", "alignment", "uniformity", "effective rank", "spread"];
const MAX_NAMED_RUNS = 40;

export async function renderRunsTab(panel, about) {
  const note = element("p", { class: "quiet", role: "status" });
  panel.append(element("h2", {}, "Alignment and uniformity"), note);
  const runs = await getJSON("/explorer/plane", (description, progress) => {
    note.textContent = `${description}… ${Math.round(100 * progress)}%`;
  });
  const measured = runs.filter((run) => run.alignment !== undefined);
  note.textContent = "Alignment: distance between two views of a sample. "
    + "Uniformity: how unevenly the vectors cover the unit sphere. Lower is better for both.";
  const plot = element("div", { class: "chart tall" });
  panel.append(plot, createTable(runs, about));
  if (!measured.length) {
    plot.remove();
    return;
  }
  const recipes = [...new Set(measured.map((run) => run.recipe))];
  const layout = plotLayout({ showlegend: recipes.length > 1, legend: { orientation: "h", y: 1.1 },
    xaxis: plotAxis("uniformity"), yaxis: plotAxis("alignment") });
  Plotly.newPlot(plot, createTraces(measured, recipes, about), layout, plotConfig);
}

// Create one Plotly trace per recipe. The run that is served gets a larger marker.
function createTraces(measured, recipes, about) {
  const colors = palette(recipes.length);
  return recipes.map((recipe, i) => {
    const runs = measured.filter((run) => run.recipe === recipe);
    const served = runs.map((run) => run.name === about.run);
    return {
      type: "scatter", name: recipe, textposition: "top center",
      mode: runs.length + measured.length < MAX_NAMED_RUNS ? "markers+text" : "markers",
      x: runs.map((run) => run.uniformity), y: runs.map((run) => run.alignment),
      text: runs.map((run) => run.name),
      marker: { color: colors[i], size: served.map((large) => (large ? 16 : 10)),
        line: { color: color.ink, width: served.map((large) => (large ? 2 : 0)) } },
    };
  });
}

function createTable(runs, about) {
  const format = (value) => (value === undefined ? "–" : formatNumber(value));
  const cells = (run) => (run.problem
    ? element("td", { colspan: MEASURES.length }, run.problem)
    : MEASURES.map((name) => element("td", {}, format(run[name]))));
  return element("div", { class: "scroll" }, element("table", { class: "results" },
    element("thead", {}, element("tr", {}, HEADER.map((name) => element("th", {}, name)))),
    element("tbody", {}, runs.map((run) => element("tr", { class: run.name === about.run ? "trained" : "" },
      element("td", {}, run.name), cells(run))))));
}
