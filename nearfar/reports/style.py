"""Style sheet of the pages: one accent color, light and dark mode, desktop, phone and print."""

from __future__ import annotations

LIGHT_COLORS = """
  --paper: #fcfcfb; --card: #ffffff; --ink: #1d2126; --soft: #5d6670; --rule: #e4e6e8; --accent: #0f6e68; --wash: #eef5f4; --bad: #b4472f;
  --c0: #0f6e68; --c1: #d9772b; --c2: #3f6fb0; --c3: #c2475f; --c4: #6a9a3b;
  --c5: #c9a227; --c6: #8b62a8; --c7: #4aa3b5; --c8: #8f6b4f; --c9: #7d868f;
"""

DARK_COLORS = """
  --paper: #14171a; --card: #1a1e22; --ink: #e6e8ea; --soft: #98a2ac; --rule: #2c3238; --accent: #58c4b8; --wash: #1b2b2a; --bad: #e58a72;
  --c0: #58c4b8; --c1: #eb9a56; --c2: #7ba7e0; --c3: #e77d92; --c4: #9ac868;
  --c5: #e2c35a; --c6: #b893d3; --c7: #7cc7d6; --c8: #c09a7c; --c9: #a9b2ba;
"""

TEXT_CSS = """
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100% }
body { margin: 0; background: var(--paper); color: var(--ink); font-size: 16px; line-height: 1.6; font-variant-numeric: tabular-nums;
  font-family: ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "DejaVu Sans", sans-serif }
main { max-width: 880px; margin: 0 auto; padding: 72px 28px 96px }
h1 { font-size: 2.3rem; line-height: 1.15; letter-spacing: -0.025em; font-weight: 650; margin: 0 0 10px; overflow-wrap: anywhere }
h2 { font-size: 1.2rem; letter-spacing: -0.01em; font-weight: 650; margin: 0 0 6px }
h2::before { content: ""; display: block; width: 28px; height: 3px; border-radius: 2px; background: var(--accent); margin-bottom: 14px }
section { margin-top: 64px }
p { margin: 0 0 14px }
a { color: var(--accent) }
.lede { color: var(--soft); font-size: 1.05rem; margin-bottom: 0 }
.quiet, .notes, figcaption { color: var(--soft); font-size: 0.875rem }
.notes { margin-top: 16px; line-height: 1.5 }
.notes p { margin: 0 0 4px }
.verdict { border-left: 3px solid var(--bad); padding: 2px 0 2px 14px; margin: 16px 0 }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 16px; margin-top: 36px }
.figures div { background: var(--card); border: 1px solid var(--rule); border-radius: 12px; padding: 16px 18px }
.figures b { display: block; font-size: 1.9rem; font-weight: 620; letter-spacing: -0.03em; line-height: 1.3; color: var(--accent) }
.figures b.behind { color: var(--bad) }
.figures small { font-size: 0.5em; font-weight: 500; letter-spacing: 0; margin-left: 3px }
.figures span { display: block; font-size: 0.875rem }
.figures .quiet { font-size: 0.8rem; line-height: 1.4 }
pre { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 13px 16px; margin: 12px 0; overflow-x: auto;
  font-size: 0.84rem; line-height: 1.5 }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace }
details { border: 1px solid var(--rule); border-radius: 10px; background: var(--card); padding: 0 16px; margin: 12px 0 }
summary { cursor: pointer; padding: 12px 0; font-weight: 550 }
.equation { background: var(--wash); border-radius: 12px; padding: 22px 20px; margin: 20px 0; overflow-x: auto; font-size: 1.12rem }
.equation math { font-family: "STIX Two Math", "Cambria Math", "Latin Modern Math", "Libertinus Math", STIX, math }
.equation mfrac > * { math-style: normal; math-depth: 0; padding: 0.12em 0.1em }
.equation pre { border: 0; background: none; padding: 0; margin: 0 }
"""

