"""Self-contained HTML pages: tables, pictures and bars, with nothing from outside."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from html import escape
from typing import NamedTuple

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; margin: 0 auto;
       padding: 1rem; max-width: 75rem; }
h1 { font-size: 1.6rem; } h2 { margin-top: 2.5rem; border-bottom: 2px solid #0072B2; }
h3 { font-size: 1rem; margin-bottom: .3rem; }
h1, p, figcaption { overflow-wrap: anywhere; }
nav a { display: inline-block; margin-right: 1rem; color: #0072B2; }
.scroll { overflow-x: auto; margin-bottom: 1rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap;
         border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff;
                                 z-index: 1; }
thead th { border-bottom: 2px solid #999; }
.paper { color: #777; }
.facts td:last-child, .words td:last-child, .words th:last-child {
  text-align: left; white-space: normal; overflow-wrap: anywhere; }
.many tbody { display: grid; grid-template-columns: repeat(auto-fill, minmax(16rem, 1fr));
              gap: 0 1.5rem; }
.many tr { display: flex; justify-content: space-between; border-bottom: 1px solid #ddd; }
.many td { border: 0; } .many td:first-child { white-space: normal; overflow-wrap: anywhere; }
.many table, .bars table { width: 100%; } .bars table { max-width: 56rem; }
.bars th:nth-child(2) { width: 70%; min-width: 7rem; text-align: left; }
.label { display: inline-block; max-width: min(20rem, 40vw); white-space: normal;
         overflow-wrap: break-word; }
.track { display: block; position: relative; height: .9rem; }
.track b { position: absolute; top: 15%; height: 70%; background: #0072B2;
           print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.track .thin { top: calc(50% - 1px); height: 2px; }
.track .mark { top: 0; height: 100%; min-width: 3px; margin-left: -1px; background: #D55E00; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; }
figcaption { font-size: .9rem; color: #555; }
.figures { display: grid; gap: 0 1.5rem;
           grid-template-columns: repeat(auto-fill, minmax(min(100%, var(--least)), 1fr)); }
.figures figure { min-width: 0; }
.figures img { width: 100%; max-width: calc(1.45 * var(--least)); }
.figures .scroll { margin: 0; }
@media (max-width: 40rem) {
  figure img { max-width: none; width: 56rem; }
  .words tr { display: flex; flex-wrap: wrap; border-bottom: 1px solid #ddd; }
  .words th, .words td { flex: 1 1 0; min-width: 0; white-space: normal; overflow-wrap: anywhere;
                         border: 0; }
  .words th:last-child, .words td:last-child { flex: 0 0 100%; box-sizing: border-box;
                                               color: #555; }
  .words td:empty { display: none; }
}
"""


class TextTable(NamedTuple):
    """A table of text; the first cell of a row is its name."""

    title: str
    header: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """The table in Markdown, under its title."""
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"### {self.title}\n\n{body}\n"


def as_html(table: TextTable, markup: Callable[[str], str] = escape, kind: str = "") -> str:
    """A table in HTML that scrolls sideways where the screen is narrow.

    Parameters
    ----------
    table : TextTable
    markup : callable
        Makes HTML of a cell.
    kind : str
        What the columns hold: "words", sentences in the last one; "bars", a `track` in the second
        one; "facts", a name and a text; "many", a name and a number, several rows side by side.
    """
    title = f"<h3>{escape(table.title)}</h3>\n" if table.title else ""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.header)
    head = f"<thead><tr>{head}</tr></thead>\n" if table.header else ""
    body = "".join(
        "<tr>" + "".join(f"<td>{markup(cell)}</td>" for cell in row) + "</tr>\n"
        for row in table.rows
    )
    return f"{title}<div class='scroll {kind}'><table>{head}<tbody>{body}</tbody></table></div>\n"


def label(text: str) -> str:
    """A name that is broken into lines where it is long."""
    return f'<span class="label">{escape(text)}</span>'


def track(*bars: tuple[float, float, str]) -> str:
    """Bars on one line, in HTML.

    Each bar is (low, high, kind): the shares of the line where it begins and ends, and "", "thin"
    or, for a point, "mark". A screen reader skips bars: the table should hold their numbers too.
    """
    drawn = "".join(
        f'<b class="{kind}" style="left:{100 * low:.2f}%;width:{100 * (high - low):.2f}%"></b>'
        for low, high, kind in bars
    )
    return f'<span class="track" aria-hidden="true">{drawn}</span>'


def paragraph(text: str) -> str:
    """A paragraph of plain text, in HTML."""
    return f"<p>{escape(text)}</p>\n"


def figure(image: bytes, caption: str, alt: str = "") -> str:
    """A PNG inside the page. `alt` tells what it shows; by default the caption does."""
    data = base64.b64encode(image).decode()
    return (
        f'<figure><div class="scroll"><img alt="{escape(alt or caption)}" '
        f'src="data:image/png;base64,{data}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>\n"
    )


def side_by_side(figures: Iterable[str], least: str = "22rem") -> str:
    """Small figures in columns of at least a width: as many as the screen has room for."""
    return f'<div class="figures" style="--least: {least}">\n{"".join(figures)}</div>\n'


def page(title: str, introduction: str, sections: dict[str, str]) -> str:
    """The whole document from the HTML of its sections."""
    anchors = {name: f"s{number}" for number, name in enumerate(sections)}
    links = "".join(f'<a href="#{anchors[name]}">{escape(name)}</a>' for name in sections)
    body = "".join(
        f'<h2 id="{anchors[name]}">{escape(name)}</h2>\n{html}' for name, html in sections.items()
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style></head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n<p>{escape(introduction)}</p>\n<nav>{links}</nav>\n{body}"
        "</body></html>\n"
    )
