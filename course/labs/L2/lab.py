# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # L2 · Batch size in a real network
#
# Lab 1 was a line. Here the model is a convolutional network with batch norm, and the question is the one that
# decides whether more devices help you: **what does a larger batch buy?** A larger batch makes each step do more work
# at a better rate. But it also makes fewer steps out of an epoch. You will measure both, and find that the best batch
# for *samples a second* is not the best one for *time to an accuracy*.
#
# The images are a part of Fashion-MNIST where this machine has it (`paceline data fetch fashion-mnist` gets it), and
# otherwise shapes that a program draws, of any size and turn, under noise. In both cases training takes seconds, and
# what you will see is the same in kind.

# %%
from paceline_course.notebook import *

show = lab("L2")
show.examples()

# %% [markdown]
# ## How fast is it?
#
# **Throughput** is samples a second. Measuring it has traps. The first steps are slower: memory is allocated, kernels
# are chosen, caches are cold. The last batch of an epoch may be smaller. And a mean of rates is not a rate: it is
# samples in all over seconds in all that counts.

# %% [markdown] exercise="L2.1" part="task"
# ### Exercise L2.1 · A meter
#
# Write a class `Meter(clock, skip=3)`. `clock()` returns the time in seconds, `skip` is the number of steps at the
# beginning that do not count. `step(samples)` is called at the end of each step, with the number of samples in it.
# `rate()` returns samples a second over the steps that count, or `None` as long as none does.
#
# The clock is looked at when `step` is called, and at no other time. A step lasts from one call to the next, so the
# first call only starts the clock: it ends step 1, and nobody knows when that began.
#
# **Done when** it is right for steps of different length and size, whatever `skip` is.


# %% exercise="L2.1" part="starter"
class Meter:
    """Samples a second, without the first steps."""

    def __init__(self, clock, skip=3):
        raise NotImplementedError

    def step(self, samples):
        """A step with so many samples has just ended."""
        raise NotImplementedError

    def rate(self):
        """Samples a second; None before a step counts."""
        raise NotImplementedError


# %% [markdown] exercise="L2.1" part="hint"
# Which moment is the beginning of the first step that counts?

# %% [markdown] exercise="L2.1" part="hint"
# The end of the last step that is skipped is the beginning of the first one that counts. Remember that moment, and
# add up the samples of all steps after it. If `skip` is 0, the first step's end is the earliest moment that you know,
# so the first step cannot count either.

# %% [markdown] exercise="L2.1" part="hint"
# In `step`: count the calls; while `calls <= max(skip, 1)`, set `self.began = clock()` and nothing else; afterwards
# `self.samples += samples` and `self.ended = clock()`.


# %% exercise="L2.1" part="solution"
class Meter:
    """Samples a second, without the first steps."""

    def __init__(self, clock, skip=3):
        self.clock, self.skip = clock, max(skip, 1)
        self.calls = self.samples = 0
        self.began = self.ended = None

    def step(self, samples):
        """A step with so many samples has just ended."""
        self.calls += 1
        now = self.clock()
        if self.calls <= self.skip:
            self.began = now
        else:
            self.samples += samples
            self.ended = now

    def rate(self):
        """Samples a second; None before a step counts."""
        if self.ended is None:
            return None
        return self.samples / (self.ended - self.began)


# %% [markdown] exercise="L2.1" part="explanation"
# On a GPU there is one more trap: calls return before the device has done the work, so a clock on the host measures
# how fast you *ask*. Look at the clock only after the device has been waited for, every some steps.

# %% exercise="L2.1" part="wrong" expects="warm-up-counts"
# the solution, but
# - self.clock, self.skip = clock, max(skip, 1)
# + self.clock, self.skip = clock, 1


# %% exercise="L2.1" part="wrong" expects="mean-of-rates"
class Meter:
    def __init__(self, clock, skip=3):
        self.clock, self.skip = clock, max(skip, 1)
        self.calls, self.rates, self.last = 0, [], None

    def step(self, samples):
        self.calls += 1
        now = self.clock()
        if self.calls > self.skip:
            self.rates.append(samples / (now - self.last))
        self.last = now

    def rate(self):
        return sum(self.rates) / len(self.rates) if self.rates else None


