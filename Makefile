# One command for each habit. A machine with Python 3.11+ (with venv) and make needs nothing else: each
# target makes the environment it needs, once, and again when pyproject.toml changes.
#
#   make demo     train a small network on handwritten digits and show what it learnt
#   make test     the whole test suite (no PyTorch needed)
#   make test-learned  the tests of operations, gradients and modules with every call learned before it is made, and replayed
#   make test-shuffled  the whole test suite in another order, by a seed that nobody ran: tests that need others before them; SHUFFLE=7 for a seed
#   make test-forward  the gradient checks of the suite with forward-mode derivatives checked too, and tangents of gradients
#   make quick    in under a minute: the tests that the working tree's changes touch, ruff on them, the order of the layers
#   make check    ruff, mypy, the order of the layers, the stubs of generated names, the table of names
#   make generated  writes the stubs and docs/names.md anew, by what the package says now
#   make parity   the same operations by PyTorch, compared (skipped where PyTorch cannot be had)
#   make conformance  a fixed part of PyTorch's operator database, on the CPU and a simulated GPU (no PyTorch needed)
#   make conformance-page  all of that database: docs/conformance.md
#   make names    docs/names.md: where each name of PyTorch is here
#   make docs     the documentation as a site, in build/site
#   make fuzz     random programs, hostile arguments and errors in ulp, held against what is known; FUZZ="--seeds 0:500 --only programs" for a part
#   make fuzz-fresh  for two minutes, random and training programs beside PyTorch by seeds that nobody ran; FRESH=600 for so many seconds of each
#   make accuracy  errors of functions in float32 and float64 beside PyTorch's, against mpmath, near zeros and edges too; ACCURACY="--only lgamma --all"
#   make mutants  one operator or constant changed at random, the module's mirrored tests alone, for half an hour: which live; MUTANTS="--count 20 --seed 3"
#   make races    forks, capsules, exits, first calls beside threads and finalizers at any allocation, 300 rounds at moments that are drawn: hangs, crashes, wrong values; RACES="--rounds 5000 --seed 7"
#   make failures  1,000 failures planted in jobs of several processes: each must be told by name, in time; FAILURES="--rounds 50 --seed 7"
#   make test-slurm  ranks started by Slurm, which runs on this machine meanwhile; needs root and Debian's Slurm, skipped where there is none
#   make guard    hostile arguments by new seeds, each block of memory between pages that nobody may touch: crashes, hangs, and replays of learned calls that differ; GUARD=20000 for more
#   make test-guard  the tests of operations and modules in such memory; then with every call learned before it is made, and replayed there
#   make bench    how fast, against PyTorch in the same run
#   make bench-ops  every public operation beside PyTorch, tiny, forward and backward, worst first
#   make test-fake-gpu  the tests of devices through the NVIDIA driver on fake libraries; needs g++, no GPU
#   make check-libraries  our calls of NVIDIA's libraries held against their headers, and what they say; needs g++ and no GPU, downloads 1.7 GB
#   make check-cudnn  NVIDIA's own cuDNN asked to plan our graphs of attention for GPUs that are only described to it; needs g++ and no GPU
#   make test-gpu   the device tests on a real NVIDIA GPU (skipped, and said so, where there is none); build/test-gpu.md tells all of it
#   make gpu-first  the first ten minutes on a real NVIDIA GPU: small steps, the device tests, the benchmark, the calibration, the operator database; all in build/gpu-first.tar.gz
#   make gpu-again  those of them that did not pass
#   make bench-gpu  how fast on that GPU, against PyTorch in the same run; the table goes to build/bench-gpu.md
#   make host-cost  what an eager operation on a GPU costs the host, in microseconds; on the tests' fake driver where there is no GPU
#   make kernel-report  how far our kernels are from the limit of an H200, by their memory accesses and machine code; needs g++, no GPU
#   make calibrate  measures what this GPU reaches, and writes a model file for simulated ones: CALIBRATE="--out mine.toml"
#   make step-count  what a training step asks of a GPU: launches, bytes, copies, waits, memory; on the tests' fake driver, needs g++
#   make libraries  programs on transformers, lightning, timm and others in an environment without torch, beside PyTorch: docs/libraries.md;
#                 downloads about 2 GB; LIBRARIES="--only peft --alone" for a part
#   make perfetto what Perfetto's own trace processor reads of a trace; downloads it
#   make dist-check  an sdist and a wheel in build/dist: `twine check`, their files held against git's, the wheel installed and run in a new environment
#   make sizes    what installing with the extra for NVIDIA GPUs downloads
#   make fix      let ruff mend what it can
#   make clean    remove the environments and caches

