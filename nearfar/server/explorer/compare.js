// Tab "Compare": maps of two runs on the same samples, and the samples whose neighbors changed most.

import { createMarker, loadColumn } from "./coloring.js";
import { element, formatCount, select } from "./dom.js";
import { getArray, getJSON } from "./requests.js";
import { createHoverCard } from "./sample_detail.js";
import { createMedia } from "./sample_media.js";
import { createMap, createZoomButtons } from "./scatter_map.js";
import { colorScale } from "./theme.js";

const CHANGED_SAMPLES = 24;
const BY_CHANGE = "moved"; // the color option that is not a column

export async function renderCompareTab(panel, about) {
  const otherRuns = about.runs.filter((run) => run !== about.run);
  if (!otherRuns.length) {
    panel.append(element("p", { class: "quiet" },
      "There is no other run to compare with. Add a folder of runs with `nearfar serve RUN --runs FOLDER`."));
    return;
  }
  const rows = await getArray("/explorer/rows", Uint32Array);
  const status = element("p", { class: "progress", role: "status" });
  const summary = element("p", { class: "lede" }), list = element("ol", { class: "hits wide" });
  const showHoverCard = createHoverCard(about), maps = [];
  const highlightInBoth = (point) => maps.forEach((map) => map.highlight(point));
  const createMapFigure = (run) => {
    const plot = element("div", { class: "plot" });
    const map = createMap(plot, {
      label: `Map of ${run}`, onSelect: highlightInBoth,
      onHover: (point, event) => showHoverCard(point == null ? null : rows[point], event),
    });
    maps.push(map);
    const title = element("b", {}, run);
    const figure = element("figure", {}, element("figcaption", {}, title),
      element("div", { class: "stage" }, plot, createZoomButtons(map)));
    return { title, map, figure };
  };
  const left = createMapFigure(about.run), right = createMapFigure(otherRuns[0]);
  // `changes` holds the fraction of neighbors that each point loses in the other run. NaN: not measured.
  const state = { run: otherRuns[0], colorBy: BY_CHANGE, changes: null };

  const changeMarker = () => ({
    color: state.changes.map((change) => (Number.isNaN(change) ? 0 : change)),
    colorscale: colorScale(), cmin: 0, cmax: 1,
  });
  const colorPoints = async () => {
    const column = about.columns.find(({ name }) => name === state.colorBy);
    const marker = column ? createMarker(await loadColumn(column, about.clusters)) : changeMarker();
    await Promise.all(maps.map((map) => map.paint(marker)));
  };
  const listChangedSamples = async (measured) => {
    const points = measured.sort((a, b) => state.changes[b] - state.changes[a]).slice(0, CHANGED_SAMPLES);
    const samples = await Promise.all(points.map((point) => getJSON(`/explorer/sample/${rows[point]}`)));
    list.replaceChildren(...samples.map((sample, i) => element("li", {},
      element("button", { type: "button", class: "hit", onclick: () => highlightInBoth(points[i]) },
        element("span", { class: "media" }, createMedia(sample, about.modality)),
        element("span", { class: "said" }, element("b", {}, `${Math.round(100 * state.changes[points[i]])}%`),
          element("span", {}, sample.label ?? sample.name))))));
  };
  const showRun = async () => {
    right.title.textContent = state.run;
    const showProgress = (description, progress) => {
      status.textContent = `${description}… ${Math.round(100 * progress)}%`;
    };
    const name = encodeURIComponent(state.run);
    const rightPoints = await getArray(`/explorer/compare/map?run=${name}`, Float32Array, showProgress);
    state.changes = await getArray(`/explorer/compare/moved?run=${name}`, Float32Array, showProgress);
    const leftPoints = await getArray("/explorer/map", Float32Array, showProgress);
    status.textContent = "";
    await Promise.all([left.map.show(leftPoints), right.map.show(rightPoints)]);
    await colorPoints();
    const measured = [...state.changes.keys()].filter((point) => !Number.isNaN(state.changes[point]));
    const mean = measured.reduce((sum, point) => sum + state.changes[point], 0) / measured.length;
    const percent = (100 * mean).toFixed(0);
    summary.textContent = `${percent}% of the ten nearest neighbors differ in ${state.run} `
      + `(${formatCount(measured.length)} samples compared).`;
    await listChangedSamples(measured);
  };
  const showErrors = (action) => () => action().catch((error) => (status.textContent = error.message));
  const categories = about.columns.filter(({ kind }) => kind === "category").map(({ name }) => [name, name]);
  panel.append(element("div", { class: "controls" },
    select("With", otherRuns.map((run) => [run, run]), state.run, (run) => {
      state.run = run;
      showErrors(showRun)();
    }),
    select("Color", [[BY_CHANGE, "fraction of neighbors lost"], ...categories], state.colorBy, (name) => {
      state.colorBy = name;
      showErrors(colorPoints)();
    })),
  summary, status, element("div", { class: "pair-of-maps" }, left.figure, right.figure),
  element("h2", {}, "Samples whose neighbors changed most"), list);
  await showErrors(showRun)();
}
