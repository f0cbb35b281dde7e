// @ts-check
// Colors of the page for light and dark mode, and settings that all charts share.

/** @typedef {import("./types").ColorScale} ColorScale */

/** @param {string} name */
const cssVariable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const darkMode = matchMedia("(prefers-color-scheme: dark)");

const STYLE_SHEET_COLORS = 10; // categories that have a color in the style sheet: --c0 to --c9

export const color = {
  get card() { return cssVariable("--card"); },
  get ink() { return cssVariable("--ink"); },
  get soft() { return cssVariable("--soft"); },
  get rule() { return cssVariable("--rule"); },
  get accent() { return cssVariable("--accent"); },
  get bad() { return cssVariable("--bad"); },
};

/**
 * Return `size` colors for categories: those of the style sheet, or evenly spaced hues if there are more.
 *
 * @param {number} size
 */
export function palette(size) {
  if (size <= STYLE_SHEET_COLORS) return Array.from({ length: size }, (_, i) => cssVariable(`--c${i}`));
  const lightness = darkMode.matches ? [68, 58] : [46, 36];
  return Array.from({ length: size }, (_, i) => hslToHex((i * 360) / size, 62, lightness[i % 2]));
}

/**
 * Convert hue (degrees), saturation and lightness (percent) to #rrggbb.
 *
 * @param {number} hue
 * @param {number} saturation
 * @param {number} lightness
 */
function hslToHex(hue, saturation, lightness) {
  const amplitude = (saturation * Math.min(lightness, 100 - lightness)) / 1e4;
  /** @param {number} n */
  const channel = (n) => {
    const k = (n + hue / 30) % 12;
    const value = lightness / 100 - amplitude * Math.max(-1, Math.min(k - 3, 9 - k, 1));
    return Math.round(255 * value).toString(16).padStart(2, "0");
  };
  return `#${channel(0)}${channel(8)}${channel(4)}`;
}

/**
 * Return the color scale for columns of numbers.
 *
 * @returns {ColorScale}
 */
export function colorScale() {
  return darkMode.matches
    ? [[0, "#26424a"], [0.5, "#58c4b8"], [1, "#f4e9a8"]]
    : [[0, "#d9e5d6"], [0.5, "#2f9c93"], [1, "#10324a"]];
}

/**
 * Return the layout that all charts share, with more options.
 *
 * @param {Record<string, unknown>} options
 */
export function plotLayout(options) {
  return {
    font: plotFont(), paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    showlegend: false, autosize: true, margin: { l: 52, r: 16, t: 12, b: 44 },
    hoverlabel: { bgcolor: color.card, bordercolor: color.rule, font: { color: color.ink } },
    ...options,
  };
}

/** Return the font of all charts. */
export function plotFont() {
  return { family: getComputedStyle(document.body).fontFamily, size: 12, color: color.soft };
}

/**
 * Return an axis with a title.
 *
 * @param {string} title
 * @param {Record<string, unknown>} [options]
 */
export const plotAxis = (title, options = {}) => ({
  title: { text: title, font: { color: color.soft }, standoff: 12 }, automargin: true,
  gridcolor: color.rule, zerolinecolor: color.rule, linecolor: color.rule, ...options,
});

export const plotConfig = { displayModeBar: false, responsive: true };
