# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # L8 · Keep the accuracy
#
# With more devices comes a larger batch, and with a larger batch, at first, a worse accuracy. In this lab you build
# what people do against that, one piece after the other: a rate that fits the batch, a warm-up, momentum and
# optimizers that look at each layer, statistics over all processes, decay and smoothing. At the end all of it stands
# on one ladder, with several seeds on each rung, and you see which rungs hold.
#
# Here is what is to be mended: the same network, images and number of epochs, with a batch of 64 and with one of 512.
# The two trainings take half a minute, or a whole one where the machine is busy.

# %%
from paceline_course.notebook import *

show = lab("L8")
show.problem()

# %% [markdown]
# The large batch takes one step where the small one takes eight. That is nearly all there is to say about why it is
# behind: it has not gone far enough.
#
# ## A rate that fits the batch
#
# If a step stands for eight small ones, let it be eight times as long: the **linear rule**, rate times $k$ for $k$
# times the batch (Goyal and others, arXiv:1706.02677). It holds as long as the gradient hardly changes over those
# eight steps. The **square-root rule**, rate times $\sqrt k$, keeps the noise of a step what it was: the variance of
# a gradient falls with $1/k$, and a step's noise is rate times its standard deviation. It is more careful. For
# Adam it is what theory says, if its betas change with the batch as well (Malladi and others, arXiv:2205.10287).
#
# Both begin from a *base*: a rate that is good at a batch you know.

# %% [markdown] exercise="L8.1" part="task"
# ### Exercise L8.1 · Two rules
#
# Write `scaled_rate(rule, base_rate, base_batch, per_worker, workers)`. `rule` is `"none"`, `"linear"` or `"sqrt"`;
# anything else raises a `ValueError`. The global batch is `per_worker * workers`.
#
# **Done when** rates are right for larger and smaller batches, and an unknown rule is refused.


# %% exercise="L8.1" part="starter"
def scaled_rate(rule, base_rate, base_batch, per_worker, workers):
    """The rate for the global batch."""
    raise NotImplementedError


# %% [markdown] exercise="L8.1" part="hint"
# Which batch does an optimizer step stand for: that of a worker, or that of all?

# %% [markdown] exercise="L8.1" part="hint"
# All three rules need one number only: how many times the base the global batch is. It may be 1.5, and below 1.

# %% [markdown] exercise="L8.1" part="hint"
# With `k = per_worker * workers / base_batch`, `factors = {"none": 1.0, "linear": k, "sqrt": k**0.5}`. If `rule` is not
# among them, `raise ValueError(...)`.


# %% exercise="L8.1" part="solution"
def scaled_rate(rule, base_rate, base_batch, per_worker, workers):
    """The rate for the global batch."""
    k = per_worker * workers / base_batch
    factors = {"none": 1.0, "linear": k, "sqrt": k**0.5}
    if rule not in factors:
        raise ValueError(f"{rule} is no rule; there are {', '.join(factors)}")
    return base_rate * factors[rule]


# %% [markdown] exercise="L8.1" part="explanation"
# "Which batch?" is the most frequent question about rates in forums, with answers that contradict each other. DDP
# *averages* gradients, so a step is that of the global batch, and the rate has to fit that one. Whoever sums instead
# has scaled the rate linearly without knowing it.

# %% exercise="L8.1" part="wrong" expects="per-worker"
# the solution, but
# - k = per_worker * workers / base_batch
# + k = per_worker / base_batch

# %% exercise="L8.1" part="wrong" expects="workers-only"
# the solution, but
# - k = per_worker * workers / base_batch
# + k = workers

# %% exercise="L8.1" part="wrong" expects="swapped"
# the solution, but
# - factors = {"none": 1.0, "linear": k, "sqrt": k**0.5}
# + factors = {"none": 1.0, "sqrt": k, "linear": k**0.5}

# %% exercise="L8.1" part="wrong" expects="accepted"
# the solution, but
# - if rule not in factors:
# - raise ValueError(f"{rule} is no rule; there are {', '.join(factors)}")
# - return base_rate * factors[rule]
# + return base_rate * factors.get(rule, 1.0)

# %% exercise="L8.1" part="wrong" expects="rounded"
# the solution, but
# - k = per_worker * workers / base_batch
# + k = per_worker * workers // base_batch

# %% exercise="L8.1" part="wrong" expects="returned"
# the solution, but
# - raise ValueError(f"{rule} is no rule; there are {', '.join(factors)}")
# + return ValueError(f"{rule} is no rule; there are {', '.join(factors)}")

# %% [markdown]
# ## Warm-up
#
# At the beginning the gradient changes fast, and eight steps in one are too long: the network may be thrown to where
# it never comes back from. So the rate begins small and grows over the first steps: **warm-up**. Afterwards it falls,
# so that the path comes to rest.

