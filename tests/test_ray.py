"""The engine of docs/scale.md on Ray, which another environment has: `make test-ray`."""

import re
from pathlib import Path

import pytest

from large import bytes_of, lower_limits, make_rows, model, write
from manygp.outofcore.files import TableSource
from manygp.tables.training_rows import ColumnRoles

ray = pytest.importorskip("ray")

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"


@pytest.fixture(scope="module", autouse=True)
def _limits():
    with pytest.MonkeyPatch.context() as patch:
        lower_limits(patch)
        yield


@pytest.fixture(scope="module")
def engine():
    """That of the page, word for word."""
    blocks = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "import ray" in block]
    found = {}
    exec(code.split("\nray.init")[0], found)
    ray.init(num_cpus=2, include_dashboard=False)
    yield found["Ray"]()
    ray.shutdown()


# What Ray says about its own sockets and files is not ours.
@pytest.mark.filterwarnings("default")
def test_the_model_is_that_of_this_machine(engine, tmp_path):
    path = write(tmp_path / "data.parquet", *make_rows(), 250)
    model().fit(path, target="y", work_dir=tmp_path / "here")
    source = TableSource(path, ColumnRoles("y"), folder=tmp_path / "there")
    model().fit_source(source, engine)
    assert bytes_of(tmp_path / "there") == bytes_of(tmp_path / "here")