# %% exercise="L2.1" part="wrong" expects="one-step-too-many"
# the solution, but
# - self.began = now
# + self.began, self.samples = now, samples

# %% exercise="L2.1" part="wrong" expects="no-none"
# the solution, but
# - return None
# + return 0.0

# %%
# One process: how many times the samples a second at batch 256 against batch 8?
predict("L2.1", unit="times", batch_256_over_batch_8=...)

# %%
rates = show.throughput(batches=(4, 8, 16, 32, 64, 128, 256, 512))
reveal("L2.1", batch_256_over_batch_8=rates[256] / rates[8])

# %% [markdown]
# The curve rises and then flattens. A step has a fixed part (calling operations, updating weights) that a larger
# batch shares out over more samples; once it is small against the work itself, nothing is left to gain. On a GPU the
# flat part begins at a larger batch, because the device has more to fill.
#
# ## How far did it get?
#
# Throughput alone would say: as large as possible. But what you want is an *accuracy*, and the time to it. So a
# training needs a rule for when it is there. One good evaluation may be luck; two in a row are less likely to be.

# %% [markdown] exercise="L2.2" part="task"
# ### Exercise L2.2 · Are we there?
#
# Write `reached(accuracies, target, times=2)`: given the accuracy after each epoch so far, return the number of
# epochs (1 for the first) after which the target was met for the `times`-th time in a row, or `None` if that has not
# happened. "Met" means at least `target`. An accuracy that is `nan` meets nothing.
#
# **Done when** it is right for every sequence.


# %% exercise="L2.2" part="starter"
def reached(accuracies, target, times=2):
    """The epoch after which the target was met so many times in a row; None if never."""
    raise NotImplementedError


# %% [markdown] exercise="L2.2" part="hint"
# What do you have to remember while you go through the list?

# %% [markdown] exercise="L2.2" part="hint"
# Count how many in a row have met the target; an epoch that has not sets the count back to 0.

# %% [markdown] exercise="L2.2" part="hint"
# `row = row + 1 if accuracy >= target else 0`, and `if row == times: return epoch`, with `enumerate(accuracies,
# start=1)`.


# %% exercise="L2.2" part="solution"
def reached(accuracies, target, times=2):
    """The epoch after which the target was met so many times in a row; None if never."""
    row = 0
    for epoch, accuracy in enumerate(accuracies, start=1):
        row = row + 1 if accuracy >= target else 0
        if row == times:
            return epoch
    return None


# %% [markdown] exercise="L2.2" part="explanation"
# The workshop's assessment asks for the same: a target that is met in two consecutive epochs. Trainings that never
# get there are not missing data. They are **censored**: all you know is that it takes longer than you waited, and a
# comparison that leaves them out flatters the setting that failed most.

# %% exercise="L2.2" part="wrong" expects="not-in-a-row"
# the solution, but
# - row = row + 1 if accuracy >= target else 0
# + row += accuracy >= target


# %% exercise="L2.2" part="wrong" expects="first-time"
def reached(accuracies, target, times=2):
    return next((epoch for epoch, accuracy in enumerate(accuracies, start=1) if accuracy >= target), None)


# %% exercise="L2.2" part="wrong" expects="epoch-number"
# the solution, but
# - for epoch, accuracy in enumerate(accuracies, start=1):
# + for epoch, accuracy in enumerate(accuracies):

# %% exercise="L2.2" part="wrong" expects="at-least"
# the solution, but
# - row = row + 1 if accuracy >= target else 0
# + row = row + 1 if accuracy > target else 0

# %% [markdown]
# ## Many trainings
#
# One training is an anecdote: with another seed it would have taken another time. To compare batch sizes you need
# several seeds of each, and that is enough work to be stopped in the middle. So write each result down as soon as it
# is there, and do not do again what is done.

