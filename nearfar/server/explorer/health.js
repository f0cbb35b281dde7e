// Is anything wrong inside: how many directions are used, and how evenly.

import { h, short } from "./dom.js";
import { axis, colour, layout, quiet } from "./look.js";
import { getJSON } from "./net.js";

export async function health(panel) {
  const note = h("p", { class: "quiet", role: "status" });
  panel.append(h("h2", {}, "Spectrum"), note);
  const found = await getJSON("/explorer/health", (doing) => (note.textContent = `${doing}…`));
  note.textContent = "Singular values of the centred vectors, the largest as 1. A steep fall, or a floor, means that few directions carry everything: dimensional collapse.";
  const names = Object.keys(found), plot = h("div", { class: "chart tall" });
  const strokes = [{ color: colour.accent, width: 2.4 }, { color: colour.soft, width: 1.6, dash: "dot" }];
  const traces = names.map((name, i) => ({ type: "scatter", mode: "lines", name, line: strokes[i],
    x: found[name].spectrum.map((_, k) => k + 1), y: found[name].spectrum.map((value) => Math.max(value, 1e-7)) }));
  const rows = Object.keys(found[names[0]]).filter((name) => name !== "spectrum");
  panel.append(plot, h("div", { class: "scroll" }, h("table", { class: "results" },
    h("thead", {}, h("tr", {}, h("th", {}), names.map((name) => h("th", {}, name)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, h("td", {}, row), names.map((name) => h("td", {}, short(found[name][row])))))))));
  Plotly.newPlot(plot, traces, layout({ showlegend: true, legend: { orientation: "h", y: 1.1 },
    xaxis: axis("direction"), yaxis: axis("singular value", { type: "log", dtick: 1, exponentformat: "power" }) }), quiet);
  await findings(panel);
}

async function findings(panel) {
  const found = await getJSON("/explorer/findings");
  panel.append(h("h2", {}, "Findings"));
  if (!found.length) panel.append(h("p", { class: "quiet" }, "Nothing is wrong that is looked for."));
  for (const { name, says, tries } of found) {
    panel.append(h("div", { class: "verdict" }, h("b", {}, name), h("p", {}, says), h("ul", {}, tries.map((advice) => h("li", {}, advice)))));
  }
}
