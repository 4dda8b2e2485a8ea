# make demo    set up and run the whole way on real data
# make test    set up and run lint, types, tests, doctests and README examples
# make quick   the same without the slow tests
# make check   the same as test, and how much of the code the tests reach
# make docs    build the user guide into site/
# make bench   speed and memory, compared with other programs; make bench-size, bench-accuracy, bench-tables: the others
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test quick check lint types docs bench bench-size bench-accuracy bench-tables clean

$(STAMP): pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/fielddep/csrc/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,demo]'
	touch $@

demo: $(STAMP)
	$(BIN)/fielddep demo --out demo-run --force

PYTEST := FIELDDEP_KERNELS=native OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

test: lint types
	$(PYTEST)

quick: lint types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal -m 'not slow' -q

check: lint types
	$(PYTEST) --cov --cov-report=term:skip-covered --cov-fail-under=95

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

BENCH := $(VENV)/.bench
SCRATCH ?= bench-scratch

$(BENCH): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	touch $@

bench: $(BENCH)
	$(BIN)/python benchmarks/speed/run.py
	$(BIN)/python benchmarks/speed/growth.py
	$(BIN)/python benchmarks/speed/parts.py
	$(BIN)/python benchmarks/speed/loading.py
	$(BIN)/python benchmarks/speed/evidence.py
	PYTHON=$(BIN)/python sh benchmarks/speed/peers_env.sh
	$(BIN)/python benchmarks/speed/peers.py

bench-size: $(BENCH)
	$(BIN)/python benchmarks/size/encode.py --scratch $(SCRATCH)
	$(BIN)/python benchmarks/size/train.py --scratch $(SCRATCH)
	$(BIN)/python benchmarks/size/recipes.py --scratch $(SCRATCH)
	$(BIN)/python benchmarks/size/next_to_rivals.py --scratch $(SCRATCH)

bench-accuracy: $(BENCH)
	$(BIN)/python benchmarks/accuracy/compare.py --scratch $(SCRATCH)
	$(BIN)/python benchmarks/accuracy/compare.py --scratch $(SCRATCH) --defaults
	$(BIN)/python benchmarks/accuracy/summary.py

bench-tables: $(BENCH)
	$(BIN)/python benchmarks/tables/run.py
	$(BIN)/python benchmarks/tables/summary.py

clean:
	rm -rf $(VENV) build dist demo-run site .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis
