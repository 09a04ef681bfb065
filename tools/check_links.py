"""Check that every link inside a built site leads somewhere: pages, anchors, pictures, llms.txt.

Links that lead out of it are checked without a network: by their form, and by their hosts.

Usage: python tools/check_links.py docs/_build/html
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Pages that Sphinx writes without our doing, whose anchors are made by scripts.
WITHOUT_ANCHORS = {"search.html", "genindex.html"}
# Where links that lead out of the site may lead; a host stands here in one spelling.
HOSTS = {"docs.dask.org", "docs.ray.io", "doi.org", "github.com", "spark.apache.org"}
WELL_FORMED = re.compile(r"https://[a-z0-9.-]+(/[\w.~%@:+,;=&()/-]*)?(\?[^\s#]+)?(#[^\s#]+)?")
OUT = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


class Page(HTMLParser):
    """The links of a page, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors.update(value for key in ("id", "name") if (value := found.get(key)))
        key = "href" if tag in ("a", "link") else "src"
        if value := found.get(key):
            self.links.append(value)


@cache
def page_of(path: Path) -> Page:
    return Page(path.read_text(errors="replace"))


def pages(site: Path) -> list[Path]:
    """All pages, without the templates of the theme."""
    return [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]


def problems(site: Path) -> Iterator[str]:
    """A line for each link that leads nowhere, or should not lead out."""
    yield from problems_outside(link for path in pages(site) for link in page_of(path).links)
    for path in pages(site):
        for link in dict.fromkeys(page_of(path).links):
            if (why := broken(path, link)) is not None:
                yield f"{path.relative_to(site)}: {link}: {why}"
    overview = site / "llms.txt"
    if not overview.exists():
        yield "there is no llms.txt"
        return
    links = links_of_markdown(overview.read_text())
    yield from problems_outside(links)
    for link in links:
        if (why := broken(overview, link)) is not None:
            yield f"llms.txt: {link}: {why}"


def broken(path: Path, link: str) -> str | None:
    """Why a link of a page leads nowhere; None if it does not, or leads out of the site."""
    if OUT.match(link):
        return None
    parts = urlsplit(link)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.exists():
        return "no such file"
    if not parts.fragment or target.suffix != ".html" or target.name in WITHOUT_ANCHORS:
        return None
    if unquote(parts.fragment) not in page_of(target).anchors:
        return "no such anchor"
    return None


def links_of_markdown(text: str) -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", text)


def problems_outside(links: Iterable[str]) -> Iterator[str]:
    """A line for each link out of the site that is unfit, and for two spellings of one."""
    first: dict[str, str] = {}
    for link in sorted({link for link in links if OUT.match(link)}):
        if (why := unfit(link)) is not None:
            yield f"{link}: {why}"
        plain = re.sub(r"^(https?:)?//(www\.)?", "", link.lower()).replace("/#", "#").rstrip("/")
        if (other := first.setdefault(plain, link)) != link:
            yield f"{link}: elsewhere it is spelt {other}"


def unfit(link: str) -> str | None:
    """Why a link should not lead out of the site; None if it may."""
    if not link.startswith("https://"):
        return "not https"
    if not WELL_FORMED.fullmatch(link):
        return "malformed"
    if urlsplit(link).netloc not in HOSTS:
        return "its host is not one of HOSTS in tools/check_links.py"
    return None


def main(site: Path) -> int:
    found = list(problems(site))
    print("\n".join(found) or f"all links inside {len(pages(site))} pages lead somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
