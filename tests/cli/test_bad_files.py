"""A walk through bad files: each gets one clear message and exit code, or the right answer."""

import gzip
import re

import numpy as np
import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

import click.testing

from manygp.cli import main

N = 80
RNG = np.random.default_rng(0)
A, B = RNG.random((2, N)).round(4)
Y = (np.sin(6 * A) + B).round(4)
ROWS = [f"{a},{b},{y}" for a, b, y in zip(A, B, Y, strict=True)]
GOOD = "a,b,y\n" + "\n".join(ROWS) + "\n"
SMALL = ("--points-per-expert", "100", "--label", "bt-ent", "--jobs", "1")
ESCAPE = "\x1b[31m"


def invoke(*arguments, stdin=None):
    runner = click.testing.CliRunner()
    result = runner.invoke(main, [str(one) for one in arguments], stdin, prog_name="manygp")
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "\x1b" not in result.output
    return result


def column(*values):
    """A table with a third column, whose values are repeated."""
    rows = [f"{row};{values[i % len(values)]}" for i, row in enumerate(ROWS)]
    return "a;b;y;c\n" + "\n".join(row.replace(",", ";", 2) for row in rows) + "\n"


def with_row(row, header="a,b,y"):
    return f"{header}\n" + "\n".join([*ROWS[:40], row, *ROWS[40:]]) + "\n"


def unique(n=N):
    return [f"id-{i:05}" for i in range(n)]


