"""Colours, type and layout of the report. Blue and orange are told apart by all common colour visions."""

from __future__ import annotations

LIGHT = (
    "--paper:#fcfbf9;--panel:#ffffff;--ink:#1b2126;--muted:#566068;--hair:#dedbd4;--grid:#ebe8e2;"
    "--accent:#0a5fa3;--accent-soft:#e6f0f8;--warn:#ad3f07;--warn-soft:#fbeee6;--plain:#66717a;--band:#e4ecf2;"
)
DARK = (
    "--paper:#14181b;--panel:#1a1f23;--ink:#e9e7e2;--muted:#a4adb4;--hair:#353c42;--grid:#272d32;"
    "--accent:#74b9f0;--accent-soft:#182a39;--warn:#f39a60;--warn-soft:#33221a;--plain:#9aa5ad;--band:#202b34;"
)

SANS = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
SERIF = "'Iowan Old Style','Palatino Linotype',Palatino,'Book Antiqua',Georgia,'Times New Roman',serif"
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"

CHART_STYLE = f"""
.assay-chart {{ font-family: {SANS}; }}
.assay-chart text {{ fill: var(--muted); font-size: 12px; font-variant-numeric: tabular-nums; }}
.assay-chart .strong {{ fill: var(--ink); font-weight: 600; }}
.assay-chart .name {{ fill: var(--ink); }}
.assay-chart .t-best {{ fill: var(--accent); font-weight: 650; }}
.assay-chart .t-low {{ fill: var(--warn); }}
.assay-chart .halo {{ paint-order: stroke; stroke: var(--panel); stroke-width: 3px; stroke-linejoin: round; }}
.assay-chart .axis {{ stroke: var(--hair); }}
.assay-chart .grid {{ stroke: var(--grid); }}
.assay-chart .nominal {{ stroke: var(--ink); stroke-width: 1.2; stroke-dasharray: 5 4; }}
.assay-chart .band {{ fill: var(--band); }}
.assay-chart .lead {{ stroke: var(--plain); stroke-width: .8; opacity: .7; }}
.assay-chart .m-plain {{ fill: var(--plain); stroke: var(--panel); stroke-width: 1.2; }}
.assay-chart .m-best {{ fill: var(--accent); stroke: var(--panel); stroke-width: 1.2; }}
.assay-chart .m-low {{ fill: var(--panel); stroke: var(--warn); stroke-width: 2; }}
.assay-chart .e-plain {{ stroke: var(--plain); stroke-width: 1.4; }}
.assay-chart .e-best {{ stroke: var(--accent); stroke-width: 2; }}
.assay-chart .e-low {{ stroke: var(--warn); stroke-width: 1.4; }}
.assay-chart .s-plain {{ fill: var(--plain); opacity: .28; }}
.assay-chart .s-best {{ fill: var(--accent); opacity: .32; }}
.assay-chart .s-low {{ fill: var(--warn); opacity: .28; }}
.assay-chart .f-plain {{ fill: var(--plain); }}
.assay-chart .f-best {{ fill: var(--accent); }}
.assay-chart .f-low {{ fill: var(--warn); }}
.assay-chart .path {{ fill: none; stroke: var(--plain); stroke-width: 1.2; opacity: .6; }}
.assay-chart .bars {{ fill: none; stroke: var(--accent); stroke-width: 1.6; opacity: .42; }}
.assay-chart .centre {{ fill: none; stroke: var(--accent); stroke-width: 1.6; }}
.assay-chart .hit {{ fill: none; stroke: var(--ink); stroke-width: 3; stroke-linecap: round; }}
.assay-chart .miss {{ fill: none; stroke: var(--warn); stroke-width: 1.8; }}
.assay-chart .ribbon-best {{ fill: var(--accent); opacity: .24; }}
.assay-chart .ribbon-plain {{ fill: var(--plain); opacity: .24; }}
.assay-chart .track-best {{ fill: none; stroke: var(--accent); stroke-width: 1.5; stroke-linejoin: round; }}
.assay-chart .track-plain {{ fill: none; stroke: var(--plain); stroke-width: 1.5; stroke-linejoin: round; }}
.assay-chart .track-low {{ fill: none; stroke: var(--warn); stroke-width: 1.5; stroke-linejoin: round; }}
.assay-chart .truth-in {{ fill: none; stroke: var(--ink); stroke-width: 2.2; stroke-linecap: round; }}
.assay-chart .shift {{ fill: var(--warn); }}
.assay-chart .dots {{ fill: none; stroke: var(--plain); stroke-width: 2.6; stroke-linecap: round;
  opacity: .38; }}
.assay-chart .region {{ fill: var(--accent); fill-opacity: .14; stroke: var(--accent); stroke-width: 1.4; }}
.assay-chart .region-missed {{ fill: var(--warn); fill-opacity: .12; stroke: var(--warn);
  stroke-width: 1.4; }}
.assay-chart .tie {{ stroke: var(--ink); stroke-width: 1; opacity: .7; }}
.assay-chart .held {{ fill: none; stroke: var(--ink); stroke-width: 6; stroke-linecap: round; }}
.assay-chart .h-plain {{ fill: var(--plain); opacity: .45; }}
.assay-chart .h-best {{ fill: var(--accent); opacity: .5; }}
.assay-chart .h-low {{ fill: var(--warn); opacity: .4; }}
.assay-chart .cell {{ fill: var(--accent); opacity: .8; }}
.assay-chart .cell-empty {{ fill: var(--grid); }}
.assay-chart .truth {{ fill: none; stroke: var(--ink); stroke-width: 1.8; }}
.assay-chart .truth-missed {{ fill: none; stroke: var(--warn); stroke-width: 2; }}
""".strip()

