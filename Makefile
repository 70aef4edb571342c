# The project's commands; `make help` lists them. CMake does the work: see CMakePresets.json.
PRESET ?= release
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
BUILD = build/$(PRESET)
ifdef LAZULI_TORCH
TORCH = $(abspath $(LAZULI_TORCH))
else ifdef Torch_DIR
TORCH = $(abspath $(Torch_DIR)/../../..)
else
TORCH = $(CURDIR)/.deps/torch/torch
endif
export LAZULI_TORCH Torch_DIR

.PHONY: help setup configure build demo test operators bench install format tidy check clean

help:
	@echo 'make demo               everything, from a fresh clone: dependencies, build, and a character-level GPT trained eagerly and with Lazuli'
	@echo 'make setup              system packages and LibTorch, when missing (LAZULI_TORCH=DIR or Torch_DIR: your own LibTorch)'
	@echo 'make build              build/release/lib/liblazuli.so, programs in build/release/bin  (PRESET=release|dev|ci|gcc|asan|tsan)'
	@echo 'make test               build and run all tests'
	@echo 'make operators          PyTorch'\''s own operator database, eagerly and with Lazuli  (ARGS="--device cuda --variant inplace")'
	@echo 'make bench              benchmarks, eager and torch.compile beside them'
	@echo 'make install PREFIX=DIR headers, library, CMake package'
	@echo 'make check              layering and style   (make format rewrites, make tidy checks names with clang-tidy)'
	@echo 'make clean              removes build/; .deps/ stays'

setup:
	@scripts/setup.sh

configure: setup
	@cmake --preset $(PRESET) -DLAZULI_TORCH=$(TORCH) > build.log.$$$$ 2>&1 && rm -f build.log.$$$$ || { cat build.log.$$$$; rm -f build.log.$$$$; exit 1; }

build: configure
	cmake --build $(BUILD) -j $(JOBS) $(if $(TARGET),--target $(TARGET))

demo: build
	$(BUILD)/bin/char_gpt

test: configure
	cmake --build $(BUILD) -j $(JOBS) --target tests
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

operators: build
	scripts/python_env.sh
	.deps/bench/bin/python tests/operators/operator_database.py --lib $(BUILD)/lib/liblazuli.so $(ARGS)

bench: build
	bench/run.sh $(BUILD)

install: build
	cmake --install $(BUILD) --prefix $(PREFIX)

format:
	python3 scripts/check_style.py --fix

check:
	python3 scripts/check_layers.py
	python3 scripts/check_style.py

tidy: configure
	scripts/tidy.sh $(BUILD) $(FILES)

clean:
	rm -rf build
