# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # L1 · Gradient descent, batches and noise
#
# Training on several devices means that each one sees a *part* of a batch. So before there are several devices, you
# should know what a batch is for: what it does to a gradient, and why a small one works at all.
#
# You will write a gradient by hand, decide when a training is over, cut data into batches without losing a sample,
# and measure how noisy a batch makes the gradient. At the end you can say how much noisier a batch of 16 is than one
# of 64 *before* you measure it.
#
# An exercise is a cell that begins with `%%exercise`. Running it puts your code into a plain file below `work/`, and
# `check(...)` tests that file: edit it wherever you like.

# %%
import numpy as np

from paceline_course.notebook import *  # check, hint, solution, predict, reveal, quiz, lab

show = lab("L1")  # pictures of this lab
x, y = show.points(100, seed=1)
show.scatter(x, y)

# %% [markdown]
# ## The line
#
# A hundred points that scatter about a line. A model with two parameters, `w` and `b`, predicts `w * x + b`. How
# wrong it is, on average, is its **loss**:
#
# $$ L(w, b) = \frac{1}{n} \sum_{i=1}^{n} (w x_i + b - y_i)^2 $$
#
# Gradient descent starts somewhere, asks in which direction the loss falls fastest, and goes a step that way, again
# and again. The direction is minus the **gradient**, the two partial derivatives of `L`.

# %% [markdown] exercise="L1.1" part="task"
# ### Exercise L1.1 · The gradient by hand
#
# Write `gradient(x, y, w, b)`. `x` and `y` are arrays of shape `(n,)`, `w` and `b` are numbers. The loss is the mean of
# `(w x + b - y)²` over the points. Return its two partial derivatives, with respect to `w` and to `b`, as a pair of
# numbers.
#
# **Done when** it equals finite differences of the loss on random points, whatever `n` is.


# %% exercise="L1.1" part="starter"
def gradient(x, y, w, b):
    """Partial derivatives of the mean squared error, (d/dw, d/db)."""
    raise NotImplementedError


# %% [markdown] exercise="L1.1" part="hint"
# What is the derivative of $(w x + b - y)^2$ with respect to $b$, for one point? And with respect to $w$?

# %% [markdown] exercise="L1.1" part="hint"
# By the chain rule it is twice the residual, $2 (w x + b - y)$, times the derivative of what is inside: 1 for $b$,
# and $x$ for $w$. The loss is the *mean* over the points, and so is its gradient.

# %% [markdown] exercise="L1.1" part="hint"
# With `residual = w * x + b - y`, the derivative with respect to `b` is `2 * residual.mean()`.


# %% exercise="L1.1" part="solution"
def gradient(x, y, w, b):
    """Partial derivatives of the mean squared error, (d/dw, d/db)."""
    residual = w * x + b - y
    return 2 * (residual * x).mean(), 2 * residual.mean()


# %% [markdown] exercise="L1.1" part="explanation"
# A mean over points has a mean over points for its gradient. That is all that data parallelism needs: if two devices
# compute the sums over their own points, adding the sums and dividing by the number of *all* points gives the
# gradient of the whole batch, exactly. Nothing is approximated.


# %% exercise="L1.1" part="wrong" expects="sum-not-mean"
def gradient(x, y, w, b):
    residual = w * x + b - y
    return 2 * (residual * x).sum(), 2 * residual.sum()


# %% exercise="L1.1" part="wrong" expects="factor-two"
def gradient(x, y, w, b):
    residual = w * x + b - y
    return (residual * x).mean(), residual.mean()


# %% exercise="L1.1" part="wrong" expects="sign"
def gradient(x, y, w, b):
    residual = y - (w * x + b)
    return 2 * (residual * x).mean(), 2 * residual.mean()


# %% exercise="L1.1" part="wrong" expects="gradient"
def gradient(x, y, w, b):
    residual = w * x + b - y
    return 2 * residual.mean() * x.mean(), 2 * residual.mean()


# %% [markdown]
# ### Walk down
#
# Here is gradient descent with your gradient. The picture on the left is the loss surface seen from above, with the
# path; on the right is the loss, epoch by epoch. The star is the best line, which for this problem is known in closed
# form.

# %%
paths = {"all 100 points": show.descend(gradient, x, y, lr=0.1, epochs=40)}
show.surface(x, y, paths)

# %% [markdown]
# Each step above looks at every point. That is exact, and it is slow: one step an epoch.
#
# ## When is it over?
#
# A loop `for epoch in range(1000)` wastes most of its time. You want to stop when the loss does not fall any more.
# But real losses are noisy, so one bad epoch must not end the training. And there is a trap: if a loss becomes `nan`
# (not a number), every comparison with it is `False`, so a rule that waits for a small change waits for ever.

