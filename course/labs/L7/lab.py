# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # L7 · Does it scale?
#
# You have a training that is right on many devices. Is it also fast? In this lab you measure it, say where the time
# goes, and predict what more devices would bring *before* you pay for them. And you see the other way to use several
# devices, in which not the data are shared out but the model.

# %%
from paceline_course.notebook import *

show = lab("L7")
show.stages()

# %% [markdown]
# The picture has the numbered stages of one training step, on one device and on several. All but one of them are a
# device's own business: only stage 10, where gradients are averaged, needs the others. Its cost, and what of it can
# be hidden behind stage 9, decides whether the training scales.
#
# ## Efficiency
#
# Two kinds of scaling are easily confused. **Weak scaling** keeps the batch of each device: twice the devices do
# twice the work in the same time, if all is well. **Strong scaling** keeps the global batch: twice the devices do the
# same work in half the time. In both cases **efficiency** is what you get of what you would get if every device
# worked as fast as before.

# %%
# Two processes on this machine, 64 samples each: which efficiency, between 0 and 1?
predict("L7.1", unit="efficiency", two_processes=...)

# %% [markdown] exercise="L7.1" part="task"
# ### Exercise L7.1 · Efficiency
#
# Write `efficiency(rates)`. `rates` maps a number of workers to the samples a second of all of them together, for
# instance `{2: 1800.0, 4: 3300.0, 8: 5600.0}`. Return a dictionary that maps each number of workers to its
# efficiency, with the *smallest* number in `rates` as the base, whose efficiency is 1.
#
# **Done when** it is right, also where the smallest number is not 1.


# %% exercise="L7.1" part="starter"
def efficiency(rates):
    """Efficiency by number of workers."""
    raise NotImplementedError


# %% [markdown] exercise="L7.1" part="hint"
# What would 8 workers do if each worked as fast as one of the two did?

# %% [markdown] exercise="L7.1" part="hint"
# Divide each rate by its number of workers: the rate of one worker. Compare it with the same at the base.

# %% [markdown] exercise="L7.1" part="hint"
# `base = min(rates)`, and then `(rate / workers) / (rates[base] / base)` for each.


# %% exercise="L7.1" part="solution"
def efficiency(rates):
    """Efficiency by number of workers."""
    base = min(rates)
    return {workers: (rate / workers) / (rates[base] / base) for workers, rate in rates.items()}


# %% [markdown] exercise="L7.1" part="explanation"
# Beware of efficiencies whose base is not said. One that begins at 64 workers hides everything that was lost before,
# and one that compares with a slow single-device program flatters as well: the honest base is the best program for
# one device.


# %% exercise="L7.1" part="wrong" expects="speedup"
def efficiency(rates):
    return {workers: rate / rates[min(rates)] for workers, rate in rates.items()}


# %% exercise="L7.1" part="wrong" expects="base"
def efficiency(rates):
    return {workers: rate / workers / rates[min(rates)] for workers, rate in rates.items()}


# %% exercise="L7.1" part="wrong" expects="efficiency"
def efficiency(rates):
    return {workers: rate / (workers * max(rates.values())) for workers, rate in rates.items()}


# %%
rates = show.rates(workers=(1, 2))
print({workers: round(value, 2) for workers, value in efficiency(rates).items()})
reveal("L7.1", two_processes=efficiency(rates)[2])

# %% [markdown]
# ## What does a message cost?
#
# A message takes a fixed time, the **latency** $\alpha$, and a time for each byte, $\beta$ (one over the
# **bandwidth**): $t = \alpha + \beta n$. To know both, time messages of many sizes and fit a line.
#
# There is a catch. Sizes range from a kilobyte to many megabytes, and so do the times. A small relative error of a
# large message is larger than a whole small message. A plain least-squares fit looks at the large ones only, and
# gives a latency that may be anything, even negative. What is equally uncertain for all sizes is the *relative*
# error, so that is what the fit should make small.

# %% [markdown] exercise="L7.2" part="task"
# ### Exercise L7.2 · Latency and bandwidth
#
# Write `fit(sizes, seconds)`: two arrays, sizes in bytes and measured times. Return `(alpha, beta)` such that the sum
# of the squares of `(alpha + beta * size - time) / time` is as small as possible.
#
# This is an ordinary linear least-squares problem after a division: `numpy.linalg.lstsq` solves it.
#
# **Done when** it finds planted values from noisy times, the latency as well as the bandwidth.