PAGE_STYLE = f"""
:root {{ color-scheme: light dark; {LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}
* {{ box-sizing: border-box; }}
html {{ -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }}
@media (prefers-reduced-motion: reduce) {{ html {{ scroll-behavior: auto; }} }}
body {{ margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.6 {SANS};
  overflow-wrap: anywhere; }}
main, header, footer {{ max-width: 1160px; margin: 0 auto; padding: 0 clamp(16px, 4vw, 40px); }}
header {{ padding-top: clamp(28px, 6vw, 64px); }}
.eyebrow {{ color: var(--muted); font-size: .82rem; letter-spacing: .06em; margin: 0 0 .9rem; }}
h1, h2 {{ font-family: {SERIF}; font-weight: 600; line-height: 1.22; letter-spacing: -.008em;
  text-wrap: balance; }}
h1 {{ font-size: clamp(1.5rem, 1.1rem + 1.9vw, 2.3rem); margin: 0 0 1.4rem; max-width: 30em; }}
h2 {{ font-size: 1.42rem; margin: 0 0 .8rem; }}
h3 {{ font-size: 1rem; margin: 2rem 0 .35rem; font-weight: 650; }}
p {{ margin: 0 0 .8rem; max-width: 70ch; }}
.lede {{ color: var(--muted); margin-bottom: 1.2rem; }}
section {{ margin: clamp(36px, 5vw, 52px) 0 0; padding-top: clamp(18px, 2.4vw, 24px);
  border-top: 1px solid var(--hair); }}
a {{ color: var(--accent); text-underline-offset: .15em; }}
:focus-visible {{ outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 3px; }}
code, pre {{ font-family: {MONO}; font-size: .86em; }}
pre {{ background: var(--panel); border: 1px solid var(--hair); border-radius: 8px; padding: .8rem 1rem;
  margin: 0; white-space: pre-wrap; }}
.verdict {{ background: var(--accent-soft); border-left: 4px solid var(--accent);
  border-radius: 0 10px 10px 0; padding: 1.2rem clamp(16px, 3vw, 28px) 1.1rem; }}
.verdict.none {{ background: var(--warn-soft); border-color: var(--warn); }}
.verdict .say {{ font-family: {SERIF}; font-size: clamp(1.08rem, 1rem + .5vw, 1.3rem); line-height: 1.45;
  max-width: 66ch; }}
.verdict.none .say {{ margin: 0; }}
.facts {{ display: flex; flex-wrap: wrap; gap: .9rem 2.6rem; margin: 1.1rem 0 .2rem; }}
.facts dt {{ color: var(--muted); font-size: .82rem; }}
.facts dd {{ margin: 0; font-size: 1.5rem; font-weight: 600; line-height: 1.25;
  font-variant-numeric: tabular-nums; }}
.facts dd small {{ display: block; font-size: .82rem; font-weight: 400; color: var(--muted); }}
.alert {{ border-left: 4px solid var(--warn); background: var(--warn-soft); padding: .7rem 1rem;
  margin: 1rem 0 0; border-radius: 0 10px 10px 0; max-width: none; }}
nav ul {{ list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; margin: 1.4rem 0 0;
  font-size: .87rem; }}
nav a {{ text-decoration: none; display: inline-block; padding: .2rem 0; }}
nav a:hover {{ text-decoration: underline; }}
.scroll {{ overflow-x: auto; border: 1px solid var(--hair); border-radius: 10px; background: var(--panel);
  -webkit-overflow-scrolling: touch; }}
table {{ border-collapse: collapse; width: 100%; font-size: .87rem; line-height: 1.4;
  font-variant-numeric: tabular-nums; }}
th, td {{ text-align: left; vertical-align: top; padding: .55rem .6rem; border-top: 1px solid var(--grid);
  overflow-wrap: normal; }}
thead th {{ border-top: 0; color: var(--muted); font-weight: 500; font-size: .8rem; vertical-align: bottom; }}
tbody th {{ font-weight: 600; }}
td.n, th.n {{ text-align: right; white-space: nowrap; }}
td small, th small {{ display: block; color: var(--muted); font-weight: 400; font-size: .79rem; }}
table.main tbody th {{ position: sticky; left: 0; background: var(--panel); min-width: 9.6rem;
  max-width: 16rem; overflow-wrap: anywhere; box-shadow: 1px 0 0 var(--grid); }}
table.main thead th:first-child {{ position: sticky; left: 0; background: var(--panel); }}
tr.best > th, tr.best > td {{ background: var(--accent-soft) !important; }}
.tag {{ display: inline-block; font-size: .74rem; font-weight: 500; line-height: 1.3; padding: .08rem .45rem;
  border-radius: 99px; border: 1px solid var(--hair); color: var(--muted); white-space: nowrap;
  margin: .15rem .2rem 0 0; }}
.tag.best {{ color: var(--accent); border-color: var(--accent); }}
.tag.low {{ color: var(--warn); border-color: var(--warn); }}
.bad {{ color: var(--warn); }}
ul.notes {{ padding-left: 1.1rem; margin: .8rem 0 0; font-size: .87rem; color: var(--muted);
  max-width: 92ch; }}
ul.notes li {{ margin: .2rem 0; }}
figure {{ margin: 0; min-width: 0; }}
figcaption {{ font-size: .87rem; color: var(--muted); max-width: 84ch; margin: 0 0 .9rem; }}
.panel {{ background: var(--panel); border: 1px solid var(--hair); border-radius: 10px;
  padding: 12px; }}
.stacked + .stacked {{ margin-top: 14px; }}
.panels {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 310px), 1fr)); gap: 14px;
  align-items: start; }}
.panels .assay-chart, .pair .assay-chart {{ width: 100%; }}
.pair {{ display: grid; grid-template-columns: 330px minmax(0, 1fr); gap: 14px; align-items: start; }}
@media (max-width: 800px) {{ .pair {{ grid-template-columns: minmax(0, 1fr); }} }}
.assay-chart {{ display: block; max-width: 100%; height: auto; margin: 0 auto; }}
@media (max-width: 640px) {{ table.main tbody th {{ min-width: 7.6rem; }} }}
.narrow {{ display: none; }}
@media (max-width: 640px) {{ .wide {{ display: none; }} .narrow {{ display: block; width: 100%; }} }}
.key {{ display: flex; flex-wrap: wrap; gap: .25rem 1.3rem; list-style: none; padding: 0; margin: .7rem 0 0;
  font-size: .83rem; color: var(--muted); }}
.key svg {{ width: 16px; height: 14px; display: inline-block; vertical-align: -2px; margin-right: .35rem; }}
details {{ margin: .8rem 0 0; }}
summary {{ cursor: pointer; color: var(--accent); font-size: .87rem; padding: .3rem 0;
  width: fit-content; }}
details[open] > summary {{ margin-bottom: .5rem; }}
dl.plain {{ display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .25rem 1.4rem;
  margin: 1rem 0 0; font-size: .87rem; }}
dl.plain dt {{ color: var(--muted); }}
dl.plain dd {{ margin: 0; }}
@media (max-width: 520px) {{ dl.plain {{ grid-template-columns: minmax(0, 1fr); gap: 0; }}
  dl.plain dd {{ margin-bottom: .6rem; }} }}
.cards {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 420px), 1fr)); gap: 14px;
  align-items: start; }}
.card {{ padding: 14px 16px; }}
.card h3 {{ margin-top: 0; }}
.card p {{ margin: 0 0 .5rem; font-size: .9rem; }}
.card .cite {{ color: var(--muted); font-size: .84rem; margin: .6rem 0 0; }}
.error {{ white-space: pre-wrap; font-family: {MONO}; font-size: .8rem; min-width: 16rem;
  overflow-wrap: anywhere; }}
footer {{ color: var(--muted); font-size: .82rem; padding-top: 2.4rem; padding-bottom: 3rem; }}
@media print {{
  :root {{ {LIGHT} --paper:#fff; }}
  body {{ font-size: 10pt; }}
  nav, .narrow {{ display: none; }}
  .wide {{ display: block !important; }}
  .scroll {{ overflow: visible; border: 0; }}
  table.main tbody th, table.main thead th:first-child {{ position: static; }}
  figure, .panel, .card, tr {{ break-inside: avoid; }}
  h2, h3 {{ break-after: avoid; }}
  section {{ margin-top: 24pt; padding-top: 12pt; }}
  a {{ color: inherit; }}
}}
""".strip()