# %% [markdown] exercise="L1.2" part="task"
# ### Exercise L1.2 · When to stop
#
# Write `should_stop(losses, tolerance=1e-3, patience=3)`. `losses` is the list of losses so far, one an epoch. Return
# `True` when
#
# - the newest loss is not a finite number, or
# - the best loss of the last `patience` epochs is not lower than the best loss *before* them by more than the
#   fraction `tolerance`.
#
# Otherwise return `False`. As long as there are not more than `patience` losses, only the first condition counts.
#
# **Done when** it goes on while the loss falls, noisily or not, and stops at the very epoch at which the rule says
# so.


# %% exercise="L1.2" part="starter"
def should_stop(losses, tolerance=1e-3, patience=3):
    """Whether training is over, from the losses of the epochs so far."""
    raise NotImplementedError


# %% [markdown] exercise="L1.2" part="hint"
# Which two numbers does the rule compare, and which parts of the list do they come from?

# %% [markdown] exercise="L1.2" part="hint"
# `losses[:-patience]` are the epochs before, `losses[-patience:]` the last ones. "Lower by more than the fraction
# `tolerance`" means below `best_before * (1 - tolerance)`. For the other condition there is `math.isfinite`.

# %% [markdown] exercise="L1.2" part="hint"
# `return min(losses[-patience:]) >= min(losses[:-patience]) * (1 - tolerance)`, after the two cases that come first.

# %% exercise="L1.2" part="solution"
import math


def should_stop(losses, tolerance=1e-3, patience=3):
    """Whether training is over, from the losses of the epochs so far."""
    if losses and not math.isfinite(losses[-1]):
        return True
    if len(losses) <= patience:
        return False
    before, recent = min(losses[:-patience]), min(losses[-patience:])
    return recent >= before * (1 - tolerance)


# %% [markdown] exercise="L1.2" part="explanation"
# The best of several epochs instead of the last one makes the rule patient; a *fraction* instead of a difference
# makes it work for a loss of 100 and for one of 0.001. On several devices there is one more thing to get right: every
# device has to decide the same, so all of them have to look at the same number. Lab 6 shows what happens when they do
# not.

# %% exercise="L1.2" part="wrong" expects="one-bad-epoch"
import math


def should_stop(losses, tolerance=1e-3, patience=3):
    if losses and not math.isfinite(losses[-1]):
        return True
    return len(losses) > patience and losses[-1] >= losses[-2] * (1 - tolerance)


# %% exercise="L1.2" part="wrong" expects="nan-goes-on"
def should_stop(losses, tolerance=1e-3, patience=3):
    if len(losses) <= patience:
        return False
    before, recent = min(losses[:-patience]), min(losses[-patience:])
    return before - recent <= tolerance * before


# %% exercise="L1.2" part="wrong" expects="early-nan"
import math


def should_stop(losses, tolerance=1e-3, patience=3):
    if len(losses) <= patience:
        return False
    if not math.isfinite(losses[-1]):
        return True
    return min(losses[-patience:]) >= min(losses[:-patience]) * (1 - tolerance)


# %% exercise="L1.2" part="wrong" expects="absolute"
# the solution, but
# - before, recent = min(losses[:-patience]), min(losses[-patience:])
# - return recent >= before * (1 - tolerance)
# + return min(losses[-patience:]) >= min(losses[:-patience]) - tolerance

# %% exercise="L1.2" part="wrong" expects="too-early"
# the solution, but
# - if len(losses) <= patience:
# + if len(losses) < patience:
# - before, recent = min(losses[:-patience]), min(losses[-patience:])
# + before, recent = min(losses[: -patience + 1]), min(losses[-patience + 1 :])

# %% exercise="L1.2" part="wrong" expects="too-late"
# the solution, but
# - if len(losses) <= patience:
# + if len(losses) <= patience + 1:
# - before, recent = min(losses[:-patience]), min(losses[-patience:])
# + before, recent = min(losses[: -patience - 1]), min(losses[-patience - 1 :])

# %% [markdown]
# ## Batches
#
# Instead of all points, take a few at a time: a **batch**. One pass over all points is an **epoch**; it now has many
# steps instead of one. How the points are cut matters more than it seems, because mistakes here raise no error. A
# point that is never seen, or is seen twice, just makes the result a little worse. And an *empty* batch has no mean:
# its loss is `nan`, and the gradient with it.