# %% exercise="L7.2" part="starter"
import numpy as np


def fit(sizes, seconds):
    """(alpha in seconds, beta in seconds a byte)."""
    raise NotImplementedError


# %% [markdown] exercise="L7.2" part="hint"
# Divide `alpha + beta * size = time` by `time`. What stands on the right side now, and what are the two columns on
# the left?

# %% [markdown] exercise="L7.2" part="hint"
# The columns are `1 / time` and `size / time`, and the right side is all ones. Columns of very different size are
# hard on the solver: measure bytes in megabytes meanwhile.

# %% [markdown] exercise="L7.2" part="hint"
# `design = np.stack([1 / seconds, sizes / 1e6 / seconds], axis=1)`, `alpha, beta = np.linalg.lstsq(design,
# np.ones(len(sizes)), rcond=None)[0]`, and `beta / 1e6`.

# %% exercise="L7.2" part="solution"
import numpy as np


def fit(sizes, seconds):
    """(alpha in seconds, beta in seconds a byte)."""
    sizes, seconds = np.asarray(sizes, float), np.asarray(seconds, float)
    design = np.stack([1 / seconds, sizes / 1e6 / seconds], axis=1)
    alpha, beta = np.linalg.lstsq(design, np.ones(len(sizes)), rcond=None)[0]
    return alpha, beta / 1e6


# %% [markdown] exercise="L7.2" part="explanation"
# The weights of a fit say what you believe of your errors. `paceline plan speed` fits its model of a step in the same
# way, by relative errors, and for the same reason.

# %% exercise="L7.2" part="wrong" expects="alpha"
import numpy as np


def fit(sizes, seconds):
    beta, alpha = np.polyfit(sizes, seconds, 1)
    return alpha, beta


# %% exercise="L7.2" part="wrong" expects="swapped"
# the solution, but
# - return alpha, beta / 1e6
# + return beta / 1e6, alpha

# %% exercise="L7.2" part="wrong" expects="bandwidth"
# the solution, but
# - return alpha, beta / 1e6
# + return alpha, 1e6 / beta

# %% exercise="L7.2" part="wrong" expects="alpha"
import numpy as np


def fit(sizes, seconds):
    slope, level = np.polyfit(np.log(sizes), np.log(seconds), 1)
    return np.exp(level), (seconds[-1] - seconds[0]) / (sizes[-1] - sizes[0])


# %%
sizes, seconds = show.messages()
alpha, beta = fit(sizes, seconds)
print(f"an all-reduce between two processes here: {alpha * 1e6:.0f} microseconds + {1 / beta / 1e9:.2f} GB/s")
show.line(sizes, seconds, alpha, beta)

# %% [markdown]
# ## Where is the wall?
#
# With $\alpha$ and $\beta$ of a link between neighbours, a ring all-reduce of $n$ bytes over $W$ workers takes
#
# $$ t(W) = 2 (W - 1)\, \alpha + \frac{2 (W - 1)}{W}\, \beta\, n $$
#
# as you have built it in lab 3. If the global batch stays what it is, computing takes $C / W$, where $C$ is the time
# on one worker. The step takes both, if nothing is hidden. The first part falls with $W$, the second grows: there is
# a number of workers at which the step is shortest, and beyond which every further one makes it *slower*.

# %%
# 1 s of computing, 100 MB of gradients, 20 microseconds, 10 GB/s: at how many workers is the step shortest?
predict("L7.3", unit="workers", wall=...)

# %% [markdown] exercise="L7.3" part="task"
# ### Exercise L7.3 · Predict, and find the wall
#
# Write `step_time(workers, compute_s, grad_bytes, alpha, beta)`, the time of a step with nothing hidden. One worker
# sends nothing.
#
# Write `wall(compute_s, grad_bytes, alpha, beta)`: the number of workers, a power of two from 1 to 4096, at which
# that time is shortest.
#
# **Done when** both agree with the formula.


# %% exercise="L7.3" part="starter"
def step_time(workers, compute_s, grad_bytes, alpha, beta):
    """Seconds of a step with a fixed global batch."""
    raise NotImplementedError


def wall(compute_s, grad_bytes, alpha, beta):
    """The power of two, at most 4096, with the shortest step."""
    raise NotImplementedError