# %% [markdown] exercise="L2.3" part="task"
# ### Exercise L2.3 · A sweep that can be stopped
#
# Write `sweep(train, batches, seeds, path)`. It calls `train(batch, seed)`, which returns a dictionary of numbers,
# for every pair, and writes one line of JSON for each into the file `path`: the dictionary with `batch` and `seed`
# added. Pairs that stand in the file already are not trained again, and lines that are there stay. The last line may
# be torn, because the program was killed while writing it: that pair is done again.
#
# Go through all batches for the first seed, then for the second, and so on: then a sweep that was stopped has
# something of everything.
#
# **Done when** it survives being stopped at any point, and does no pair twice.

# %% exercise="L2.3" part="starter"
import json


def sweep(train, batches, seeds, path):
    """Train every pair that is not in the file yet, and write each result as it comes."""
    raise NotImplementedError


# %% [markdown] exercise="L2.3" part="hint"
# What do you read before you begin, and when do you write?

# %% [markdown] exercise="L2.3" part="hint"
# Read the lines that are whole (`json.loads` raises `ValueError` for a torn one), and make a set of `(batch, seed)`
# of them. A new line must not be glued to a torn one: rewrite the file with the whole lines first, or begin with a
# newline and skip empty and broken lines when reading.

# %% [markdown] exercise="L2.3" part="hint"
# Open the file anew with mode `"a"` for each result and close it, or call `file.flush()` after each line: what only
# stands in a buffer is lost when the program is killed.

# %% exercise="L2.3" part="solution"
import json
from pathlib import Path


def sweep(train, batches, seeds, path):
    """Train every pair that is not in the file yet, and write each result as it comes."""
    path = Path(path)
    whole = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            whole.append(json.loads(line))
        except ValueError:
            continue
    path.write_text("".join(json.dumps(row) + "\n" for row in whole))
    done = {(row["batch"], row["seed"]) for row in whole}
    for seed in seeds:
        for batch in batches:
            if (batch, seed) not in done:
                row = {**train(batch, seed), "batch": batch, "seed": seed}
                with path.open("a") as file:
                    file.write(json.dumps(row) + "\n")


# %% [markdown] exercise="L2.3" part="explanation"
# A line a result, appended, never rewritten in the middle of a sweep: that is also how every run of `paceline train`
# keeps its events, and why `--resume` works after a kill. The original workshop named its log files after the
# hyperparameters, so that two runs with the same settings overwrote each other; here a repeated pair is simply not
# run again.

# %% exercise="L2.3" part="wrong" expects="done-again"
import json


def sweep(train, batches, seeds, path):
    for seed in seeds:
        for batch in batches:
            row = {**train(batch, seed), "batch": batch, "seed": seed}
            with open(path, "a") as file:
                file.write(json.dumps(row) + "\n")


# %% exercise="L2.3" part="wrong" expects="lost"
import json
from pathlib import Path


def sweep(train, batches, seeds, path):
    path = Path(path)
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    done = {(row["batch"], row["seed"]) for row in rows}
    for seed in seeds:
        for batch in batches:
            if (batch, seed) not in done:
                rows.append({**train(batch, seed), "batch": batch, "seed": seed})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


# %% exercise="L2.3" part="wrong" expects="torn"
# the solution, but
# - try:
# - whole.append(json.loads(line))
# + whole.append(json.loads(line))
# - except ValueError:
# - continue

# %% exercise="L2.3" part="wrong" expects="order"
# the solution, but
# - for seed in seeds:
# + for batch, seed in [(batch, seed) for batch in batches for seed in seeds]:
# - for batch in batches:
# + if True:

# %%
# Of 8, 32, 128, 512: which batch reaches the target soonest?
predict("L2.3", unit="samples", best_batch_for_time=...)

# %%
rows = show.real_sweep(sweep, reached, batches=(8, 32, 128, 512), seeds=(0, 1, 2))
best = show.samples_and_seconds(rows)
reveal("L2.3", best_batch_for_time=best)

# %% [markdown]
# On the left: steps and samples to the target. On the right: seconds. Small batches need the fewest samples, and run
# at the worst rate; large batches run at the best rate and need the most samples, or do not get there at all. The
# seconds are the quotient of both, and have their minimum in between.
#
# ## Three regimes
#
# Over many models and data sets the same picture has been found (Shallue and others, arXiv:1811.03600). For small
# batches, twice the batch means half the steps: **perfect scaling**, where more devices cost nothing in samples. Then
# twice the batch saves less and less: **diminishing returns**. At the end it saves no steps at all: **maximal
# parallelism**. Where the bends are depends on model, data and accuracy. You can read them off your own runs.

