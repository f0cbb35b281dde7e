# make demo     install, train SimCLR on handwritten digits, print a table, write demo/report.html
# make test     install and run the whole test suite, on as many cores as there are, up to four (a process takes up to 2 GB)
# make test-fast  run the tests that are neither slow nor need other datasets: about a minute on two cores
# make install  build .venv with the `nearfar` command
# make lint     ruff, pyright, the docstring check, and the checks of the explorer's JavaScript (needs Node.js with npm)
# make docs     build the pages of the documentation into site/, to be opened from there
# make test-browser   the explorer in a real Chromium (Debian: apt install chromium)
#
# torch from another index (smaller CPU wheels, or a certain CUDA):  make demo TORCH_INDEX=<address of the index>
# On most machines `pip install torch` brings several GB of CUDA packages; an index of CPU wheels avoids them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
TORCH_INDEX ?=
INDEX := $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX),)

NODE_BIN := node_modules/.bin

.PHONY: demo test test-fast test-browser lint lint-python lint-javascript docs install install-dev clean

demo: install
	$(BIN)/nearfar demo --out demo --overwrite

test: install-dev
	$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile

test-fast: install-dev
	$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile -m "not slow and not data"

test-browser: install-dev
	NEARFAR_BROWSER=1 $(BIN)/python -m pytest tests/browser

lint: lint-python lint-javascript

lint-python: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python tools/check_docstrings.py nearfar

lint-javascript: node_modules/.installed
	$(NODE_BIN)/tsc
	$(NODE_BIN)/eslint --max-warnings 0 nearfar/server/explorer eslint.config.js

node_modules/.installed: package.json package-lock.json
	@command -v npm > /dev/null || { echo "make lint needs npm: install Node.js 20.19 or newer, which contains npm." >&2; exit 1; }
	npm ci --no-audit --no-fund --loglevel=error
	touch $@

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(VENV)/.torch: constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "nearfar needs Python 3.11 or newer; try make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(INDEX) torch
	touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	$(PIP) --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed pyproject.toml
	$(PIP) --editable '.[dev]'
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed pyproject.toml
	$(PIP) --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) node_modules demo site build dist *.egg-info