# %% [markdown] exercise="L8.2" part="task"
# ### Exercise L8.2 · A schedule
#
# Write `rate_at(step, total, peak, warmup, start=0.0)`, the rate of step `step` (0 for the first) of `total`. In the
# first `warmup` steps it grows in equal steps from `start * peak`, which is the rate *before* the first one, to
# `peak`, which is the rate of step `warmup - 1`. After that it falls along half a cosine, as
# `0.5 * peak * (1 + cos(pi * part))`: `peak` at step `warmup`, on its way to 0 at step `total`.
#
# **Done when** it is exact at every step, with and without a warm-up.

# %% exercise="L8.2" part="starter"
import math


def rate_at(step, total, peak, warmup, start=0.0):
    """The learning rate of a step."""
    raise NotImplementedError


# %% [markdown] exercise="L8.2" part="hint"
# What is the rate of the very first step, with 10 warm-up steps and `start=0`? It should not be zero.

# %% [markdown] exercise="L8.2" part="hint"
# Say of each step which part of a way it has gone. In the warm-up the way has `warmup` steps, and the first step has
# gone one of them. Afterwards a new way begins: count from the end of the warm-up, over the steps that are left.

# %% [markdown] exercise="L8.2" part="hint"
# `peak * (start + (1 - start) * (step + 1) / warmup)`, and in the cosine `part = (step - warmup) / (total - warmup)`.

# %% exercise="L8.2" part="solution"
import math


def rate_at(step, total, peak, warmup, start=0.0):
    """The learning rate of a step."""
    if step < warmup:
        return peak * (start + (1 - start) * (step + 1) / warmup)
    part = (step - warmup) / (total - warmup)
    return 0.5 * peak * (1 + math.cos(math.pi * part))


# %% [markdown] exercise="L8.2" part="explanation"
# A schedule is a function of the step and of nothing else. Then a resumed training needs only the step, and every
# process has the same rate without a message. Count in steps, not in epochs: with a large batch an epoch has few of
# them, and "5 epochs of warm-up" may be most of a training.

# %% exercise="L8.2" part="wrong" expects="zero-first"
# the solution, but
# - return peak * (start + (1 - start) * (step + 1) / warmup)
# + return peak * (start + (1 - start) * step / warmup)

# %% exercise="L8.2" part="wrong" expects="cosine"
# the solution, but
# - part = (step - warmup) / (total - warmup)
# + part = step / total

# %% exercise="L8.2" part="wrong" expects="start"
# the solution, but
# - return peak * (start + (1 - start) * (step + 1) / warmup)
# + return peak * (step + 1) / warmup

# %% exercise="L8.2" part="wrong" expects="one-step-short"
# the solution, but
# - return peak * (start + (1 - start) * (step + 1) / warmup)
# + return peak * (start + (1 - start) * step / (warmup - 1))

# %% exercise="L8.2" part="wrong" expects="quarter"
# the solution, but
# - return 0.5 * peak * (1 + math.cos(math.pi * part))
# + return peak * math.cos(math.pi / 2 * part)

# %% exercise="L8.2" part="wrong" expects="rising"
# the solution, but
# - return peak * (start + (1 - start) * (step + 1) / warmup)
# + return peak * (start + (step + 1) / warmup)

# %% exercise="L8.2" part="wrong" expects="falling"
# the solution, but
# - return 0.5 * peak * (1 + math.cos(math.pi * part))
# + return peak * (1 - part)

# %%
show.schedules(rate_at)

# %% [markdown]
# ## Momentum
#
# Plain SGD forgets each gradient after its step. **Momentum** keeps a running sum of them, the *velocity*: what past
# gradients agree on adds up, what they disagree on cancels. It makes a step worth several, which helps large batches,
# as they have few.

# %% [markdown] exercise="L8.3" part="task"
# ### Exercise L8.3 · Momentum by hand
#
# Write a class `Momentum(parameters, lr, momentum, decay=0.0)` with a method `step()`. For each parameter that has a
# gradient, with velocity $v$ (0 at first):
#
# $$ g \leftarrow g + \lambda w, \qquad v \leftarrow \mu v + g, \qquad w \leftarrow w - \eta v $$
#
# Parameters without a gradient are left alone, and `p.grad` stays what it is. `parameters` is what `net.parameters()`
# gives: one can go through it only once. The rate is the attribute `lr`, which may be changed between steps.
#
# **Done when** five steps agree with torch's SGD to the last digits.

# %% exercise="L8.3" part="starter"
import torch


class Momentum:
    """SGD with momentum and weight decay."""

    def __init__(self, parameters, lr, momentum, decay=0.0):
        raise NotImplementedError

    def step(self):
        """Update the parameters from their gradients."""
        raise NotImplementedError


# %% [markdown] exercise="L8.3" part="hint"
# What has to be kept from one step to the next, and for how many tensors?

# %% [markdown] exercise="L8.3" part="hint"
# A list of velocities, beside the list of parameters, or a dictionary. Work under `torch.no_grad()`. A sum of two
# tensors is a new one, so `p.grad` stays. The parameter and its velocity have to change in place.