PYTHON ?= python3
JOBS ?= 2
# Each worker begins with tests that follow one another, and one that has none left takes half of another's rest: what the tests of a file share is made once.
WORKERS = -n $(JOBS) --dist worksteal
DEMO ?=
QUICK ?=
SHUFFLE ?=
TESTS_LATER ?=
BENCH ?=
NAMES ?=
PYTEST ?=
LIBRARIES ?=
FUZZ ?=
EXTRAS ?=

BIN := .venv/bin
PARITY := .venv-parity/bin

# Some environments set this to an older CPU, which halves OpenBLAS. It is for OpenBLAS to find out.
unexport OPENBLAS_CORETYPE
# Containers set this to keep their layers small. Here it makes each start compile all anew, and pytest rewrite the asserts of every test.
unexport PYTHONDONTWRITEBYTECODE

# Kernels of usual programs, made behind the first program, are for users: here they would make measurements worse.
export FLAMBEAU_WARM := 0

.PHONY: help demo test test-learned test-shuffled test-forward quick check generated parity conformance conformance-page names docs fuzz fuzz-fresh accuracy mutants races failures test-slurm guard test-guard bench bench-ops bench-processes test-fake-gpu check-libraries check-cudnn test-gpu gpu-first gpu-again bench-gpu host-cost kernel-report step-count calibrate libraries sizes perfetto dist-check fix clean
help:
	@sed -n 's/^#   //p' Makefile

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Flambeau needs Python 3.11 or newer; $(PYTHON) is older. Say: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

# The package alone, as a user has it.
.venv/.package: .venv/.made pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# The package and what its developers use.
.venv/.dev: .venv/.package
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# PyTorch lies in an environment of its own, so that no test can come to need it unseen. The stamp holds
# "yes" or the reason it could not be had; 'make clean' tries again.
.venv-parity/.made: pyproject.toml
	$(PYTHON) -m venv .venv-parity
	@if $(PARITY)/pip install --quiet --disable-pip-version-check --editable '.[dev,parity]'; \
		then echo yes > $@; else echo no > $@; fi

demo: .venv/.package
	$(BIN)/flambeau demo $(DEMO)

test: .venv/.dev
	$(BIN)/python -m pytest -q $(WORKERS) --ignore=tests/parity $(PYTEST)

test-learned: .venv/.dev
	$(BIN)/python -m pytest -q $(WORKERS) -p tests._core.engine.learned_at_once tests/_core/ops tests/_core/autograd tests/nn $(PYTEST)

test-shuffled: .venv/.dev
	$(if $(SHUFFLE),SHUFFLE=$(SHUFFLE) )$(BIN)/python -m pytest -q $(WORKERS) -p tests.shuffled --ignore=tests/parity $(PYTEST)

# The tests of second derivatives read the list of all formulas when they are collected, so they run by themselves.
test-forward: .venv/.dev
	$(BIN)/python -m pytest -q $(WORKERS) -p tests.autograd.forward_checked tests/_core/ops tests/autograd tests/nn -k "grad or deriv or differ" \
		--ignore=tests/_core/ops/test_second_derivatives.py --ignore=tests/nn/functional/test_second_derivatives.py $(PYTEST)
	$(BIN)/python -m pytest -q $(WORKERS) -p tests.autograd.forward_checked tests/_core/ops/test_second_derivatives.py \
		tests/nn/functional/test_second_derivatives.py $(PYTEST)

quick: .venv/.dev
	@$(BIN)/python tools/quick.py --jobs $(JOBS) $(QUICK)

# All of it runs, even after a failure.
check: .venv/.dev
	@failed=; \
	echo 'ruff check'; $(BIN)/ruff check --output-format concise . || failed="$$failed ruff"; \
	echo 'mypy'; $(BIN)/mypy || failed="$$failed mypy"; \
	$(BIN)/python tools/import_order.py || failed="$$failed import-order"; \
	$(BIN)/python tools/stubs.py --check || failed="$$failed stubs"; \
	$(BIN)/python tools/names.py --check || failed="$$failed names"; \
	$(BIN)/python tools/reference.py --check || failed="$$failed reference"; \
	test -z "$$failed" || { echo "check: failed:$$failed"; exit 1; }

generated: .venv/.dev
	$(BIN)/python tools/stubs.py
	$(BIN)/python tools/names.py > /dev/null
	$(BIN)/python tools/reference.py

parity: .venv-parity/.made
	@if [ "$$(cat .venv-parity/.made)" = yes ]; then \
		$(PARITY)/python -m pytest -q $(WORKERS) tests/parity $(PYTEST); \
	else echo "parity: skipped, because PyTorch 2.13.0 could not be installed here"; fi

# The instrument lies beside the checkout; where it is absent this says so. The answers to a fixed part of it are kept here, so that no
# PyTorch is needed; the page asks all of it, by answers that PyTorch makes once.
conformance: .venv/.dev
	$(BIN)/python tools/conformance.py --check