# What the file holds, and the message of `fit`, which ends with exit code 1.
REFUSED = {
    "empty": ("", "is empty"),
    "only a header": ("a,b,y\n", "has column names, but no rows"),
    "no header": ("\n".join(ROWS), "the first line holds numbers, not column names"),
    "blank lines": ("\n\n\n", "is empty"),
    "a name twice": (GOOD.replace("b", "a", 1), "more than one column is called a"),
    "a column without a name": ("a,,y\n" + "\n".join(ROWS), "column 2 of 3 has no name"),
    "a short row": (with_row("1,2"), "row 41 .line 42. has 2 fields, the header 3"),
    "a long row": (with_row("1,2,3,4"), "row 41 .line 42. has 4 fields, the header 3: too many"),
    "an open quote": (with_row('1,"2,3'), "is not CSV: .*is there a quote"),
    "a NUL byte": (with_row("1,2\0,3"), "row 41 .*holds a NUL byte"),
    "latin-1": (GOOD.replace("b", "größe", 1).encode("latin-1"), "line 1 is not UTF-8"),
    "utf-16": (GOOD.encode("utf-16"), "is text in UTF-16, not CSV"),
    "a cut gzip": (gzip.compress(GOOD.encode())[:200], "is a gzip file that is cut off"),
    "an Excel workbook": (b"PK\x03\x04" + bytes(99), "is an Excel workbook, not CSV"),
    "an old workbook": (b"\xd0\xcf\x11\xe0" + bytes(99), "is an old Excel workbook"),
    "json": ('[{"a": 1, "y": 2}]', "is JSON, not CSV"),
    "html": ("<html><table></table></html>", "is HTML or XML"),
    "a cut Parquet": (b"PAR1" + bytes(99), "is not a readable Parquet file"),
    "no target": (GOOD.replace("y", "price", 1), "no column 'y'; there are a, b, price"),
    "a misspelt target": (GOOD.replace("y", "Y", 1), "no column 'y'; did you mean 'Y'"),
    "only the target": ("y\n1\n2\n", "no column is left to learn 'y' from"),
    "text as target": (GOOD.replace(f",{Y[3]}\n", ",high\n"), "'y': the target: .* not a number"),
    "infinite target": (with_row("1,2,inf"), "'y': the target: .*no finite size"),
    "no targets": ("a,b,y\n1,2,\n3,4,NA\n", "'y': the target: none of 2 values"),
    "stray text": (with_row("1,oops,3"), "'b': 1 of 81 values is not a number, first 'oops'"),
    "a spreadsheet error": (with_row("1,#DIV/0!,3"), "first '#DIV/0!' in row 41"),
    "infinity": (with_row("1,-inf,3"), "'b': 1 of 81 values has no finite size"),
    "beyond floats": (with_row("1,1e999,3"), "'b': .*no finite size, first '1e999'"),
    "decimal commas": (column("3,14", "2,5"), "'c': 80 of 80 .* decimal comma, .*--decimal ,"),
    "percent signs": (column("5%", "7.5%"), "'c': 80 of 80 values have a percent sign"),
    "thousands": (column("1.234.567", "12"), "'c': 40 of 80 values have separators of thousands"),
    "currency": (column("$ 5", "$ 7.50"), "'c': 80 of 80 values have a currency sign"),
    "long ids": (column(*(str(10**29 + i) for i in range(N))), "'c': .* more digits than"),
    "unique text": (column(*unique()), "'c': 80 different values in 80 rows.*--drop c"),
    "an empty column": (column(""), "'c': none of 80 values is there; leave it out"),
    "American dates": (column("12/31/2020", "1/2/2021"), "'c': .*not written as 2024-12-31"),
    "times of day": (column("12:30", "9:15"), "'c': .*a time of day without a date"),
    "escape sequences": (GOOD.replace("b", f"b{ESCAPE}", 1).replace(ROWS[5], f"1,{ESCAPE},2"),
                         r"'b\\x1b\[31m': 1 of 80 values is not a number"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_file_is_refused_with_one_clear_message(tmp_path, name):
    content, message = REFUSED[name]
    data = tmp_path / ("bad.xlsx" if name == "an Excel workbook" else "bad.csv")
    data.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = invoke("fit", data, "--target", "y", "-o", tmp_path / "m", *SMALL)
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {data}")
    assert re.search(message, line), line
    checked = invoke("check", data, "--target", "y")
    assert checked.exit_code == 1
    assert re.search(message, checked.output), checked.output
    assert [path.name for path in tmp_path.iterdir()] == [data.name]


# Files that are odd but good: the answers are those of the same rows in good form.
ACCEPTED = {
    "a byte order mark": ("\ufeff" + GOOD).encode(),
    "Windows lines": GOOD.replace("\n", "\r\n"),
    "no last line end": GOOD[:-1],
    "tabs": GOOD.replace(",", "\t"),
    "semicolons and spaces": GOOD.replace(",", " ; "),
    "blank lines between": GOOD.replace("\n", "\n\n"),
    "quotes": GOOD.replace(",", '","').replace("\n", '"\n"').join('""')[:-2],
    "gzipped": gzip.compress(GOOD.encode()),
    "rows without a target": GOOD + "0.5,0.5,\n0.5,0.5,NA\n",
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_an_odd_file_gives_the_right_answer(tmp_path, name):
    content = ACCEPTED[name]
    good, odd = tmp_path / "good.csv", tmp_path / "odd.csv"
    good.write_text(GOOD)
    odd.write_bytes(content if isinstance(content, bytes) else content.encode())
    for data in (good, odd):
        result = invoke("fit", data, "--target", "y", "-o", data.with_suffix(".m"), *SMALL)
        assert result.exit_code == 0, result.output
    assert good.with_suffix(".m").read_bytes() == odd.with_suffix(".m").read_bytes()
    assert ("2 rows without a value of 'y' are left out" in result.stderr) == ("without" in name)


def test_decimal_commas_are_read_with_the_option(tmp_path):
    good, commas = tmp_path / "good.csv", tmp_path / "commas.csv"
    good.write_text(GOOD)
    commas.write_text(GOOD.replace(",", ";").replace(".", ","))
    fit = ("--target", "y", *SMALL, "-o")
    assert invoke("fit", good, *fit, tmp_path / "m").exit_code == 0
    assert invoke("fit", commas, "--decimal", ",", *fit, tmp_path / "n").exit_code == 0
    assert (tmp_path / "m").read_bytes() == (tmp_path / "n").read_bytes()
    predict = ("predict", tmp_path / "m", commas, "--decimal", ",")
    assert invoke(*predict).stdout == invoke("predict", tmp_path / "m", good).stdout


def test_all_problems_are_told_at_once_and_check_prints_them_in_a_table(tmp_path):
    data = tmp_path / "bad.csv"
    header, *rows = column("5%", "7%").splitlines()
    data.write_text(
        "\n".join([f"{header};d;e", *(f"{r};{u};" for r, u in zip(rows, unique(), strict=True))])
    )
    result = invoke("fit", data, "--target", "y", "-o", tmp_path / "m", *SMALL)
    first, *others = result.stderr.splitlines()
    assert first == f"Error: {data}: 3 columns cannot be used as they are:"
    assert [line.split("'")[1] for line in others] == ["c", "d", "e"]
    result = invoke("check", data, "--target", "y")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-3:] == others
    options = [part for name in "cde" for part in ("--drop", name)]
    result = invoke("check", data, "--target", "y", *options)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "Nothing is wrong."
    assert invoke("check", data, "--target", "y", "--json").exit_code == 1
    assert not (tmp_path / "m").exists()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "good.csv").write_text(GOOD)
    path = folder / "model.manygp"
    result = invoke("fit", folder / "good.csv", "--target", "y", "-o", path, *SMALL)
    assert result.exit_code == 0
    return path


def test_standard_input_is_a_table_too(model, tmp_path):
    good = model.with_name("good.csv")
    result = invoke("fit", "-", "--target", "y", "-o", tmp_path / "m", *SMALL, stdin=GOOD)
    assert result.exit_code == 0
    assert (tmp_path / "m").read_bytes() == model.read_bytes()
    expected = invoke("predict", model, good).stdout
    assert invoke("predict", model, "-", stdin=GOOD).stdout == expected
    scores = invoke("evaluate", model, "-", stdin=GOOD).stdout.splitlines()
    assert scores[1:] == invoke("evaluate", model, good).stdout.splitlines()[1:]
    assert invoke("check", "-", "--target", "y", stdin=GOOD).exit_code == 0
    result = invoke("predict", model, "-", stdin=GOOD.replace(ROWS[0], "1,x,2"))
    assert result.stderr.startswith("Error: standard input: column 'b', row 1 (line 2): 'x'")


def test_columns_are_kept_and_digits_are_cut(model, tmp_path):
    data = tmp_path / "new.csv"
    data.write_text('id,name,a,b\n007,"Smith, J",0.5,0.25\n8,,0.1,0.2\n')
    result = invoke("predict", model, data, "--keep", "id,name", "--digits", 3)
    header, first, second = result.stdout.splitlines()
    assert header == "id,name,mean,std,lower,upper"
    assert first.startswith('007,"Smith, J",')
    assert second.startswith("8,,")
    for number in first.split(",")[3:]:
        assert len(number.strip("-0.").replace(".", "")) <= 3
    plain = invoke("predict", model, data).stdout.splitlines()[1].split(",")
    assert [float(f"{float(v):.3g}") for v in plain] == [float(v) for v in first.split(",")[3:]]
    assert "no column 'nix'" in invoke("predict", model, data, "--keep", "nix").stderr
    assert invoke("predict", model, data, "--keep", "mean").exit_code == 2


def test_kept_columns_of_parquet_keep_their_types(model, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"id": [1, 2], "who": ["x", None], "a": [0.5, 0.1], "b": [0.25, 0.2]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "new.parquet")
    out = tmp_path / "out.parquet"
    invoke("predict", model, tmp_path / "new.parquet", "-o", out, "--keep", "id,who")
    found = parquet.read_table(out)
    assert found.column_names == ["id", "who", "mean", "std", "lower", "upper"]
    assert found["id"].to_pylist() == [1, 2]
    assert found["who"].to_pylist() == ["x", None]


@pytest.mark.parametrize("name", ["out.xlsx", "out.txt", "out.json", "out.parquet.gz", "out.tsv"])
def test_an_output_with_an_ending_that_we_cannot_write_is_refused(model, tmp_path, name):
    result = invoke("predict", model, model.with_name("good.csv"), "-o", tmp_path / name)
    assert result.exit_code == 2
    assert "must end with .csv" in result.stderr or "Parquet is packed already" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_known_noise_and_scaling_are_passed_on(model, tmp_path):
    data = tmp_path / "noisy.csv"
    rows = [f"{row},{0.01 * (1 + i % 5)}" for i, row in enumerate(ROWS)]
    data.write_text("a,b,y,v\n" + "\n".join(rows) + "\n")
    fit = ("fit", data, "--target", "y", "--noise-column", "v", *SMALL)
    assert invoke(*fit, "-o", tmp_path / "m").exit_code == 0
    import manygp
    from manygp import ManyGPRegressor

    loaded = manygp.load(tmp_path / "m")
    assert loaded.feature_names_in_.tolist() == ["a", "b"]
    expected = ManyGPRegressor.from_label("bt-ent", points_per_expert=100, random_state=0)
    X = np.column_stack([A, B])
    expected.fit(X, Y, alpha=0.01 * (1 + np.arange(N) % 5))
    with pytest.warns(UserWarning, match="valid feature names"):
        np.testing.assert_array_equal(loaded.predict(X), expected.predict(X))
    assert invoke(*fit, "--no-scale", "-o", tmp_path / "n").exit_code == 0
    assert manygp.load(tmp_path / "n").normalize_X is False


def test_escape_sequences_of_names_reach_no_terminal(tmp_path):
    data = tmp_path / "odd.csv"
    text = GOOD.replace("a", f"a{ESCAPE}\x07", 1).replace("y", f"y{ESCAPE}", 1)
    data.write_text(text)
    model = tmp_path / "m"
    target = ("--target", f"y{ESCAPE}")
    for command in (
        ("check", data, *target),
        ("fit", data, *target, "-o", model, *SMALL),
        ("info", model),
        ("verify", model),
        ("evaluate", model, data),
        ("predict", model, data, "-o", tmp_path / "out.csv"),
    ):
        result = invoke(*command)  # which looks for them
        assert result.exit_code == 0, result.output
    assert r"y\x1b[31m" in invoke("info", model).stdout
    missing = invoke("fit", data, "--target", f"{ESCAPE}x", "-o", model)
    assert missing.exit_code == 1
    assert invoke("info", tmp_path / f"{ESCAPE}no").exit_code == 1