# %% [markdown] exercise="L8.3" part="hint"
# `g = p.grad + self.decay * p`, `v.mul_(self.momentum).add_(g)`, `p.sub_(self.lr * v)`.

# %% exercise="L8.3" part="solution"
import torch


class Momentum:
    """SGD with momentum and weight decay."""

    def __init__(self, parameters, lr, momentum, decay=0.0):
        self.parameters = list(parameters)
        self.lr, self.momentum, self.decay = lr, momentum, decay
        self.velocities = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self):
        """Update the parameters from their gradients."""
        for p, v in zip(self.parameters, self.velocities):
            if p.grad is None:
                continue
            g = p.grad + self.decay * p
            v.mul_(self.momentum).add_(g)
            p.sub_(self.lr * v)


# %% [markdown] exercise="L8.3" part="explanation"
# With momentum 0.9 the velocity is ten times an average gradient, so a step is ten times as long as without. A rate
# that was good for plain SGD is ten times too large with momentum, and papers that compare rates without saying the
# momentum compare nothing.

# %% exercise="L8.3" part="wrong" expects="averaged"
# the solution, but
# - v.mul_(self.momentum).add_(g)
# + v.mul_(self.momentum).add_((1 - self.momentum) * g)

# %% exercise="L8.3" part="wrong" expects="no-decay"
# the solution, but
# - g = p.grad + self.decay * p
# + g = p.grad

# %% exercise="L8.3" part="wrong" expects="changed-gradient"
# the solution, but
# - g = p.grad + self.decay * p
# + g = p.grad.add_(self.decay * p)

# %% exercise="L8.3" part="wrong" expects="without-gradient"
# the solution, but
# - if p.grad is None:
# - continue
# - g = p.grad + self.decay * p
# + g = self.decay * p + (0 if p.grad is None else p.grad)

# %% exercise="L8.3" part="wrong" expects="generator"
# the solution, but
# - self.parameters = list(parameters)
# + self.parameters = parameters
# - self.velocities = [torch.zeros_like(p) for p in self.parameters]
# + self.velocities = {}
# - for p, v in zip(self.parameters, self.velocities):
# + for p in self.parameters:
# - g = p.grad + self.decay * p
# + g = p.grad + self.decay * p
# + v = self.velocities.setdefault(p, torch.zeros_like(p))

# %% exercise="L8.3" part="wrong" expects="generator"
# the solution, but
# - self.parameters = list(parameters)
# + self.parameters = parameters

# %% exercise="L8.3" part="wrong" expects="nothing-moves"
# the solution, but
# - p.sub_(self.lr * v)
# + p = p - self.lr * v

# %% exercise="L8.3" part="wrong" expects="forgotten"
# the solution, but
# - v.mul_(self.momentum).add_(g)
# + v = self.momentum * v + g

# %% exercise="L8.3" part="wrong" expects="later-step"
# the solution, but
# - v.mul_(self.momentum).add_(g)
# + v.add_(g)

# %% exercise="L8.3" part="wrong" expects="no-grad"
# the solution, but
# - @torch.no_grad()

# %% exercise="L8.3" part="wrong" expects="rate-inside"
# the solution, but
# - v.mul_(self.momentum).add_(g)
# + v.mul_(self.momentum).add_(self.lr * g)
# - p.sub_(self.lr * v)
# + p.sub_(v)

# %% exercise="L8.3" part="wrong" expects="fixed-rate"
# the solution, but
# - self.lr, self.momentum, self.decay = lr, momentum, decay
# + self.lr, self.momentum, self.decay, self.rate = lr, momentum, decay, lr
# - p.sub_(self.lr * v)
# + p.sub_(self.rate * v)

# %% exercise="L8.3" part="wrong" expects="raised"
# the solution, but
# - if p.grad is None:
# - continue

# %% [markdown]
# ## Layer by layer
#
# One rate for all layers is a compromise: in some, the gradient is large against the weights, and a long step ruins
# them; in others it is small, and they hardly move. Here is how much longer the weights are than the gradient, layer
# by layer:

# %%
show.trust_ratios()

# %% [markdown]
# At first, the first convolution has by far the longest weights for its gradient, and the last layer the shortest.
# Within some twenty steps the first one's ratio falls to a small part of that, and the order of the layers turns
# round. So a rate for each layer, chosen once, would not fit for long either: it has to be measured in each step.
#
# **LARS** (You and others, arXiv:1708.03888) gives each layer a step in proportion to the size of its weights:
#
# $$ \text{ratio} = c\, \frac{\lVert w \rVert}{\lVert g \rVert + \lambda \lVert w \rVert} $$
#
# This is the **trust ratio**; the step of the layer is that much times the usual one. The length of the gradient drops
# out: only its direction counts.

