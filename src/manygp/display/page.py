"""Self-contained HTML pages: tables, pictures and bars, with nothing from outside."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Iterable
from typing import NamedTuple

from manygp.display.style import STYLE
from manygp.runtime.words import safe

# A name of so many letters stands on one line.
SHORT = 24


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


def escape(text: str) -> str:
    """A text in HTML: nothing of it is markup, and nothing turns the direction of writing."""
    return html.escape(safe(text))


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
    title = heading(table.title) if table.title else ""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.header)
    head = f"<thead><tr>{head}</tr></thead>\n" if table.header else ""
    body = "".join(
        "<tr>" + "".join(f"<td>{markup(cell)}</td>" for cell in row) + "</tr>\n"
        for row in table.rows
    )
    return (
        f'{title}<div class="scroll {kind}" tabindex="0"><table>{head}'
        f"<tbody>{body}</tbody></table></div>\n"
    )


def heading(text: str) -> str:
    """A heading within a section."""
    return f"<h3>{escape(text)}</h3>\n"


def label(text: str) -> str:
    """A name that is broken into lines where it is long."""
    kind = "label short" if len(text) <= SHORT else "label"
    return f'<span class="{kind}">{escape(text)}</span>'


def track(*bars: tuple[float, float, str]) -> str:
    """Bars on one line, in HTML.

    Each bar is (low, high, kind): the shares of the line where it begins and ends, and "", "thin",
    "pale", "other" (a second colour) or, for a point, "mark" or "dot". A screen reader skips bars:
    the table should hold their numbers too.
    """
    drawn = "".join(
        f'<b class="{kind}" style="left:{100 * low:.2f}%;width:{100 * (high - low):.2f}%"></b>'
        for low, high, kind in bars
    )
    return f'<span class="track" aria-hidden="true">{drawn}</span>'


def paragraph(text: str) -> str:
    """A paragraph of plain text, in HTML."""
    return f"<p>{escape(text)}</p>\n"


def bullets(texts: Iterable[str]) -> str:
    """A list of sentences, in HTML."""
    return "<ul>" + "".join(f"<li>{escape(text)}</li>\n" for text in texts) + "</ul>\n"


def cards(contents: Iterable[tuple[str, str, str]]) -> str:
    """Numbers that are read first, each with a name and a remark."""
    each = "".join(
        f'<div class="card"><span>{escape(name)}</span><strong>{escape(value)}</strong>'
        f"<small>{escape(remark)}</small></div>\n"
        for name, value, remark in contents
    )
    return f'<div class="cards">{each}</div>\n'


def figure(image: bytes, caption: str, alt: str = "") -> str:
    """A PNG inside the page. `alt` tells what it shows; by default the caption does."""
    data = base64.b64encode(image).decode()
    return (
        f'<figure><div class="scroll"><img alt="{escape(alt or caption)}" '
        f'src="data:image/png;base64,{data}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>\n"
    )


def drawing(svg: str, title: str, caption: str = "") -> str:
    """A figure that was drawn as SVG, under its title."""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure><p class="title">{escape(title)}</p>{svg}{below}</figure>\n'


def side_by_side(figures: Iterable[str], least: str = "20rem") -> str:
    """Small figures in columns of at least a width: as many as the screen has room for."""
    return f'<div class="figures" style="--least: {least}">\n{"".join(figures)}</div>\n'


def in_columns(tables: Iterable[str]) -> str:
    """Tables in two columns where the screen has room for them."""
    return f'<div class="columns">\n{"".join(tables)}</div>\n'


def page(title: str, introduction: str, sections: dict[str, str]) -> str:
    """The whole document from the HTML of its sections."""
    anchors = {name: f"s{number}" for number, name in enumerate(sections)}
    links = "".join(f'<a href="#{anchors[name]}">{escape(name)}</a>' for name in sections)
    body = "".join(
        f'<section>\n<h2 id="{anchors[name]}">{escape(name)}</h2>\n{html}</section>\n'
        for name, html in sections.items()
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style></head>\n<body>\n"
        f'<header><h1>{escape(title)}</h1>\n<p class="lead">{escape(introduction)}</p>\n'
        f"<nav>{links}</nav></header>\n<main>\n{body}</main>\n</body></html>\n"
    )
