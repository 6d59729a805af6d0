# minisgl: `make demo` shows it at work, `make test` proves it. Both set up all they need.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV    := .venv
PY      := $(VENV)/bin/python
CACHE   := $(or $(MINISGL_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/minisgl)
LINTER  := v2.12.2
GOLANGCI := $(CACHE)/golangci-lint-$(LINTER)/golangci-lint
FUZZTIME ?= 2m
SOAKTIME ?= 3m
ROUNDS  ?= 5
# Go's build cache then serves every clone: the kernels take minutes to compile.
export GOFLAGS := $(strip -trimpath $(filter-out -trimpath,$(GOFLAGS)))

.PHONY: help
help: ## This list
	@echo "minisgl: an LLM serving engine. First steps: make demo, then make test."
	@grep -hE '^[A-Za-z0-9./-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([A-Za-z0-9./-]+):.*## /  \1\t/' | expand -t 22

.PHONY: check
check: ## Check that the tools to build with are there
	@scripts/check.sh

.PHONY: setup
setup: check ## Python environment, Rust libraries, native module (what is there already is kept)
	@scripts/venv.sh
	@scripts/rust-lib.sh
	@scripts/native.sh

.PHONY: build
build: setup ## The programs, into bin/
	@mkdir -p bin
	@echo "go: building the programs"
	@go build -o bin/minisgl ./go/cmd/minisgl
	@go build -o bin/minisgl-client ./bench/client

.PHONY: demo
demo: build ## The main job on a real small model: generate, serve and chat, measure
	@$(PY) scripts/demo.py

.PHONY: test
test: build lint cuda-check test-go test-c test-python ## All tests and lints

.PHONY: test-go
test-go: setup
	@bin/minisgl fetch smollm2-135m >/dev/null
	go test -race -timeout 30m ./go/... ./kernels/... ./bench/... ./bindings/native/...

.PHONY: test-models
test-models: setup ## What of the models is too slow for test: every file form, device, page size and scheduling option (5 min)
	MINISGL_TEST_MODELS=1 go test -count=1 -timeout 30m -run Extended ./go/internal/engine ./go/llm ./go/tokenizer

.PHONY: test-c
test-c: ## The kernels under ASan and UBSan
	@scripts/test-c.sh

.PHONY: cuda
cuda: setup ## The program and the Python module for GPUs; nvcc comes from PyPI if there is none (no GPU needed)
	@scripts/cuda.sh build

.PHONY: cuda-check
cuda-check: setup ## What of the CUDA device can be proven without a GPU
	@scripts/cuda.sh check
	@$(MAKE) --no-print-directory --output-sync=target -j$$(getconf _NPROCESSORS_ONLN) cuda-kernels cuda-models

# The emulation's time is that of one core: it runs one thread after the other.
.PHONY: cuda-kernels cuda-models
cuda-kernels:
	go test -race -timeout 30m ./go/internal/device/cuda
cuda-models:
	$(MAKE) -C kernels/test emu
	go test -race -run TestCUDA ./go/internal/engine ./go/llm
	go test -race ./go/internal/nccl

.PHONY: flashinfer
flashinfer: setup ## FlashInfer's attention for --attention-backend fi, a library beside the programs for GPUs (100 MB once, no GPU needed)
	@scripts/cuda.sh flashinfer

.PHONY: gpu-check
gpu-check: cuda ## Pack what a machine with a GPU needs to prove and to measure, into build/gpu-check
	@scripts/gpu-check.sh pack

.PHONY: test-python
test-python: setup
	$(PY) -m pytest -q python/tests

.PHONY: test-torch
test-torch: setup ## Arrays, dtypes and the book's chapter with the torch that .venv can import (pip install torch)
	@$(PY) -c 'import torch; print("torch", torch.__version__)'
	$(PY) -m pytest python/tests/test_torch.py python/tests/test_chapter.py

.PHONY: test-page
test-page: build ## The dashboard in headless Chromium, which root gets installed
	@scripts/chromium.sh
	$(PY) -m pytest python/tests/test_page.py

.PHONY: lint
lint: setup $(GOLANGCI) ## gofmt, vet, golangci-lint, ruff, mypy, stubtest
	@out=$$(gofmt -l go kernels bindings/native bench); [ -z "$$out" ] || { echo "gofmt: $$out"; exit 1; }
	cd go && $(GOLANGCI) run ./...
	cd kernels && $(GOLANGCI) run ./...
	cd bench && $(GOLANGCI) run ./...
	cd bindings && $(GOLANGCI) run ./native/...
	$(PY) -m ruff check python scripts
	$(PY) -m ruff format --check python scripts
	$(PY) -m mypy
	$(PY) -m mypy.stubtest minisgl --ignore-missing-stub --mypy-config-file pyproject.toml

$(GOLANGCI):
	@echo "golangci-lint: building $(LINTER) (once, a few minutes)"
	@mkdir -p $(@D)
	@GOWORK=off GOFLAGS= GOBIN=$(abspath $(@D)) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINTER)