# %% [markdown] exercise="L7.3" part="hint"
# What is `t(1)` by the formula? Does one worker need a case of its own?

# %% [markdown] exercise="L7.3" part="hint"
# With `W = 1` both terms are zero, so there is no special case. For the wall, try all powers of two: `min(...,
# key=...)`.

# %% [markdown] exercise="L7.3" part="hint"
# `min((2**k for k in range(13)), key=lambda workers: step_time(workers, compute_s, grad_bytes, alpha, beta))`


# %% exercise="L7.3" part="solution"
def step_time(workers, compute_s, grad_bytes, alpha, beta):
    """Seconds of a step with a fixed global batch."""
    steps = 2 * (workers - 1)
    return compute_s / workers + steps * alpha + steps / workers * beta * grad_bytes


def wall(compute_s, grad_bytes, alpha, beta):
    """The power of two, at most 4096, with the shortest step."""
    return min((2**k for k in range(13)), key=lambda workers: step_time(workers, compute_s, grad_bytes, alpha, beta))


# %% [markdown] exercise="L7.3" part="explanation"
# The bandwidth term comes near $2 \beta n$ and stays there: it limits how short a step can be, but is no wall. The
# wall is latency, which grows with every worker. Libraries use trees for many workers and small tensors, whose
# latency grows with the logarithm only, and rings within rings; the wall then lies further out, and still is one.
#
# And there is a second wall, that of lab 2: with the batch that 4,096 workers need, a step may bring you no further.

# %% exercise="L7.3" part="wrong" expects="not-divided"
# the solution, but
# - return compute_s / workers + steps * alpha + steps / workers * beta * grad_bytes
# + return compute_s + steps * alpha + steps / workers * beta * grad_bytes

# %% exercise="L7.3" part="wrong" expects="ring"
# the solution, but
# - return compute_s / workers + steps * alpha + steps / workers * beta * grad_bytes
# + return compute_s / workers + steps * alpha + steps * beta * grad_bytes

# %% exercise="L7.3" part="wrong" expects="wall"
# the solution, but
# - return min((2**k for k in range(13)), key=lambda workers: step_time(workers, compute_s, grad_bytes, alpha, beta))
# + return max((2**k for k in range(13)), key=lambda workers: step_time(workers, compute_s, grad_bytes, alpha, beta))

# %%
reveal("L7.3", wall=wall(1.0, 100e6, 20e-6, 1e-10))
show.strong_scaling(step_time, compute_s=1.0, grad_bytes=100e6, alpha=20e-6, beta=1e-10)

# %% [markdown]
# ## Hiding it
#
# In lab 4 buckets were sent while backward went on. How large should a bucket be? Too small, and each pays its
# latency; too large, and the last one begins late. This can be computed.

# %% [markdown] exercise="L7.4" part="task"
# ### Exercise L7.4 · When is the last bucket done?
#
# Write `finish_time(layers, layer_s, layer_bytes, per_bucket, alpha, beta)`. Backward computes the gradients of
# `layers` equal layers, each in `layer_s` seconds, one after the other from time 0 on. `per_bucket` layers form a
# bucket (the last one may have fewer); it can be sent as soon as its last gradient is there. Sending a bucket of `n`
# bytes takes `alpha + beta * n`. Buckets are sent one after the other, never two at once. Return the time at which
# the last one is done.
#
# **Done when** it agrees with a simulation for any numbers.


# %% exercise="L7.4" part="starter"
def finish_time(layers, layer_s, layer_bytes, per_bucket, alpha, beta):
    """Seconds from the beginning of backward until all gradients are averaged."""
    raise NotImplementedError


# %% [markdown] exercise="L7.4" part="hint"
# Two things have to be over before a bucket can be sent. Which?

# %% [markdown] exercise="L7.4" part="hint"
# Its last gradient, and the bucket before it. Go through the buckets and remember when the link is free.

# %% [markdown] exercise="L7.4" part="hint"
# `free = max(free, ready) + alpha + beta * count * layer_bytes`, where `ready` is the number of layers so far times
# `layer_s`.


