# make help says what there is. Everything installs into .venv, and only when what it depends on has changed.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
PYTEST = $(BIN)/python -m pytest
# The first of these that is Python 3.11 to 3.13; `make PYTHON=/path/to/python test` overrides.
PYTHON ?= $(shell for candidate in python3 python3.13 python3.12 python3.11; do \
	if $$candidate -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; \
	then command -v $$candidate; break; fi; done)

# The software of the machine with a GPU, and an environment of its own for it. pip's settings count for the other
# one, whose torch is often one for processors only: here its own defaults do.
DEVICE_VENV := .venv-device
DEVICE_PIP = PIP_CONFIG_FILE=/dev/null PIP_CONSTRAINT= PIP_FIND_LINKS= PIP_EXTRA_INDEX_URL= \
	$(DEVICE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c device-constraints.txt
PYTHON_DEVICE ?= $(shell for candidate in python3.12 "$$HOME"/.pyenv/versions/3.12.*/bin/python python3; do \
	if $$candidate -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; \
	then command -v $$candidate; break; fi; done)

# What follows a command: $(call or_explain,what failed,how to mend it). No commas inside the sentences.
or_explain = || { printf '\nmake: %s\n  fix: %s\n' "$(1)" "$(2)" >&2; exit 1; }

# Modules are compiled once and kept, whatever this shell says: tests start hundreds of interpreters.
export PYTHONDONTWRITEBYTECODE :=

# Tests run in one worker for each core; a worker takes the next test when it is free.
WORKERS ?= auto
TESTS = $(PYTEST) -n $(WORKERS) --dist worksteal

.PHONY: help
help:
	@printf '%s\n' \
	  'make demo        compile a module, compare it with PyTorch and print what was done to it' \
	  'make test        the tests of every source file; make test-sdfg runs one folder, the slow ones too' \
	  'make test-all    the slow tests, too: campaigns, whole networks, programs that measure, browsers, tutorials' \
	  'make messages    write the texts that tests compare, tests/golden/messages.txt, anew' \
	  'make cuda        compile device code for sm_80, sm_90 and sm_100 and check it, where nvcc is; CHECK=--check fails without' \
	  'make docs        the documentation as a site, in build/site; strict: a dead link fails' \
	  'make lint        ruff, pyright and import-linter' \
	  'make format      let ruff format and mend what it can' \
	  'make bench       the benchmarks with their bars; QUICK= measures in full, QUICK=--quick is the default' \
	  'make figures     the figure of the README, from committed results' \
	  'make baseline    commit to what compiled networks consist of now: benchmarks/baseline (a minute)' \
	  'make fuzz        the large campaigns, random or over all floats: results under benchmarks/results (tens of minutes)' \
	  'make poison      tests of operators, gradients and modules with memory that is filled with large numbers (half an hour)' \
	  'make strangers   models of transformers, timm, torchvision and others next to eager PyTorch (tens of minutes)' \
	  'make graphnet    200 graphs of GraphNet next to eager PyTorch; DACEML_SUITES names the folder above GraphNet (hours)' \
	  "make suites      programs of torch-mlir's and KernelBench's suites next to eager PyTorch; in DACEML_SUITES (hours)" \
	  "make opinfo      every operator of torch's own database next to eager PyTorch (an hour)" \
	  'make venv        the environment alone, in $(VENV)' \
	  'make fake-device the CUDA path on a fake device: no GPU is needed, but 6 GB of disk for a torch with CUDA' \
	  'make device-venv that environment alone, in $(DEVICE_VENV)' \
  'make gpu-rehearsal  every step of the first run on a device, in emulation (benchmarks/gpu_first_run.sh)' \
  'make gpu-kit     what the first run takes along: wheels, and programs that are compiled for the device; needs nvcc' \
	  'make clean       remove the environment and the caches of the tools'

.PHONY: venv
venv: $(VENV)/.installed

$(VENV)/.created:
	@test -n "$(PYTHON)" $(call or_explain,no Python 3.11 to 3.13 was found,install one or name it: make PYTHON=/path/to/python3.12)
	@"$(PYTHON)" -m venv --clear $(VENV) $(call or_explain,$(PYTHON) could not create an environment,install its venv module (Debian: apt-get install python3-venv) or name another: make PYTHON=...)
	@touch $@

$(VENV)/.installed: setup.py pyproject.toml constraints.txt $(VENV)/.created
	@command -v g++ >/dev/null $(call or_explain,no g++ was found and daceml compiles C++ as it runs,install a C++17 compiler (Debian: apt-get install g++))
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,lint]' \
	  $(call or_explain,installing daceml and its tools failed,read pip's message above; without a network set PIP_FIND_LINKS to a folder of wheels; make clean starts afresh)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps pytorchcv \
	  $(call or_explain,installing pytorchcv for the benchmarks failed,read pip's message above; constraints.txt says why it is installed without its dependencies)
	@touch $@

# The environment of `make venv`, and libraries of models that would disturb it: without torchvision's C++ part
# transformers does not load, and torchaudio's does not load next to every build of torch.
STRANGERS = build/strangers
$(STRANGERS)/.installed: setup.py $(VENV)/.installed
	@$(BIN)/python -m venv --clear $(STRANGERS) $(call or_explain,$(BIN)/python could not create an environment,make clean starts afresh)
	@$(STRANGERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $(STRANGERS)/place
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$(cat $(STRANGERS)/place)/daceml-venv.pth"
	@$(STRANGERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps timm==1.0.31 torch_geometric==2.8.1 \
	  xxhash psutil pyparsing aiohttp pillow torchvision==0.28.0 torchaudio==2.11.0 \
	  $(call or_explain,installing the libraries of models failed,read pip's message above)
	@rm -rf "$$(cat $(STRANGERS)/place)/torchaudio/lib"
	@touch $@

.PHONY: strangers
strangers: $(STRANGERS)/.installed
	@printf '\n== models of other libraries\n'
	@$(STRANGERS)/bin/python -m benchmarks.strangers --part generation --check $(QUICK) \
	  --json build/bench/strangers_generation.json \
	  $(call or_explain,a bar is missed,the lines above name models and reasons)
	@$(STRANGERS)/bin/python -m benchmarks.strangers --check $(QUICK) --json build/bench/strangers.json \
	  $(call or_explain,a bar is missed,the lines above name models and reasons)

.PHONY: graphnet
graphnet: $(VENV)/.installed
	@printf '\n== graphs of GraphNet\n'
	@$(BIN)/python -m benchmarks.graphnet --check $(QUICK) --json build/bench/graphnet.json \
	  $(call or_explain,a bar is missed,the lines above name graphs and reasons)

.PHONY: suites
suites: $(STRANGERS)/.installed
	@printf "\n== others' suites\n"
	@$(STRANGERS)/bin/python -m benchmarks.suites --check $(QUICK) --json build/bench/suites.json \
	  $(call or_explain,a bar is missed,the lines above name programs and reasons)

.PHONY: opinfo
opinfo: $(VENV)/.installed
	@mkdir -p build/bench; printf "\n== operators of torch's database\n"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[opinfo]' \
	  $(call or_explain,installing what torch's database needs failed,read pip's message above)
	@$(BIN)/python -m benchmarks.opinfo --check $(QUICK) --json build/bench/opinfo.json \
	  $(call or_explain,a bar is missed,the lines above name operators and reasons)

.PHONY: figures
figures: $(VENV)/.installed
	@$(BIN)/python -m benchmarks.figures

.PHONY: demo
demo: $(VENV)/.installed
	@$(BIN)/python -m examples.demo \
	  $(call or_explain,the demonstration failed,read the error above; $(BIN)/daceml doctor checks compiler and versions)

explain_tests = $(call or_explain,$(1),the summary above names the tests; the failed ones again: $(PYTEST) --last-failed --last-failed-no-failures none)

.PHONY: test
test: $(VENV)/.installed
	@$(TESTS) -m 'not slow' tests $(call explain_tests,tests failed)

.PHONY: test-all
test-all: $(VENV)/.installed
	@$(TESTS) tests $(call explain_tests,tests failed)

# make test-sdfg: the tests of one folder
test-%: $(VENV)/.installed
	@path=tests/$*; test -d "$$path" || path="$$path.py"; $(TESTS) "$$path" $(call explain_tests,tests of $* failed)

.PHONY: messages
messages: $(VENV)/.installed
	@$(TESTS) --renew-messages -q tests \
	  $(call explain_tests,tests failed while their texts were renewed)
	@git --no-pager diff --stat -- tests/golden

CHECK ?=
.PHONY: cuda
cuda: $(VENV)/.installed
	@mkdir -p build/bench; printf '\n== device code\n'
	@# where nvcc came without NVIDIA's disassembler; 5.5 MB
	@$(BIN)/python -m benchmarks.device_code.disassembler >/dev/null \
	  || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cuda-sass]' \
	  $(call or_explain,installing NVIDIA's disassembler failed,read pip's message above; without a network set PIP_FIND_LINKS to a folder of wheels or run $(BIN)/python -m benchmarks.device_code --quick)
	@$(BIN)/python -m benchmarks.device_code --quick $(CHECK) --json build/bench/device_code.json \
	  $(call or_explain,device code does not compile or misses a bar,the bars above name the kernels; without nvcc: $(BIN)/python -m pip install -e .[cuda-build])

.PHONY: device-venv
device-venv: $(DEVICE_VENV)/.installed

$(DEVICE_VENV)/.created:
	@test -n "$(PYTHON_DEVICE)" $(call or_explain,no Python 3.12 was found and that is what the machine with the GPU has,install one or name it: make PYTHON_DEVICE=/path/to/python3.12)
	@echo 'make: a torch with CUDA and its libraries go into $(DEVICE_VENV): 3 GB to download and 6 GB of disk'
	@"$(PYTHON_DEVICE)" -m venv --clear $(DEVICE_VENV) $(call or_explain,$(PYTHON_DEVICE) could not create an environment,install its venv module (Debian: apt-get install python3.12-venv) or name another: make PYTHON_DEVICE=...)
	@touch $@

$(DEVICE_VENV)/.installed: setup.py pyproject.toml device-constraints.txt $(DEVICE_VENV)/.created
	@command -v g++ >/dev/null $(call or_explain,no g++ was found and daceml compiles C++ as it runs,install a C++20 compiler (Debian: apt-get install g++))
	@$(DEVICE_PIP) -e '.[test]' nvidia-cuda-crt $(call or_explain,installing the software of the device failed,read pip's message above; the packages come from PyPI)
	@$(DEVICE_PIP) --no-deps pytorchcv $(call or_explain,installing pytorchcv for the benchmarks failed,read pip's message above)
	@$(DEVICE_VENV)/bin/python -c 'import torch; assert torch.version.cuda' \
	  $(call or_explain,the torch in $(DEVICE_VENV) has no CUDA,remove $(DEVICE_VENV) and install from PyPI itself: a mirror may serve torch for processors)
	@touch $@

.PHONY: gpu-rehearsal
gpu-rehearsal: $(VENV)/.installed
	@printf '\n== rehearsal of the first run on a device\n'
	@PYTHON=$(BIN)/python bash benchmarks/gpu_first_run.sh --emulated --check --out build/gpu-rehearsal \
	  $(call or_explain,the rehearsal found a fault,the lines above name cells and kernels; build/gpu-rehearsal/results.jsonl has all of them; one step alone: bash benchmarks/gpu_first_run.sh --emulated --step NAME)

# Programs are compiled for tensors of the fake device, as if they lay on a real one, by the real nvcc.
.PHONY: gpu-kit
gpu-kit: $(DEVICE_VENV)/.installed
	@printf '\n== kit of the first run on a device\n'
	@$(DEVICE_VENV)/bin/python -m tests.codegen_cuda.fake_device.run \
	  env DACEML_NVCC="$${DACEML_NVCC:-}" $(DEVICE_VENV)/bin/python -m benchmarks.gpu.kit --check --json build/bench/gpu_kit.json \
	  $(call or_explain,the kit is not complete,the bars above name what failed; programs that were compiled are kept: run the same command again)

.PHONY: fake-device
fake-device: $(DEVICE_VENV)/.installed
	@printf '\n== on the fake device\n'
	@$(DEVICE_VENV)/bin/python -m tests.codegen_cuda.fake_device.run \
	  $(call or_explain,tests on the fake device failed,the summary above names them; one alone: $(DEVICE_VENV)/bin/python -m tests.codegen_cuda.fake_device.run $(DEVICE_VENV)/bin/python -m pytest tests/codegen_cuda/fake_device -k NAME)
	@printf '\n== with the software of the device\n'
	@$(DEVICE_VENV)/bin/python -m pytest tests/runtime tests/codegen_cuda $(wildcard tests/benchmarks/test_gpu*.py) \
	  $(call or_explain,tests failed with the software of the device,the summary above names them; the same tests in $(VENV): make test)

$(VENV)/.docs: setup.py constraints.txt $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]' \
	  $(call or_explain,installing what builds the documentation failed,read pip's message above; without a network set PIP_FIND_LINKS to a folder of wheels)
	@touch $@

.PHONY: docs
docs: $(VENV)/.docs
	@printf '\n== documentation\n'  # the variable turns off a notice on every build about releases of the theme
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet \
	  $(call or_explain,the documentation has faults,the lines above name pages and links; pages that no file of docs/ is are made in docs/pages)
	@echo 'build/site/index.html'

.PHONY: lint lint-style lint-types lint-imports
lint: lint-style lint-types lint-imports

lint-style: $(VENV)/.installed
	@$(BIN)/ruff check . $(call or_explain,ruff found faults,run: make format; what it cannot mend it names above)
	@$(BIN)/ruff format --check . $(call or_explain,some files are not formatted,run: make format)

lint-types: $(VENV)/.installed
	@$(BIN)/pyright --pythonpath $(BIN)/python $(call or_explain,pyright found faults in daceml or benchmarks,the lines above name file and rule; types go into every signature)

lint-imports: $(VENV)/.installed
	@$(BIN)/python -m benchmarks.structure --check $(call or_explain,the code departs from the architecture,the bars above name the modules; ARCHITECTURE.md says which package may import which)
	@$(BIN)/lint-imports $(call or_explain,an import crosses the layers,the lines above name it; ARCHITECTURE.md says which package may import which)

.PHONY: format
format: $(VENV)/.installed
	@$(BIN)/ruff check --fix-only . && $(BIN)/ruff format .

QUICK ?= --quick
.PHONY: bench
bench: $(VENV)/.installed
	@mkdir -p build/bench
	@for name in parity overhead startup blocks networks; do printf '\n== %s\n' "$$name"; \
	  $(BIN)/python -m benchmarks.$$name $(QUICK) --check --json "build/bench/$$name.json" \
	  $(call or_explain,benchmark $$name missed a bar or could not run,the bars above say which; close other programs and repeat: $(BIN)/python -m benchmarks.$$name --check) ; done

.PHONY: baseline
baseline: $(VENV)/.installed
	@$(BIN)/python -m benchmarks.counts --renew \
	  $(call or_explain,the baseline was not renewed,a network cannot be compiled: read the error above; make test-benchmarks compares the counts with the old one)

.PHONY: fuzz
fuzz: $(VENV)/.installed
	@for run in robustness operators gradient_checks standard_gradients random_graphs "random_graphs --family images" "random_graphs --family aliases" vector_math trace_robustness simulation_laws; do \
	  printf '\n== %s\n' "$$run"; name=$$(printf '%s' "$$run" | tr -cs 'a-z_' '-'); \
	  $(BIN)/python -m benchmarks.$$run --check --json "benchmarks/results/$$name-$$(date +%F).json" \
	  $(call or_explain,campaign $$name found a fault,the lines above name the cases; each says how to repeat it) ; done

# Memory from malloc holds 8e37 in float32 and 1e300 in float64, so reads of unwritten values show.
.PHONY: poison
poison: $(VENV)/.installed
	MALLOC_PERTURB_=129 $(BIN)/python -m pytest -q -n 2 --dist worksteal \
	  tests/onnx_ops tests/autodiff tests/frontend tests/module tests/transformations tests/codegen

.PHONY: clean
clean:
	rm -rf $(VENV) $(DEVICE_VENV) build .pytest_cache .ruff_cache .import_linter_cache .hypothesis daceml.egg-info
