// Colors of the page for light and dark mode, and settings that all charts share.

const cssVariable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const darkMode = matchMedia("(prefers-color-scheme: dark)");

export const color = {
  get card() { return cssVariable("--card"); },
  get ink() { return cssVariable("--ink"); },
  get soft() { return cssVariable("--soft"); },
  get rule() { return cssVariable("--rule"); },
  get accent() { return cssVariable("--accent"); },
  get bad() { return cssVariable("--bad"); },
};

// Return `size` colors for categories: colors of the style sheet, or evenly spaced hues for more than ten.
export function palette(size) {
  if (size <= 10) return Array.from({ length: size }, (_, i) => cssVariable(`--c${i}`));
  const lightness = darkMode.matches ? [68, 58] : [46, 36];
  return Array.from({ length: size }, (_, i) => hslToHex((i * 360) / size, 62, lightness[i % 2]));
}

// Convert hue, saturation and lightness to #rrggbb.
function hslToHex(hue, saturation, lightness) {
  const amplitude = (saturation * Math.min(lightness, 100 - lightness)) / 1e4;
  const channel = (n) => {
    const k = (n + hue / 30) % 12;
    const value = lightness / 100 - amplitude * Math.max(-1, Math.min(k - 3, 9 - k, 1));
    return Math.round(255 * value).toString(16).padStart(2, "0");
  };
  return `#${channel(0)}${channel(8)}${channel(4)}`;
}

// Return the color scale for columns of numbers.
export const colorScale = () => (darkMode.matches
  ? [[0, "#26424a"], [0.5, "#58c4b8"], [1, "#f4e9a8"]]
  : [[0, "#d9e5d6"], [0.5, "#2f9c93"], [1, "#10324a"]]);

const plotFont = () => ({ family: getComputedStyle(document.body).fontFamily, size: 12, color: color.soft });

export function plotLayout(options = {}) {
  return {
    font: plotFont(), paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    showlegend: false, autosize: true, margin: { l: 52, r: 16, t: 12, b: 44 },
    hoverlabel: { bgcolor: color.card, bordercolor: color.rule, font: { color: color.ink } },
    ...options,
  };
}

export const plotAxis = (title, options = {}) => ({
  title: { text: title, font: { color: color.soft }, standoff: 12 }, automargin: true,
  gridcolor: color.rule, zerolinecolor: color.rule, linecolor: color.rule, ...options,
});

export const plotConfig = { displayModeBar: false, responsive: true };
