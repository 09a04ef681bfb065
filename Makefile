# Two commands do all set-up: `make demo` and `make test`.
PYTHON ?= python3
RESULTS ?= speed-results
BIN := .venv/bin

.PHONY: demo test test-slow test-dask test-ray test-clients sklearn-suite paper bench lint figures clean

demo: .venv/.plot ## compare models on the 10-d Ackley task: a table and figures in demo/
	$(BIN)/python -m manygp.experiments.demo demo

test: .venv/.test ## all fast tests
	$(BIN)/python -m pytest

test-slow: .venv/.test ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

test-clients: .venv-clients/.installed ## libraries that take an estimator, in an environment of their own
	.venv-clients/bin/python -m pytest -n0 -m clients tests/clients

sklearn-suite: .venv/.test ## scikit-learn's own tests of its GaussianProcessRegressor, on ours
	$(BIN)/python benchmarks/sklearn_suite.py

test-dask: .venv-dask/.installed ## those on a Dask cluster, in an environment of its own; ARGS="-m slow"
	.venv-dask/bin/python -m pytest -n0 tests/test_dask.py tests/test_dask_faults.py $(ARGS)

test-ray: .venv-ray/.installed ## the engine on Ray of docs/scale.md, in an environment of its own
	.venv-ray/bin/python -m pytest -n0 tests/test_ray.py

paper: .venv/.cli ## every table and figure of the paper; resumes where it stopped
	$(BIN)/manygp bench paper --results paper-results $(ARGS)

bench: .venv-bench/.installed ## speed beside other libraries, in an environment of its own; resumes
	.venv-bench/bin/python benchmarks/micro.py
	.venv-bench/bin/python benchmarks/million.py
	.venv-bench/bin/manygp bench speed --results $(RESULTS) $(ARGS)

lint: .venv/.lint ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

figures: .venv/.plot ## draw the figures of README and docs again
	$(BIN)/python -m manygp.experiments.demo docs/images

clean:
	rm -rf .venv .venv-bench .venv-clients .venv-dask .venv-ray demo dist

.venv/.%: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$*]"
	touch $@

.venv-clients/.installed: pyproject.toml
	test -x .venv-clients/bin/python || $(PYTHON) -m venv .venv-clients
	.venv-clients/bin/python -m pip install --quiet --disable-pip-version-check -e ".[clients]"
	touch $@

.venv-bench/.installed: pyproject.toml benchmarks/requirements.txt
	test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check \
		-r benchmarks/requirements.txt -e ".[cli]"
	touch $@

.venv-dask/.installed: pyproject.toml
	test -x .venv-dask/bin/python || $(PYTHON) -m venv .venv-dask
	.venv-dask/bin/python -m pip install --quiet --disable-pip-version-check -e ".[dask,test]"
	touch $@

.venv-ray/.installed: pyproject.toml
	test -x .venv-ray/bin/python || $(PYTHON) -m venv .venv-ray
	.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check -e ".[parquet,test]" ray
	touch $@
