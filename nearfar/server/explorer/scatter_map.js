// @ts-check
// Scatter plot of a map. One WebGL trace draws all points. A small trace on top draws the highlighted points.

import { element } from "./dom.js";
import { color, plotFont, plotLayout } from "./theme.js";

/** @typedef {import("./types").AxisRange} AxisRange */
/** @typedef {import("./types").Marker} Marker */
/** @typedef {import("./types").PlotElement} PlotElement */
/** @typedef {import("./types").PlotPointEvent} PlotPointEvent */

/**
 * @typedef {object} MapOptions
 * @property {(point: number, pointer: MouseEvent) => void} onHover
 * @property {() => void} onLeave - called when the pointer leaves a point
 * @property {(point: number) => void} onSelect - called after a click or the Enter key
 */

const HIDDEN_AXIS = { visible: false, showgrid: false, zeroline: false };
const PAN_STEP = 0.15; // fraction of the visible range
const ZOOM_IN = 0.7, ZOOM_OUT = 1 / 0.7;
const MANY_POINTS = 20000;
const POINTS_TRACE = 0, HIGHLIGHT_TRACE = 1;

/** Map in a container. A point is its index on the map. */
export class ScatterMap {
  /**
   * @param {HTMLElement} container
   * @param {MapOptions} options
   */
  constructor(container, options) {
    this.container = container;
    this.options = options;
    /** The plot, as soon as it is drawn. @type {PlotElement | null} */
    this.plot = null;
    this.x = new Float32Array();
    this.y = new Float32Array();
    /** @type {Partial<Marker>} */
    this.marker = {};
    container.tabIndex = 0;
    container.setAttribute("role", "application");
    container.addEventListener("keydown", (event) => this.handleKey(event));
  }

  /**
   * Set the description for screen readers.
   *
   * @param {string} label
   */
  setLabel(label) {
    this.container.setAttribute("aria-label", label);
  }

  /**
   * Draw points.
   *
   * @param {Float32Array} points - x and y of each point
   */
  async show(points) {
    this.x = points.filter((_, i) => i % 2 === 0);
    this.y = points.filter((_, i) => i % 2 === 1);
    const traces = [this.createPointsTrace(), createHighlightTrace()];
    this.plot = await Plotly.newPlot(this.container, traces, createLayout(), {
      displayModeBar: false, scrollZoom: true, responsive: true, doubleClick: "reset",
      // Many points at a high resolution are slow without a GPU.
      plotGlPixelRatio: this.x.length < MANY_POINTS ? 2 : 1,
    });
    this.plot.on("plotly_hover", ({ points: [point], event }) => {
      if (point.curveNumber === POINTS_TRACE) this.options.onHover(point.pointIndex, event);
    });
    this.plot.on("plotly_unhover", () => this.options.onLeave());
    this.plot.on("plotly_click", ({ points: [point] }) => {
      if (point.curveNumber === POINTS_TRACE) this.options.onSelect(point.pointIndex);
    });
  }

  createPointsTrace() {
    const { x, y } = this;
    const marker = {
      size: markerSize(x.length), opacity: x.length < MANY_POINTS ? 0.8 : 0.6, line: { width: 0 },
      color: color.accent, ...this.marker,
    };
    return { type: "scattergl", mode: "markers", x, y, hoverinfo: "none", marker };
  }

  /**
   * Color the points.
   *
   * @param {Marker} marker
   */
  async paint(marker) {
    this.marker = marker;
    if (!this.plot) return;
    await Plotly.restyle(this.plot, { marker: [this.createPointsTrace().marker] }, [POINTS_TRACE]);
  }

  /**
   * Highlight the selected point and its neighbors. If the map is not drawn yet, do nothing.
   *
   * @param {number | null} selected
   * @param {number[]} [neighbors]
   */
  async highlight(selected, neighbors = []) {
    if (!this.plot) return;
    const points = selected === null ? neighbors : [...neighbors, selected];
    await Plotly.restyle(this.plot, {
      x: [points.map((point) => this.x[point])], y: [points.map((point) => this.y[point])],
      "marker.size": [points.map((point) => (point === selected ? 18 : 11))],
      "marker.line.color": [points.map((point) => (point === selected ? color.ink : color.bad))],
    }, [HIGHLIGHT_TRACE]);
  }

  /** Use the font of the current color scheme. */
  async updateTheme() {
    if (this.plot) await Plotly.relayout(this.plot, { font: plotFont() });
  }

  zoomIn() {
    this.changeRanges((range) => scaleRange(range, ZOOM_IN));
  }

