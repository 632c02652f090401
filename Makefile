# Every target may be interrupted and run again. PYTHON=/path/to/python chooses the Python of .venv.
# exec: make ends what it has started, as SIGTERM ends make; a shell in between would leave its program behind.
.DEFAULT_GOAL := help
.PHONY: help setup nexp demo demo-deploy demo-paddle demo-pytorch data dev test test-all test-rest fuzz test-gpu bench bench-gpu docs reference claims picture h200-picture lint ruff mypy import-linter shellcheck requirements image
BIN := .venv/bin

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

setup: ## install the pinned packages into .venv
	@requirements/install.sh mxnet-cpu
	@[ "$(MAKECMDGOALS)" != setup ] || echo "setup: done; next: make demo, or .venv/bin/rn50 doctor"

demo: nexp data ## five runs on generated images, scored (NEXP=1: one run)
	@DGXSYSTEM=DEMO_CPU exec ./run_experiments.sh

demo-paddle: nexp data ## the same with Paddle in place of MXNet
	@requirements/install.sh paddle-cpu
	@DGXSYSTEM=DEMO_CPU_PADDLE exec ./run_experiments.sh

demo-pytorch: nexp data ## the same with PyTorch in place of MXNet
	@requirements/install.sh pytorch-cpu
	@DGXSYSTEM=DEMO_CPU_PYTORCH exec ./run_experiments.sh

nexp: # run_experiments.sh says the same, but after the data set has been made
	@bash -c '. configs/start.sh; check_number NEXP "$${NEXP:-5}" runs 5' make

DEPLOYED ?= results/deploy
# Trains on from the weights of the first run: SPARSITY or QUANTIZATION, then the folder.
train_on = [ -e "$(DEPLOYED)/$(2)/result_0.safetensors" ] || INITIAL_WEIGHTS="$(DEPLOYED)/result_0.safetensors" $(1) NEXP=1 \
	RESULTS="$(DEPLOYED)/$(2)" DGXSYSTEM=DEMO_CPU exec ./run_experiments.sh

demo-deploy: data ## weights of a run: evaluate, prune, export, quantise, time
	@requirements/install.sh deploy
	@[ -e "$(DEPLOYED)/result_0.safetensors" ] || NEXP=1 RESULTS="$(DEPLOYED)" DGXSYSTEM=DEMO_CPU exec ./run_experiments.sh
	@$(BIN)/rn50 evaluate "$(DEPLOYED)/result_0.safetensors" DEMO_CPU
	@$(call train_on,SPARSITY=2:4,sparse)
	@$(BIN)/rn50 evaluate "$(DEPLOYED)/sparse/result_0.safetensors" DEMO_CPU
	@$(BIN)/rn50 export "$(DEPLOYED)/result_0.safetensors" DEMO_CPU -o "$(DEPLOYED)/model.onnx"
	@$(BIN)/rn50 quantize "$(DEPLOYED)/model.onnx" DEMO_CPU -o "$(DEPLOYED)/int8.onnx" --method all --calibration all
	@$(call train_on,QUANTIZATION=int8,rounded)
	@$(BIN)/rn50 export "$(DEPLOYED)/rounded/result_0.safetensors" DEMO_CPU -o "$(DEPLOYED)/rounded.onnx"
	@$(BIN)/rn50 quantize "$(DEPLOYED)/rounded.onnx" DEMO_CPU -o "$(DEPLOYED)/rounded-int8.onnx"
	@$(BIN)/rn50 bench inference "$(DEPLOYED)/model.onnx" "$(DEPLOYED)/int8.onnx" --batch-sizes 1,8,64 --picture "$(DEPLOYED)/latency.svg"

data: setup
	@exec $(BIN)/rn50 demo-data "$${DATADIR:-data/demo}"

dev: setup
	@requirements/install.sh test lint deploy paddle-cpu horovod-build

# Several tests at once, in the order of tests/conftest.py; those of one group (pytest.mark.xdist_group) one after another.
pytest = exec $(BIN)/python -m pytest --numprocesses=auto --dist=loadgroup

# What `make test` leaves to `make test-all`: tests/conftest.py says which tests are slow.
light = (not slow or smoke) and not gpu

