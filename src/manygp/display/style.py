"""Style of pages: one typeface, one palette, light and dark, on a screen, a phone and paper."""

STYLE = """
:root { color-scheme: light dark; --back: #ffffff; --raised: #f6f7f9; --text: #1d2530;
        --muted: #5a6675; --line: #dfe3e8; --main: #0b66b0; --other: #c4540f;
        --pale: #0b66b026; --dots: 0.28; --shade: #1d253052; }
@media screen and (prefers-color-scheme: dark) {
  :root { --back: #14181e; --raised: #1d232b; --text: #e6e9ee; --muted: #a1acb9;
          --line: #333c47; --main: #6db3f2; --other: #f2a065; --pale: #6db3f233; --dots: 0.34;
          --shade: #000000b3; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--text); background: var(--back);
       margin: 0 auto; padding: 1rem 1rem 4rem; max-width: 76rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 1.2rem 0 .4rem; }
h2 { font-size: 1.35rem; line-height: 1.25; margin: 3rem 0 .6rem; padding-top: 1rem;
     border-top: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.6rem 0 .3rem; }
h1, h2, h3, p, li, figcaption { overflow-wrap: anywhere; }
p, ul { max-width: 60rem; margin: .5rem 0; } ul { padding-left: 1.2rem; } li { margin: .3rem 0; }
.lead { font-size: 1.08rem; color: var(--muted); }
nav { margin-top: 1rem; } nav a { display: inline-block; margin: 0 1.2rem .2rem 0; }
a { color: var(--main); text-underline-offset: .2em; }
.cards { display: grid; gap: .8rem; margin: 1rem 0 1.2rem;
         grid-template-columns: repeat(auto-fit, minmax(min(100%, 13rem), 1fr)); }
.card { background: var(--raised); border: 1px solid var(--line); border-radius: .6rem;
        padding: .8rem 1rem; display: flex; flex-direction: column; min-width: 0;
        overflow-wrap: anywhere; }
.card span { color: var(--muted); font-size: .85rem; }
.card strong { font-size: 1.7rem; line-height: 1.25; font-weight: 650; }
.card small { color: var(--muted); font-size: .85rem; line-height: 1.4; }
.scroll { overflow-x: auto; margin: .6rem 0 1rem; scrollbar-width: thin; }
.scroll { background:  /* a shade at the side where the table goes on */
  linear-gradient(to right, var(--back) 50%, transparent) 0 0 / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--back) 50%, transparent) 100% 0 / 3rem 100% no-repeat local,
  linear-gradient(to right, var(--shade), transparent) 0 0 / 1.2rem 100% no-repeat scroll,
  linear-gradient(to left, var(--shade), transparent) 100% 0 / 1.2rem 100% no-repeat scroll; }
table { width: 100%; border-collapse: collapse;
        font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; white-space: nowrap;
         border-bottom: 1px solid var(--line); }
th { color: var(--muted); font-weight: 600; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; padding-left: 0;
                                 background: var(--back); z-index: 1; }
.paper { color: var(--muted); }
.facts td:last-child, .words td:last-child, .words th:last-child {
  text-align: left; white-space: normal; overflow-wrap: anywhere; }
.facts td:first-child { color: var(--muted); vertical-align: top;
                        width: min(12rem, 30vw); }
.words td:last-child { color: var(--muted); }
.words td:nth-child(2) { font-weight: 650; }
.many tbody { display: grid; grid-template-columns: repeat(auto-fill, minmax(16rem, 1fr));
              gap: 0 1.5rem; }
.many tr { display: flex; justify-content: space-between;
           border-bottom: 1px solid var(--line); }
.many td { border: 0; } .many td:first-child { white-space: normal; overflow-wrap: anywhere; }
.bars th:nth-child(2) { width: 45%; min-width: 7rem; text-align: left; }
.columns { columns: 2 30rem; column-gap: 2.5rem; } .columns > * { break-inside: avoid; }
.columns th { white-space: normal; vertical-align: bottom; }
.columns th, .columns td { padding: .3rem .4rem; }
.columns th:first-child, .columns td:first-child { padding-left: 0; }
.columns .bars th:first-child { min-width: 9rem; width: 38%; }
.columns .bars th:nth-child(2) { width: 26%; min-width: 6rem; }
.told td:last-child, .told th:last-child { text-align: left; white-space: normal;
                                           min-width: 16rem; width: 34%; }
.label { display: inline-block; max-width: min(20rem, 40vw); white-space: normal;
         overflow-wrap: anywhere; }
.label.short { white-space: nowrap; max-width: none; }
.track { display: block; position: relative; height: .95rem; }
.track b { position: absolute; top: 12%; height: 76%; background: var(--main);
           border-radius: 2px; }
.track .thin { top: calc(50% - 1px); height: 2px; }
.track .pale { background: var(--pale); } .track .other { background: var(--other); }
.track .mark { top: 0; height: 100%; min-width: 2px; margin-left: -1px;
               background: var(--text); }
.track .dot { width: .7rem !important; height: .7rem; top: .125rem; margin-left: -.35rem;
              border-radius: 50%; }
.track b, .key { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.keys { font-size: .85rem; color: var(--muted); }
.keys span { margin-right: 1.2rem; white-space: nowrap; }
.keys i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px;
          margin-right: .4rem; vertical-align: -.08rem; background: var(--main);
          print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.keys i.other { background: var(--other); } .keys i.pale { background: var(--pale); }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; background: #fff; }
figcaption { font-size: .875rem; color: var(--muted); line-height: 1.45; }
.title { font-weight: 650; margin: 0 0 .2rem; }
.figures { display: grid; gap: .6rem 2rem; align-items: start;
           grid-template-columns: repeat(auto-fill, minmax(min(100%, var(--least)), 1fr)); }
.figures figure { min-width: 0; max-width: 30rem; }
.figures img { width: 100%; max-width: calc(1.45 * var(--least)); }
.figures .scroll { margin: 0; }
.chart { display: block; width: 100%; height: auto; overflow: hidden; }
.chart text { fill: var(--muted); font: 11px system-ui, sans-serif;
              font-variant-numeric: tabular-nums; }
.chart .grid { stroke: var(--line); stroke-width: 1; fill: none; }
.chart .ideal { stroke: var(--muted); stroke-width: 1.2; stroke-dasharray: 4 3; fill: none; }
.chart .line { stroke: var(--main); stroke-width: 2; fill: none; stroke-linejoin: round; }
.chart .dots { stroke: var(--main); stroke-width: 4.5; stroke-linecap: round;
               stroke-opacity: var(--dots); fill: none; }
.chart .few { stroke-opacity: .75; }
.chart .points { stroke: var(--main); stroke-width: 7; stroke-linecap: round; fill: none; }
.chart .band { fill: var(--pale); stroke: none; }
.chart .bars { fill: var(--main); fill-opacity: .6; stroke: var(--back); stroke-width: 1; }
.chart .rug { fill: var(--muted); fill-opacity: .35; stroke: none; }
.chart .other.line, .chart .other.points, .chart .other.dots { stroke: var(--other); }
@media (max-width: 40rem) {
  h1 { font-size: 1.5rem; } h2 { margin-top: 2.2rem; }
  .cards { grid-template-columns: 1fr 1fr; } .card strong { font-size: 1.35rem; }
  figure img { max-width: none; width: 56rem; } .figures img { width: 100%; }
  .words thead { display: none; }
  .words tr { display: flex; flex-wrap: wrap; border-bottom: 1px solid var(--line); }
  .words td { flex: 1 1 0; min-width: 0; white-space: normal; overflow-wrap: anywhere;
              border: 0; }
  .words td:last-child { flex: 0 0 100%; padding-left: 0; padding-top: 0; }
  th, td { padding: .3rem .45rem; }
  .scores thead { display: table-header-group; } .scores th { flex: 1 1 0; border: 0; }
  .scores th:last-child { display: none; }
  .bars th:nth-child(2) { width: auto; min-width: 6rem; white-space: normal; }
}
@media print {
  html { font-size: 12px; } body { font-size: 1rem; max-width: none; padding: 0; }
  nav { display: none; } .cards { grid-template-columns: repeat(4, 1fr); }
  .scroll { overflow: visible; } th:first-child, td:first-child { position: static; }
  h2, h3, .title { break-after: avoid; } figure, tr, .card { break-inside: avoid; }
  .figures { grid-template-columns: repeat(3, 1fr); gap: .6rem 1.2rem; }
  .chart * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