  zoomOut() {
    this.changeRanges((range) => scaleRange(range, ZOOM_OUT));
  }

  showAll() {
    this.changeRanges(fullRange);
  }

  /**
   * Move the view by a fraction of the visible range.
   *
   * @param {number} dx
   * @param {number} dy
   */
  pan(dx, dy) {
    this.changeRanges((range) => shiftRange(range, dx), (range) => shiftRange(range, dy));
  }

  /**
   * @param {(range: AxisRange) => AxisRange} changeX
   * @param {(range: AxisRange) => AxisRange} [changeY]
   */
  changeRanges(changeX, changeY = changeX) {
    if (!this.plot) return;
    const { xaxis, yaxis } = this.plot._fullLayout;
    Plotly.relayout(this.plot, { "xaxis.range": changeX(xaxis.range), "yaxis.range": changeY(yaxis.range) });
  }

  /** Select the point nearest to the center of the view. */
  selectCentralPoint() {
    if (!this.plot) return;
    const { xaxis, yaxis } = this.plot._fullLayout;
    this.options.onSelect(findNearestPoint(this.x, this.y, middle(xaxis.range), middle(yaxis.range)));
  }

  /** @param {KeyboardEvent} event */
  handleKey(event) {
    const action = KEYS.get(event.key);
    if (!action || !this.plot || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action(this);
  }
}

/** @type {Map<string, (map: ScatterMap) => void>} */
const KEYS = new Map([
  ["+", (map) => map.zoomIn()],
  ["=", (map) => map.zoomIn()], // the key of + without Shift
  ["-", (map) => map.zoomOut()],
  ["0", (map) => map.showAll()],
  ["ArrowLeft", (map) => map.pan(-PAN_STEP, 0)],
  ["ArrowRight", (map) => map.pan(PAN_STEP, 0)],
  ["ArrowUp", (map) => map.pan(0, PAN_STEP)],
  ["ArrowDown", (map) => map.pan(0, -PAN_STEP)],
  ["Enter", (map) => map.selectCentralPoint()],
]);

/** @param {number} points */
function markerSize(points) {
  if (points < 3000) return 7;
  return points < MANY_POINTS ? 4.5 : 2.6;
}

function createHighlightTrace() {
  const marker = { size: [], color: "rgba(0,0,0,0)", line: { color: color.ink, width: 2 } };
  return { type: "scattergl", mode: "markers", x: [], y: [], hoverinfo: "skip", marker };
}

function createLayout() {
  return plotLayout({
    xaxis: { ...HIDDEN_AXIS, range: fullRange() }, yaxis: { ...HIDDEN_AXIS, range: fullRange() },
    margin: { l: 0, r: 0, t: 0, b: 0 }, dragmode: "pan", hovermode: "closest", hoverdistance: 12,
  });
}

/** Return the range of all points, with a margin. The server scales maps to -1 … 1. @returns {AxisRange} */
const fullRange = () => [-1.08, 1.08];

/** @param {AxisRange} range */
const middle = ([low, high]) => (low + high) / 2;

/**
 * @param {AxisRange} range
 * @param {number} factor
 * @returns {AxisRange}
 */
function scaleRange([low, high], factor) {
  const center = middle([low, high]), half = ((high - low) / 2) * factor;
  return [center - half, center + half];
}

/**
 * @param {AxisRange} range
 * @param {number} fraction
 * @returns {AxisRange}
 */
const shiftRange = ([low, high], fraction) => [low + fraction * (high - low), high + fraction * (high - low)];

/**
 * @param {Float32Array} x
 * @param {Float32Array} y
 * @param {number} centerX
 * @param {number} centerY
 */
function findNearestPoint(x, y, centerX, centerY) {
  let nearest = 0, smallest = Infinity;
  for (let i = 0; i < x.length; i++) {
    const squaredDistance = (x[i] - centerX) ** 2 + (y[i] - centerY) ** 2;
    if (squaredDistance < smallest) [nearest, smallest] = [i, squaredDistance];
  }
  return nearest;
}

/**
 * Create the buttons for zooming in and out and for showing all points.
 *
 * @param {ScatterMap} map
 */
export function createZoomButtons(map) {
  return element("div", { class: "zoom", role: "group", "aria-label": "Zoom" },
    element("button", { type: "button", title: "Zoom in (+)", onclick: () => map.zoomIn() }, "+"),
    element("button", { type: "button", title: "Zoom out (-)", onclick: () => map.zoomOut() }, "–"),
    element("button", {
      type: "button", title: "Show all (0)", "aria-label": "Show all", onclick: () => map.showAll(),
    }, "⤢"));
}
