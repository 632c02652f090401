# Every target may be interrupted and run again. PYTHON=/path/to/python chooses the Python of .venv.
.DEFAULT_GOAL := help
.PHONY: help setup demo data dev test bench lint ruff mypy import-linter shellcheck requirements
BIN := .venv/bin

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

setup: ## install the pinned packages into .venv
	@requirements/install.sh mxnet-cpu

demo: data ## five timed runs on a small generated data set, checked and scored (NEXP=1 for a taste)
	@DGXSYSTEM=DEMO_CPU ./run_experiments.sh

data: setup
	@$(BIN)/rn50 demo-data data/demo

dev: setup
	@requirements/install.sh dev

test: dev ## build Horovod and run every test
	@requirements/install.sh horovod
	@$(BIN)/python -m pytest

bench: data ## the figures of docs/measurements.md that a CPU can give
	set -a; . configs/config_DEMO_CPU.sh; set +a; $(BIN)/python bench/real_vs_synthetic.py
	$(BIN)/python bench/training_step.py
	$(BIN)/python bench/demo_difficulty.py data/demo

lint: ruff mypy import-linter shellcheck ## ruff, mypy, import-linter, shellcheck

ruff: dev
	$(BIN)/ruff check .

mypy: dev
	$(BIN)/mypy

import-linter: dev
	$(BIN)/lint-imports

shellcheck: dev
	$(BIN)/shellcheck $$(git ls-files '*.sh') .ci/run

requirements: ## resolve requirements/*.in again into hashed *.txt (needs uv)
	requirements/compile.sh
