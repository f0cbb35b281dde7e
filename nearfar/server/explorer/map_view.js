// Tab "Map": the map of all points, its color settings, the search box, and the selected sample.

import { COMPUTED_COLUMNS, createLegend, createMarker, loadColumn } from "./coloring.js";
import { element, select } from "./dom.js";
import { getArray } from "./requests.js";
import { createHoverCard, createSampleDetail } from "./sample_detail.js";
import { playSound, stopSound } from "./sample_media.js";
import { createMap, createZoomButtons } from "./scatter_map.js";
import { createSearchBox } from "./search.js";
import { darkMode } from "./theme.js";

const METHOD_NAMES = { pacmap: "PaCMAP", tsne: "t-SNE", umap: "UMAP", pca: "PCA" };
const MAX_CLUSTERS = 100;

export async function renderMapTab(panel, about) {
  const rows = await getArray("/explorer/rows", Uint32Array);
  const pointOfRow = new Map();
  rows.forEach((row, point) => pointOfRow.set(row, point));
  const columns = [...about.columns, ...COMPUTED_COLUMNS];
  const state = { method: about.maps[0], column: columns[0], clusters: about.clusters };

  const plot = element("div", { class: "plot" }), legend = element("div", { class: "under" });
  const aside = element("aside", { "aria-live": "polite" });
  const status = element("p", { class: "progress", role: "status" });
  const showProgress = (description, progress) => {
    status.textContent = `${description}… ${progress ? `${Math.round(100 * progress)}%` : ""}`;
  };
  const showHoverCard = createHoverCard(about);
  const map = createMap(plot, {
    label: "Map of the embedding. Arrow keys pan, + and - zoom, Enter selects the point in the center.",
    onHover: (point, event) => {
      if (point == null) stopSound();
      else if (about.modality === "audio") playSound(rows[point]);
      showHoverCard(point == null ? null : rows[point], event);
    },
    onSelect: (point) => selectRow(rows[point]),
  });
  const detail = createSampleDetail(aside, about, {
    onSelect: (row) => selectRow(row),
    onShow: (row, neighbors) => map.highlight(
      row == null ? null : pointOfRow.get(row), neighbors.map((neighbor) => pointOfRow.get(neighbor))),
  });
  const selectRow = (row) => {
    showHoverCard(null);
    history.replaceState(null, "", `#map/${row}`);
    return detail.show(row);
  };

  async function drawMap() {
    showProgress("loading the map", 0);
    await map.show(await getArray(`/explorer/map?method=${state.method}`, Float32Array, showProgress));
    await colorPoints();
  }
  async function colorPoints() {
    clustersField.hidden = state.column.name !== "cluster";
    const column = await loadColumn(state.column, state.clusters, showProgress);
    status.textContent = "";
    legend.replaceChildren(createLegend(column, (category) => map.paint(createMarker(column, category))));
    await map.paint(createMarker(column));
  }
  const showErrors = (action) => () => action().catch((error) => (status.textContent = error.message));

  const clustersField = element("label", { class: "field" }, element("span", {}, "Clusters"),
    element("input", {
      type: "number", min: 2, max: MAX_CLUSTERS, value: state.clusters,
      onchange: (event) => {
        const clusters = Number(event.target.value) || about.clusters;
        state.clusters = Math.max(2, Math.min(MAX_CLUSTERS, about.rows, clusters));
        showErrors(colorPoints)();
      },
    }));
  const controls = element("div", { class: "controls" },
    select("Map", about.maps.map((method) => [method, METHOD_NAMES[method]]), state.method, (method) => {
      state.method = method;
      showErrors(drawMap)();
    }),
    select("Colour", columns.map((column) => [column.name, column.name]), state.column.name, (name) => {
      state.column = columns.find((column) => column.name === name);
      showErrors(colorPoints)();
    }), clustersField);
  panel.append(element("div", { class: "map-view" },
    element("div", { class: "left" }, controls,
      element("div", { class: "stage" }, plot, createZoomButtons(map), status), legend),
    element("div", { class: "right" }, createSearchBox(about, detail, selectRow), aside)));
  detail.showMessage("Hover over a point to see its sample. Click it to see its nearest neighbors. "
    + "Keyboard: / moves to the search box, Tab moves to the map.", false);

  await showErrors(drawMap)();
  darkMode.addEventListener("change", showErrors(async () => {
    await map.updateTheme();
    await colorPoints();
  }));
  const rowInAddress = /^#map\/(\d+)$/.exec(location.hash);
  if (rowInAddress && pointOfRow.has(Number(rowInAddress[1]))) await selectRow(Number(rowInAddress[1]));
}
