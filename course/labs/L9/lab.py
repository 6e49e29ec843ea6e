# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # L9 · Sharp minima, landscapes, noise
#
# Large batches often end with a worse accuracy. An explanation that is told everywhere is that they end in **sharp**
# minima: valleys so narrow that a small shift, such as that from training data to test data, leads up the wall. In
# this lab you build the instruments with which this is measured: slices through the loss, two measures of sharpness,
# and the noise of the gradient, which is what small batches have and large ones lack. You will also see how easily
# such a measurement fools whoever makes it.
#
# The papers: Keskar and others (arXiv:1609.04836) for sharp minima, Dinh and others (arXiv:1703.04933) for why the
# plain measures prove less than they seem to, Li and others (arXiv:1712.09913) for slices that can be compared,
# McCandlish and others (arXiv:1812.06162) for the noise scale.

# %%
from paceline_course.notebook import *

show = lab("L9")
small, large = show.two_trainings()

# %% [markdown]
# Two trainings of the same network on the same images at the same rate, with batches of 32 and of 256. The large one
# had four times as many epochs, and still only half as many steps: with as many samples it would not have arrived
# anywhere, and a point that is no minimum cannot be a sharp one.
#
# ## A slice
#
# A network has thousands of weights; one can look at its loss along a line at most. Take a direction `d`, and draw
# the loss at `w + t * d` over `t`.
#
# Which direction? A random one. But how *long*? A network with batch norm computes the same function if all weights
# of a filter are multiplied by ten. Along a direction of fixed length its valley then looks ten times as wide. So
# each filter of the direction is given the length of the same filter of the weights: **filter normalisation**. What
# has one dimension only (biases, and weights of norms) is left where it is.

# %% [markdown] exercise="L9.1" part="task"
# ### Exercise L9.1 · A direction that can be compared
#
# Write `normalised_direction(parameters, generator)`. `parameters` is a list of tensors, `generator` a
# `torch.Generator`. Return a list of tensors of the same shapes, drawn from a normal distribution and then scaled:
# for a tensor with two or more dimensions, each `d[i]` has the norm of `p[i]`; for others the direction is zero.
#
# **Done when** norms are right for convolutions and linear layers, and weights that are ten times as large have a
# direction that is ten times as long.

# %% exercise="L9.1" part="starter"
import torch


def normalised_direction(parameters, generator):
    """A random direction, each filter as long as that of the weights."""
    raise NotImplementedError


# %% [markdown] exercise="L9.1" part="hint"
# What is a filter of a convolution's weight, which has the shape (out, in, height, width)? And a "filter" of a linear
# layer?

# %% [markdown] exercise="L9.1" part="hint"
# Both are `p[i]`. `p.flatten(1).norm(dim=1)` gives the norms of all of them, with the shape `(out,)`.

# %% [markdown] exercise="L9.1" part="hint"
# `scale = p.flatten(1).norm(dim=1) / d.flatten(1).norm(dim=1)`, and `d * scale.view(-1, *[1] * (p.dim() - 1))`.

# %% exercise="L9.1" part="solution"
import torch


def normalised_direction(parameters, generator):
    """A random direction, each filter as long as that of the weights."""
    direction = []
    for p in parameters:
        d = torch.randn(p.shape, generator=generator, dtype=p.dtype)
        if p.dim() < 2:
            d = torch.zeros_like(p)
        else:
            scale = p.flatten(1).norm(dim=1) / d.flatten(1).norm(dim=1)
            d = d * scale.view(-1, *[1] * (p.dim() - 1))
        direction.append(d.detach())
    return direction


# %% [markdown] exercise="L9.1" part="explanation"
# The direction is now measured in units of the weights, and a picture made with it does not change when a layer is
# rescaled in a way that leaves the network what it is. It is still one random direction of very many; two networks
# are compared by several.

# %% exercise="L9.1" part="wrong" expects="whole-tensor"
# the solution, but
# - scale = p.flatten(1).norm(dim=1) / d.flatten(1).norm(dim=1)
# + d = d * (p.norm() / d.norm())
# - d = d * scale.view(-1, *[1] * (p.dim() - 1))