test: setup ## the tests of MXNet, and the shared ones: some minutes
	@requirements/install.sh test
	@$(pytest) -m "$(light)"

test-all: test test-rest ## these, then every framework, launcher and container

test-rest: dev
	@requirements/install.sh horovod
	@requirements/install.sh docs
	@requirements/install.sh pytorch-cpu || echo "make: the tests of the PyTorch implementation are skipped, for the reason above"
	@$(pytest) -m "not ($(light))"

fuzz: dev ## thousands of spoiled inputs: about an hour
	@$(BIN)/python -m pytest tests/fuzz --hypothesis-profile=fuzz --timeout=0

test-gpu: ## the tests that need a GPU, with the packages there are
	@python=$$([ -x $(BIN)/python ] && echo $(BIN)/python || echo python3) && \
	  $$python -m tests.support.gpu && $$python -m pytest -m gpu

bench: data ## measure what docs/measurements.md has of a CPU
	$(BIN)/rn50 bench input DEMO_CPU
	$(BIN)/rn50 bench throughput DEMO_CPU --data synthetic --precisions float32,bfloat16 -o results/bench
	$(BIN)/python benchmarks/demo_difficulty.py data/demo
	$(BIN)/python benchmarks/packing.py
	$(BIN)/python benchmarks/predictions.py

bench-gpu: ## measure a GPU (PARTS=probe,tests: some parts)
	@benchmarks/gpu.sh $(if $(PARTS),--parts $(PARTS))

docs: setup ## build the documentation site into site/
	@requirements/install.sh docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "site/index.html"

# FOLDER=/path keeps the logs.
claims: setup ## repeat README's figures, an hour (FIGURES=plan: some)
	@$(BIN)/python -m docs.figures run $(FIGURES)

picture: data ## make README's picture and sample again, by a demo
	@$(BIN)/python -m docs.picture

h200-picture: setup ## make README's picture of an H200's images/s again, from docs/figures.yaml
	@$(BIN)/python -m docs.h200

reference: setup ## write docs/reference/ and the outputs in docs/ again
	@$(BIN)/python -m docs.generate

lint: ruff mypy import-linter shellcheck ## ruff and its formatter, mypy, import-linter, shellcheck
	@$(BIN)/python -m docs.figures stale

ruff: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

mypy: dev
	$(BIN)/mypy

import-linter: dev
	$(BIN)/lint-imports

shellcheck: dev
	$(BIN)/shellcheck $$(git ls-files '*.sh') run.sub .ci/run

# The labels have the pinned versions.
ENGINE ?= $(notdir $(shell command -v docker || command -v podman))
BASE_IMAGE ?= debian:bookworm-slim
STAGE ?= mxnet-cpu
TAG ?= rn50:$(STAGE)
commit = $(shell git describe --always --dirty --abbrev=40)
set = requirements/$(STAGE:mxnet-gpu=mxnet-cu112).txt
pinned = $(set) $(shell sed -n 's,^-r ,requirements/,p' $(set)) $(if $(findstring mxnet,$(STAGE)),requirements/horovod.txt)

image: ## build a container image (docs/docker.md)
	$(or $(ENGINE),$(error no docker or podman here; sudo apt-get install docker.io, or podman)) build \
	  --network=host --tag=$(TAG) --build-arg=STAGE=$(STAGE) --build-arg=BASE_IMAGE=$(BASE_IMAGE) --build-arg=COMMIT=$(commit) \
	  $(foreach name,http_proxy https_proxy no_proxy PIP_INDEX_URL PIP_EXTRA_INDEX_URL,$(if $($(name)),--build-arg=$(name))) \
	  --label=org.opencontainers.image.title=rn50 --label=org.opencontainers.image.revision=$(commit) \
	  --label=org.opencontainers.image.version=$(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' rn50/__init__.py) \
	  --label=org.opencontainers.image.base.name=$(BASE_IMAGE) \
	  $(shell sed -nE 's/^(mxnet|paddlepaddle|torch|nvidia-dali|horovod)(-cu[a-z0-9]*|-gpu)?==([^ ;]*).*/--label=rn50.\1=\3/p' $(pinned)) .

requirements: ## pin requirements/*.in again, hashed (needs uv)
	requirements/compile.sh
