// @ts-check
// Tab "Map": the map of all points, its color settings, the search box, and the selected sample.

import { CLUSTER_COLUMN, COMPUTED_COLUMNS, createLegend, createMarker, loadColumn } from "./coloring.js";
import { element, select } from "./dom.js";
import { HoverCard } from "./hover_card.js";
import { getArray } from "./requests.js";
import { SampleDetail } from "./sample_detail.js";
import { playSound, stopSound } from "./sample_media.js";
import { createZoomButtons, ScatterMap } from "./scatter_map.js";
import { createSearchBox } from "./search.js";
import { formatProgress, showErrors } from "./status.js";
import { darkMode } from "./theme.js";

/** @typedef {import("./types").About} About */
/** @typedef {import("./types").ReportProgress} ReportProgress */

/** @type {Record<string, string>} */
const METHOD_NAMES = { pacmap: "PaCMAP", tsne: "t-SNE", umap: "UMAP", pca: "PCA" };
const MIN_CLUSTERS = 2, MAX_CLUSTERS = 100;
const MAP_LABEL = "Map of the embedding. "
  + "Arrow keys pan, + and - zoom, Enter selects the point in the center.";
const HELP = "Hover over a point to see its sample. Click it to see its nearest neighbors. "
  + "Keyboard: / moves to the search box, Tab moves to the map.";

/**
 * @param {HTMLElement} panel
 * @param {About} about
 */
export async function renderMapTab(panel, about) {
  const view = new MapView(about, await getArray("/explorer/rows", Uint32Array));
  panel.append(view.createLayout());
  view.detail.showMessage(HELP, false);
  await view.drawMap();
  darkMode.addEventListener("change", () => view.updateTheme());
  const row = /^#map\/(\d+)$/.exec(location.hash)?.[1];
  if (row !== undefined && view.pointOfRow.has(Number(row))) await view.selectRow(Number(row));
}

class MapView {
  /**
   * @param {About} about
   * @param {Uint32Array} rows - row of each point
   */
  constructor(about, rows) {
    this.about = about;
    this.rows = rows;
    this.pointOfRow = new Map(Array.from(rows, (row, point) => [row, point]));
    this.columns = [...about.columns, ...COMPUTED_COLUMNS];
    this.method = about.maps[0];
    this.column = this.columns[0];
    this.clusters = about.clusters;
    this.plot = element("div", { class: "plot" });
    this.legend = element("div", { class: "under" });
    this.status = element("p", { class: "progress", role: "status" });
    this.clustersField = this.createClustersField();
    this.card = new HoverCard(about.media);
    this.map = new ScatterMap(this.plot, {
      onHover: (point, pointer) => this.showPoint(point, pointer),
      onLeave: () => this.hidePoint(),
      onSelect: (point) => this.selectRow(rows[point]),
    });
    this.map.setLabel(MAP_LABEL);
    this.detail = new SampleDetail(about.media, (row) => this.selectRow(row),
      (row, neighbors) => this.highlightRows(row, neighbors));
  }

  createLayout() {
    const searchBox = createSearchBox(this.about, this.detail, (row) => this.selectRow(row));
    return element("div", { class: "map-view" },
      element("div", {}, this.createControls(),
        element("div", { class: "stage" }, this.plot, createZoomButtons(this.map), this.status), this.legend),
      element("div", {}, searchBox, this.detail.panel));
  }

  createControls() {
    /** @type {[string, string][]} */
    const methods = this.about.maps.map((method) => [method, METHOD_NAMES[method]]);
    /** @type {[string, string][]} */
    const columns = this.columns.map((column) => [column.name, column.name]);
    return element("div", { class: "controls" },
      select("Map", methods, this.method, (method) => {
        this.method = method;
        this.drawMap();
      }),
      select("Color", columns, this.column.name, (name) => {
        this.column = this.columns.find((column) => column.name === name) ?? this.column;
        this.colorPoints();
      }), this.clustersField);
  }

  createClustersField() {
    const input = element("input", {
      type: "number", min: MIN_CLUSTERS, max: MAX_CLUSTERS, value: this.clusters,
      onchange: () => {
        const clusters = Number(input.value) || this.about.clusters;
        this.clusters = Math.max(MIN_CLUSTERS, Math.min(MAX_CLUSTERS, this.about.rows, clusters));
        this.colorPoints();
      },
    });
    return element("label", { class: "field" }, element("span", {}, "Clusters"), input);
  }

  /** @type {ReportProgress} */
  showProgress = (description, progress) => {
    this.status.textContent = formatProgress(description, progress);
  };

  drawMap() {
    return showErrors(this.status, async () => {
      this.showProgress("loading the map", 0);
      const path = `/explorer/map?method=${this.method}`;
      await this.map.show(await getArray(path, Float32Array, this.showProgress));
      await this.loadColors();
    });
  }

  colorPoints() {
    return showErrors(this.status, () => this.loadColors());
  }

  async loadColors() {
    this.clustersField.hidden = this.column !== CLUSTER_COLUMN;
    const column = await loadColumn(this.column, this.clusters, this.showProgress);
    this.status.textContent = "";
    /** @param {number | null} category */
    const selectCategory = (category) => this.map.paint(createMarker(column, category));
    this.legend.replaceChildren(createLegend(column, selectCategory));
    await this.map.paint(createMarker(column));
  }

  updateTheme() {
    return showErrors(this.status, async () => {
      await this.map.updateTheme();
      await this.loadColors();
    });
  }

  /**
   * Show the sample of a point next to the pointer, and play its sound.
   *
   * @param {number} point
   * @param {MouseEvent} pointer
   */
  showPoint(point, pointer) {
    if (this.about.media.sound) playSound(this.rows[point]);
    this.card.show(this.rows[point], pointer);
  }

  hidePoint() {
    stopSound();
    this.card.hide();
  }

  /**
   * Show a row and its neighbors in the panel, and store the row in the address.
   *
   * @param {number} row
   */
  selectRow(row) {
    this.card.hide();
    history.replaceState(null, "", `#map/${row}`);
    return this.detail.showSample(row);
  }

  /**
   * Highlight the points of the rows that the panel shows.
   *
   * @param {number | null} row
   * @param {number[]} neighbors
   */
  highlightRows(row, neighbors) {
    const [selected = null] = this.findPoints(row === null ? [] : [row]);
    this.map.highlight(selected, this.findPoints(neighbors));
  }

  /** @param {number[]} rows */
  findPoints(rows) {
    return rows.map((row) => this.pointOfRow.get(row)).filter((point) => point !== undefined);
  }
}
