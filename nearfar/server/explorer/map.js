// A map of points: one WebGL trace for all of them, one small trace above it for those that are meant just now.

import { h } from "./dom.js";
import { colour, layout } from "./look.js";

const HIDDEN = { visible: false, showgrid: false, zeroline: false };
const STEP = 0.15;

const size = (n) => (n < 3000 ? 7 : n < 20000 ? 4.5 : 2.6);

export function createMap(element, { label, onhover, onclick }) {
  let x, y, painted = null;
  element.tabIndex = 0;
  element.setAttribute("role", "application");
  element.setAttribute("aria-label", label);

  const trace = () => ({
    type: "scattergl", mode: "markers", x, y, hoverinfo: "none",
    marker: { size: size(x.length), opacity: x.length < 20000 ? 0.8 : 0.6, line: { width: 0 }, color: colour.accent, ...painted },
  });
  const above = () => ({
    type: "scattergl", mode: "markers", x: [], y: [], hoverinfo: "skip",
    marker: { size: [], color: "rgba(0,0,0,0)", line: { color: colour.ink, width: 2 } },
  });
  const frame = () => layout({
    xaxis: { ...HIDDEN, range: [-1.08, 1.08] }, yaxis: { ...HIDDEN, range: [-1.08, 1.08] },
    margin: { l: 0, r: 0, t: 0, b: 0 }, dragmode: "pan", hovermode: "closest", hoverdistance: 12,
  });
  const ranges = () => [element._fullLayout.xaxis.range, element._fullLayout.yaxis.range];
  const move = (change) => {
    const [xs, ys] = ranges();
    const [nextX, nextY] = change(xs, ys);
    return Plotly.relayout(element, { "xaxis.range": nextX, "yaxis.range": nextY });
  };
  const scaled = ([low, high], factor) => {
    const middle = (low + high) / 2, half = ((high - low) / 2) * factor;
    return [middle - half, middle + half];
  };
  const shifted = ([low, high], share) => [low + share * (high - low), high + share * (high - low)];

  const map = {
    async show(points) {
      x = new Float32Array(points.length / 2);
      y = new Float32Array(points.length / 2);
      for (let i = 0; i < x.length; i++) [x[i], y[i]] = [points[2 * i], points[2 * i + 1]];
      await Plotly.newPlot(element, [trace(), above()], frame(), {
        displayModeBar: false, scrollZoom: true, responsive: true, doubleClick: "reset",
        plotGlPixelRatio: x.length < 20000 ? 2 : 1, // many small points need no finer pixels, and a machine without a GPU pays for each
      });
      element.on("plotly_hover", ({ points: [point], event }) => point.curveNumber === 0 && onhover?.(point.pointIndex, event));
      element.on("plotly_unhover", () => onhover?.(null));
      element.on("plotly_click", ({ points: [point] }) => point.curveNumber === 0 && onclick?.(point.pointIndex));
    },
    // What `marker` takes: color, colorscale, cmin, cmax.
    async paint(marker) {
      painted = marker;
      if (x) await Plotly.restyle(element, { marker: [trace().marker] }, [0]);
    },
    // The point that is looked at, and those that belong to it.
    mark(point, others = []) {
      const all = point == null ? others : [...others, point];
      return Plotly.restyle(element, {
        x: [all.map((i) => x[i])], y: [all.map((i) => y[i])],
        "marker.size": [all.map((i) => (i === point ? 18 : 11))],
        "marker.line.color": [all.map((i) => (i === point ? colour.ink : colour.bad))],
      }, [1]);
    },
    zoom: (factor) => move((xs, ys) => [scaled(xs, factor), scaled(ys, factor)]),
    reset: () => move(() => [[-1.08, 1.08], [-1.08, 1.08]]),
    recolour: () => x && Plotly.relayout(element, { font: layout().font }),
  };

  const keys = {
    "+": () => map.zoom(0.7), "=": () => map.zoom(0.7), "-": () => map.zoom(1 / 0.7), 0: () => map.reset(),
    ArrowLeft: () => move((xs, ys) => [shifted(xs, -STEP), ys]), ArrowRight: () => move((xs, ys) => [shifted(xs, STEP), ys]),
    ArrowUp: () => move((xs, ys) => [xs, shifted(ys, STEP)]), ArrowDown: () => move((xs, ys) => [xs, shifted(ys, -STEP)]),
    Enter: () => onclick?.(middle()),
  };
  // The point nearest to the middle of the view: so the keyboard can choose one.
  function middle() {
    const [xs, ys] = ranges(), [cx, cy] = [(xs[0] + xs[1]) / 2, (ys[0] + ys[1]) / 2];
    let best = 0, least = Infinity;
    for (let i = 0; i < x.length; i++) {
      const d = (x[i] - cx) ** 2 + (y[i] - cy) ** 2;
      if (d < least) [best, least] = [i, d];
    }
    return best;
  }
  element.addEventListener("keydown", (event) => {
    if (!x || event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  return map;
}

export const zoomButtons = (map) => h("div", { class: "zoom", role: "group", "aria-label": "Zoom" },
  h("button", { type: "button", title: "Nearer (+)", onclick: () => map.zoom(0.7) }, "+"),
  h("button", { type: "button", title: "Farther (-)", onclick: () => map.zoom(1 / 0.7) }, "–"),
  h("button", { type: "button", title: "All (0)", "aria-label": "All", onclick: () => map.reset() }, "⤢"));