models/Qwen3-0.6B: ## Not the real one: its shape and tokenizer, random weights, for measuring
	@$(or $(PYTHON),python3) scripts/qwen3_shape.py $@

.PHONY: bench-turns
bench-turns: setup ## What the radix cache is worth: conversations of 5 turns, 20 users
	go run ./bench/ablation turns

.PHONY: profile
profile: build ## Where a forward pass spends its time, by part and operation (MODEL=smollm2-135m)
	@bin/minisgl bench --ops --model $(or $(MODEL),smollm2-135m) --cases 512,1x32+64,16x32+64,1x2048+32 --repeat 1 --num-pages 8192

.PHONY: quality
quality: build ## What quantization costs: perplexities, ours beside llama.cpp's
	@$(PY) scripts/quality.py

.PHONY: bench-peers
bench-peers: build ## Our speed beside llama.cpp's on this machine (ROUNDS=3 THREADS=2 MODELS=qwen3-bf16,smollm2)
	@$(PY) scripts/bench_peers.py --rounds $(or $(ROUNDS),3) --threads $(or $(THREADS),2) $(if $(MODELS),--models $(MODELS))

.PHONY: bench-online
bench-online: setup ## What the server costs: the same load over HTTP and by llm.Generate, in turns (ROUNDS=5)
	MINISGL_ONLINE=$(ROUNDS) go test ./go/internal/server -run TestOnlineNearlyEqualsOffline -v -count 1 -timeout 1h

.PHONY: bench-python
bench-python: ROUNDS = 40
bench-python: setup ## What Python costs: the same calls of LLM.generate and of llm.Generate in Go, in turns (ROUNDS=40)
	MINISGL_PYTHON_COST=$(ROUNDS) go test ./bindings/native -run TestWhatPythonCosts -v -count 1 -timeout 1h

.PHONY: soak
soak: setup ## 500 clients that stream, some of which leave, for SOAKTIME=3m, and 100,000 short calls from Python: nothing leaks
	MINISGL_SOAK=$(SOAKTIME) go test ./go/internal/server -run TestSoak -v -count 1 -timeout 1h
	MINISGL_SHORT_CALLS=100000 $(PY) -m pytest -s python/tests/test_process.py -k short_calls

.PHONY: bench-compare
bench-compare: build ## Does bench/compare find a slowdown of 10%, and nothing in equal servers? (7 min, MODEL=smollm2-135m or none)
	@go build -o bin/minisgl-bench ./bench/minisgl-bench
	@$(PY) scripts/compare_live.py $(if $(MODEL),--model $(MODEL))

.PHONY: bench-sglang
bench-sglang: setup ## bench/serving beside sglang's own client: same requests, layout, token totals (3 min, 400 MB once)
	@$(PY) scripts/sglang_parity.py

.PHONY: notebooks
notebooks: setup ## Execute python/notebooks in place (2 min)
	@$(PY) -m pip install --quiet --disable-pip-version-check -r python/requirements-notebooks.txt
	$(PY) -m nbconvert --to notebook --inplace --execute --ExecutePreprocessor.record_timing=False \
		--ExecutePreprocessor.timeout=300 python/notebooks/*.ipynb

.PHONY: wheel
wheel: ## Build a wheel, install it into an empty environment and try it (PYTHONS="python3.10 python3.12", or all; MINISGL_CUDA=1 for GPUs, too)
	@scripts/wheel.sh $(PYTHONS)

.PHONY: fuzz
fuzz: setup ## All fuzz targets, which share FUZZTIME (2m)
	@scripts/fuzz.sh $(FUZZTIME)

.PHONY: clean
clean: ## Remove what was built here; caches outside the repository stay
	rm -rf bin build $(VENV) python/minisgl/_native/{.stamp*,*.so,minisgl-bench}