# %% [markdown] exercise="L8.4" part="task"
# ### Exercise L8.4 · LARS
#
# Write a class `LARS(parameters, lr, momentum, decay, coefficient=0.001)` with a method `step()`. For tensors with two
# or more dimensions, with $g$ the gradient as it is:
#
# $$ v \leftarrow \mu v + \eta \cdot \text{ratio} \cdot (g + \lambda w), \qquad w \leftarrow w - v $$
#
# where $\text{ratio} = c \lVert w \rVert / (\lVert g \rVert + \lambda \lVert w \rVert)$ with $c$ = `coefficient`. The
# ratio is 1 if $w$ or $g$ is zero. For tensors of one dimension (biases, norms), the ratio is 1 and there is no decay.
# Again `lr` may be changed between steps.
#
# **Done when** five steps agree with the formula in float64, and a layer whose gradient is 1,000 times as long moves
# as before (without decay).

# %% exercise="L8.4" part="starter"
import torch


class LARS:
    """SGD with momentum, whose steps fit each layer."""

    def __init__(self, parameters, lr, momentum, decay, coefficient=0.001):
        raise NotImplementedError

    def step(self):
        """Update the parameters from their gradients."""
        raise NotImplementedError


# %% [markdown] exercise="L8.4" part="hint"
# Where does the rate stand, in contrast to exercise L8.3: before or behind the momentum? What changes for the
# velocity when the rate falls?

# %% [markdown] exercise="L8.4" part="hint"
# Compute both norms of each tensor, then its ratio, then the velocity. Mind the two cases: zero norms, and tensors of
# one dimension.

# %% [markdown] exercise="L8.4" part="hint"
# `ratio = self.coefficient * w_norm / (g_norm + self.decay * w_norm) if w_norm > 0 and g_norm > 0 else 1.0`, then
# `v.mul_(self.momentum).add_(self.lr * ratio * (p.grad + self.decay * p))`.

# %% exercise="L8.4" part="solution"
import torch


class LARS:
    """SGD with momentum, whose steps fit each layer."""

    def __init__(self, parameters, lr, momentum, decay, coefficient=0.001):
        self.parameters = list(parameters)
        self.lr, self.momentum, self.decay, self.coefficient = lr, momentum, decay, coefficient
        self.velocities = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self):
        """Update the parameters from their gradients."""
        for p, v in zip(self.parameters, self.velocities):
            if p.grad is None:
                continue
            ratio, decay = 1.0, 0.0
            if p.dim() > 1:
                w_norm, g_norm = p.norm().item(), p.grad.norm().item()
                decay = self.decay
                if w_norm > 0 and g_norm > 0:
                    ratio = self.coefficient * w_norm / (g_norm + decay * w_norm)
            v.mul_(self.momentum).add_(self.lr * ratio * (p.grad + decay * p))
            p.sub_(v)


# %% [markdown] exercise="L8.4" part="explanation"
# The rate is inside the velocity: after the rate has changed, older gradients go on with the rate of their own step.
# With SGD above, a new rate acts on all that was collected. With a rate that never changes there is no difference.
#
# Biases and norms are left out because their size says little: a bias that is near zero would never move. Many
# implementations differ in such details, and some have faults; that is why Paceline holds each optimizer to reference
# steps.
#
# LARS needs another rate than SGD, by orders of magnitude: compare optimizers only after looking for the rate of
# each.

# %% exercise="L8.4" part="wrong" expects="biases"
# the solution, but
# - if p.dim() > 1:
# + if p.dim() > 0:

# %% exercise="L8.4" part="wrong" expects="zero-norm"
# the solution, but
# - if w_norm > 0 and g_norm > 0:
# + if True:

# %% exercise="L8.4" part="wrong" expects="trust"
# the solution, but
# - ratio = self.coefficient * w_norm / (g_norm + decay * w_norm)
# + ratio = self.coefficient * g_norm / (w_norm + decay * g_norm)

# %% exercise="L8.4" part="wrong" expects="norm-of-sum"
# the solution, but
# - ratio = self.coefficient * w_norm / (g_norm + decay * w_norm)
# + ratio = self.coefficient * w_norm / (p.grad + decay * p).norm().item()

# %% exercise="L8.4" part="wrong" expects="zero-gradient"
# the solution, but
# - if w_norm > 0 and g_norm > 0:
# + if w_norm > 0:

# %% exercise="L8.4" part="wrong" expects="generator"
# the solution, but
# - self.parameters = list(parameters)
# + self.parameters = parameters

# %% exercise="L8.4" part="wrong" expects="rate-behind"
# the solution, but
# - v.mul_(self.momentum).add_(self.lr * ratio * (p.grad + decay * p))
# + v.mul_(self.momentum).add_(ratio * (p.grad + decay * p))
# - p.sub_(v)
# + p.sub_(self.lr * v)

# %% exercise="L8.4" part="wrong" expects="both-behind"
# the solution, but
# - v.mul_(self.momentum).add_(self.lr * ratio * (p.grad + decay * p))
# + v.mul_(self.momentum).add_(p.grad + decay * p)
# - p.sub_(v)
# + p.sub_(self.lr * ratio * v)

