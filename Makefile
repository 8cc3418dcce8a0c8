# deskroll: `make demo` and `make test` install what they need by themselves (Debian or Ubuntu, Python 3.11+); `make test`
# also OSWorld's own evaluators, once a machine, in an environment of their own (1.5 GB).
#   PYTHON=python3.12        the Python that .venv is made with
#   PYTEST_ARGS='-k pool'    what `make test` passes on to pytest
#   DEMO_ARGS=--help         what `make demo` passes on to `deskroll demo`
#   RL_ARGS='--seed 2'       what `make rl-demo` passes on to examples/rl/demo.py
#   BENCH=pool BENCH_ARGS=--quick       which benchmark `make bench` runs (all, unless told), and how
SHELL := /bin/bash
PYTHON ?= python3
SOAK ?= 11
BENCH ?= desktop recording suite pool engine models events scale rl
export PYTHON

.PHONY: help setup demo test test-fast test-vllm test-trainers soak lint format bench lock vllm rl-demo trainers clean

help:
	@echo 'make demo      deskroll at work on embedded desktops: no key, no virtual machine'
	@echo 'make test      the test suite                     (PYTEST_ARGS="-k pool")'
	@echo 'make test-fast the part of it that needs no desktop, and what of the sources it covers'
	@echo 'make test-vllm the tests of model servers and trainers with a real vLLM and torch on CPUs'
	@echo 'make test-trainers  the adapters, with tinker-cookbook and verl themselves'
	@echo 'make soak      500 kills, stops and clock steps  (SOAK=1: 46 of them)'
	@echo 'make lint      ruff and mypy'
	@echo 'make format    let ruff rewrite the sources'
	@echo 'make bench     the benchmarks                     (BENCH=pool BENCH_ARGS=--quick)'
	@echo 'make setup     everything that test and lint need, without running them'
	@echo 'make vllm      vLLM for CPUs in .venv-vllm: minutes and 3 to 6 GB, once'
	@echo 'make trainers  tinker-cookbook and verl in .venv-trainers: minutes and 2 GB, once'
	@echo 'make rl-demo   reinforcement learning from nothing to a curve: vLLM, a tiny model, real windows (RL_ARGS="--seed 2")'
	@echo 'make lock      newest versions into requirements*.lock'
	@echo 'make clean     remove every .venv and caches; system packages stay'

setup:
	@scripts/prepare dev local network demo test
	@.venv/bin/deskroll osworld install

demo:
	@scripts/prepare runtime local network demo
	.venv/bin/deskroll demo $(DEMO_ARGS)

test: setup
	@scripts/test $(PYTEST_ARGS)

test-fast:
	@scripts/prepare dev
	@scripts/test --fast

test-vllm: vllm
	@scripts/prepare dev
	@scripts/test --vllm -s tests/vllm tests/train/vllm $(PYTEST_ARGS)

test-trainers: trainers
	.venv-trainers/bin/python -m pytest -q -s --trainers -W default tests/train/adapters $(PYTEST_ARGS)

soak:
	@scripts/prepare dev local network demo test
	@DESKROLL_SOAK=$(SOAK) scripts/test -s tests/rollout/test_nothing_lost.py tests/rollout/test_model_storm.py tests/train/test_gate.py

lint:
	@scripts/prepare dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

format:
	@scripts/prepare dev
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .
	.venv/bin/python scripts/settings-page

bench:
	@scripts/prepare dev local network demo test bench
	@set -e; for bench in $(BENCH); do .venv/bin/python "bench/$$bench.py" $(BENCH_ARGS); done

lock:
	@scripts/system-packages
	@scripts/lock

vllm:
	@scripts/prepare runtime vllm
	@scripts/vllm

rl-demo: vllm
	@scripts/prepare dev local network demo
	.venv/bin/python examples/rl/demo.py $(RL_ARGS)

trainers:
	@scripts/trainers

clean:
	rm -rf .venv .venv-vllm .venv-trainers demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
