# make demo   train Fashion-MNIST on every device of this machine and show what happened
# make test   format, lint, types, layers and the tests of the tool (make test-slow: a few more, of half a minute and more)
# make test-course   the tests of the course
# make course prove the course: every starter fails, every solution passes, every wrong answer is rejected with its message
# make bench  the side-by-side benchmarks (long; each states its cost)
#
# The first call of each makes .venv and installs into it; later calls skip that until pyproject.toml changes.

# The first Python that is new enough, unless one is given: make demo PYTHON=/path/to/python
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
READY := .venv/.ready
READY_BENCH := .venv/.ready-bench
# One more than there are cores: tests that start jobs wait a good part of their time.
# nproc counts OMP_NUM_THREADS where that is set, so it is taken away.
JOBS ?= $(shell n=$$(env -u OMP_NUM_THREADS nproc 2>/dev/null || echo 2); echo $$((n + 1)))
# One thread a process: tests and benchmarks run several processes on few cores.
export OMP_NUM_THREADS := 1

.PHONY: demo course course-quick course-soak test test-course lint test-dist test-parallel test-serial test-slow test-gpu bench bench-throughput bench-accuracy bench-interruptions bench-stops \
	zoo zoo-quick zoo-parity zoo-pairs bench-observer bench-allocator bench-start-up bench-against bench-regimes bench-ladder bench-minima bench-landscape bench-noise \
	bench-plan-speed bench-curves bench-plan clean

demo: $(READY)
	@$(BIN)/paceline train fashion-mnist --epochs 3

PYTEST := $(BIN)/pytest -q
# Side by side first, then what starts many processes or measures time, alone.
BESIDE := -n $(JOBS) --dist worksteal -m "not serial and not gpu and not slow"
ALONE := -m "serial and not gpu and not slow" --durations=10

test: lint test-parallel test-serial

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-parallel: $(READY)
	$(PYTEST) $(BESIDE) tests

test-serial: $(READY)
	$(PYTEST) $(ALONE) tests

test-course: $(READY)
	$(PYTEST) $(BESIDE) course/tests
	$(PYTEST) $(ALONE) course/tests

test-slow: $(READY)
	$(PYTEST) -m slow --durations=10 tests course/tests

test-gpu: $(READY)
	$(PYTEST) -m gpu tests

# Both wheels and both source distributions, built and tried in a clean environment (several minutes: it installs torch).
test-dist: $(READY)
	$(BIN)/python tests/distributions.py

# Faulty and correct scripts under observation: what is found, what is named, and false alarms (about five minutes).
zoo: $(READY)
	$(BIN)/python -m tests.zoo.run --page docs/zoo.md

zoo-quick: $(READY)
	$(BIN)/python -m tests.zoo.run --quick

# The same scripts under paceline verify (three quarters of an hour); goes on where it was stopped.
zoo-parity: $(READY)
	$(BIN)/python -m tests.zoo.parity --record zoo-parity.jsonl

# Scripts before and after they were made distributed, right and wrong, under paceline verify --before (a quarter of an
# hour); goes on where it was stopped.
zoo-pairs: $(READY)
	$(BIN)/python -m tests.zoo.pairs_run --record zoo-pairs.jsonl

course: $(READY)
	$(BIN)/python -m course.tests.proof.exercises --notebooks

course-quick: $(READY)
	$(BIN)/python -m course.tests.proof.exercises --quick

# Every answer again and again, a minute for each exercise (an hour): finds verdicts that depend on random numbers.
course-soak: $(READY)
	$(BIN)/python -m course.tests.proof.exercises --soak 60

bench: bench-throughput bench-accuracy bench-interruptions

bench-throughput: $(READY_BENCH)
	$(BIN)/python bench/throughput.py

bench-accuracy: $(READY_BENCH)
	$(BIN)/python bench/time_to_accuracy.py

bench-interruptions: $(READY)
	$(BIN)/python bench/interruptions.py

bench-stops: $(READY)
	$(BIN)/python bench/interruptions.py --stops 300

# BASE=REVISION: is this checkout slower than that one?
bench-against: $(READY)
	$(BIN)/python bench/against_revision.py $(BASE)

# BASE=REVISION: also plan batch, beside that of the revision
bench-start-up: $(READY)
	$(BIN)/python bench/start_up.py --images $(if $(BASE),--plan $(BASE))

bench-observer: $(READY)
	$(BIN)/python bench/observer.py

bench-allocator: $(READY)
	$(BIN)/python bench/allocator.py

# Studies: a record a cell, so each goes on where it was stopped. STUDY=--dry-run shows the cells and what they cost.
# The page shows what there is, also of a study that was stopped; a dry run leaves it alone.
define study
@code=0; for part in $(1); do \
	$(BIN)/python -m bench.studies.$$(echo $$part | tr : ' ') $(STUDY) || { code=$$?; break; }; done; \
	case "$(STUDY)" in *--dry-run*) ;; *) $(BIN)/python -m bench.studies.report ;; esac; exit $$code
endef

bench-regimes: $(READY)
	$(call study,regimes)

bench-ladder: $(READY)
	$(call study,ladder:search ladder:confirm)

bench-minima: $(READY)
	$(call study,minima)

bench-landscape: $(READY)
	$(BIN)/python bench/landscape.py

bench-noise: $(READY)
	$(BIN)/python bench/noise_scale.py

bench-plan-speed: $(READY)
	$(BIN)/python bench/plan_speed.py measure
	$(BIN)/python bench/plan_speed.py judge

bench-curves: $(READY)
	$(BIN)/python bench/learning_curves.py

bench-plan: $(READY)
	$(BIN)/python bench/plan_fashion.py

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(READY): pyproject.toml course/pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer was found"; \
		echo "  next: install one, or name it: make PYTHON=/path/to/python"; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "error: $(PYTHON) cannot make virtual environments"; \
		echo "  next: install its venv package (Debian: apt install python3-venv)"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (torch is big: several minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' --editable ./course
	@touch $@

$(READY_BENCH): $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]' --editable ./course
	@touch $@
