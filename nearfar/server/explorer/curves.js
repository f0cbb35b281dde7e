// Tab "Curves": learning curves of all metrics that the run logged.

import { element } from "./dom.js";
import { getJSON } from "./requests.js";
import { color, plotAxis, plotConfig, plotLayout } from "./theme.js";

const LEADING_CURVES = ["loss", "spread", "effective_rank", "lr"];

function position(name) {
  const index = LEADING_CURVES.indexOf(name);
  return index >= 0 ? index : LEADING_CURVES.length;
}

export async function renderCurvesTab(panel) {
  const curves = await getJSON("/explorer/curves");
  const names = Object.keys(curves).sort((a, b) => position(a) - position(b) || a.localeCompare(b));
  panel.append(element("h2", {}, "Learning curves"));
  if (!names.length) panel.append(element("p", { class: "quiet" }, "This run logged no metrics."));
  const charts = names.map((name) => [name, element("div", { class: "chart" })]);
  const figures = charts.map(([name, chart]) => element("figure", {},
    element("figcaption", {}, element("b", {}, name.replaceAll("_", " "))), chart));
  panel.append(element("div", { class: "charts" }, figures));
  for (const [name, chart] of charts) {
    const points = curves[name];
    const trace = {
      type: "scatter", mode: points.length > 1 ? "lines" : "markers", name,
      x: points.map(([step]) => step), y: points.map(([, value]) => value),
      line: { color: color.accent, width: 1.8 },
    };
    Plotly.newPlot(chart, [trace], plotLayout({ xaxis: plotAxis("step"), yaxis: plotAxis("") }), plotConfig);
  }
}
