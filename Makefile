# `make serve` runs it, `make test` proves it. Every target sets up what it needs, once.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BACKEND ?= cpu

# A lock is its own constraint: the pip of Python 3.10 and 3.11 looks at `httpx[http2]`, which LiteLLM wants, apart
# from the `httpx` that is pinned, and would take a newer release.
locked = --require-hashes -r requirements/$(1).txt -c requirements/$(1).txt

.PHONY: setup tools build bench-model bench-pflash bench-kvflash bench-router serve demo test test-slow test-threads test-memory soak
.PHONY: lint lock clean

setup: $(VENV)/.dev tools
	$(BIN)/python -m flashlane.setup

# Installs these programs where that is possible without asking: as root on Debian.
TOOLS = cmake:cmake g++:g++ patch:patch ninja:ninja-build
tools:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  for t in $(TOOLS); do \
	    command -v $${t%%:*} >/dev/null || want="$$want $${t##*:}"; done; \
	  [ -z "$$want" ] || { echo "installing$$want"; apt-get update -qq && apt-get install -y -qq $$want >/dev/null; }; \
	fi

$(VENV)/.dev: requirements/dev.txt pyproject.toml
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(call locked,dev)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

build: $(VENV)/.dev tools
	$(BIN)/python -m flashlane.backends.llama_server_patch.build --backend $(BACKEND)

# The 1.1 GB model of the benchmarks; goes on where an interrupted download stopped.
bench-model: $(VENV)/.dev
	$(BIN)/python -m flashlane.models qwen2.5-coder-1.5b

$(VENV)/.bench: requirements/bench.txt $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(call locked,bench)
	touch $@

# Hours on two cores, and best alone on the machine: ARGS="--only needles --quick 4" for a part.
bench-pflash: setup bench-model $(VENV)/.bench
	$(BIN)/python -m bench.pflash $(ARGS)

# Half an hour to an hour on two cores.
bench-kvflash: setup bench-model $(VENV)/.bench
	$(BIN)/python -m bench.kvflash $(ARGS)

# An hour and a half to two hours on two cores.
bench-router: setup bench-model $(VENV)/.bench
	$(BIN)/python -m bench.router $(ARGS)

serve: setup
	$(BIN)/flashlane serve

demo: setup
	$(BIN)/python -m flashlane.demo

test: TOOLS += redis-server:redis-server chromium:chromium
# Two at a time, a file by itself; a short folder, since the path of a Unix socket has a limit.
test: setup
	folder=$$(mktemp -d /tmp/fl.XXXX) && $(BIN)/python -m pytest -n 2 --dist loadfile --basetemp $$folder; \
	  code=$$?; rm -rf "$$folder"; exit $$code

test-slow: setup
	$(BIN)/python -m pytest -m slow

# The engine is built once more, instrumented (10 minutes on two cores). A report ends the server, and the test.
test-threads: setup
	CMAKE_ARGS="-DLLAMA_SANITIZE_THREAD=ON -DGGML_OPENMP=OFF" TSAN_OPTIONS="halt_on_error=1" \
	  $(BIN)/python -m pytest --timeout 3600 tests/engine/test_concurrency.py

test-memory: setup
	CMAKE_ARGS="-DLLAMA_SANITIZE_ADDRESS=ON" ASAN_OPTIONS="detect_leaks=0" \
	  $(BIN)/python -m pytest --timeout 3600 tests/engine/test_concurrency.py tests/engine/test_pflash_hard.py \
	    tests/engine/test_kvflash_damage.py tests/engine/test_kvflash_soak.py

# Half an hour of mixed load on KVFlash.
soak: setup
	FLASHLANE_SOAK_MINUTES=30 $(BIN)/python -m pytest tests/engine/test_kvflash_soak.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy

# Renews the locks from pyproject.toml; versions that still fit stay. uv comes from PyPI: pip install uv.
LOCK = uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header \
  --no-annotate --no-emit-index-url --no-emit-find-links --extra bindings pyproject.toml
lock:
	$(LOCK) -o requirements/runtime.txt
	$(LOCK) -c requirements/runtime.txt --group dev -o requirements/dev.txt
	$(subst --extra bindings pyproject.toml,,$(LOCK)) -c requirements/dev.txt --group bench -o requirements/bench.txt

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
