"""Try an installed manygp as a new user would: import, command line, a tiny fit, a saved model.

Run it by the Python of the environment, outside of the repository.
"""

import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import numpy as np

import manygp


def main() -> None:
    where = Path(manygp.__file__)
    assert "site-packages" in where.parts, f"{where} is not an installed package"
    assert manygp.__version__ == version("manygp")
    assert files("manygp").joinpath("py.typed").is_file(), "py.typed is missing"

    rng = np.random.default_rng(0)
    X = rng.random((50, 2))
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.normal(size=50)
    model = manygp.ManyGPRegressor(random_state=0).fit(X, y)
    mean, std = model.predict(X[:5], return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.manygp"
        model.save(path)
        assert np.array_equal(manygp.load(path).predict(X[:5]), mean)

    command = Path(sys.executable).parent / "manygp"
    found = subprocess.run([command, "--help"], capture_output=True, text=True)
    if "--with-cli" in sys.argv:
        assert found.returncode == 0, found.stderr
        assert "predict" in found.stdout
    else:  # without the extra it says what is missing
        assert found.returncode != 0
        assert "manygp[cli]" in found.stderr, found.stderr
    print(f"manygp {manygp.__version__} works with Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