# %% exercise="L9.1" part="wrong" expects="not-scaled"
# the solution, but
# - d = d * scale.view(-1, *[1] * (p.dim() - 1))

# %% exercise="L9.1" part="wrong" expects="biases"
# the solution, but
# - d = torch.zeros_like(p)
# + d = d * (p.norm() / d.norm())

# %% [markdown] exercise="L9.2" part="task"
# ### Exercise L9.2 · The slice
#
# Write `slice_1d(loss, parameters, direction, span, points)`. `loss()` computes the loss with the parameters as they
# are. Return a list of `points` losses, at `w + t * d` for `t` from `-span` to `span` in equal steps. Afterwards the
# parameters hold what they held before, to the bit.
#
# **Done when** it is right on a function with a known formula, and leaves no trace, also when `loss` raises an error.

# %% exercise="L9.2" part="starter"
import torch


def slice_1d(loss, parameters, direction, span, points):
    """Losses along a line through the parameters."""
    raise NotImplementedError


# %% [markdown] exercise="L9.2" part="hint"
# If you add a step and subtract it again, do you get back exactly what was there?

# %% [markdown] exercise="L9.2" part="hint"
# Not in floating-point numbers. Keep a copy of each parameter, write `copy + t * d` into it at each point, and write
# the copy back at the end, in a `finally`.

# %% [markdown] exercise="L9.2" part="hint"
# `with torch.no_grad(): for p, start, d in zip(parameters, starts, direction): p.copy_(start + t * d)`

# %% exercise="L9.2" part="solution"
import torch


def slice_1d(loss, parameters, direction, span, points):
    """Losses along a line through the parameters."""
    starts = [p.detach().clone() for p in parameters]
    losses = []
    try:
        with torch.no_grad():
            for t in torch.linspace(-span, span, points, dtype=torch.float64).tolist():
                for p, start, d in zip(parameters, starts, direction):
                    p.copy_(start + t * d)
                losses.append(float(loss()))
    finally:
        with torch.no_grad():
            for p, start in zip(parameters, starts):
                p.copy_(start)
    return losses


# %% [markdown] exercise="L9.2" part="explanation"
# An instrument must not change what it measures. Batch norm is the second trap here: in training mode each evaluation
# changes its running statistics, and in eval mode its statistics belong to another point of the line. `paceline
# landscape` says which it uses, and puts everything back.

# %% exercise="L9.2" part="wrong" expects="trace"
# the solution, but
# - p.copy_(start + t * d)
# + p.add_((t + span if not losses else 2 * span / (points - 1)) * d if losses else -span * d)
# - for p, start in zip(parameters, starts):
# + for p, start in zip(parameters, direction):
# - p.copy_(start)
# + p.sub_(span * start)

# %% exercise="L9.2" part="wrong" expects="trace"
# the solution, but
# - finally:
# + finally:
# +     pass
# + if False:

# %% exercise="L9.2" part="wrong" expects="one-sided"
# the solution, but
# - for t in torch.linspace(-span, span, points, dtype=torch.float64).tolist():
# + for t in torch.linspace(0, span, points, dtype=torch.float64).tolist():

# %%
# How many times as wide is the small batch's valley, without normalisation? 1 means equal.
predict("L9.2", unit="times", wider_small_batch=...)

# %%
ratio = show.slices(small, large, slice_1d, normalised_direction)
reveal("L9.2", wider_small_batch=ratio)

# %% [markdown]
# Look at both rows before you say which minimum is sharper. The upper row has directions of fixed length, the lower
# one normalised ones. Weights of a training with small batches and a large rate are often larger, and a longer vector
# makes the same valley look wider.
#
# ## Sharpness in a box
#
# Keskar and others measure sharpness by how far the loss can rise in a small box about the weights: each weight may
# move by at most $\varepsilon (|w_i| + 1)$, and
#
# $$ \text{sharpness} = 100\, \frac{\max L - L(w)}{1 + L(w)} $$
#
# To find the maximum they go uphill, inside the box.

