// Scatter plot of a map. One WebGL trace draws all points. A small trace on top draws the highlighted points.

import { element } from "./dom.js";
import { color, plotLayout } from "./theme.js";

const HIDDEN_AXIS = { visible: false, showgrid: false, zeroline: false };
const FULL_RANGE = [-1.08, 1.08];
const PAN_STEP = 0.15; // fraction of the visible range
const ZOOM_IN = 0.7, ZOOM_OUT = 1 / 0.7;
const MANY_POINTS = 20000;

function markerSize(points) {
  if (points < 3000) return 7;
  return points < MANY_POINTS ? 4.5 : 2.6;
}

function scaleRange([low, high], factor) {
  const center = (low + high) / 2, half = ((high - low) / 2) * factor;
  return [center - half, center + half];
}

const shiftRange = ([low, high], fraction) => [low + fraction * (high - low), high + fraction * (high - low)];

// Create a map in `container`. `onHover(point, event)` gets null when the pointer leaves a point.
// `onSelect(point)` is called after a click or the Enter key. A point is its index on the map.
export function createMap(container, { label, onHover, onSelect }) {
  let x, y, marker = null;
  container.tabIndex = 0;
  container.setAttribute("role", "application");
  container.setAttribute("aria-label", label);

  const pointsTrace = () => ({
    type: "scattergl", mode: "markers", x, y, hoverinfo: "none",
    marker: {
      size: markerSize(x.length), opacity: x.length < MANY_POINTS ? 0.8 : 0.6, line: { width: 0 },
      color: color.accent, ...marker,
    },
  });
  const highlightTrace = () => ({
    type: "scattergl", mode: "markers", x: [], y: [], hoverinfo: "skip",
    marker: { size: [], color: "rgba(0,0,0,0)", line: { color: color.ink, width: 2 } },
  });
  const mapLayout = () => plotLayout({
    xaxis: { ...HIDDEN_AXIS, range: [...FULL_RANGE] }, yaxis: { ...HIDDEN_AXIS, range: [...FULL_RANGE] },
    margin: { l: 0, r: 0, t: 0, b: 0 }, dragmode: "pan", hovermode: "closest", hoverdistance: 12,
  });
  const getRanges = () => [container._fullLayout.xaxis.range, container._fullLayout.yaxis.range];
  const changeRanges = (change) => {
    const [xRange, yRange] = change(...getRanges());
    return Plotly.relayout(container, { "xaxis.range": xRange, "yaxis.range": yRange });
  };

  const map = {
    async show(points) {
      x = new Float32Array(points.length / 2);
      y = new Float32Array(points.length / 2);
      for (let i = 0; i < x.length; i++) [x[i], y[i]] = [points[2 * i], points[2 * i + 1]];
      await Plotly.newPlot(container, [pointsTrace(), highlightTrace()], mapLayout(), {
        displayModeBar: false, scrollZoom: true, responsive: true, doubleClick: "reset",
        // Many points at a high resolution are slow without a GPU.
        plotGlPixelRatio: x.length < MANY_POINTS ? 2 : 1,
      });
      container.on("plotly_hover", ({ points: [point], event }) => {
        if (point.curveNumber === 0) onHover?.(point.pointIndex, event);
      });
      container.on("plotly_unhover", () => onHover?.(null));
      container.on("plotly_click", ({ points: [point] }) => {
        if (point.curveNumber === 0) onSelect?.(point.pointIndex);
      });
    },
    // Color the points. The marker has the fields color, colorscale, cmin and cmax.
    async paint(newMarker) {
      marker = newMarker;
      if (x) await Plotly.restyle(container, { marker: [pointsTrace().marker] }, [0]);
    },
    // Highlight the selected point and its neighbors.
    highlight(selected, neighbors = []) {
      const points = selected == null ? neighbors : [...neighbors, selected];
      return Plotly.restyle(container, {
        x: [points.map((i) => x[i])], y: [points.map((i) => y[i])],
        "marker.size": [points.map((i) => (i === selected ? 18 : 11))],
        "marker.line.color": [points.map((i) => (i === selected ? color.ink : color.bad))],
      }, [1]);
    },
    zoom: (factor) => changeRanges((...ranges) => ranges.map((range) => scaleRange(range, factor))),
    reset: () => changeRanges(() => [[...FULL_RANGE], [...FULL_RANGE]]),
    updateTheme: () => x && Plotly.relayout(container, { font: plotLayout().font }),
  };

  const pan = (dx, dy) => changeRanges((xRange, yRange) => [shiftRange(xRange, dx), shiftRange(yRange, dy)]);
  const keys = {
    "+": () => map.zoom(ZOOM_IN), "=": () => map.zoom(ZOOM_IN), "-": () => map.zoom(ZOOM_OUT),
    0: () => map.reset(),
    ArrowLeft: () => pan(-PAN_STEP, 0), ArrowRight: () => pan(PAN_STEP, 0),
    ArrowUp: () => pan(0, PAN_STEP), ArrowDown: () => pan(0, -PAN_STEP),
    Enter: () => onSelect?.(centralPoint()),
  };
  // Return the point nearest to the center of the view. The Enter key selects it.
  function centralPoint() {
    const [cx, cy] = getRanges().map(([low, high]) => (low + high) / 2);
    let nearest = 0, smallest = Infinity;
    for (let i = 0; i < x.length; i++) {
      const distance = (x[i] - cx) ** 2 + (y[i] - cy) ** 2; // squared
      if (distance < smallest) [nearest, smallest] = [i, distance];
    }
    return nearest;
  }
  container.addEventListener("keydown", (event) => {
    if (!x || event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  return map;
}

export function createZoomButtons(map) {
  const button = (text, title, onclick, label = null) =>
    element("button", { type: "button", title, "aria-label": label, onclick }, text);
  return element("div", { class: "zoom", role: "group", "aria-label": "Zoom" },
    button("+", "Zoom in (+)", () => map.zoom(ZOOM_IN)),
    button("–", "Zoom out (-)", () => map.zoom(ZOOM_OUT)),
    button("⤢", "Show all (0)", () => map.reset(), "Show all"));
}
