# gpureduce: builds, tests and measures. `make help` lists the targets.
#
# Python work happens in .venv, which stamp files keep up to date: a second call does only what
# changed. C work happens in build/, one folder for each way of compiling.

SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
PREFIX ?= /usr/local
DESTDIR ?=
CC ?= cc
CXX ?= c++
AR ?= ar
PYTEST_FLAGS ?= -q
# Processes that share the tests of `make test`
PYTEST_WORKERS ?= $(JOBS)
BENCH_FLAGS ?=
LAB_FLAGS ?=
# The way of compiling (below) whose objects the C tests and the library are made of. The loops take
# long: who also builds the package and lints compiles them once, not three times, by
# C_VARIANT=package.
C_VARIANT ?= release
# make V=1 shows compiler lines
Q := $(if $(V),,@)

MAKEFLAGS += --no-builtin-rules
JOBS := $(shell nproc 2>/dev/null || echo 2)
ifeq ($(filter -j%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(JOBS)
endif
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# Matplotlib lists a machine's fonts once. One process does that when it is installed, not several
# at once in tests, where its messages would be part of a notebook's output. The list is kept in the
# venv, apart from those that other versions of Matplotlib keep in the home folder.
export MPLCONFIGDIR := $(abspath $(VENV))/matplotlib

# The one place the version comes from is pyproject.toml.
VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)
SOVERSION := $(firstword $(subst ., ,$(VERSION)))

PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
STAMPS := $(VENV)/stamps

# Bits are equal everywhere: a product and a sum are two roundings, also where an instruction set
# has one instruction for both, and additions are not reordered, also where CC has other defaults.
# Exact sums depend on it. Roots set no errno, which no code reads and vectors cannot set.
C_FLAGS := -std=gnu11 -ffp-contract=off -fno-fast-math -fno-math-errno -fvisibility=hidden -pthread
C_OPTIMIZE := -O3 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
# Tests and fakes are compiled once and run once, for which optimizing more takes longer than it
# saves; ranges of values are for warnings of what lies outside an array.
TEST_OPTIMIZE := -O1 -ftree-vrp -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
# Callers may have small stacks (GPR_STACK_BYTES in gpureduce.h).
C_WARNINGS := -Wall -Wextra -Wframe-larger-than=8192 -Werror
# Our own headers are named from csrc ("lib/rules/rules.h"); the other folders are for the
# assembler, which embeds their files.
C_INCLUDES := -iquote csrc -Icsrc/include -Icsrc/registry -Icsrc/shared \
              $(patsubst %/,-I%,$(wildcard csrc/kernels/*/))
C_DEFINES := -DGPR_VERSION='"$(VERSION)"'
C_LIBS := -pthread -ldl -lm

# The loops take longest to compile: first come, first started.
LIB_SOURCES := $(sort $(wildcard csrc/cpu/loops_*.c)) \
               $(filter-out csrc/cpu/loops_%,$(sort $(wildcard csrc/cpu/*.c))) \
               $(sort $(wildcard csrc/lib/*/*.c csrc/dispatch/*.c))
EMBEDDED := $(wildcard csrc/kernels/*/* csrc/shared/* csrc/registry/*)
C_TESTS := $(sort $(patsubst tests/c/%.c,%,$(shell find tests/c -name 'test_*.c')))
# The kernels' folds, compiled for the CPU: C++ that one test links; without a C++ compiler there is
# no such test, as there is no emulator. Kernels read words of memory as other types, and are no
# lines of the C core that coverage counts.
HAS_CXX := $(shell command -v $(firstword $(CXX)))
C_TESTS := $(filter-out $(if $(HAS_CXX),,kernels/test_folds),$(C_TESTS))
DEVICE_FOLDS := tests/kernels/device_folds.o
CXX_FLAGS := -std=c++17 -O1 -ffp-contract=off -fno-fast-math -fno-strict-aliasing \
             -fvisibility=hidden
CXX_INCLUDES := $(patsubst %,-isystem %,csrc/kernels/core csrc/shared csrc/registry)
IS_PACKAGE := $(filter package,$(C_VARIANT))
# -UNDEBUG: Python's own flags would switch assert off.
PACKAGE_ENV := $(if $(IS_PACKAGE),GPUREDUCE_OBJECTS=build/package \
               GPUREDUCE_CFLAGS="$(C_WARNINGS) -UNDEBUG -g0")
# Stand-ins for the driver and NVRTC: the boundary that the emulator has too, and kernels by
# contract behind it.
FAKES := fake_cuda fake_nvrtc
fake_cuda_SOURCES := $(wildcard csrc/emu/driver_*.c) tests/fakes/contract.c
fake_nvrtc_SOURCES := tests/fakes/fake_nvrtc.c
# What a test puts between the library and libc, by the linker; the list is in the test.
WRAPPED = $(patsubst %,-Wl$(COMMA)--wrap=%,\
            $(shell awk -F, '/^    WRAP/ { gsub(" ", "", $$2); print $$2 }' $(1)))
COMMA := ,
FAKED_TESTS := $(sort $(patsubst tests/c/%.c,%,\
                 $(shell grep -rl --include='test_*.c' 'fakes\.h' tests/c)))
C_STYLED := $(wildcard csrc/include/*.h csrc/shared/*.h csrc/lib/*/*.[ch] csrc/dispatch/*.[ch] \
                       csrc/cpu/*.[ch] csrc/emu/*.[ch] csrc/python/*.[ch] tests/c/*.h \
                       tests/fakes/*.[ch] examples/*.c tools/*.c) \
            $(shell find tests/c -name '*.c')
GLUE_SOURCES := $(wildcard csrc/python/*.[ch])
EMU_SOURCES := $(wildcard csrc/emu/*.[ch])

.PHONY: nightly emu help build prepare docs lib install test ctest pytest lint format asan tsan \
        coverage bench bench-all demo gpu-check clean distclean

## help: list the targets
help:
	@sed -n 's/^## \([a-z0-9-]*\): \(.*\)$$/  \1|\2/p' $(MAKEFILE_LIST) \
	  | column -t -s '|' 2>/dev/null || sed -n 's/^## \(.*\)$$/  \1/p' $(MAKEFILE_LIST)
	@echo "Variables: PYTHON=$(PYTHON) CC=$(CC) PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)" \
	  "BENCH_FLAGS=$(BENCH_FLAGS) LAB_FLAGS=$(LAB_FLAGS)"

# ---------------------------------------------------------------- Python

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "gpureduce needs Python 3.11 or newer: make PYTHON=python3.x"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install 'setuptools>=77' 'numpy>=2'
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/build: $(STAMPS)/venv $(LIB_SOURCES) $(GLUE_SOURCES) $(EMU_SOURCES) $(EMBEDDED) \
                 $(wildcard csrc/*/*.h csrc/*/*/*.h) pyproject.toml setup.py
	@echo "Compiling the C core; without a cache two minutes on two cores, and nothing is printed:"
	$(PACKAGE_ENV) $(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@

LIST_FONTS = $(PY) -c 'import matplotlib.font_manager'

# Extras are installed by name and not through the package, so that a new C file does not ask for
# them again.
define install_extra
	$(PY) tools/extra.py $(1) | xargs -d '\n' $(PIP) install
	@touch $@
endef

$(STAMPS)/test: pyproject.toml | $(STAMPS)/venv
	$(call install_extra,test)
	$(LIST_FONTS)

$(STAMPS)/dev: pyproject.toml | $(STAMPS)/venv
	$(call install_extra,dev)

$(STAMPS)/coverage: pyproject.toml | $(STAMPS)/venv
	$(call install_extra,coverage)

$(STAMPS)/bench: pyproject.toml | $(STAMPS)/venv
	$(call install_extra,bench)

$(STAMPS)/docs: pyproject.toml | $(STAMPS)/venv
	$(call install_extra,docs)

# One resolution instead of three, and nothing is installed while tests run. Most modules are never
# imported: none is compiled yet.
## prepare: install what test, lint and docs need, at once
prepare: $(STAMPS)/build
	for extra in dev docs; do $(PY) tools/extra.py $$extra; done | sort -u \
	  | xargs -d '\n' $(PIP) install --no-compile
	$(LIST_FONTS)
	@touch $(STAMPS)/test $(STAMPS)/dev $(STAMPS)/docs

# NVRTC is only of use where there is a driver.
$(STAMPS)/demo: pyproject.toml | $(STAMPS)/venv
	if [ -e /dev/nvidiactl ]; then $(PY) tools/extra.py cu13 | xargs -d '\n' $(PIP) install; fi
	@touch $@

# pip runs for one stamp at a time: two would fight over the same folder.
$(STAMPS)/test: | $(STAMPS)/build
$(STAMPS)/dev: | $(STAMPS)/build $(filter $(STAMPS)/test,$(wildcard $(STAMPS)/test))
$(STAMPS)/coverage: | $(STAMPS)/build $(STAMPS)/test
$(STAMPS)/docs: | $(STAMPS)/build $(filter $(STAMPS)/test $(STAMPS)/dev,$(wildcard $(STAMPS)/*))
$(STAMPS)/bench $(STAMPS)/demo: | $(STAMPS)/build

## build: install the package into .venv, in place
build: $(STAMPS)/build

## demo: the main job: 100 million numbers by numpy.sum and by kernels, or what the emulator counts
demo: $(STAMPS)/build $(STAMPS)/demo
	@$(PY) examples/demo.py

## bench: measure kernels beside NumPy by pytest-benchmark: a minute, anywhere
bench: $(STAMPS)/build $(STAMPS)/bench
	$(PY) -m pytest -q benchmarks --benchmark-columns=min,median,iqr,outliers,rounds \
	  --benchmark-sort=min --benchmark-group-by=group --benchmark-max-time=0.2 $(BENCH_FLAGS)

## bench-all: measure everything with all libraries, and write benchmarks/results
bench-all: $(STAMPS)/build $(STAMPS)/bench
	$(PY) benchmarks/run.py $(BENCH_FLAGS)

$(STAMPS)/run-notebooks: pyproject.toml | $(STAMPS)/build
	$(call install_extra,run-notebooks)
	$(LIST_FONTS)

$(STAMPS)/notebook: pyproject.toml | $(STAMPS)/build
	$(call install_extra,notebook)

.PHONY: notebooks lab
# The server's root is the tree: notebooks link to pages of docs/.
## lab: open the notebooks in JupyterLab; LAB_FLAGS=--allow-root as root
lab: $(STAMPS)/build $(STAMPS)/notebook
	$(VENV)/bin/jupyter lab --ServerApp.root_dir='$(CURDIR)' \
	  --LabApp.default_url=/lab/tree/notebooks $(LAB_FLAGS)

## notebooks: run all notebooks and store their output: in place with a GPU, else in build/notebooks
notebooks: $(STAMPS)/build $(STAMPS)/run-notebooks
	$(PY) tools/run_notebooks.py

## test: all tests; those that need a GPU skip where there is none
test: ctest pytest

pytest: $(STAMPS)/build $(STAMPS)/test # beside ctest, which leaves a core idle most of the time
	$(PY) -m pytest $(PYTEST_FLAGS) -n $(PYTEST_WORKERS) --dist loadgroup tests

# `oldest` and `newest` that pip gives for this Python, `dev` of pip's indexes, or a version.
NUMPY ?= oldest newest
.PHONY: test-numpy
## test-numpy: NumPy's contract with other versions: NUMPY="oldest newest", 2.2.0, dev
test-numpy: $(STAMPS)/build $(STAMPS)/test
	$(PY) tools/other_numpy.py $(NUMPY)

## emu: every kernel on the emulator; mutants and mistakes that it must find
emu: $(STAMPS)/build $(STAMPS)/test
	$(PY) -m pytest $(PYTEST_FLAGS) $(EMU_TESTS)

## lint: ruff, mypy, clang-format, clang-tidy, warnings as errors, no circles
lint: ruff mypy clang-format tidy rooms

.PHONY: ruff mypy clang-format rooms
ruff: $(STAMPS)/dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

mypy: $(STAMPS)/build $(STAMPS)/dev
	$(PY) -m mypy

clang-format: $(STAMPS)/dev
	$(VENV)/bin/clang-format --dry-run -Werror $(C_STYLED)
	@! grep -nE '^.{101}' $(C_STYLED) Makefile \
	  $(wildcard csrc/kernels/*/*.cuh csrc/registry/*.def tests/*/*.cpp) \
	  || { echo 'lines of comments and of the Makefile end at 100 columns, too'; exit 1; }

rooms: $(if $(IS_PACKAGE),build/package/objects.a,build/strict/all) # who includes and calls whom
	$(CC) -std=gnu11 $(C_WARNINGS) -Icsrc/include -fsyntax-only examples/sum_file.c
	$(PY) tools/check_rooms.py $(if $(IS_PACKAGE),build/package/csrc,build/strict)

## format: reformat Python and C
format: $(STAMPS)/dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	$(VENV)/bin/clang-format -i $(C_STYLED)

# What the kernels do is kept in build/docs-explained; their programs are cached only where
# GPUREDUCE_CACHE_DIR is set, not in the user's cache. All else is made anew: Sphinx would not see
# that a link has got its target, or that the contents beside a page have changed.
## docs: the documentation site, in build/docs
docs: $(STAMPS)/build $(STAMPS)/docs
	rm -rf build/docs
	$(if $(GPUREDUCE_CACHE_DIR),,GPUREDUCE_CACHE_BYTES=0) $(PY) docs/site/stage.py \
	  --kept build/docs-explained build/docs-source
	$(PY) -m sphinx --quiet --jobs $(JOBS) --fresh-env --write-all --fail-on-warning \
	  --keep-going -c docs/site -d build/docs-doctrees build/docs-source build/docs
	@echo build/docs/index.html

# INSTALLED=1 takes the package, pytest and its plugins as PYTHON has them: machines with a GPU may
# reach no package index.
INSTALLED ?=
GPU_PY := $(if $(INSTALLED),$(PYTHON),$(PY))
# Files without a GPU test that import what only Jupyter brings.
OF_JUPYTER := tests/cli/test_magics.py tests/docs/test_notebooks.py
SANITIZERS ?= memcheck racecheck initcheck synccheck
# Parts of what each tool runs, one process each: GPU_PARTS=4 on a machine with cores for them. The
# parts are shared out among the GPUs.
GPU_PARTS ?= 1
# "slow" is the part for GPUs that are slow at float64: they sum exactly by programs of their own,
# which any GPU runs.
SANITIZED := $(foreach tool,$(SANITIZERS),\
               $(foreach part,$(shell seq $(GPU_PARTS)) slow,sanitize/$(tool)/$(part)))

.PHONY: installed gpu-tests $(SANITIZED)
installed:
	@$(PYTHON) -c 'import gpureduce as gr; found = gr.__version__; \
	  assert found == "$(VERSION)", f"gpureduce $(VERSION) is needed, {found} is installed"'
	@$(PYTHON) -c 'import hypothesis, pytest, pytest_timeout'

GPU_READY := $(if $(INSTALLED),installed,$(STAMPS)/build $(STAMPS)/test)

## gpu-check: GPU tests, and all kernels under four compute-sanitizer tools; offline: INSTALLED=1
gpu-check: gpu-tests $(SANITIZED)

gpu-tests: $(GPU_READY)
	$(GPU_PY) -m pytest $(PYTEST_FLAGS) -m gpu tests \
	  $(if $(INSTALLED),$(OF_JUPYTER:%=--ignore=%))

$(SANITIZED): sanitize/%: $(GPU_READY)
	@part=$(*F) gpus=$$(nvidia-smi -L 2>/dev/null | wc -l); \
	if [ $$part = slow ]; then \
	  export GPUREDUCE_SLOW_FLOAT64=1 words="--kernel exact"; \
	else \
	  [ $$gpus -lt 2 ] || export CUDA_VISIBLE_DEVICES=$$((part % gpus)); \
	  words="--shard $$((part - 1))/$(GPU_PARTS)"; \
	fi; \
	compute-sanitizer --tool $(*D) --error-exitcode 1 \
	  $(GPU_PY) tools/run_every_kernel.py $$words

# ---------------------------------------------------------------- C, in several ways

# objects(name, flags): objects of the library, under build/name.
define objects
$(1)_OBJECTS := $$(patsubst csrc/%.c,build/$(1)/%.o,$$(LIB_SOURCES))

build/$(1)/%.o: csrc/%.c Makefile pyproject.toml
	@mkdir -p $$(@D) && echo "cc $$@"
	$$(Q)$$(CC) $$(C_FLAGS) $(2) $$(C_INCLUDES) $$(C_DEFINES) -fPIC -MMD -MP -c $$< -o $$@

build/$(1)/lib/driver/sources.o: $$(EMBEDDED)

-include $$($(1)_OBJECTS:.o=.d)
endef

# variant(name, flags): what is made of these objects: the fakes and the C tests. Tests link the
# objects, so that they reach what the shared library hides.
define variant
build/$(1)/objects.a: $$($(1)_OBJECTS)
	@rm -f $$@
	$$(Q)$$(AR) rcs $$@ $$^

build/$(1)/fakes/fake_cuda.so: $$(fake_cuda_SOURCES) $$(wildcard csrc/emu/*.h)
build/$(1)/fakes/fake_nvrtc.so: $$(fake_nvrtc_SOURCES) csrc/emu/nvrtc_abi.h csrc/emu/steering.h
build/$(1)/fakes/%.so: tests/fakes/fakes.h build/$(1)/objects.a
	@mkdir -p $$(@D) && echo "cc $$@"
	$$(Q)$$(CC) $$(C_FLAGS) $(2) $$(C_INCLUDES) $$(C_DEFINES) -Wno-frame-larger-than -fPIC -shared \
	  $$(filter %.c,$$^) build/$(1)/objects.a $$(C_LIBS) -o $$@

build/$(1)/tests/%: tests/c/%.c $$(wildcard tests/c/*.h tests/fakes/*.h) build/$(1)/objects.a
	@mkdir -p $$(@D) && echo "cc $$@"
	$$(Q)$$(CC) $$(C_FLAGS) $(2) $$(C_INCLUDES) $$(C_DEFINES) -Wno-frame-larger-than \
	  -Itests -Itests/c $$< $$(filter %.o,$$^) build/$(1)/objects.a $$(C_LIBS) $$(call WRAPPED,$$<) \
	  -o $$@

build/$(1)/tests/kernels/test_folds: build/$(1)/$(DEVICE_FOLDS)
build/$(1)/$(DEVICE_FOLDS): tests/c/kernels/device_folds.cpp tests/c/kernels/device_folds.h \
                            $$(wildcard csrc/kernels/core/*) $$(EMBEDDED)
	@mkdir -p $$(@D) && echo "c++ $$@"
	$$(Q)$$(CXX) $$(filter-out --coverage,$(2)) $$(CXX_FLAGS) $$(CXX_INCLUDES) -c $$< -o $$@
endef

# run_c_tests(variant, environment, the fakes' variant if it is another): each program in turn, with
# a cache folder of its own and the fakes where it asks for them.
define run_c_tests
	@for test in $(C_TESTS); do \
	  echo "== $$test"; \
	  cache=$$(mktemp -d); fakes=; \
	  case " $(FAKED_TESTS) " in *" $$test "*) \
	    from=$(CURDIR)/build/$(or $(3),$(1))/fakes; \
	    fakes="GPUREDUCE_LIBCUDA=$$from/fake_cuda.so GPUREDUCE_LIBNVRTC=$$from/fake_nvrtc.so";; \
	  esac; \
	  env GPUREDUCE_CACHE_DIR=$$cache $$fakes $(2) build/$(1)/tests/$$test; status=$$?; \
	  rm -rf $$cache; \
	  [ $$status = 0 ] || { echo "$$test failed ($$status)"; exit 1; }; \
	done
endef

# -UNDEBUG: Python's own flags would switch assert off. Sanitizers do not look into checked copies,
# nor for variables that are read before they are set: a pattern in these fails tests.
SANITIZE_ADDRESS := -O1 -g -UNDEBUG -U_FORTIFY_SOURCE -fno-omit-frame-pointer \
                    -ftrivial-auto-var-init=pattern \
                    -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all
SANITIZE_THREAD := -O1 -g -U_FORTIFY_SOURCE -fsanitize=thread
THREAD_CHECKS := halt_on_error=1:atexit_sleep_ms=0:die_after_fork=0:allocator_may_return_null=1
# Threads count in the same counters. Not in the loops over elements and the tests themselves, which
# would take minutes: a count that is lost there makes no line look unreached.
COVERAGE := --coverage -DGPR_COVERAGE
build/coverage/%: private C_FLAGS += -g -fprofile-update=atomic
build/coverage/cpu/loops_% build/coverage/tests/%: private C_FLAGS += -O2 -fprofile-update=single
# gcov's own fork forgets what the library does in a child before fork returns there.
build/coverage/tests/%: private C_FLAGS += -fno-builtin-fork

$(eval $(call objects,release,$(C_OPTIMIZE)))
$(eval $(call variant,release,$(TEST_OPTIMIZE)))
$(eval $(call objects,strict,$(C_WARNINGS) $(C_OPTIMIZE)))
$(eval $(call variant,strict,$(C_WARNINGS) $(TEST_OPTIMIZE)))
$(eval $(call objects,asan,$(SANITIZE_ADDRESS)))
$(eval $(call variant,asan,$(SANITIZE_ADDRESS)))
$(eval $(call objects,tsan,$(SANITIZE_THREAD)))
$(eval $(call variant,tsan,$(SANITIZE_THREAD)))
$(eval $(call objects,coverage,$(COVERAGE)))
$(eval $(call variant,coverage,$(COVERAGE)))
# The processor's compiler by its prefix, and what runs its programs.
AARCH64 ?= aarch64-linux-gnu-
AARCH64_RUN ?= qemu-aarch64
build/aarch64/%: private CC := $(AARCH64)gcc
build/aarch64/%: private CXX := $(AARCH64)g++
build/aarch64/%: private AR := $(AARCH64)ar
build/aarch64/tests/%: private C_LIBS += -static
$(eval $(call objects,aarch64,$(C_OPTIMIZE)))
$(eval $(call variant,aarch64,$(C_OPTIMIZE)))
# Those of the package itself, which setup.py leaves there, compiled with warnings as errors.
package_OBJECTS := $(LIB_SOURCES:%.c=build/package/%.o)
$(eval $(call variant,package,$(C_WARNINGS) $(TEST_OPTIMIZE)))
$(package_OBJECTS): $(STAMPS)/build
	@[ -e $@ ] || { echo "the package was built without C_VARIANT=package: remove $<"; exit 1; }

## ctest: C unit tests
ctest: $(C_TESTS:%=build/$(C_VARIANT)/tests/%) $(FAKES:%=build/$(C_VARIANT)/fakes/%.so)
	$(call run_c_tests,$(C_VARIANT),)

# python_core(variant, flags): the package with a core compiled in that way, beside the one in
# .venv. All of it is compiled again when anything changed: an object that was left from other flags
# would not be noticed.
define python_core
build/$(1)/python/stamp: Makefile $(STAMPS)/build $(STAMPS)/test
	GPUREDUCE_CFLAGS="$(2)" $(PY) setup.py --quiet build --force \
	  --build-base build/$(1)/setuptools --build-lib build/$(1)/python
	@touch $$@
endef

$(eval $(call python_core,asan,$(SANITIZE_ADDRESS)))
$(eval $(call python_core,coverage,$(COVERAGE) -O0 -UNDEBUG -fprofile-update=atomic))

# run_python_tests(variant, environment): the tests that reach C without a GPU, over that core and
# no other. Random tests are shorter than in `make test`: a line, an overflow or a stray access
# takes no thousand examples.
EXAMPLES := $(or $(GPR_TEST_EXAMPLES),40)
EMU_TESTS := $(sort $(wildcard tests/kernels/test_emulator_*.py))
CORE_TESTS := $(patsubst %,tests/api/test_%.py,contract differential options errors hostpath cache \
                core import products norms logsumexp narrow_columns left_out_rows several \
                broadcasts count_few short_rows out_of_range) \
              tests/exact/test_exact_rows.py \
              $(patsubst %,tests/interop/test_%.py,interop extents random_device_calls)
# Tests that reach more lines of the glue, and little of the arithmetic: for coverage alone.
GLUE_TESTS := $(patsubst %,tests/api/test_%.py,plan_costs warm fields one_call one_pass) \
              $(patsubst %,tests/exact/test_%.py,exact exact_products) \
              $(patsubst %,tests/yours/test_%.py,operator operator_on_gpu with_nvrtc) \
              tests/cli/test_cli.py tests/tune/test_tune.py
define run_python_tests
	$(2) PYTHONPATH=$(CURDIR)/build/$(1)/python $(PY) -c 'import sys, gpureduce; \
	  sys.exit(not gpureduce._core.__file__.startswith("$(CURDIR)/build/$(1)/python/"))'
	$(2) PYTHONPATH=$(CURDIR)/build/$(1)/python GPR_TEST_EXAMPLES=$(EXAMPLES) \
	  $(PY) -m pytest $(PYTEST_FLAGS) -n $(PYTEST_WORKERS) --dist loadgroup $(CORE_TESTS) $(3)
endef

# Leaks are looked for in the C tests alone: an interpreter that ends leaves more behind than it
# frees.
# Reductions of 2^40 elements in windows that overlap ask for gigabytes of partial results, of which
# they touch few. The sanitizer would write a shadow for each byte: it refuses them, which the tests
# allow.
C_ASAN_OPTIONS := detect_leaks=1:allocator_may_return_null=1:max_allocation_size_mb=2048
## asan: C and Python tests under ASan and UBSan
asan: $(C_TESTS:%=build/asan/tests/%) $(FAKES:%=build/asan/fakes/%.so) build/asan/python/stamp
	$(call run_c_tests,asan,ASAN_OPTIONS=$(C_ASAN_OPTIONS))
	$(call run_python_tests,asan,\
	  LD_PRELOAD="$(foreach name,asan ubsan,$$($(CC) -print-file-name=lib$(name).so))" \
	  ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0:allocator_may_return_null=1 \
	  GPR_TEST_PATIENCE=10 GPR_EMU_EVERY=20,tests/kernels/test_emulator_matrix.py)

## tsan: C tests under TSan
tsan: $(C_TESTS:%=build/tsan/tests/%) $(FAKES:%=build/tsan/fakes/%.so)
	$(call run_c_tests,tsan,TSAN_OPTIONS=$(THREAD_CHECKS) setarch -R)

# The CPU backend's loops with NEON. On other machines an emulator runs them; on aarch64 itself:
# AARCH64= AARCH64_RUN=. Programs are static, so that no other system's libraries are needed.
AARCH64_TESTS := cpu/test_cpu cpu/test_exact_pairs kernels/test_folds
.PHONY: test-aarch64
## test-aarch64: C tests of the CPU backend on aarch64: AARCH64=aarch64-linux-gnu- and qemu-aarch64
test-aarch64: $(AARCH64_TESTS:%=build/aarch64/tests/%)
	@for test in $(AARCH64_TESTS); do \
	  echo "== $$test"; \
	  $(AARCH64_RUN) build/aarch64/tests/$$test || { echo "$$test failed"; exit 1; }; \
	done

# The fakes carry parts of the library: theirs are not counted. A line of the hash runs more often
# than 2^32 times, which gcovr takes for a fault of gcov. And gcov derives counts from each other: a
# process that ends while its threads count leaves some that do not agree, and a branch that was
# taken -1 times. gcovr says so and counts 0.
## coverage: lines of the C core that the tests reach; HTML in build/coverage/html
coverage: $(C_TESTS:%=build/coverage/tests/%) $(FAKES:%=build/release/fakes/%.so) \
          build/coverage/python/stamp $(STAMPS)/coverage
	@find build/coverage -name '*.gcda' -delete
	$(call run_c_tests,coverage,,release)
	$(call run_python_tests,coverage,,$(GLUE_TESTS))
	@mkdir -p build/coverage/html
	$(VENV)/bin/gcovr --root . --gcov-executable "$$($(CC) -print-prog-name=gcov)" \
	  --gcov-suspicious-hits-threshold 0 \
	  --gcov-ignore-parse-errors=negative_hits.warn_once_per_file \
	  $(addprefix --filter csrc/,lib/ cpu/ dispatch/ python/) --print-summary --txt - \
	  --json-summary build/coverage/summary.json --html-details build/coverage/html/index.html \
	  build/coverage

# Hours: for a machine that has nothing else to do.
NIGHTLY ?=
## nightly: asan, tsan, coverage, and gpu-check where there is a GPU; writes docs/coverage.md
nightly: $(STAMPS)/build $(STAMPS)/test
	$(PY) tools/nightly.py $(NIGHTLY)

# Asked for once, by the first recipe that needs it: there is a Python by then.
GLUE_FLAGS = $(eval GLUE_FLAGS := $$(shell $$(PY) tools/glue_flags.py))$(GLUE_FLAGS)
# The glue and the emulator too become objects: the rooms are checked by who calls whom.
MODULE_SOURCES := $(filter %.c,$(GLUE_SOURCES) $(EMU_SOURCES))
strict_MODULE_OBJECTS := $(MODULE_SOURCES:csrc/%.c=build/strict/%.o)
# The assembler finds what compiler.c embeds by -I.
build/strict/emu/%.o: private C_INCLUDES += -Icsrc
build/strict/python/%.o: private C_INCLUDES += $(GLUE_FLAGS)
$(strict_MODULE_OBJECTS): | $(STAMPS)/build
-include $(strict_MODULE_OBJECTS:.o=.d)

build/strict/all: $(strict_OBJECTS) $(strict_MODULE_OBJECTS)
	@touch $@

TIDIED := $(LIB_SOURCES) $(MODULE_SOURCES)
.PHONY: tidy $(TIDIED:%=tidy/%)
# The wheel's program itself: the script in front of it starts a Python per file.
OF_CLANG_TIDY = lib/python3*/site-packages/clang_tidy/data/bin/clang-tidy
CLANG_TIDY = $(firstword $(wildcard $(VENV)/$(OF_CLANG_TIDY)) $(VENV)/bin/clang-tidy)
tidy: $(TIDIED:%=tidy/%)
$(TIDIED:%=tidy/%): tidy/%: % $(STAMPS)/dev
	@$(CLANG_TIDY) --quiet --warnings-as-errors='*' $< -- $(C_FLAGS) $(C_INCLUDES) \
	  $(C_DEFINES) $(GLUE_FLAGS) 2>&1 \
	  | { grep -v 'warnings generated\|^Suppressed\|^Use -header-filter' || true; } ; \
	  exit $${PIPESTATUS[0]}

# ---------------------------------------------------------------- the C library

# pc(file, prefix, libdir, includedir)
define write_pc
	sed -e 's|@prefix@|$(2)|' -e 's|@libdir@|$(strip $(3))|' -e 's|@includedir@|$(4)|' \
	  -e 's|@version@|$(VERSION)|' gpureduce.pc.in > $(1)
endef

# It is there at once as a whole: another make may be installing it.
build/lib/libgpureduce.so.$(VERSION): $($(C_VARIANT)_OBJECTS)
	@mkdir -p $(@D)
	$(CC) -shared -Wl,-soname,libgpureduce.so.$(SOVERSION) $^ $(C_LIBS) -o $@.$$$$ && mv -f $@.$$$$ $@

build/lib/libgpureduce.so: build/lib/libgpureduce.so.$(VERSION)
	ln -sf libgpureduce.so.$(VERSION) build/lib/libgpureduce.so.$(SOVERSION)
	ln -sf libgpureduce.so.$(SOVERSION) $@

# This one is for programs built against the tree; install writes its own.
build/lib/pkgconfig/gpureduce.pc: gpureduce.pc.in pyproject.toml
	@mkdir -p $(@D)
	$(call write_pc,$@,$(CURDIR),$(CURDIR)/build/lib,$(CURDIR)/csrc/include)

$(STAMPS)/wheels: pyproject.toml | $(STAMPS)/build
	$(call install_extra,wheels)

# PYTHONS="python3.12 /opt/python3.13/bin/python3": by default those of PATH and of pyenv.
.PHONY: wheels
## wheels: a wheel per Python and the source distribution, in dist; wheels are installed and tried
wheels: $(STAMPS)/wheels
	$(PY) tools/wheels.py $(PYTHONS)

## lib: build/lib/libgpureduce.so and its pkg-config file
lib: build/lib/libgpureduce.so build/lib/pkgconfig/gpureduce.pc

## install: the C library, header and pkg-config file to DESTDIR/PREFIX
install: lib
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m 644 csrc/include/gpureduce.h $(DESTDIR)$(PREFIX)/include/
	install -m 755 build/lib/libgpureduce.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/
	cp -P build/lib/libgpureduce.so build/lib/libgpureduce.so.$(SOVERSION) $(DESTDIR)$(PREFIX)/lib/
	$(call write_pc,$(DESTDIR)$(PREFIX)/lib/pkgconfig/gpureduce.pc,$(PREFIX),\
	  $(PREFIX)/lib,$(PREFIX)/include)

## clean: remove what was built, .venv excepted
clean:
	rm -rf build dist src/gpureduce.egg-info src/gpureduce/*.so \
	  .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
	rm -f $(STAMPS)/build

## distclean: and .venv
distclean: clean
	rm -rf $(VENV)