# %% [markdown] exercise="L9.3" part="task"
# ### Exercise L9.3 · Sharpness in a box
#
# Write `epsilon_sharpness(loss_and_grad, w, epsilon, steps=200)`. `loss_and_grad(v)` returns the loss at a vector `v`
# (a NumPy array) and its gradient there. Go uphill from `w`: a step of `rate` times the size of the box in the
# direction of the **sign** of the gradient (at the very first step the gradient may be zero: go up then), and back
# into the box after each step, `numpy.clip`. A rate of 0.1 is fine. Remember the largest loss that you saw. Return
# the sharpness in percent, `100 (largest - loss at w) / (1 + loss at w)`. The box reaches `epsilon (|w_i| + 1)` to each
# side.
#
# **Done when** it comes within 1 % of the known maximum for quadratic valleys.

# %% exercise="L9.3" part="starter"
import numpy as np


def epsilon_sharpness(loss_and_grad, w, epsilon, steps=200):
    """By how much the loss can rise in the box, in percent."""
    raise NotImplementedError


# %% [markdown] exercise="L9.3" part="hint"
# What are the borders of the box, for each weight? And which way is up where the gradient of a weight is zero?

# %% [markdown] exercise="L9.3" part="hint"
# `size = epsilon * (np.abs(w) + 1)`; the box is `w - size` to `w + size`. At a minimum the gradient is zero and
# `np.sign` gives 0, so nothing would move: take +1 there.

# %% [markdown] exercise="L9.3" part="hint"
# `v = np.clip(v + 0.1 * size * np.where(gradient >= 0, 1.0, -1.0), w - size, w + size)`, in a loop that keeps the
# largest loss.

# %% exercise="L9.3" part="solution"
import numpy as np


def epsilon_sharpness(loss_and_grad, w, epsilon, steps=200):
    """By how much the loss can rise in the box, in percent."""
    size = epsilon * (np.abs(w) + 1)
    start, gradient = loss_and_grad(w)
    v, highest = w, start
    for _ in range(steps):
        v = np.clip(v + 0.1 * size * np.where(gradient >= 0, 1.0, -1.0), w - size, w + size)
        loss, gradient = loss_and_grad(v)
        highest = max(highest, loss)
    return 100 * (highest - start) / (1 + start)


# %% [markdown] exercise="L9.3" part="explanation"
# What was found by a search is a **lower bound**: the true maximum may lie elsewhere. And the box depends on the size
# of the weights, so that this number changes when a layer is rescaled in a way that leaves the network what it is.
# Dinh and others used that to make any minimum as sharp as they liked. A comparison of two numbers of this kind says
# something only if the networks are scaled alike.

# %% exercise="L9.3" part="wrong" expects="stuck"
# the solution, but
# - v = np.clip(v + 0.1 * size * np.where(gradient >= 0, 1.0, -1.0), w - size, w + size)
# + v = np.clip(v + 0.1 * size * np.sign(gradient), w - size, w + size)

# %% exercise="L9.3" part="wrong" expects="outside"
# the solution, but
# - v = np.clip(v + 0.1 * size * np.where(gradient >= 0, 1.0, -1.0), w - size, w + size)
# + v = v + 0.1 * size * np.where(gradient >= 0, 1.0, -1.0)

# %% exercise="L9.3" part="wrong" expects="box"
# the solution, but
# - size = epsilon * (np.abs(w) + 1)
# + size = epsilon * np.abs(w)

# %% exercise="L9.3" part="wrong" expects="formula"
# the solution, but
# - return 100 * (highest - start) / (1 + start)
# + return (highest - start) / (1 + start)

# %% [markdown]
# ## The largest eigenvalue
#
# A measure that needs no search: the largest **eigenvalue** of the Hessian (the matrix of second derivatives), the
# curvature in the direction in which it is largest. The matrix itself is far too large to write down. But its
# *product* with a vector costs about two gradients, and that is enough: multiply a vector again and again, and what
# remains is the direction of the largest eigenvalue. This is **power iteration**.