# %% exercise="L7.4" part="solution"
def finish_time(layers, layer_s, layer_bytes, per_bucket, alpha, beta):
    """Seconds from the beginning of backward until all gradients are averaged."""
    free = 0.0
    for start in range(0, layers, per_bucket):
        count = min(per_bucket, layers - start)
        ready = (start + count) * layer_s
        free = max(free, ready) + alpha + beta * count * layer_bytes
    return free


# %% [markdown] exercise="L7.4" part="explanation"
# Two limits are worth remembering. Where sending is quick, all but the last bucket is hidden, and what sticks out is
# one bucket: small buckets win. Where sending is slow, the link is never free, and only the number of bytes and of
# latencies counts: large buckets win. DDP's 25 MB are a compromise for fast links; over a slow network with small
# messages it is worth trying others.

# %% exercise="L7.4" part="wrong" expects="no-queue"
# the solution, but
# - free = max(free, ready) + alpha + beta * count * layer_bytes
# + free = max(free, ready + alpha + beta * count * layer_bytes)


# %% exercise="L7.4" part="wrong" expects="not-overlapped"
def finish_time(layers, layer_s, layer_bytes, per_bucket, alpha, beta):
    buckets = -(-layers // per_bucket)
    return layers * layer_s + buckets * alpha + beta * layers * layer_bytes


# %% exercise="L7.4" part="wrong" expects="last-bucket"
# the solution, but
# - count = min(per_bucket, layers - start)
# + count = per_bucket

# %%
show.bucket_sizes(finish_time)

# %% [markdown]
# ## The slow one
#
# A collective ends when the last process has come. So one slow process slows down all, and every other process
# *looks* slow in its log, since it waits. Who is it? Not the one with the longest collective: that is the one who
# waits longest. The slow one is the one who comes last.

# %% [markdown] exercise="L7.5" part="task"
# ### Exercise L7.5 · Who is slow?
#
# Write `straggler(arrivals)`. `arrivals[step][rank]` is the moment, in seconds, at which each process came to the
# collective of that step. If one process came last in at least 60 % of the steps, return `(rank, lost)`, where `lost`
# is the median over steps of the time between it and the last of the *others* (0 where it was not last). Else return
# `None`: some process is always last, by chance.
#
# **Done when** it finds planted stragglers, and none where there is none.

# %% exercise="L7.5" part="starter"
import statistics


def straggler(arrivals):
    """(rank, seconds that it costs a step), or None."""
    raise NotImplementedError


# %% [markdown] exercise="L7.5" part="hint"
# How often would each of four equally fast processes be last?

# %% [markdown] exercise="L7.5" part="hint"
# Count for each step who was last. For the suspect, compare its arrival in each step with the largest of the others'.

# %% [markdown] exercise="L7.5" part="hint"
# `last = [max(range(len(step)), key=step.__getitem__) for step in arrivals]`, `rank = max(set(last),
# key=last.count)`, and `max(0, step[rank] - max(others))` for each step.

# %% exercise="L7.5" part="solution"
import statistics


def straggler(arrivals):
    """(rank, seconds that it costs a step), or None."""
    last = [max(range(len(step)), key=step.__getitem__) for step in arrivals]
    rank = max(set(last), key=last.count)
    if last.count(rank) < 0.6 * len(arrivals):
        return None
    lost = [max(0.0, step[rank] - max(t for r, t in enumerate(step) if r != rank)) for step in arrivals]
    return rank, statistics.median(lost)


# %% [markdown] exercise="L7.5" part="explanation"
# Common reasons for a slow process: a GPU that is too hot, a neighbour on the same machine, a loader worker too few,
# a part of the data with longer samples. The first question is always whether it is the same process each time.

# %% exercise="L7.5" part="wrong" expects="always-somebody"
# the solution, but
# - if last.count(rank) < 0.6 * len(arrivals):
# + if not arrivals:

# %% exercise="L7.5" part="wrong" expects="first-comes-last"
# the solution, but
# - last = [max(range(len(step)), key=step.__getitem__) for step in arrivals]
# + last = [min(range(len(step)), key=step.__getitem__) for step in arrivals]

# %% exercise="L7.5" part="wrong" expects="lost"
# the solution, but
# - lost = [max(0.0, step[rank] - max(t for r, t in enumerate(step) if r != rank)) for step in arrivals]
# + lost = [step[rank] - min(step) for step in arrivals]

# %%
print(straggler(show.arrivals_of_a_slow_rank()))

# %% [markdown]
# ## The other way: split the model
#
# Data parallelism gives every device the whole model and a part of the data. **Model parallelism** gives every device
# the whole batch and a part of the model: the first device has the first layers, and hands its *activations* to the
# second, which hands back their gradients. It is for models that do not fit on one device.
#
# | | data parallelism | model parallelism |
# |---|---|---|
# | each device has | the whole model, a part of the batch | a part of the model, the whole batch |
# | sent in a step | gradients: the bytes of the model | activations and their gradients: of the batch |
# | what it is for | time | size |
# | while one works | all others do too | the others wait, unless micro-batches follow each other |

# %% [markdown] exercise="L7.6" part="task"
# ### Exercise L7.6 · Two stages
#
# Write `split_step(stage, optimizer, inputs, labels)`, one step of a network whose first part is on rank 0 and whose
# second part is on rank 1. `stage` is this rank's part, `optimizer` that of its parameters; both ranks are given the
# same `inputs` and `labels`, though rank 1 needs only the labels.
#
# Rank 0 computes `stage(inputs)` and sends it. Rank 1 receives it into a tensor of the right shape, which is
# `(len(inputs), stage.in_features)`, computes the mean cross entropy and its gradients, and sends the gradient of
# what it received back. Rank 0 goes on backwards from there. Both step.
#
# **Done when** both parts train as in one process, with two messages a step.

# %% exercise="L7.6" part="starter"
import torch
import torch.distributed as dist
from torch import nn


def split_step(stage, optimizer, inputs, labels):
    """One step of a network in two parts."""
    raise NotImplementedError


# %% [markdown] exercise="L7.6" part="hint"
# Which tensor is the end of rank 0's graph, and which is the beginning of rank 1's?

# %% [markdown] exercise="L7.6" part="hint"
# What rank 1 receives has no history: `requires_grad_()` makes autograd compute its gradient. On rank 0,
# `activations.backward(gradient)` continues from a gradient that came from elsewhere.

# %% [markdown] exercise="L7.6" part="hint"
# Rank 0: `dist.send(out.detach(), 1)`, `dist.recv(grad, 1)`, `out.backward(grad)`. Rank 1: `dist.recv(received, 0)`,
# `received.requires_grad_()`, loss, `loss.backward()`, `dist.send(received.grad, 0)`.

# %% exercise="L7.6" part="solution"
import torch
import torch.distributed as dist
from torch import nn


def split_step(stage, optimizer, inputs, labels):
    """One step of a network in two parts."""
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        out = stage(inputs)
        dist.send(out.detach(), 1)
        grad = torch.empty_like(out)
        dist.recv(grad, 1)
        out.backward(grad)
    else:
        received = torch.empty(len(inputs), stage.in_features, dtype=inputs.dtype)
        dist.recv(received, 0)
        received.requires_grad_()
        nn.functional.cross_entropy(stage(received), labels).backward()
        dist.send(received.grad, 0)
    optimizer.step()


# %% [markdown] exercise="L7.6" part="explanation"
# Two messages, whose size depends on the batch and not on the model. While rank 1 works, rank 0 waits, and the other
# way round: two devices, and the time of one. Pipelines cut the batch into micro-batches, so that rank 0 begins with
# the next while rank 1 has the first. Large models use both: replicas of pipelines.

# %% exercise="L7.6" part="wrong" expects="first-stage"
# the solution, but
# - out.backward(grad)

# %% exercise="L7.6" part="wrong" expects="unequal"
# the solution, but
# - nn.functional.cross_entropy(stage(received), labels).backward()
# + nn.functional.cross_entropy(stage(received), labels, reduction="sum").backward()

# %% exercise="L7.6" part="wrong" expects="raised"
# the solution, but
# - received.requires_grad_()

# %% exercise="L7.6" part="wrong" expects="unequal"
# the solution, but
# - optimizer.zero_grad()

# %%
show.exchanged(split_step)

# %% [markdown]
# ## What you can say now
#
# - Efficiency needs a base, and weak and strong scaling are two things.
# - A message has a latency and a bandwidth; a ring has a wall, and it is latency.
# - Buckets hide what they can; the slow process is the one that comes last.
# - Data parallelism sends gradients, model parallelism activations.
#
# `quiz("L7")` draws new numbers each time. For your own training, `paceline plan speed` does this lab's work, with
# intervals.