# %% [markdown]
# **NovoGrad** (Ginsburg and others, arXiv:1905.11286) goes half of that way: like Adam it divides gradients by a
# running size, but by one number for a whole layer.

# %% [markdown] exercise="L8.5" part="task"
# ### Exercise L8.5 · NovoGrad
#
# Write a class `NovoGrad(parameters, lr, betas=(0.95, 0.98), eps=1e-8, decay=0.0)` with a method `step()`. For each
# tensor, with the number $v$ and the tensor $m$:
#
# $$ v \leftarrow \beta_2 v + (1 - \beta_2) \lVert g \rVert^2 $$
#
# $$ m \leftarrow \beta_1 m + \Bigl( \frac{g}{\sqrt v + \epsilon} + \lambda w \Bigr) $$
#
# $$ w \leftarrow w - \eta m $$
#
# In the first step $v = \lVert g \rVert^2$, and $m$ begins at 0. Again `lr` may be changed between steps.
#
# **Done when** five steps agree with the formula in float64.

# %% exercise="L8.5" part="starter"
import torch


class NovoGrad:
    """Momentum over gradients that are normalised layer by layer."""

    def __init__(self, parameters, lr, betas=(0.95, 0.98), eps=1e-8, decay=0.0):
        raise NotImplementedError

    def step(self):
        """Update the parameters from their gradients."""
        raise NotImplementedError


# %% [markdown] exercise="L8.5" part="hint"
# How many numbers of state has a layer of a million weights here, and how many in Adam?

# %% [markdown] exercise="L8.5" part="hint"
# `v` is one number for each tensor: `None` before the first step. The decay is added to the normalised gradient, not
# to the gradient.

# %% [markdown] exercise="L8.5" part="hint"
# `square = p.grad.square().sum()`, then `v = square if v is None else b2 * v + (1 - b2) * square`, then
# `m.mul_(b1).add_(p.grad / (v.sqrt() + eps) + decay * p)`.

# %% exercise="L8.5" part="solution"
import torch


class NovoGrad:
    """Momentum over gradients that are normalised layer by layer."""

    def __init__(self, parameters, lr, betas=(0.95, 0.98), eps=1e-8, decay=0.0):
        self.parameters = list(parameters)
        self.lr, self.betas, self.eps, self.decay = lr, betas, eps, decay
        self.squares = [None] * len(self.parameters)
        self.momenta = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self):
        """Update the parameters from their gradients."""
        first, second = self.betas
        for index, (p, m) in enumerate(zip(self.parameters, self.momenta)):
            if p.grad is None:
                continue
            square = p.grad.square().sum()
            before = self.squares[index]
            v = square if before is None else second * before + (1 - second) * square
            self.squares[index] = v
            m.mul_(first).add_(p.grad / (v.sqrt() + self.eps) + self.decay * p)
            p.sub_(self.lr * m)


# %% [markdown] exercise="L8.5" part="explanation"
# Half of Adam's memory, and a step whose length does not depend on that of the gradient. PyTorch has no NovoGrad of its
# own; you have written it in ten lines, and know that they do what the formula says.

# %% exercise="L8.5" part="wrong" expects="element-wise"
# the solution, but
# - square = p.grad.square().sum()
# + square = p.grad.square()

# %% exercise="L8.5" part="wrong" expects="first-step"
# the solution, but
# - v = square if before is None else second * before + (1 - second) * square
# + v = (1 - second) * square if before is None else second * before + (1 - second) * square

# %% exercise="L8.5" part="wrong" expects="decay-inside"
# the solution, but
# - m.mul_(first).add_(p.grad / (v.sqrt() + self.eps) + self.decay * p)
# + m.mul_(first).add_((p.grad + self.decay * p) / (v.sqrt() + self.eps))

# %% exercise="L8.5" part="wrong" expects="not-squared"
# the solution, but
# - square = p.grad.square().sum()
# + square = p.grad.norm()

# %% exercise="L8.5" part="wrong" expects="order"
# the solution, but
# - m.mul_(first).add_(p.grad / (v.sqrt() + self.eps) + self.decay * p)
# - p.sub_(self.lr * m)
# + p.sub_(self.lr * m)
# + m.mul_(first).add_(p.grad / (v.sqrt() + self.eps) + self.decay * p)

# %% exercise="L8.5" part="wrong" expects="averaged-sizes"
# the solution, but
# - m.mul_(first).add_(p.grad / (v.sqrt() + self.eps) + self.decay * p)
# + m.mul_(first).add_((1 - first) * (p.grad / (v.sqrt() + self.eps) + self.decay * p))

# %% [markdown]
# ## Statistics over all processes
#
# Batch norm divides by the mean and the variance of the batch, and each process has its own part of it. Three
# answers: leave it (**local**: the statistics are noisier, and the noise sometimes helps); compute them over all
# processes (**synchronised**: what one process would do); or cut even a large batch into small groups (**ghost**
# batch norm, Hoffer and others), to keep the noise when the batch grows.