# %%
# 100 points in batches of 16: how many steps has an epoch? Your number goes in the place of the dots.
predict("L1.3", unit="steps", steps_per_epoch=...)

# %% [markdown] exercise="L1.3" part="task"
# ### Exercise L1.3 · Batches
#
# Write `batches(n, size, generator)`. It yields arrays of indices, each of at most `size`, such that every index from
# 0 to `n - 1` is in exactly one of them. The order is random, drawn from `generator` (a `numpy.random.Generator`),
# and new at each call. The last batch may be smaller. No batch is empty, not even when `size` divides `n`.
#
# **Done when** each of 1 to 200 points comes exactly once for any `size`, in an order that is another one in each
# epoch.


# %% exercise="L1.3" part="starter"
def batches(n, size, generator):
    """Index arrays of one epoch."""
    raise NotImplementedError


# %% [markdown] exercise="L1.3" part="hint"
# How many batches are there for `n = 100` and `size = 16`? And for `n = 96`?

# %% [markdown] exercise="L1.3" part="hint"
# Draw one order of all indices first: `generator.permutation(n)`. Then cut it into pieces. `range(0, n, size)` names
# where each piece begins, and has no entry for an empty one.

# %% [markdown] exercise="L1.3" part="hint"
# `for start in range(0, n, size): yield order[start : start + size]`. A slice that reaches past the end is just
# shorter.


# %% exercise="L1.3" part="solution"
def batches(n, size, generator):
    """Index arrays of one epoch."""
    order = generator.permutation(n)
    for start in range(0, n, size):
        yield order[start : start + size]


# %% [markdown] exercise="L1.3" part="explanation"
# `ceil(n / size)` batches, and nothing special about the last one. The popular `n // size + 1` is right except where
# `size` divides `n`: then its last batch is empty. Averages over batches have a second trap: the last batch is
# smaller, so the mean of the batches' means is not the mean over the points. Sums and counts have no such trap, which
# is why everything in this course adds up sums and counts.


