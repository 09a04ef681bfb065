"""One self-contained HTML page with all tables and figures."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path

from manygp.experiments.tables import Table

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; margin: 0 auto;
       padding: 1rem; max-width: 75rem; }
h1 { font-size: 1.6rem; } h2 { margin-top: 2.5rem; border-bottom: 2px solid #0072B2; }
h3 { font-size: 1rem; margin-bottom: .3rem; }
nav a { display: inline-block; margin-right: 1rem; color: #0072B2; }
.scroll { overflow-x: auto; margin-bottom: 1rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap;
         border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
thead th { border-bottom: 2px solid #999; }
.paper { color: #777; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; }
figcaption { font-size: .9rem; color: #555; }
@media (max-width: 40rem) { figure img { max-width: none; width: 56rem; } }
"""


def as_html(table: Table) -> str:
    """A table that scrolls sideways where the screen is narrow."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.header)
    body = "".join(
        "<tr>" + "".join(f"<td>{_markup(cell)}</td>" for cell in row) + "</tr>\n"
        for row in table.rows
    )
    return (
        f"<h3>{escape(table.title)}</h3>\n<div class='scroll'><table><thead><tr>{head}</tr>"
        f"</thead>\n<tbody>{body}</tbody></table></div>\n"
    )


def _markup(cell: str) -> str:
    """Bold stays bold; what stands in brackets, the paper's, is set back."""
    text = escape(cell)
    if text.startswith("**"):
        bold, _, rest = text[2:].partition("**")
        text = f"<b>{bold}</b>{rest}"
    return text.replace("(", '<span class="paper">(').replace(")", ")</span>")


def figure(path: Path, caption: str) -> str:
    """A picture inside the page."""
    data = base64.b64encode(path.read_bytes()).decode()
    alt = escape(caption, quote=True)
    return (
        f'<figure><div class="scroll"><img alt="{alt}" src="data:image/png;base64,{data}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>\n"
    )


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