# %% [markdown] exercise="L8.6" part="task"
# ### Exercise L8.6 · Synchronised statistics
#
# Write `synchronised(x)`: `x` has the shape `(n, channels)`, where `n` differs from process to process and may be 0.
# Return `(mean, variance)` over the samples of all processes, each of shape `(channels,)`; the variance divides by
# the number of samples. Use one collective.
#
# **Done when** it agrees with one process that has all samples, in float64.

# %% exercise="L8.6" part="starter"
import torch
import torch.distributed as dist


def synchronised(x):
    """Mean and variance of each channel over all processes."""
    raise NotImplementedError


# %% [markdown] exercise="L8.6" part="hint"
# Which sums do you need so that mean and variance follow from them? Is a mean of means among them?

# %% [markdown] exercise="L8.6" part="hint"
# The sum of $x$, the sum of $x^2$, and the count, all in one tensor; then mean and $E[x^2] - E[x]^2$.

# %% [markdown] exercise="L8.6" part="hint"
# `sums = torch.cat([x.sum(dim=0), x.square().sum(dim=0), x.new_tensor([len(x)])])`, one `all_reduce`, and then take
# it apart.

# %% exercise="L8.6" part="solution"
import torch
import torch.distributed as dist


def synchronised(x):
    """Mean and variance of each channel over all processes."""
    channels = x.shape[1]
    sums = torch.cat([x.sum(dim=0), x.square().sum(dim=0), x.new_tensor([len(x)])])
    dist.all_reduce(sums)
    count = sums[-1]
    mean = sums[:channels] / count
    return mean, sums[channels : 2 * channels] / count - mean.square()


# %% [markdown] exercise="L8.6" part="explanation"
# The variance of all is not the mean of the variances: it lacks how far the means lie apart. $E[x^2] - E[x]^2$ loses
# digits where the mean is large against the spread; library code adds squares of deviations instead, with a formula
# that joins groups. For training, gradients have to flow through these sums to the samples of *other* processes as
# well, which takes a collective in backward, too.

# %% exercise="L8.6" part="wrong" expects="mean-of-variances"
import torch
import torch.distributed as dist


def synchronised(x):
    count = torch.tensor(float(len(x)), dtype=x.dtype)
    if len(x):
        parts = torch.cat([x.sum(dim=0), len(x) * x.var(dim=0, unbiased=False), count.view(1)])
    else:
        parts = torch.zeros(2 * x.shape[1] + 1, dtype=x.dtype)
    dist.all_reduce(parts)
    return parts[: x.shape[1]] / parts[-1], parts[x.shape[1] : -1] / parts[-1]


# %% exercise="L8.6" part="wrong" expects="mean-of-means"
import torch
import torch.distributed as dist


def synchronised(x):
    mean = x.mean(dim=0) if len(x) else torch.zeros(x.shape[1], dtype=x.dtype)
    square = x.square().mean(dim=0) if len(x) else torch.zeros(x.shape[1], dtype=x.dtype)
    both = torch.cat([mean, square])
    dist.all_reduce(both)
    both /= dist.get_world_size()
    return both[: x.shape[1]], both[x.shape[1] :] - both[: x.shape[1]].square()


# %% exercise="L8.6" part="wrong" expects="n-1"
# the solution, but
# - return mean, sums[channels : 2 * channels] / count - mean.square()
# + return mean, (sums[channels : 2 * channels] - count * mean.square()) / (count - 1)

# %% exercise="L8.6" part="wrong" expects="own-count"
# the solution, but
# - count = sums[-1]
# + count = len(x) * dist.get_world_size()

# %% exercise="L8.6" part="wrong" expects="local"
# the solution, but
# - dist.all_reduce(sums)

# %% exercise="L8.6" part="wrong" expects="collectives"
# the solution, but
# - dist.all_reduce(sums)
# + for part in (sums[:channels], sums[channels:-1], sums[-1:]):
# +     dist.all_reduce(part)

# %% [markdown]
# ## Decay and smoothing
#
# **Weight decay** pulls weights towards zero. For biases, and for the two parameters of a norm, there is little
# to gain from that, so they are often left out. **Label smoothing** does not ask the network for certainty: with
# $s = 0.1$ it spreads 10 % of it over all classes, the right one among them.

# %% [markdown] exercise="L8.7" part="task"
# ### Exercise L8.7 · Who decays
#
# Write `decay_groups(model, decay)`: a list of two dictionaries with `"params"` and `"weight_decay"`, as torch's
# optimizers take them. The first has the parameters with two or more dimensions, with `decay`; the second those of
# one dimension (and of none), with 0. Frozen parameters are in neither, and a parameter that is used twice is there
# once.
#
# Write `smoothed_loss(logits, labels, smoothing)`: the **sum** over the batch of the cross entropy with the target
# $(1 - s)$ for the label, plus $s / K$ for each of the $K$ classes.
#
# **Done when** every trained parameter is in exactly one group, and the loss agrees with torch's.