TABLE_CSS = """
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: 0.94rem }
th { text-align: left; font-weight: 500; color: var(--soft) }
th, td { padding: 7px 14px 7px 0; border-bottom: 1px solid var(--rule); vertical-align: baseline }
tr:last-child > td, tbody tr:last-child > th { border-bottom: 0 }
.scroll { overflow-x: auto; margin: 14px 0 }
.results { padding-right: 12px }
.results th, .results td { text-align: right; white-space: nowrap; padding: 10px 0 10px 16px }
.results th:first-child, .results td:first-child { text-align: left; padding-left: 0 }
.results thead th { font-size: 0.8rem }
.results .trained td:first-child { font-weight: 620 }
.results .best { font-weight: 650; color: var(--accent) }
.results .best::after { content: "\\25CF"; font-size: 0.5em; vertical-align: middle; margin: 0 -11px 0 5px }
.facts th { width: 9.5em; padding-right: 20px }
.facts td { overflow-wrap: anywhere }
details .facts { margin-bottom: 8px }
"""

FIGURE_CSS = """
figure { margin: 0; min-width: 0 }
figure.single { max-width: 620px }
figcaption { display: flex; justify-content: space-between; gap: 12px; margin-bottom: 4px }
figcaption b { color: var(--ink); font-weight: 600 }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); gap: 32px 36px; margin-top: 20px }
svg { display: block; width: 100%; height: auto; overflow: visible }
svg text { font-size: 11px; fill: var(--soft) }
svg .grid { stroke: var(--rule) }
svg .axis { stroke: var(--soft); opacity: 0.6 }
svg .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round }
svg .faint { fill: none; stroke-width: 1; opacity: 0.3 }
svg.points { background: var(--card); border: 1px solid var(--rule); border-radius: 12px }
svg.points circle { opacity: 0.78 }
svg.points circle:hover { opacity: 1; stroke: var(--ink); stroke-width: 1.5 }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 14px 0 0; padding: 0;
  font-size: 0.875rem; color: var(--soft) }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 5px; margin-right: 7px }
.px { display: block; flex: none; width: var(--w); height: var(--h); background-image: var(--sheet); background-size: var(--sheet-size);
  image-rendering: pixelated; border-radius: 3px; print-color-adjust: exact; -webkit-print-color-adjust: exact }
.words { font-size: 0.8125rem; line-height: 1.4; quotes: none; width: var(--w); overflow-wrap: anywhere }
.pairs { display: flex; flex-wrap: wrap; gap: 16px 18px; margin-top: 18px }
.pair { display: flex; gap: 2px }
.query { display: flex; align-items: flex-start; gap: 26px; padding: 16px 0; border-bottom: 1px solid var(--rule) }
.query:last-child { border: 0 }
.query > .tile { margin-left: 5px }
.query > .tile .px { outline: 2px solid var(--accent); outline-offset: 3px }
.query > .tile span { margin-top: 3px }
.row { display: flex; flex-wrap: wrap; gap: 10px; flex: 1 }
.tile { display: flex; flex-direction: column; gap: 5px; width: var(--w); flex: none }
.tile span { font-size: 0.75rem; line-height: 1.3; color: var(--soft); text-align: center;
  white-space: nowrap; overflow: hidden; text-overflow: ellipsis }
.tile.no span { color: var(--bad); font-weight: 600 }
.tile.no .px { outline: 2px dashed var(--bad); outline-offset: 1px }
.count { font-size: 0.875rem; color: var(--soft); white-space: nowrap; align-self: center }
"""

RESPONSIVE_CSS = """
@media (max-width: 560px) {
  main { padding: 40px 18px 64px }
  h1 { font-size: 1.8rem }
  section { margin-top: 48px }
  .figures { grid-template-columns: repeat(auto-fit, minmax(104px, 1fr)); gap: 8px; margin-top: 28px }
  .figures div { padding: 10px 12px }
  .figures b { font-size: 1.4rem }
  .facts th { width: 6.6em; padding-right: 10px }
  .equation { font-size: 0.95rem; padding: 16px 12px }
  .query { flex-wrap: wrap; gap: 12px 20px }
  .row { flex-basis: 100%; order: 3 }
  .pairs { gap: 14px 6px }
  svg text { font-size: 13px }
}
@media print {
  main { padding: 0 }
  section { break-inside: avoid-page }
}
"""

STYLE_SHEET = (
    f":root {{ color-scheme: light dark; {LIGHT_COLORS} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {DARK_COLORS} }} }}"
    + TEXT_CSS
    + TABLE_CSS
    + FIGURE_CSS
    + RESPONSIVE_CSS
)