libraries: .venv/.dev
	$(BIN)/python tools/libraries $(LIBRARIES)

conformance-page: .venv-parity/.made
	$(PARITY)/python tools/conformance.py --write

# The table of names, by what the package says now and the names of the installed PyTorch.
names: .venv-parity/.made
	$(PARITY)/python tools/names.py --torch $(NAMES)

.venv/.docs: .venv/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check '.[docs]'
	@touch $@

# It fails on a broken link (mkdocs.yml is strict; with --quiet mkdocs would not count its warnings), on an example that does not run and on an environment
# variable that nobody described. TESTS_LATER leaves out the tests that `make test` has too, where that follows.
docs: .venv/.docs
	$(BIN)/python tools/reference.py --check
	$(if $(TESTS_LATER),,$(BIN)/python -m pytest -q $(WORKERS) tests/test_docs_examples.py tests/test_guide.py tests/test_examples.py tests/test_notebooks.py tests/tools/test_reference.py)
	$(BIN)/python tools/api_pages.py
	$(BIN)/mkdocs build
	$(BIN)/python -m pytest -q tests/tools/test_site.py
	@echo "the pages are in build/site: open build/site/index.html"

# The instruments lie beside the checkout; where they are absent this says so.
# Hostile calls that nobody made before, GUARD of each device, between pages that nobody may touch; then the tests of operations there.
GUARD ?= 2000
guard: .venv/.dev
	$(BIN)/python -m tools.fuzz --only guard --fresh $(GUARD)

test-guard: .venv/.dev
	$(BIN)/python -m pytest -q $(WORKERS) -p tests._core.runtime.guard_pages tests/_core/ops tests/nn $(PYTEST)
	$(BIN)/python -m pytest -q $(WORKERS) -p tests._core.runtime.guard_pages -p tests._core.engine.learned_at_once tests/_core/ops tests/_core/autograd tests/nn $(PYTEST)

fuzz: .venv-parity/.made
	@if [ "$$(cat .venv-parity/.made)" = yes ]; then $(PARITY)/python -m tools.fuzz $(FUZZ); \
	else echo "fuzz: skipped, because PyTorch 2.13.0 could not be installed here"; fi

RACES ?=
races: .venv/.dev
	$(BIN)/python tools/races.py $(RACES)

test-slurm: .venv/.dev
	@sh tools/slurm.sh $(CURDIR)/$(BIN)/python

FAILURES ?=
failures: .venv/.dev
	$(BIN)/python tools/failures.py $(FAILURES)

MUTANTS ?=
mutants: .venv/.dev
	$(BIN)/python tools/mutants.py $(MUTANTS)

ACCURACY ?=
accuracy: .venv-parity/.made
	@if [ "$$(cat .venv-parity/.made)" = yes ]; then $(PARITY)/python tools/accuracy.py $(ACCURACY); \
	else echo "accuracy: skipped, because PyTorch 2.13.0 could not be installed here"; fi

# By new seeds, which are printed: `make fuzz FUZZ="--only models --seeds N:M"` runs them again.
FRESH ?= 60
fuzz-fresh: .venv-parity/.made
	@if [ "$$(cat .venv-parity/.made)" = yes ]; then $(PARITY)/python -m tools.fuzz --only programs,models --fresh 1000000 --seconds $(FRESH); \
	else echo "fuzz-fresh: skipped, because PyTorch 2.13.0 could not be installed here"; fi

# jax lies in an environment of its own; without it its lines say so.
.venv-jax/.made:
	@$(PYTHON) -m venv .venv-jax && .venv-jax/bin/pip install --quiet --disable-pip-version-check jax || rm -rf .venv-jax/bin
	@touch $@

bench: .venv-parity/.made .venv-jax/.made
	$(PARITY)/python benchmarks/run.py $(BENCH)

# Two ranks of one thread each, beside PyTorch's gloo.
bench-processes: .venv-parity/.made
	$(PARITY)/python benchmarks/processes/bench_processes.py $(BENCH)

# One process, one thread, a few minutes. For a part of it: BENCH="--only softmax --compare old.json", BENCH="--profile std".
bench-ops: .venv-parity/.made
	$(PARITY)/python benchmarks/ops/bench_ops.py $(BENCH)

.venv/.cuda: .venv/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[cuda-dnn]'
	@touch $@

# The same device tests without a GPU: through the NVIDIA driver, on fake libraries, their work queued until something waits for it and then
# in random bits.
test-fake-gpu: .venv/.dev
	@if ! command -v g++ > /dev/null; then echo "test-fake-gpu: skipped, because there is no g++ here"; else \
		for order in lazy random; do \
			FAKE_ORDER=$$order $(BIN)/python -m pytest -q $(WORKERS) -m gpu -p tests._core.drivers.nvidia.fake_gpu $(PYTEST) || exit 1; done; fi