# %% exercise="L8.7" part="starter"
import torch


def decay_groups(model, decay):
    """Parameters with and without decay."""
    raise NotImplementedError


def smoothed_loss(logits, labels, smoothing):
    """Sum over the batch of the cross entropy with smoothed labels."""
    raise NotImplementedError


# %% [markdown] exercise="L8.7" part="hint"
# How does one tell a filter from a bias without knowing names? And what is the cross entropy of a target that is
# spread over all classes?

# %% [markdown] exercise="L8.7" part="hint"
# `p.dim()` tells them apart; `model.parameters()` names a shared parameter once. Let `log` be
# `logits.log_softmax(dim=1)`: the loss of a sample is `-(1 - s) * log[label] - s * log.mean()`.

# %% [markdown] exercise="L8.7" part="hint"
# `log.gather(1, labels.unsqueeze(1))` picks the label's entry of each row.

# %% exercise="L8.7" part="solution"
import torch


def decay_groups(model, decay):
    """Parameters with and without decay."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trained if p.dim() > 1], "weight_decay": decay},
        {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
    ]


def smoothed_loss(logits, labels, smoothing):
    """Sum over the batch of the cross entropy with smoothed labels."""
    log = logits.log_softmax(dim=1)
    right = log.gather(1, labels.unsqueeze(1)).squeeze(1)
    return -((1 - smoothing) * right + smoothing * log.mean(dim=1)).sum()


# %% [markdown] exercise="L8.7" part="explanation"
# Smooth in training only: a loss on the evaluation set with smoothing cannot be compared with one without. In front
# of a batch norm, weight decay does not make weights "simpler", for their size does not matter there. It keeps them
# from growing, and with them the effective rate from falling: one more way in which it acts on the rate.

# %% exercise="L8.7" part="wrong" expects="frozen"
# the solution, but
# - trained = [p for p in model.parameters() if p.requires_grad]
# + trained = list(model.parameters())

# %% exercise="L8.7" part="wrong" expects="by-name"
# the solution, but
# - trained = [p for p in model.parameters() if p.requires_grad]
# + trained = []
# - {"params": [p for p in trained if p.dim() > 1], "weight_decay": decay},
# - {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
# + {"params": [p for n, p in model.named_parameters() if "weight" in n and p.requires_grad], "weight_decay": decay},
# + {"params": [p for n, p in model.named_parameters() if "bias" in n and p.requires_grad], "weight_decay": 0.0},

# %% exercise="L8.7" part="wrong" expects="twice"
# the solution, but
# - trained = [p for p in model.parameters() if p.requires_grad]
# + trained = [p for layer in model.modules() for p in layer.parameters(recurse=False) if p.requires_grad]

# %% exercise="L8.7" part="wrong" expects="groups"
# the solution, but
# - {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
# + {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0},

# %% exercise="L8.7" part="wrong" expects="mean"
# the solution, but
# - return -((1 - smoothing) * right + smoothing * log.mean(dim=1)).sum()
# + return -((1 - smoothing) * right + smoothing * log.mean(dim=1)).mean()

# %% exercise="L8.7" part="wrong" expects="smoothing"
# the solution, but
# - return -((1 - smoothing) * right + smoothing * log.mean(dim=1)).sum()
# + return -((1 - smoothing) * right + smoothing * log.sum(dim=1)).sum()

# %% [markdown]
# ## When is it better?
#
# Two trainings that differ in nothing but the seed do not end with the same accuracy. So a strategy is better than
# another one only if the difference is larger than what seeds make. With a few seeds of each, a **confidence
# interval** of the difference of their means says what is possible; if it contains 0, you know nothing yet.

# %% [markdown] exercise="L8.8" part="task"
# ### Exercise L8.8 · Evidence
#
# Write `compare(a, b)`: `a` and `b` are lists of accuracies, at least two of each. Return `(difference, low, high,
# verdict)`: the mean of `b` minus that of `a`, its 95 % interval by Welch's formula (the variances may differ), and
# `"better"`, `"worse"` or `"no evidence"` for `b`.
#
# With $s^2$ the variances (dividing by $n - 1$), $e = \sqrt{s_a^2 / n_a + s_b^2 / n_b}$, and the degrees of freedom
#
# $$ \nu = \frac{(s_a^2 / n_a + s_b^2 / n_b)^2}{\frac{(s_a^2 / n_a)^2}{n_a - 1} + \frac{(s_b^2 / n_b)^2}{n_b - 1}} $$
#
# the interval is the difference plus and minus $e$ times the 97.5 % point of Student's distribution,
# `scipy.stats.t.ppf(0.975, nu)`. If all values of each list are equal, the interval is the difference itself.
#
# **Done when** it agrees with SciPy's own test.

# %% exercise="L8.8" part="starter"
import statistics

from scipy import stats


def compare(a, b):
    """(difference, low, high, verdict) of b against a."""
    raise NotImplementedError


# %% [markdown] exercise="L8.8" part="hint"
# Which of the numbers above do you need from each list?

# %% [markdown] exercise="L8.8" part="hint"
# `statistics.variance` divides by n - 1. Compute `va = variance(a) / len(a)` and `vb` likewise; everything else is
# made of these.

# %% [markdown] exercise="L8.8" part="hint"
# `nu = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))`, and then
# `half = stats.t.ppf(0.975, nu) * (va + vb) ** 0.5`.

# %% exercise="L8.8" part="solution"
import statistics

from scipy import stats


def compare(a, b):
    """(difference, low, high, verdict) of b against a."""
    difference = statistics.fmean(b) - statistics.fmean(a)
    va, vb = statistics.variance(a) / len(a), statistics.variance(b) / len(b)
    half = 0.0
    if va + vb > 0:
        nu = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
        half = stats.t.ppf(0.975, nu) * (va + vb) ** 0.5
    low, high = difference - half, difference + half
    verdict = "better" if low > 0 else "worse" if high < 0 else "no evidence"
    return difference, low, high, verdict


# %% [markdown] exercise="L8.8" part="explanation"
# With three seeds of each, $\nu$ is between 2 and 4, and the 97.5 % point between 4.30 and 2.78 instead of 1.96: few
# seeds, wide intervals. And whoever tries many
# settings and reports the best one needs fresh seeds for it, because the best of many is lucky. Our own study of this
# ladder on Fashion-MNIST, `docs/studies/ladder.md`, searches on held-out images and confirms with ten new seeds.

# %% exercise="L8.8" part="wrong" expects="normal"
# the solution, but
# - half = stats.t.ppf(0.975, nu) * (va + vb) ** 0.5
# + half = 1.96 * (va + vb) ** 0.5

# %% exercise="L8.8" part="wrong" expects="spread"
# the solution, but
# - va, vb = statistics.variance(a) / len(a), statistics.variance(b) / len(b)
# + va, vb = statistics.variance(a), statistics.variance(b)

# %% exercise="L8.8" part="wrong" expects="population"
# the solution, but
# - va, vb = statistics.variance(a) / len(a), statistics.variance(b) / len(b)
# + va, vb = statistics.pvariance(a) / len(a), statistics.pvariance(b) / len(b)

# %% exercise="L8.8" part="wrong" expects="pooled"
# the solution, but
# - nu = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
# + nu = len(a) + len(b) - 2

# %% exercise="L8.8" part="wrong" expects="one-sided"
# the solution, but
# - half = stats.t.ppf(0.975, nu) * (va + vb) ** 0.5
# + half = stats.t.ppf(0.95, nu) * (va + vb) ** 0.5

# %% exercise="L8.8" part="wrong" expects="all-equal"
# the solution, but
# - if va + vb > 0:
# + if True:

# %% exercise="L8.8" part="wrong" expects="verdict"
# the solution, but
# - verdict = "better" if low > 0 else "worse" if high < 0 else "no evidence"
# + verdict = "better" if difference > 0 else "worse"

# %% exercise="L8.8" part="wrong" expects="direction"
# the solution, but
# - difference = statistics.fmean(b) - statistics.fmean(a)
# + difference = statistics.fmean(a) - statistics.fmean(b)

# %% [markdown]
# ## The ladder
#
# Now all of it, one rung after the other, at a batch of 512 and with three seeds each: some minutes. Which rung will
# bring most?

# %%
# What does each bring, in points of accuracy?
predict("L8.8", unit="points", linear_rule=..., train_longer=...)

# %%
gains = show.ladder(compare)
reveal("L8.8", **gains)

# %% [markdown]
# Read it with care. What helps here need not help elsewhere: with so few steps a warm-up costs more than it brings,
# and in a training of ten thousand steps it is what makes a large rate possible at all. LARS and NovoGrad were made
# for such trainings, too; their rates here are the best of a few, and still nothing shows beyond the spread of seeds.
# **Muon** (Jordan and others, 2024), which the workshop does not have, makes the step of each matrix orthogonal, so
# that no direction is left behind; on this problem it closes the gap in as many epochs. The honest summary: most of
# the accuracy comes back with *more steps* or with better ones, and a larger batch is worth having only while it saves
# time nevertheless.
#
# ## What you can say now
#
# - The rate has to fit the global batch; linear and square root are two hypotheses, not laws.
# - A schedule is a function of the step. Momentum makes steps longer. LARS and NovoGrad look at each layer.
# - Statistics over processes are sums and counts; decay is for matrices.
# - A difference without an interval is an anecdote.
#
# `quiz("L8")` draws new numbers each time. In the tool: `paceline train --lr-rule linear --base-batch 64 --warmup 20
# --optimizer lars --batch-norm sync`.
