"""Open pages of the site in headless Chromium at several widths: is anything cut?

    python tools/check_layout.py docs/_build/html            # ten pages
    python tools/check_layout.py docs/_build/html --all      # every page

On a wide screen no table, picture or block of code may be wider than its container; on a phone
they may scroll, but the page itself may not. Needs the program chromium.
"""

import argparse
import functools
import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WIDTHS = (390, 1300, 1920)
PHONE = 600
PAGES = (
    "index", "installation", "migrating", "api", "api/manygp.ManyGPRegressor", "calibration",
    "reliability", "tables_quality", "gallery/plot_migrating", "gallery/plot_tables",
)  # fmt: skip

# Loads each page in a frame of each width, and writes down what is wider than its container.
HARNESS = """<!doctype html><body><pre id="found"></pre><script>
const PAGES = %s, WIDTHS = %s, PHONE = %d, found = [];
function look(doc, page, width) {
  const root = doc.documentElement;
  const note = (what) => found.push({page, width, what});
  if (root.scrollWidth > root.clientWidth + 1) note("the page itself: " + root.scrollWidth);
  if (width <= PHONE) return;
  for (const one of doc.querySelectorAll("article table, article pre, article img")) {
    const room = one.tagName === "IMG" ? one.parentElement.clientWidth : one.clientWidth;
    const wide = one.tagName === "IMG" ? one.clientWidth : one.scrollWidth;
    if (room && wide > room + 1)
      note(`${one.tagName} ${wide} > ${room}: ${one.textContent.trim().slice(0, 40)}`);
  }
}
function load(page, width) {
  return new Promise((resolve) => {
    const frame = document.createElement("iframe");
    frame.style.cssText = `width: ${width}px; height: 900px; border: 0`;
    frame.onload = () => setTimeout(() => {
      look(frame.contentDocument, page, width);
      frame.remove();
      resolve();
    }, 200);
    frame.src = page;
    document.body.append(frame);
  });
}
(async () => {
  for (const width of WIDTHS) for (const page of PAGES) await load(page, width);
  document.getElementById("found").textContent = JSON.stringify(found);
  document.title = "done";
})();
</script></body>"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves the site, and the harness at a name that no page has."""

    harness = b""

    def do_GET(self):
        if self.path != "/_layout":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.harness)
        return None

    def log_message(self, *args):
        pass


def cut(site, pages):
    """What is cut on the pages: records of page, width and what."""
    harness = HARNESS % (json.dumps([f"/{page}.html" for page in pages]), list(WIDTHS), PHONE)
    handler = type("Handler", (Quiet,), {"harness": harness.encode()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with tempfile.TemporaryDirectory() as profile:
            milliseconds = 1000 * len(pages) * len(WIDTHS) + 5000
            options = (
                "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
                "--disable-background-networking --disable-component-update --disable-sync "
                f"--window-size=2000,1200 --virtual-time-budget={milliseconds} --dump-dom"
            )
            address = f"http://127.0.0.1:{server.server_port}/_layout"
            command = ["chromium", *options.split(), f"--user-data-dir={profile}", address]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    finally:
        server.shutdown()
        server.server_close()
    (found,) = re.findall(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    if not found:
        raise RuntimeError(f"Chromium did not finish: {done.stderr[-500:]}")
    return json.loads(html.unescape(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--all", action="store_true", help="every page, not ten")
    given = parser.parse_args()
    if shutil.which("chromium") is None:
        sys.exit("chromium is not installed; the layout was not looked at")
    every = sorted(path.relative_to(given.site) for path in given.site.rglob("*.html"))
    pages = [path.with_suffix("").as_posix() for path in every if "_modules" not in path.parts]
    found = cut(given.site, pages if given.all else PAGES)
    for one in found:
        print(f"{one['page']} at {one['width']}: {one['what']}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