# %% [markdown] exercise="L2.4" part="task"
# ### Exercise L2.4 · Which regime?
#
# Write `regimes(rows)`. `rows` is a list of dictionaries with `batch`, `seed` and `steps` (to the target; `None`
# where it was not reached). Take the median of `steps` over seeds for each batch, where `None` counts as infinite.
# For each pair of neighbouring batches, in increasing order, the **exponent** is
#
# $$ e = \frac{\log(s_1 / s_2)}{\log(b_2 / b_1)} $$
#
# 1 where twice the batch halves the steps, 0 where it saves none. Return a list with one word for each pair:
# `"perfect"` for `e >= 0.8`, `"diminishing"` for `0.2 <= e < 0.8`, `"maximal"` below that, and `"not reached"` where
# a median is infinite.
#
# **Done when** it is right for rows in any order, with censored runs.

# %% exercise="L2.4" part="starter"
import math
import statistics


def regimes(rows):
    """One word for each pair of neighbouring batches."""
    raise NotImplementedError


# %% [markdown] exercise="L2.4" part="hint"
# What is the median of 300, 320 and "longer than we waited"? And of 300 and two of the latter?

# %% [markdown] exercise="L2.4" part="hint"
# Replace `None` by `math.inf`: then `statistics.median` does the right thing. Sort the batches as numbers, and go
# through `zip(batches, batches[1:])`.

# %% [markdown] exercise="L2.4" part="hint"
# `e = math.log(steps[b1] / steps[b2]) / math.log(b2 / b1)`, after the case in which one of the two is not finite.

# %% exercise="L2.4" part="solution"
import math
import statistics


def regimes(rows):
    """One word for each pair of neighbouring batches."""
    batches = sorted({row["batch"] for row in rows})
    steps = {
        batch: statistics.median(
            math.inf if row["steps"] is None else row["steps"] for row in rows if row["batch"] == batch
        )
        for batch in batches
    }
    words = []
    for small, large in zip(batches, batches[1:]):
        if math.isinf(steps[small]) or math.isinf(steps[large]):
            words.append("not reached")
            continue
        exponent = math.log(steps[small] / steps[large]) / math.log(large / small)
        words.append("perfect" if exponent >= 0.8 else "diminishing" if exponent >= 0.2 else "maximal")
    return words


# %% [markdown] exercise="L2.4" part="explanation"
# A censored run is a number that is too large to know, not a missing one: with two of three seeds censored, the
# median is infinite, and saying so is the honest result. `paceline plan batch` fits the whole curve, steps against
# batch, and says where the bend is with an interval; lab 8 asks what can be done to move it.

# %% exercise="L2.4" part="wrong" expects="censored-left-out"
# the solution, but
# - math.inf if row["steps"] is None else row["steps"] for row in rows if row["batch"] == batch
# + [row["steps"] for row in rows if row["batch"] == batch and row["steps"] is not None] or [math.inf]

# %% exercise="L2.4" part="wrong" expects="order-of-batches"
# the solution, but
# - batches = sorted({row["batch"] for row in rows})
# + batches = list(dict.fromkeys(row["batch"] for row in rows))

# %% exercise="L2.4" part="wrong" expects="per-step-of-batch"
# the solution, but
# - exponent = math.log(steps[small] / steps[large]) / math.log(large / small)
# + exponent = math.log(steps[small] / steps[large]) / math.log(2)

# %% exercise="L2.4" part="wrong" expects="one-seed"
# the solution, but
# - batch: statistics.median(
# + batch: next(

# %%
print(regimes(rows))

# %% [markdown]
# ## What you can say now
#
# - Throughput rises with the batch and flattens; it is a rate of work, not of progress.
# - Progress is an accuracy, reached in a row, over several seeds; what is not reached is censored.
# - Twice the batch halves the steps only up to a point, and that point decides how many devices are worth having.
#
# `quiz("L2")` draws new numbers each time.
