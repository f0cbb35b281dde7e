// Types of the JSON that the server sends, of the page's own values, and of the functions of plotly.js that
// the explorer calls. Only the type checker reads this file. The browser never loads it.

// JSON of the server

/** Answer of /explorer/about: description of the served run or index. */
export interface About {
  title: string;
  rows: number;
  dim: number;
  modality: string;
  media: SampleMedia;
  /** Inputs that the model can encode: "texts", "images" or "sounds". Empty without a model. */
  takes: string[];
  /** Name of the run, or null for an index without a run. */
  run: string | null;
  /** Training step of the checkpoint, or null without a model. */
  step: number | null;
  /** Loss of the method, or null without a model. */
  claim: string | null;
  /** Map methods, the default first. */
  maps: string[];
  columns: Column[];
  /** Default number of clusters. */
  clusters: number;
  /** Names of the runs that can be compared. The served run may be among them. */
  runs: string[];
  /** True if /explorer/views may have views. */
  views: boolean;
}

/** How samples of the modality are shown. */
export interface SampleMedia {
  /** True if a sample has a picture at /explorer/picture. */
  picture: boolean;
  /** True if a sample has a sound at /explorer/sound. */
  sound: boolean;
  /** True if the name of a sample is shown as a quoted word. */
  quote: boolean;
  /** Note about the difference between two samples, such as " · right: pixel difference", or null. */
  difference: string | null;
}

/** Column that colors the points. Its data come from /explorer/column. */
export type Column = CategoryColumn | NumberColumn;

export interface CategoryColumn {
  name: string;
  kind: "category";
  /** Names of the categories. Absent for clusters: the user chooses their number. */
  values?: string[];
  about: string;
}

export interface NumberColumn {
  name: string;
  kind: "number";
  about: string;
}

/** Answer of /explorer/sample: one sample of the collection. */
export interface Sample {
  row: number;
  name: string | null;
  label: string | null;
  /** Absent if the sample is not a text. */
  text?: string;
}

/** Neighbor of a sample or of a search query. */
export interface Neighbor extends Sample {
  score: number;
}

/** Answer of /explorer/neighbors. */
export interface NeighborsAnswer {
  sample: Sample;
  neighbors: Neighbor[];
}

/** Body of a search for texts. Files are sent as a form instead. */
export interface SearchBody {
  texts: string[];
  k: number;
}

/** Answer of /search: a list of neighbors for each query. */
export interface SearchAnswer {
  hits: Neighbor[][];
}

/** Answer of /explorer/curves: pairs of step and value for each logged number. */
export type Curves = Record<string, [number, number][]>;

/** Answer of /explorer/health: measures of the vectors for each encoder. */
export type Diagnostics = Record<string, VectorMeasures>;

export interface VectorMeasures {
  /** Singular values relative to the largest. */
  spectrum: number[];
  [measure: string]: number | number[];
}

/** Answer of /explorer/findings: problems that `nearfar diagnose` found. */
export type Findings = { name: string; says: string; tries: string[] }[];

/** Answer of /explorer/views: positive pairs of the first training step. */
export type ViewPairs = View[][];

/** View of a sample: a picture as a data URI, or a text. */
export interface View {
  picture?: string;
  text?: string;
}

/** Entry of /explorer/plane: measures of a run, or the problem that prevents them. */
export interface RunMeasures {
  name: string;
  recipe?: string;
  seed?: number;
  problem?: string;
  alignment?: number;
  uniformity?: number;
  effective_rank?: number;
  spread?: number;
}

/** Answer with status 202: progress of a computation. */
export interface TaskProgress {
  doing: string;
  share: number;
}

// Values of the page

/** Function that shows the progress of a request. `progress` grows from 0 to 1. */
export type ReportProgress = (description: string, progress: number) => void;

/** Column with one value per point: a number, or the position of a category in `values`. */
export type LoadedColumn = LoadedCategoryColumn | LoadedNumberColumn;

export interface LoadedCategoryColumn extends CategoryColumn {
  values: string[];
  data: Uint32Array;
}

export interface LoadedNumberColumn extends NumberColumn {
  low: number;
  high: number;
  data: Float32Array;
}

/** Tab of the page. `render` fills the empty panel of the tab. */
export interface Tab {
  title: string;
  render(panel: HTMLElement, about: About): Promise<void>;
}

/** Child of an element. Null, undefined and false stand for a child that is left out. */
export type Child = Node | string | null | undefined | false;

/** Attributes and event listeners of an element. Null, undefined and false stand for a missing attribute. */
export interface Attributes {
  onclick?: (event: MouseEvent) => void;
  onchange?: (event: Event) => void;
  onerror?: (event: Event) => void;
  onkeydown?: (event: KeyboardEvent) => void;
  onsubmit?: (event: SubmitEvent) => void;
  [name: string]: string | number | boolean | null | undefined | ((event: never) => void);
}

// plotly.js, which index.html loads as a global

export type ColorScale = [number, string][];

export interface Marker {
  color: Float32Array;
  colorscale: ColorScale;
  cmin: number;
  cmax: number;
}

export type AxisRange = [number, number];

/** Element that holds a plot. */
export interface PlotElement extends HTMLElement {
  /** State of plotly.js. The visible range has no public function. */
  _fullLayout: { xaxis: { range: AxisRange }; yaxis: { range: AxisRange } };
  on(event: "plotly_hover" | "plotly_click", listener: (event: PlotPointEvent) => void): void;
  on(event: "plotly_unhover", listener: () => void): void;
}

export interface PlotPointEvent {
  points: { curveNumber: number; pointIndex: number }[];
  event: MouseEvent;
}

type PlotOptions = Record<string, unknown>;

declare global {
  const Plotly: {
    newPlot(
      container: HTMLElement, traces: PlotOptions[], layout: PlotOptions, config: PlotOptions,
    ): Promise<PlotElement>;
    relayout(plot: PlotElement, changes: PlotOptions): Promise<PlotElement>;
    restyle(plot: PlotElement, changes: PlotOptions, traces: number[]): Promise<PlotElement>;
  };
}
