// Colours of the page for the charts, light and dark, and what all charts have in common.

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const dark = matchMedia("(prefers-color-scheme: dark)");

export const colour = {
  get paper() { return style("--paper"); }, get card() { return style("--card"); }, get ink() { return style("--ink"); },
  get soft() { return style("--soft"); }, get rule() { return style("--rule"); }, get accent() { return style("--accent"); },
  get bad() { return style("--bad"); },
};

// As many colours as asked for: the ten of the pages, or a wheel.
export function palette(size) {
  if (size <= 10) return Array.from({ length: size }, (_, i) => style(`--c${i}`));
  const light = dark.matches ? [68, 58] : [46, 36];
  return Array.from({ length: size }, (_, i) => wheel((i * 360) / size, 62, light[i % 2]));
}

// Hue, saturation and lightness as #rrggbb, which every chart understands.
function wheel(hue, saturation, lightness) {
  const reach = (saturation * Math.min(lightness, 100 - lightness)) / 1e4;
  const channel = (n) => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (lightness / 100 - reach * Math.max(-1, Math.min(k - 3, 9 - k, 1)))).toString(16).padStart(2, "0");
  };
  return `#${channel(0)}${channel(8)}${channel(4)}`;
}

export const ramp = () => (dark.matches
  ? [[0, "#26424a"], [0.5, "#58c4b8"], [1, "#f4e9a8"]]
  : [[0, "#d9e5d6"], [0.5, "#2f9c93"], [1, "#10324a"]]);

export const fonts = () => ({ family: getComputedStyle(document.body).fontFamily, size: 12, color: colour.soft });

export function layout(more = {}) {
  return {
    font: fonts(), paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, autosize: true,
    margin: { l: 52, r: 16, t: 12, b: 44 }, hoverlabel: { bgcolor: colour.card, bordercolor: colour.rule, font: { color: colour.ink } }, ...more,
  };
}

export const axis = (title, more = {}) => ({
  title: { text: title, font: { color: colour.soft }, standoff: 12 }, automargin: true, gridcolor: colour.rule, zerolinecolor: colour.rule, linecolor: colour.rule, ...more,
});

export const quiet = { displayModeBar: false, responsive: true };
