// Learning curves: everything the run logged.

import { h } from "./dom.js";
import { axis, colour, layout, quiet } from "./look.js";
import { getJSON } from "./net.js";

const FIRST = ["loss", "spread", "effective_rank", "lr"];
const rank = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);

export async function curves(panel) {
  const logged = await getJSON("/explorer/curves");
  const names = Object.keys(logged).sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  panel.append(h("h2", {}, "Learning curves"));
  if (!names.length) panel.append(h("p", { class: "quiet" }, "Nothing was logged."));
  const figures = names.map((name) => [name, h("div", { class: "chart" })]);
  panel.append(h("div", { class: "charts" }, figures.map(([name, plot]) => h("figure", {}, h("figcaption", {}, h("b", {}, name.replaceAll("_", " "))), plot))));
  for (const [name, plot] of figures) {
    const trace = { type: "scatter", mode: logged[name].length > 1 ? "lines" : "markers", line: { color: colour.accent, width: 1.8 },
      x: logged[name].map(([step]) => step), y: logged[name].map(([, value]) => value), name };
    Plotly.newPlot(plot, [trace], layout({ xaxis: axis("step"), yaxis: axis("") }), quiet);
  }
}