# %% [markdown] exercise="L9.4" part="task"
# ### Exercise L9.4 · Power iteration
#
# Write `top_eigenvalue(product, size, generator, tolerance=1e-6, most=1000)`. `product(v)` returns the Hessian times
# the vector `v` (a NumPy array of `size` numbers). Begin with a random vector of length 1 from `generator` (a NumPy
# generator). In each step compute `u = product(v)` and the estimate `v @ u`, and go on with `u` made a unit vector.
# Stop when the estimate has changed by less than `tolerance` times its own size. Return `(estimate, converged)`,
# where `converged` is `False` if that did not happen within `most` products.
#
# **Done when** it finds the largest eigenvalue of known matrices, and says when it has not converged.

# %% exercise="L9.4" part="starter"
import numpy as np


def top_eigenvalue(product, size, generator, tolerance=1e-6, most=1000):
    """(largest eigenvalue, whether the search converged)."""
    raise NotImplementedError


# %% [markdown] exercise="L9.4" part="hint"
# What does a step do to the parts of a vector along each eigenvector?

# %% [markdown] exercise="L9.4" part="hint"
# Each part is multiplied by its eigenvalue, so the largest one wins. Divide by the length after each step, or the
# numbers grow without bound.

# %% [markdown] exercise="L9.4" part="hint"
# In a loop over `range(most)`: `u = product(v)`, `estimate = v @ u`, compare it with the last one, `v = u /
# np.linalg.norm(u)`.

# %% exercise="L9.4" part="solution"
import numpy as np


def top_eigenvalue(product, size, generator, tolerance=1e-6, most=1000):
    """(largest eigenvalue, whether the search converged)."""
    v = generator.standard_normal(size)
    v /= np.linalg.norm(v)
    last = np.inf
    for _ in range(most):
        u = product(v)
        estimate = v @ u
        if abs(estimate - last) < tolerance * abs(estimate):
            return estimate, True
        last = estimate
        v = u / np.linalg.norm(u)
    return last, False


# %% [markdown] exercise="L9.4" part="explanation"
# If the two largest eigenvalues are close, power iteration is slow, and its estimate rests long before it is right.
# Tools that return such a number without a word are the reason for the second return value. `paceline landscape` uses
# the Lanczos method, which needs far fewer products, and reports a residual: how far what it found is from being an
# eigenvector.

# %% exercise="L9.4" part="wrong" expects="not-normalised"
# the solution, but
# - v = u / np.linalg.norm(u)
# + v = u

# %% exercise="L9.4" part="wrong" expects="always-converged"
# the solution, but
# - return last, False
# + return last, True

# %% exercise="L9.4" part="wrong" expects="eigenvalue"
# the solution, but
# - estimate = v @ u
# + estimate = np.abs(u).max()

# %%
show.curvature(small, large, top_eigenvalue)

# %% [markdown]
# ## Noise
#
# Why would a small batch find another minimum? Its gradient is noisy. How noisy, compared with the gradient itself,
# is one number, the **noise scale**
#
# $$ B = \frac{\operatorname{tr} \Sigma}{|G|^2} $$
#
# where $G$ is the true gradient and $\Sigma$ the covariance of one sample's gradient. It is measured in samples: at a
# batch of $B$ noise and gradient are equally large. Well below it twice the batch is nearly twice as good; well above
# it nothing is gained.
#
# You cannot know $G$. But the squared length of a batch's gradient is, on average, $|G|^2 + \operatorname{tr} \Sigma
# / b$: too long, by an amount that falls with the batch. Two batch sizes give two equations. And in data-parallel
# training both are there for free: the gradient of one process, and the average of all.

# %% [markdown] exercise="L9.5" part="task"
# ### Exercise L9.5 · The noise scale
#
# Write `noise_scale(small, small_squares, large, large_squares)`. `small_squares` are squared lengths of gradients at
# batches of `small` samples, measured many times; `large_squares` the same at `large`. Return the noise scale.
#
# Average the squares first, then solve the two equations for $|G|^2$ and $\operatorname{tr} \Sigma$, then divide.
# Where $|G|^2$ comes out as zero or less, the gradient drowns in noise: return `math.inf`.
#
# **Done when** planted noise scales are found within 15 %.

