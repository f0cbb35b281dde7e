// The first tab: the map, what it is coloured by, and the sample that was chosen.

import { COMPUTED, legendOf, loadColumn, markerOf } from "./colouring.js";
import { createDetail, hoverCard } from "./detail.js";
import { choice, h } from "./dom.js";
import { dark } from "./look.js";
import { createMap, zoomButtons } from "./map.js";
import { getArray } from "./net.js";
import { play, stop } from "./sample.js";
import { searchBox } from "./search.js";

export async function atlas(panel, about) {
  const rows = await getArray("/explorer/rows", Uint32Array);
  const place = new Map();
  rows.forEach((row, i) => place.set(row, i));
  const columns = [...about.columns, ...COMPUTED];
  const state = { method: about.maps[0], column: columns[0], clusters: about.clusters, loaded: null };

  const plot = h("div", { class: "plot" }), legend = h("div", { class: "under" }), aside = h("aside", { "aria-live": "polite" });
  const progress = h("p", { class: "progress", role: "status" });
  const watch = (doing, share) => (progress.textContent = `${doing}… ${share ? `${Math.round(100 * share)}%` : ""}`);
  const card = hoverCard(about);
  const map = createMap(plot, {
    label: "Map of the embedding. Arrows move, plus and minus zoom, Enter chooses the point in the middle.",
    onhover: (point, event) => {
      if (point == null) stop();
      else if (about.modality === "audio") play(rows[point]);
      card(point == null ? null : rows[point], event);
    },
    onclick: (point) => pick(rows[point]),
  });
  const detail = createDetail(aside, about, {
    onpick: (row) => pick(row),
    onshown: (row, others) => map.mark(row == null ? null : place.get(row), others.map((other) => place.get(other))),
  });
  const pick = (row) => {
    card(null);
    history.replaceState(null, "", `#map/${row}`);
    return detail.show(row);
  };

  async function draw() {
    watch("loading the map", 0);
    await map.show(await getArray(`/explorer/map?method=${state.method}`, Float32Array, watch));
    await colour();
  }
  async function colour() {
    number.hidden = state.column.name !== "cluster";
    state.loaded = await loadColumn(state.column, state.clusters, watch);
    progress.textContent = "";
    legend.replaceChildren(legendOf(state.loaded, (only) => map.paint(markerOf(state.loaded, only))));
    await map.paint(markerOf(state.loaded));
  }
  const guarded = (work) => () => work().catch((e) => (progress.textContent = e.message));

  const number = h("label", { class: "field" }, h("span", {}, "Clusters"),
    h("input", { type: "number", min: 2, max: 100, value: state.clusters, onchange: (event) => {
      state.clusters = Math.max(2, Math.min(100, about.rows, Number(event.target.value) || about.clusters));
      guarded(colour)();
    } }));
  const names = { pacmap: "PaCMAP", tsne: "t-SNE", umap: "UMAP", pca: "PCA" };
  const controls = h("div", { class: "controls" },
    choice("Map", about.maps.map((m) => [m, names[m]]), state.method, (m) => { state.method = m; guarded(draw)(); }),
    choice("Colour", columns.map((c) => [c.name, c.name]), state.column.name, (name) => {
      state.column = columns.find((c) => c.name === name);
      guarded(colour)();
    }), number);
  panel.append(h("div", { class: "atlas" },
    h("div", { class: "left" }, controls, h("div", { class: "stage" }, plot, zoomButtons(map), progress), legend),
    h("div", { class: "right" }, searchBox(about, detail, pick), aside)));
  detail.say("Point at something to see it, click it to see what is nearest. On the keyboard: / searches, Tab reaches the map.", false);

  await guarded(draw)();
  dark.addEventListener("change", guarded(async () => { await map.recolour(); await colour(); }));
  const asked = /^#map\/(\d+)$/.exec(location.hash);
  if (asked && place.has(Number(asked[1]))) await pick(Number(asked[1]));
}
