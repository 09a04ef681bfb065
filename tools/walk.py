"""The walk of a reader who follows `fit` or `predict` through the code.

Functions are read in the order in which they are first called. A reader who comes back to a file
that is open already has made a return; the fewer files and returns, the easier the walk.

    python tools/walk.py          # the counts
    python tools/walk.py --show   # and the way
"""

import argparse
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import manygp
from manygp import ManyGPRegressor

ROOT = Path(manygp.__file__).parent
SKIPPED = ("<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<module>")


@contextmanager
def recorded(way):
    """Record the functions of the package that are called, each once: (file, name)."""
    seen = set()

    def note(frame, event, _):
        code = frame.f_code
        if event != "call" or code in seen or code.co_name in SKIPPED:
            return
        seen.add(code)
        path = Path(code.co_filename)
        if ROOT in path.parents:
            way.append((str(path.relative_to(ROOT)), code.co_qualname))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def count(way):
    """Files, folders, functions, and returns to a file that is open already."""
    files, returns, last = [], 0, None
    for file, _ in way:
        if file != last and file in files:
            returns += 1
        if file not in files:
            files.append(file)
        last = file
    folders = {file.rpartition("/")[0] or file for file in files}
    return len(files), len(folders), len(way), returns


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", action="store_true", help="print the functions in order")
    show = parser.parse_args().show
    rng = np.random.default_rng(0)
    X = rng.random((3000, 3))
    y = np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=3000)
    model = ManyGPRegressor(random_state=0)
    ways = {"fit": [], "predict": []}
    with recorded(ways["fit"]):
        model.fit(X, y)
    with recorded(ways["predict"]):
        model.predict(X[:10], return_std=True)
    for name, way in ways.items():
        files, folders, functions, returns = count(way)
        print(f"{name}: {files} files in {folders} folders, {functions} functions, "
              f"{returns} returns")  # fmt: skip
        if show:
            print("\n".join(f"  {file:<28}{function}" for file, function in way))


if __name__ == "__main__":
    main()
