"""An emulator written and read without pickle: its numbers, and a model of each component."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from os import PathLike
from typing import Any

import numpy as np

from manygp.arrays import AnyArray
from manygp.checks import bounded, floats, require
from manygp.emulator.answers import FittedEmulator, Report, Spread
from manygp.emulator.basis import BASIS, Grid
from manygp.regressor import ManyGPRegressor
from manygp.storage import ModelFileError, container
from manygp.storage.model_file import describe, model_of, read_checked

VECTORS = ("mean", "scale", "outside", "factor")


def write_emulator(
    path: str | PathLike[str], model: FittedEmulator, parameters: dict[str, Any]
) -> None:
    """Write a file, whole or not at all."""
    spread = model.spread
    arrays: dict[str, AnyArray] = {
        name: getattr(model, name) for name in ("mean", "scale", "basis")
    }
    arrays |= {name: getattr(spread, name) for name in spread._fields if name != "level"}
    arrays["report"] = np.array(model.report.components, dtype=float)
    arrays["searched"] = np.array(model.report.searched, dtype=float)
    coords = []
    for name, (dims, values) in model.grid.coords.items():
        if values.dtype.kind not in "iuf" or len(dims) != 1:
            raise ValueError(
                f"the coordinate {name!r} cannot be saved: it is no row of numbers; drop it with "
                "Y.drop_vars before fit, or use pickle"
            )
        coords.append([name, list(dims), values.dtype.kind])
        arrays[f"coord {name}"] = values.astype(float)
    manifests = []
    for i, one in enumerate(every_model(model)):
        manifest, own = describe(one.model_)
        manifests.append(manifest)
        arrays |= {f"{i} {name}": array for name, array in own.items()}
    grid = {"shape": list(model.grid.shape), "dims": list(model.grid.dims), "coords": coords}
    described = {
        "grid": grid,
        "level": spread.level,
        "left": model.report.left,
        "each": model.each,
        "local": model.local is not None,
        "parameters": parameters,
        "models": manifests,
    }
    container.write(path, {"manygp": version("manygp"), "emulator": described}, arrays)


def every_model(model: FittedEmulator) -> list[ManyGPRegressor]:
    """The models of the components, and that of what they leave."""
    return [*model.models, *([] if model.local is None else [model.local])]


def read_emulator(path: str | PathLike[str]) -> tuple[FittedEmulator, dict[str, Any]]:
    """The emulator in a file, and its parameters.

    Raises
    ------
    ModelFileError
        If it is damaged, altered, written by a newer version, or no emulator at all.
    """
    manifest, arrays = container.read(path)
    if "emulator" not in manifest:
        raise ModelFileError(f"{path} is a model of one target, which manygp.load reads")
    described = manifest["emulator"]

    def build() -> FittedEmulator:
        models = []
        for i, one in enumerate(described["models"]):
            prefix = f"{i} "
            own = {k[len(prefix) :]: v for k, v in arrays.items() if k.startswith(prefix)}
            models.append(ManyGPRegressor._of(model_of(path, one, own)))
        return _assembled(described, arrays, models)

    return read_checked(path, "is not a valid emulator", build), dict(described["parameters"])


def _assembled(
    described: dict[str, Any], arrays: dict[str, AnyArray], models: list[ManyGPRegressor]
) -> FittedEmulator:
    """The emulator of a file, checked."""
    grid = _grid(described["grid"], arrays)
    T, has_local, each = int(np.prod(grid.shape)), described["local"], described["each"]
    require(type(has_local) is bool and type(each) is bool, "local and each must be true or false")
    k = len(models) - has_local
    require(1 <= k <= BASIS.most, "it has no components")
    vectors = {name: bounded(arrays, name, (T,)) for name in VECTORS}
    sizes = [vectors[name] for name in VECTORS[1:]]
    require(all(np.all(one >= 0) for one in sizes), "a scale is negative")
    sorted_scores = {}
    for name in ("points", "bands"):
        scores = sorted_scores[name] = floats(arrays, name, arrays[name].shape)
        require(scores.ndim == 1 and len(scores) > 0, f"it has no {name}")
        require(np.all(np.diff(scores, prepend=0.0) >= 0), f"its {name} are not sorted")
    level = described["level"]
    require(type(level) is float and 0 < level < np.inf, "its level must be positive")
    columns = models[0].model_.columns
    same = all(one.model_.columns == columns and one.model_.n_targets == 1 for one in models)
    require(same, "its models are not of the same inputs")
    lines, searched = floats(arrays, "report", (k, 2)).tolist(), arrays["searched"]
    searched = floats(arrays, "searched", (len(searched),))
    require(type(described["left"]) is float, "it does not say what is left")
    report = Report(tuple((a, b) for a, b in lines), tuple(searched.tolist()), described["left"])
    spread = Spread(
        bounded(arrays, "root", (k, k)),
        vectors["outside"],
        vectors["factor"],
        sorted_scores["points"],
        sorted_scores["bands"],
        level,
    )
    basis = bounded(arrays, "basis", (T, k))
    local = models[k] if has_local else None
    return FittedEmulator(
        grid,
        vectors["mean"],
        vectors["scale"],
        basis,
        tuple(models[:k]),
        local,
        spread,
        report,
        each,
    )


def _grid(record: dict[str, Any], arrays: dict[str, AnyArray]) -> Grid:
    """Shape and coordinates of curves; those of xarray need it again."""
    shape, dims = tuple(record["shape"]), tuple(record["dims"])
    whole = all(type(one) is int and one > 0 for one in shape)
    require(shape and whole and np.prod(shape, dtype=float) < 2**48, "its curves have no shape")
    names = all(isinstance(one, str) for one in dims)
    require(names and len(dims) in (0, 1 + len(shape)), "its axes are not those of its curves")
    coords = {}
    for name, own, kind in record["coords"]:
        (axis,) = own
        size = shape[dims[1:].index(axis)]
        values = floats(arrays, f"coord {name}", (size,))
        coords[name] = ((axis,), values if kind == "f" else values.astype(int))
    grid = Grid(shape, dims, coords)
    return grid if not dims else _with_xarray(grid)


def _with_xarray(grid: Grid) -> Grid:
    """The same grid, whose curves are made by xarray."""
    try:
        return grid._replace(kind=import_module("xarray").DataArray)
    except ModuleNotFoundError:
        raise ValueError("its curves are xarray's: pip install xarray") from None