# All of NVIDIA's libraries lie in an environment of their own: they are large.
.venv-libraries/.made: pyproject.toml
	$(PYTHON) -m venv .venv-libraries
	.venv-libraries/bin/pip install --quiet --disable-pip-version-check --editable '.[dev,cuda-dnn,cuda-math]' 'nvidia-cuda-crt>=13.0,<14'
	@touch $@

check-libraries: .venv-libraries/.made
	.venv-libraries/bin/python -m pytest -q -rs $(addprefix tests/_core/drivers/nvidia/,test_real_libraries.py test_libraries.py test_cudnn.py test_nvidia.py) \
		-k 'real' $(PYTEST)

check-cudnn: .venv-libraries/.made
	.venv-libraries/bin/python -m pytest -q -rs tests/_core/drivers/nvidia/test_cudnn_real.py $(PYTEST)

# GPU_PYTHON: a Python that has all that is needed, for machines that cannot install anything; nothing is made then.
GPU_PYTHON ?=

# Worker processes, since after some faults a process can use its GPU no more: tests/_core/drivers/nvidia/hardware.py, whose options HARDWARE are.
HARDWARE ?=
test-gpu: $(if $(GPU_PYTHON),,.venv/.cuda)
	$(or $(GPU_PYTHON),$(BIN)/python) -m tests._core.drivers.nvidia.hardware $(HARDWARE) -- $(PYTEST)

# The same without make: python -m tests._core.drivers.nvidia.first_run. FIRST="--fake --steps" tries the small steps on the tests' fake driver.
FIRST ?=
gpu-first gpu-again: $(if $(GPU_PYTHON),,.venv/.cuda)
	$(or $(GPU_PYTHON),$(BIN)/python) -m tests._core.drivers.nvidia.first_run $(if $(filter gpu-again,$@),--again) $(FIRST)

# PyTorch with CUDA in an environment of its own; where the machine's own Python has one (BENCH_TORCH), that is used.
BENCH_TORCH ?=
.venv-bench-gpu/.made: pyproject.toml
	$(PYTHON) -m venv $(if $(BENCH_TORCH),--system-site-packages) .venv-bench-gpu
	.venv-bench-gpu/bin/pip install --quiet --disable-pip-version-check --editable '.[cuda-dnn]' $(if $(BENCH_TORCH),,torch)
	@touch $@

bench-gpu: $(if $(GPU_PYTHON),,.venv-bench-gpu/.made)
	$(or $(GPU_PYTHON),.venv-bench-gpu/bin/python) benchmarks/gpu/bench_gpu.py --table build/bench-gpu.md $(BENCH)

host-cost: .venv/.dev
	$(BIN)/python benchmarks/gpu/host_cost.py $(BENCH)

# The disassembler is a wheel of its own. REPORT="--sites" says more, REPORT="--write" writes the bounds anew.
REPORT ?= --check
.venv/.report: .venv/.dev
	@$(BIN)/pip install --quiet --disable-pip-version-check 'nvidia-cuda-nvdisasm>=13,<14' && touch $@ || \
		echo 'kernel-report: nvidia-cuda-nvdisasm could not be installed; instructions are not counted'

kernel-report: .venv/.report
	$(BIN)/python benchmarks/gpu/kernel_report.py $(REPORT)

CALIBRATE ?=
calibrate: $(if $(GPU_PYTHON),,.venv/.cuda)
	$(or $(GPU_PYTHON),$(BIN)/python) -m flambeau.simulated.calibrate $(CALIBRATE)

step-count: .venv/.dev
	$(BIN)/python benchmarks/gpu/step_count.py $(BENCH)

.venv-dist/.made:
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/pip install --quiet --disable-pip-version-check build twine
	@touch $@

# The sdist first, and the wheel from it, as `build` does: so the sdist is enough to make one.
dist-check: .venv-dist/.made
	rm -rf build/dist && mkdir -p build
	.venv-dist/bin/python -m build --outdir build/dist > build/dist.log || { cat build/dist.log; exit 1; }
	.venv-dist/bin/twine check --strict build/dist/*
	.venv-dist/bin/python tools/dist_check.py build/dist .venv-dist/clean

# The processor is a program that the package fetches when it is first used.
perfetto: .venv/.dev
	@if $(BIN)/pip install --quiet --disable-pip-version-check perfetto && $(BIN)/python -c 'from perfetto.trace_processor import TraceProcessor; \
		TraceProcessor().close()'; then $(BIN)/python -m pytest -q -rs tests/trace/test_perfetto.py; \
	else echo "perfetto: skipped, because its trace processor could not be had here"; fi

sizes: .venv/.made
	$(BIN)/python benchmarks/extras.py $(EXTRAS)

fix: .venv/.dev
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .venv-parity .venv-jax .venv-bench-gpu .venv-libraries .venv-dist build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
