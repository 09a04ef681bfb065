"""A fitted model, and its file."""

import pytest

from model_files import X, Y, model


@pytest.fixture(scope="module")
def fitted():
    return model().fit(X, Y)


@pytest.fixture
def path(tmp_path, fitted):
    fitted.save(tmp_path / "model.gp")
    return tmp_path / "model.gp"
