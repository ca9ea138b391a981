# Each target works alone on a fresh clone, with Python 3.11 or newer and make.
#   make demo    TPC-H Q1 and Q3 in every mode, checked against DuckDB
#   make test    the test suite
#   make lint    style and types
#   make bench   side by side with DuckDB and dask.dataframe; options: make bench ARGS="--sf 1 --repeats 3"
#   make clean   remove the environment and caches that this file made

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed
ARGS   ?=
# One more than there are processors, since tests wait for clusters that start; each takes up to 2 GB.
TESTERS ?= $(shell $(PYTHON) -c 'import os; print(min(4, (os.cpu_count() or 1) + 1))')

.PHONY: help demo test lint bench install clean

help:
	@sed -n 's/^#   //p' Makefile

install: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("hybridq needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; name another with: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@echo "Making the environment $(VENV) and installing what hybridq needs into it. This happens once and takes some minutes;"
	@echo "pip says what it is at:"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev,tpch]'
	@touch $(READY)
	@echo "Done: the command is $(BIN)/hybridq"

demo: $(READY)
	$(BIN)/hybridq demo $(ARGS)

test: $(READY)
	$(BIN)/python -m pytest --numprocesses $(TESTERS) --dist loadscope $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m bench.run $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