# %% exercise="L9.5" part="starter"
import math


def noise_scale(small, small_squares, large, large_squares):
    """Samples at which noise and gradient are equally large."""
    raise NotImplementedError


# %% [markdown] exercise="L9.5" part="hint"
# Write the two equations down, with the averages on the left side. Which combination of them has no noise in it?

# %% [markdown] exercise="L9.5" part="hint"
# Multiply each by its batch and subtract: `large * L - small * S = (large - small) * |G|^2`. Subtract them as they
# are, and only the noise remains: `S - L = trace * (1 / small - 1 / large)`.

# %% [markdown] exercise="L9.5" part="hint"
# `square = (large * L - small * S) / (large - small)` and `trace = (S - L) / (1 / small - 1 / large)`, with `S` and
# `L` the averages.

# %% exercise="L9.5" part="solution"
import math
import statistics


def noise_scale(small, small_squares, large, large_squares):
    """Samples at which noise and gradient are equally large."""
    at_small, at_large = statistics.fmean(small_squares), statistics.fmean(large_squares)
    square = (large * at_large - small * at_small) / (large - small)
    trace = (at_small - at_large) / (1 / small - 1 / large)
    return trace / square if square > 0 else math.inf


# %% [markdown] exercise="L9.5" part="explanation"
# The quotient of averages, and not the average of quotients: a single measurement may have a $|G|^2$ near zero or
# below, and its quotient is then anything. `paceline train` records both norms in every run, from a hook that changes
# no bit, and `paceline plan batch` turns them into a batch size, with an interval.

# %% exercise="L9.5" part="wrong" expects="mean-of-quotients"
import math
import statistics


def noise_scale(small, small_squares, large, large_squares):
    scales = []
    for one, other in zip(small_squares, large_squares):
        square = (large * other - small * one) / (large - small)
        trace = (one - other) / (1 / small - 1 / large)
        scales.append(trace / square if square > 0 else 0.0)
    return statistics.fmean(scales)


# %% exercise="L9.5" part="wrong" expects="lengths"
# the solution, but
# - at_small, at_large = statistics.fmean(small_squares), statistics.fmean(large_squares)
# + at_small, at_large = (statistics.fmean(map(math.sqrt, each)) for each in (small_squares, large_squares))

# %% exercise="L9.5" part="wrong" expects="scale"
# the solution, but
# - square = (large * at_large - small * at_small) / (large - small)
# + square = at_large

# %% exercise="L9.5" part="wrong" expects="drowned"
# the solution, but
# - return trace / square if square > 0 else math.inf
# + return trace / square

# %%
# The noise scale of this network after training: 10? 100? 1,000?
predict("L9.5", unit="samples", noise_scale_at_the_end=...)

# %%
reveal("L9.5", noise_scale_at_the_end=show.noise(small, noise_scale))

# %% [markdown]
# ## The dispute
#
# Do large batches end in sharp minima, and are these the reason for their accuracy? What is known:
#
# - Large batches *at the rate of small ones* end sharper by most measures, and less accurate (Keskar and others).
# - The plain measures change under rescalings that leave the network what it is; so a large value alone proves
#   nothing (Dinh and others).
# - Train longer, or with a better rate, and much of the difference in accuracy is gone (Hoffer and others,
#   arXiv:1705.08741): what was missing were steps.
# - Measures of sharpness predict accuracy in some comparisons and fail in others (Jiang and others,
#   arXiv:1912.02178).
#
# What we measured on Fashion-MNIST ourselves, with all measures beside each other, is in `docs/studies/minima.md`.
#
# ## What you can say now
#
# - A slice needs a direction whose length can be compared, and an instrument that leaves no trace.
# - A maximum that was searched for is a lower bound; an eigenvalue needs a word on whether it converged.
# - The noise scale says, in samples, where a larger batch stops helping.
#
# `quiz("L9")` draws new numbers each time.
