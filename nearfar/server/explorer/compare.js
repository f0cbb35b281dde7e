// @ts-check
// Tab "Compare": maps of two runs on the same samples, and the samples whose neighbors changed most.

import { createMarker, loadColumn } from "./coloring.js";
import { element, formatCount, select } from "./dom.js";
import { HoverCard } from "./hover_card.js";
import { getArray, getJSON } from "./requests.js";
import { createMedia } from "./sample_media.js";
import { createZoomButtons, ScatterMap } from "./scatter_map.js";
import { formatProgress, showErrors } from "./status.js";
import { colorScale } from "./theme.js";

/** @typedef {import("./types").About} About */
/** @typedef {import("./types").Marker} Marker */
/** @typedef {import("./types").ReportProgress} ReportProgress */
/** @typedef {import("./types").Sample} Sample */

const CHANGED_SAMPLES = 24;
const BY_CHANGE = "fraction of neighbors lost"; // the color option that is not a column
const NO_OTHER_RUN = "There is no other run to compare with. "
  + "Add a folder of runs with `nearfar serve RUN --runs FOLDER`.";

/**
 * @param {HTMLElement} panel
 * @param {About} about
 */
export async function renderCompareTab(panel, about) {
  const otherRuns = about.runs.filter((run) => run !== about.run);
  if (!otherRuns.length) {
    panel.append(element("p", { class: "quiet" }, NO_OTHER_RUN));
    return;
  }
  const view = new CompareView(about, await getArray("/explorer/rows", Uint32Array));
  panel.append(view.createControls(otherRuns), ...view.createLayout());
  await view.showRun(otherRuns[0]);
}

class CompareView {
  /**
   * @param {About} about
   * @param {Uint32Array} rows - row of each point
   */
  constructor(about, rows) {
    this.about = about;
    this.rows = rows;
    this.card = new HoverCard(about.media);
    this.status = element("p", { class: "progress", role: "status" });
    this.summary = element("p", { class: "lede" });
    this.list = element("ol", { class: "hits wide" });
    this.servedMap = this.createMap();
    this.otherMap = this.createMap();
    this.servedMap.setLabel(`Map of ${about.run}`);
    this.otherTitle = element("b");
    this.colorBy = BY_CHANGE;
    // Fraction of neighbors that each point loses in the other run. NaN: not measured.
    this.changes = new Float32Array();
  }

  createMap() {
    return new ScatterMap(element("div", { class: "plot" }), {
      onHover: (point, pointer) => this.card.show(this.rows[point], pointer),
      onLeave: () => this.card.hide(),
      onSelect: (point) => this.highlightInBoth(point),
    });
  }

  /** @param {string[]} otherRuns */
  createControls(otherRuns) {
    const categories = this.about.columns.filter(({ kind }) => kind === "category").map(({ name }) => name);
    return element("div", { class: "controls" },
      select("With", toOptions(otherRuns), otherRuns[0], (run) => this.showRun(run)),
      select("Color", toOptions([BY_CHANGE, ...categories]), this.colorBy, (name) => {
        this.colorBy = name;
        showErrors(this.status, () => this.colorPoints());
      }));
  }

  createLayout() {
    const servedTitle = element("b", {}, this.about.run);
    return [
      this.summary, this.status,
      element("div", { class: "pair-of-maps" },
        createFigure(servedTitle, this.servedMap), createFigure(this.otherTitle, this.otherMap)),
      element("h2", {}, "Samples whose neighbors changed most"), this.list,
    ];
  }

  /** @param {number} point */
  highlightInBoth(point) {
    this.servedMap.highlight(point);
    this.otherMap.highlight(point);
  }

  /**
   * Compare the served run with another run.
   *
   * @param {string} run
   */
  showRun(run) {
    this.otherTitle.textContent = run;
    this.otherMap.setLabel(`Map of ${run}`);
    return showErrors(this.status, async () => {
      await this.showMaps(run);
      const measured = [...this.changes.keys()].filter((point) => !Number.isNaN(this.changes[point]));
      this.showSummary(run, measured);
      await this.listChangedSamples(measured);
    });
  }

  /** @param {string} run */
  async showMaps(run) {
    /** @type {ReportProgress} */
    const showProgress = (description, progress) => {
      this.status.textContent = formatProgress(description, progress);
    };
    const name = encodeURIComponent(run);
    const otherPoints = await getArray(`/explorer/compare/map?run=${name}`, Float32Array, showProgress);
    this.changes = await getArray(`/explorer/compare/moved?run=${name}`, Float32Array, showProgress);
    const servedPoints = await getArray("/explorer/map", Float32Array, showProgress);
    this.status.textContent = "";
    await Promise.all([this.servedMap.show(servedPoints), this.otherMap.show(otherPoints)]);
    await this.colorPoints();
  }

  async colorPoints() {
    const column = this.about.columns.find(({ name }) => name === this.colorBy);
    const marker = column
      ? createMarker(await loadColumn(column, this.about.clusters))
      : createChangeMarker(this.changes);
    await Promise.all([this.servedMap.paint(marker), this.otherMap.paint(marker)]);
  }

  /**
   * @param {string} run
   * @param {number[]} measured - points whose neighbors were compared
   */
  showSummary(run, measured) {
    const mean = measured.reduce((sum, point) => sum + this.changes[point], 0) / measured.length;
    this.summary.textContent = `${(100 * mean).toFixed(0)}% of the ten nearest neighbors differ in ${run} `
      + `(${formatCount(measured.length)} samples compared).`;
  }

  /** @param {number[]} measured */
  async listChangedSamples(measured) {
    const points = measured.sort((a, b) => this.changes[b] - this.changes[a]).slice(0, CHANGED_SAMPLES);
    /** @type {Sample[]} */
    const samples = await Promise.all(points.map((point) => getJSON(`/explorer/sample/${this.rows[point]}`)));
    this.list.replaceChildren(...samples.map((sample, i) => this.createEntry(sample, points[i])));
  }

  /**
   * @param {Sample} sample
   * @param {number} point
   */
  createEntry(sample, point) {
    const change = `${Math.round(100 * this.changes[point])}%`;
    return element("li", {},
      element("button", { type: "button", class: "hit", onclick: () => this.highlightInBoth(point) },
        element("span", { class: "media" }, createMedia(sample, this.about.media)),
        element("span", { class: "score" }, element("b", {}, change),
          element("span", {}, sample.label ?? sample.name))));
  }
}

/**
 * @param {HTMLElement} title
 * @param {ScatterMap} map
 */
function createFigure(title, map) {
  return element("figure", {}, element("figcaption", {}, title),
    element("div", { class: "stage" }, map.container, createZoomButtons(map)));
}

/**
 * Create a marker whose color is the fraction of neighbors lost. Points that were not measured have 0.
 *
 * @param {Float32Array} changes
 * @returns {Marker}
 */
function createChangeMarker(changes) {
  const values = changes.map((change) => (Number.isNaN(change) ? 0 : change));
  return { color: values, colorscale: colorScale(), cmin: 0, cmax: 1 };
}

/**
 * Return options of a drop-down list whose texts are their values.
 *
 * @param {string[]} names
 * @returns {[string, string][]}
 */
const toOptions = (names) => names.map((name) => [name, name]);
