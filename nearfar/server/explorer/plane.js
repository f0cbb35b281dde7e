// All runs of the folder between alignment and uniformity: low is good on both axes.

import { h, short } from "./dom.js";
import { axis, colour, layout, palette, quiet } from "./look.js";
import { getJSON } from "./net.js";

export async function plane(panel, about) {
  const note = h("p", { class: "quiet", role: "status" });
  panel.append(h("h2", {}, "Alignment and uniformity"), note);
  const runs = await getJSON("/explorer/plane", (doing, share) => (note.textContent = `${doing}… ${Math.round(100 * share)}%`));
  const placed = runs.filter((run) => run.alignment !== undefined);
  note.textContent = "Alignment: how far two views of a sample lie apart. Uniformity: how unevenly samples cover the sphere. Lower is better, on both.";
  const recipes = [...new Set(placed.map((run) => run.recipe))], colours = palette(recipes.length), plot = h("div", { class: "chart tall" });
  const traces = recipes.map((recipe, i) => {
    const own = placed.filter((run) => run.recipe === recipe);
    return { type: "scatter", mode: own.length + placed.length < 40 ? "markers+text" : "markers", name: recipe, textposition: "top center",
      x: own.map((run) => run.uniformity), y: own.map((run) => run.alignment), text: own.map((run) => run.name),
      marker: { color: colours[i], size: own.map((run) => (run.name === about.run ? 16 : 10)), line: { color: colour.ink, width: own.map((run) => (run.name === about.run ? 2 : 0)) } } };
  });
  const cells = (run) => ["alignment", "uniformity", "effective_rank", "spread"].map((name) => h("td", {}, run[name] === undefined ? "–" : short(run[name])));
  panel.append(plot, h("div", { class: "scroll" }, h("table", { class: "results" },
    h("thead", {}, h("tr", {}, ["run", "alignment", "uniformity", "effective rank", "spread"].map((name) => h("th", {}, name)))),
    h("tbody", {}, runs.map((run) => h("tr", { class: run.name === about.run ? "trained" : "" }, h("td", {}, run.name),
      run.problem ? h("td", { colspan: 4 }, run.problem) : cells(run)))))));
  if (!placed.length) return plot.remove();
  Plotly.newPlot(plot, traces, layout({ showlegend: recipes.length > 1, legend: { orientation: "h", y: 1.1 }, xaxis: axis("uniformity"), yaxis: axis("alignment") }), quiet);
}