# %% exercise="L1.3" part="wrong" expects="empty-batch"
def batches(n, size, generator):
    order = generator.permutation(n)
    for number in range(n // size + 1):
        yield order[number * size : (number + 1) * size]


# %% exercise="L1.3" part="wrong" expects="lost-rows"
def batches(n, size, generator):
    order = generator.permutation(n)
    for number in range(max(1, n // size)):
        yield order[number * size : (number + 1) * size]


# %% exercise="L1.3" part="wrong" expects="repeated-rows"
def batches(n, size, generator):
    for start in range(0, n, size):
        yield generator.integers(0, n, min(size, n - start))


# %% exercise="L1.3" part="wrong" expects="not-shuffled"
import numpy as np


def batches(n, size, generator):
    for start in range(0, n, size):
        yield np.arange(start, min(start + size, n))


# %% exercise="L1.3" part="wrong" expects="same-order"
import numpy as np


def batches(n, size, generator):
    order = np.random.default_rng(0).permutation(n)
    for start in range(0, n, size):
        yield order[start : start + size]


# %% exercise="L1.3" part="wrong" expects="other-random"
import numpy as np


def batches(n, size, generator):
    order = np.random.permutation(n)
    for start in range(0, n, size):
        yield order[start : start + size]


# %% exercise="L1.3" part="wrong" expects="other-random"
import numpy as np


def batches(n, size, generator):
    order = np.random.default_rng().permutation(n)
    for start in range(0, n, size):
        yield order[start : start + size]


# %%
reveal("L1.3", steps_per_epoch=len(list(batches(100, 16, np.random.default_rng(0)))))
for size in (1, 16):
    paths[f"batches of {size}"] = show.descend(gradient, x, y, lr=0.1, epochs=5, batches=batches, size=size)
show.surface(x, y, paths)

# %% [markdown]
# With the same rate, five epochs of small batches get as far as forty of the whole set, since they take far more
# steps. But the path staggers, and it does not come to rest: each batch has a loss surface of its own, and its lowest
# point is not quite that of all points. The smaller the batch, the larger the circle in which the path wanders at the
# end.
#
# ## How noisy is a batch?
#
# Draw many batches at the same `w` and `b`, and look at how their gradients scatter. What happens to the variance
# when the batch is four times as large?

# %%
# 4? 2? 1/2? 1/4? 1/16?
predict("L1.4", unit="times", variance_of_4_times_the_batch=...)

# %% [markdown] exercise="L1.4" part="task"
# ### Exercise L1.4 · The noise of a batch
#
# Write `gradient_variance(x, y, w, b, size, repeats, generator)`. Draw `repeats` batches of `size` points, each point
# at random from all of them (with replacement: the same point may come twice), compute the gradient of each batch at
# the same `w` and `b`, and return the variance of these gradients: of both components, added up, as one number.
#
# Take the gradient from exercise L1.1, or write it again.
#
# **Done when** it agrees with the exact value, and falls with the batch as that does.


# %% exercise="L1.4" part="starter"
def gradient_variance(x, y, w, b, size, repeats, generator):
    """Variance of the gradient over batches, both components added up."""
    raise NotImplementedError


# %% [markdown] exercise="L1.4" part="hint"
# Which numbers do you have after the loop, and over which of their axes is the variance?

# %% [markdown] exercise="L1.4" part="hint"
# Collect a list of pairs, make an array of shape `(repeats, 2)` of it, and take the variance along the first axis.
# Indices with replacement are `generator.integers(len(x), size=size)`.

# %% [markdown] exercise="L1.4" part="hint"
# `return np.var(gradients, axis=0).sum()`, where `gradients` has shape `(repeats, 2)`.

# %% exercise="L1.4" part="solution"
import numpy as np


def gradient_variance(x, y, w, b, size, repeats, generator):
    """Variance of the gradient over batches, both components added up."""
    gradients = np.empty((repeats, 2))
    for number in range(repeats):
        rows = generator.integers(len(x), size=size)
        residual = w * x[rows] + b - y[rows]
        gradients[number] = 2 * (residual * x[rows]).mean(), 2 * residual.mean()
    return gradients.var(axis=0).sum()


# %% [markdown] exercise="L1.4" part="explanation"
# A batch gradient is a mean of `size` independent draws, and the variance of such a mean is the variance of one draw
# divided by `size`. Four times the batch: a quarter of the variance, half the standard deviation. That is the whole
# law, and it has two consequences that fill the rest of the course. More devices at the same batch per device mean
# less noise, so the learning rate can grow. And the gain shrinks: once the noise is small against the gradient
# itself, a larger batch makes the step hardly better, only dearer.

# %% exercise="L1.4" part="wrong" expects="standard-deviation"
# the solution, but
# - return gradients.var(axis=0).sum()
# + return gradients.std(axis=0).sum()

# %% exercise="L1.4" part="wrong" expects="without-replacement"
# the solution, but
# - rows = generator.integers(len(x), size=size)
# + rows = generator.choice(len(x), size=size, replace=False)

# %% exercise="L1.4" part="wrong" expects="of-points"
import numpy as np


def gradient_variance(x, y, w, b, size, repeats, generator):
    rows = generator.integers(len(x), size=size * repeats)
    residual = w * x[rows] + b - y[rows]
    return (2 * residual * x[rows]).var() + (2 * residual).var()


# %% exercise="L1.4" part="wrong" expects="no-variance"
import numpy as np


def gradient_variance(x, y, w, b, size, repeats, generator):
    rows = generator.integers(len(x), size=size)
    residual = w * x[rows] + b - y[rows]
    one = 2 * (residual * x[rows]).mean(), 2 * residual.mean()
    return np.array([one] * repeats).var(axis=0).sum()


# %% exercise="L1.4" part="wrong" expects="over-components"
import numpy as np


def gradient_variance(x, y, w, b, size, repeats, generator):
    gradients = np.empty((repeats, 2))
    for number in range(repeats):
        rows = generator.integers(len(x), size=size)
        residual = w * x[rows] + b - y[rows]
        gradients[number] = 2 * (residual * x[rows]).mean(), 2 * residual.mean()
    return gradients.var()


# %%
sizes = [1, 2, 4, 8, 16, 32, 64, 128]
generator = np.random.default_rng(0)
variances = [gradient_variance(x, y, 0.0, 0.0, size, 400, generator) for size in sizes]
reveal("L1.4", variance_of_4_times_the_batch=variances[4] / variances[2])
show.noise_law(sizes, variances)

# %% [markdown]
# The dashed line has the slope −1. Wherever your points lie near it, doubling the batch has halved the variance.
#
# ## What you can say now
#
# - The gradient of a mean is a mean of gradients, so a batch can be shared out and put together again without loss.
# - A batch is a noisy look at the whole; its variance falls as 1 / size.
# - Losing points, doubling points and empty batches raise no error. Only a test finds them.
#
# The quiz draws new numbers each time: `quiz("L1")`, or `paceline learn quiz L1` in a terminal.
