# Two commands do all set-up: `make demo` and `make test`.
PYTHON ?= python3
RESULTS ?= speed-results
BIN := .venv/bin
SITE := docs/_build/html
# Other versions of Python that `make test-pythons` looks for.
PYTHONS ?= python3.12 python3.13 python3.14
# What is tested with other versions of Python and of the dependencies.
CORE_TESTS := tests/test_regressor.py tests/test_sklearn_api.py tests/test_metrics.py \
	tests/test_calibration.py tests/test_contracts.py tests/gp tests/kernels tests/committee tests/storage \
	tests/runtime

.PHONY: demo test test-slow test-dask test-ray test-spark test-botorch test-clients test-oldest test-pythons \
	sklearn-suite paper bench lint figures docs layout numbers dist clean

demo: .venv/.plot ## compare models on the 10-d Ackley task: a table and figures in demo/
	$(BIN)/python -m benchmarks.demo demo

test: .venv/.test ## all fast tests
	$(BIN)/python -m pytest

test-slow: .venv/.test ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

test-clients: .venv-clients/.installed ## libraries that take an estimator, in an environment of their own
	.venv-clients/bin/python -m pytest -n0 -m clients tests/clients

sklearn-suite: .venv/.test ## scikit-learn's own tests of its GaussianProcessRegressor, on ours
	$(BIN)/python -m benchmarks.sklearn_suite

test-dask: .venv-dask/.installed ## those on a Dask cluster, in an environment of its own; ARGS="-m slow"
	.venv-dask/bin/python -m pytest -n0 tests/test_dask.py tests/test_dask_faults.py $(ARGS)

test-ray: .venv-ray/.installed ## the engine on Ray of docs/scale.md, in an environment of its own
	.venv-ray/bin/python -m pytest -n0 tests/test_ray.py

test-spark: .venv-spark/.installed ## fit and predict on Spark as in docs/scale.md, in an environment of its own; needs Java
	.venv-spark/bin/python -m pytest -n0 tests/test_spark.py

test-botorch: .venv-botorch/.installed ## those with BoTorch, in an environment of its own
	.venv-botorch/bin/python -m pytest -n0 tests/test_botorch.py

paper: .venv/.cli ## every table and figure of the paper; resumes where it stopped
	$(BIN)/python -m benchmarks paper --results paper-results $(ARGS)

bench: .venv-bench/.installed ## speed beside other libraries, in an environment of its own; resumes
	.venv-bench/bin/python -m benchmarks.micro
	.venv-bench/bin/python -m benchmarks.million
	.venv-bench/bin/python -m benchmarks speed --results $(RESULTS) $(ARGS)

lint: .venv/.lint ## ruff; mypy on src; mypy and pyright on a user's script
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typing/user_script.py
	$(BIN)/basedpyright --pythonpath $(BIN)/python

figures: .venv/.plot ## draw the figures of README and docs again
	$(BIN)/python -m benchmarks.demo docs/images
	$(BIN)/python tools/first_picture.py docs/images/first.png
	$(BIN)/python tools/seams_picture.py docs/images/seams.png

docs: .venv-docs/.installed ## the site, in docs/_build/html: examples, doctests, links, no warnings
	.venv-docs/bin/sphinx-build -W --keep-going -q -b html -d docs/_build/doctrees docs $(SITE)
	.venv-docs/bin/sphinx-build -W -q -b doctest -d docs/_build/doctrees docs docs/_build/doctest
	.venv-docs/bin/python tools/check_links.py $(SITE)
	@echo "The site is in $(SITE)/index.html"

layout: docs ## is anything on the site cut, on a screen or a phone? Needs chromium
	.venv-docs/bin/python tools/check_layout.py $(SITE)

numbers: .venv/.test ## do the tables of README and docs say what the committed results say?
	$(BIN)/python -m tools.check_numbers

dist: .venv-dist/.installed ## wheel and source archive, each installed in a clean environment and tried
	rm -rf dist .venv-dist/try
	.venv-dist/bin/python -m build --outdir dist .
	for file in dist/*.whl dist/*.tar.gz; do \
		rm -rf .venv-dist/try && $(PYTHON) -m venv .venv-dist/try && \
		.venv-dist/try/bin/python -m pip install --quiet --disable-pip-version-check $$file && \
		(cd .venv-dist && try/bin/python ../tools/try_install.py) && \
		.venv-dist/try/bin/python -m pip install --quiet --disable-pip-version-check "manygp[cli]" && \
		(cd .venv-dist && try/bin/python ../tools/try_install.py --with-cli) || exit 1; \
	done

test-oldest: .venv-oldest/.installed ## the oldest dependencies that pyproject.toml allows
	.venv-oldest/bin/python -m pytest -n2 $(CORE_TESTS)

test-pythons: ## other versions of Python, as far as they are installed
	@for python in $(PYTHONS); do \
		command -v $$python > /dev/null || { echo "$$python is not installed"; continue; }; \
		home=.venv-$$(basename $$python); \
		test -x $$home/bin/python || $$python -m venv $$home || exit 1; \
		$$home/bin/python -m pip install --quiet --disable-pip-version-check -e ".[test]" && \
		$$home/bin/python -m pytest -n2 $(CORE_TESTS) || exit 1; \
	done

clean:
	rm -rf .venv .venv-* demo dist docs/_build docs/api docs/gallery docs/sg_execution_times.rst

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

.venv-spark/.installed: pyproject.toml
	test -x .venv-spark/bin/python || $(PYTHON) -m venv .venv-spark
	.venv-spark/bin/python -m pip install --quiet --disable-pip-version-check -e ".[parquet,test]" "pandas<3" pyspark
	touch $@

.venv-botorch/.installed: pyproject.toml
	test -x .venv-botorch/bin/python || $(PYTHON) -m venv .venv-botorch
	.venv-botorch/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-botorch/bin/python -m pip install --quiet --disable-pip-version-check \
		-e ".[botorch,test]" ax-platform optuna optuna-integration
	touch $@

.venv-docs/.installed: pyproject.toml
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $@

.venv-dist/.installed: pyproject.toml
	test -x .venv-dist/bin/python || $(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet --disable-pip-version-check build
	touch $@

.venv-oldest/.installed: pyproject.toml tools/oldest.py
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check -e ".[test]" \
		$$($(PYTHON) tools/oldest.py)
	touch $@
