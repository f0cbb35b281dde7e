// Two runs side by side on the same samples: whose neighbours changed most.

import { choice, count, h } from "./dom.js";
import { ramp } from "./look.js";
import { createMap, zoomButtons } from "./map.js";
import { loadColumn, markerOf } from "./colouring.js";
import { getArray, getJSON } from "./net.js";
import { hoverCard } from "./detail.js";
import { media } from "./sample.js";

const SHOWN = 24;

export async function compare(panel, about) {
  const others = about.runs.filter((run) => run !== about.run);
  if (!others.length) {
    panel.append(h("p", { class: "quiet" }, "There is no other run beside this one. `nearfar serve RUN --runs FOLDER` names a folder of runs."));
    return;
  }
  const rows = await getArray("/explorer/rows", Uint32Array);
  const progress = h("p", { class: "progress", role: "status" }), summary = h("p", { class: "lede" }), list = h("ol", { class: "hits wide" });
  const card = hoverCard(about), maps = [];
  const both = (point) => maps.forEach((map) => map.mark(point));
  const stage = (title) => {
    const plot = h("div", { class: "plot" });
    const map = createMap(plot, { label: `Map of ${title}`, onclick: both,
      onhover: (point, event) => card(point == null ? null : rows[point], event) });
    maps.push(map);
    const name = h("b", {}, title);
    return { name, map, element: h("figure", {}, h("figcaption", {}, name), h("div", { class: "stage" }, plot, zoomButtons(map))) };
  };
  const left = stage(about.run), right = stage(others[0]);
  const state = { run: others[0], by: "moved", moved: null };

  const mark = async () => {
    const label = about.columns.find((column) => column.name === state.by);
    const marker = label
      ? markerOf(await loadColumn(label, about.clusters))
      : { color: state.moved.map((share) => (Number.isNaN(share) ? 0 : share)), colorscale: ramp(), cmin: 0, cmax: 1 };
    await Promise.all(maps.map((map) => map.paint(marker)));
  };
  const show = async () => {
    right.name.textContent = state.run;
    const watch = (doing, share) => (progress.textContent = `${doing}… ${Math.round(100 * share)}%`);
    const name = encodeURIComponent(state.run);
    const there = await getArray(`/explorer/compare/map?run=${name}`, Float32Array, watch);
    state.moved = await getArray(`/explorer/compare/moved?run=${name}`, Float32Array, watch);
    const here = await getArray("/explorer/map", Float32Array, watch);
    progress.textContent = "";
    await Promise.all([left.map.show(here), right.map.show(there)]);
    await mark();
    const asked = [...state.moved.keys()].filter((i) => !Number.isNaN(state.moved[i]));
    const mean = asked.reduce((sum, i) => sum + state.moved[i], 0) / asked.length;
    summary.textContent = `${(100 * mean).toFixed(0)}% of the ten nearest neighbours are others in ${state.run} (${count(asked.length)} points asked).`;
    const most = asked.sort((a, b) => state.moved[b] - state.moved[a]).slice(0, SHOWN);
    const items = await Promise.all(most.map((i) => getJSON(`/explorer/item/${rows[i]}`)));
    list.replaceChildren(...items.map((item, n) => h("li", {}, h("button", { type: "button", class: "hit", onclick: () => both(most[n]) },
      h("span", { class: "looks" }, media(item, about.modality)),
      h("span", { class: "said" }, h("b", {}, `${Math.round(100 * state.moved[most[n]])}%`), h("span", {}, item.label ?? item.name))))));
  };
  const guarded = (work) => () => work().catch((e) => (progress.textContent = e.message));
  const colours = [["moved", "share of neighbours lost"], ...about.columns.filter((c) => c.kind === "category").map((c) => [c.name, c.name])];
  panel.append(h("div", { class: "controls" },
    choice("With", others.map((run) => [run, run]), state.run, (run) => { state.run = run; guarded(show)(); }),
    choice("Colour", colours, state.by, (by) => { state.by = by; guarded(mark)(); })),
  summary, progress, h("div", { class: "pair-of-maps" }, left.element, right.element), h("h2", {}, "Who moved most"), list);
  await guarded(show)();
}
