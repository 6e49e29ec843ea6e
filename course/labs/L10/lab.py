# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # L10 · After the course: robust, elastic, smaller
#
# Trainings on many devices run long, and something always happens: a machine is taken away, a job is killed, a disk
# is full. In this lab a training comes back from that as if nothing had been, goes on with another number of
# processes, and learns two ways to need less memory. Everything here is what `paceline train` does; after it you can
# do it in a script of your own.

# %%
from paceline_course.notebook import *

show = lab("L10")
show.state_of_a_training()

# %% [markdown]
# ## What is a training?
#
# Weights are only a part of it. To go on exactly where it was, a training needs the state of the optimizer (momenta),
# the position in the data (epoch, step), the schedule (which follows from the step), and the state of the random
# generators (dropout, augmentation). If one of them is missing, the resumed run is another one: not wrong, but nobody
# can tell any more whether a difference comes from the restart or from a fault.
#
# And the file has to be whole. A program that is killed while it writes leaves half a file, and if it was writing
# over the last good one, nothing is left. So write under another name, and rename when it is complete: `os.replace`
# does that in one step.

# %%
# A resumed run without the momenta: how many digits of the weights agree after 5 more steps?
predict("L10.1", unit="digits", digits_that_agree=...)

# %% [markdown] exercise="L10.1" part="task"
# ### Exercise L10.1 · Save and resume
#
# Write `save(path, model, optimizer, step)` and `load(path, model, optimizer)`, which returns the step. Model,
# optimizer and torch's random state come back to the bit. A `save` that fails or is killed in the middle leaves the
# last complete file as it is.
#
# `torch.save` takes dictionaries of tensors and numbers; read with `torch.load(path, weights_only=True)`.
# `torch.get_rng_state()` and `torch.set_rng_state()` are the state of the generator.
#
# **Done when** a resumed training is bit for bit the unbroken one, dropout included, and a save that fails leaves the
# last one.

# %% exercise="L10.1" part="starter"
import os

import torch


def save(path, model, optimizer, step):
    """Write everything that the training needs to go on."""
    raise NotImplementedError


def load(path, model, optimizer):
    """Bring it all back; the step."""
    raise NotImplementedError


# %% [markdown] exercise="L10.1" part="hint"
# Go through what changes in a step. Which of it is not in `model.state_dict()`?

# %% [markdown] exercise="L10.1" part="hint"
# Momenta are in `optimizer.state_dict()`, dropout's numbers in `torch.get_rng_state()`. For the file: a second name
# in the same folder, then `os.replace(second, path)`.

# %% [markdown] exercise="L10.1" part="hint"
# `torch.save({"model": ..., "optimizer": ..., "random": torch.get_rng_state(), "step": step}, f"{path}.new")`,
# `os.replace(f"{path}.new", path)`.

# %% exercise="L10.1" part="solution"
import os

import torch


def save(path, model, optimizer, step):
    """Write everything that the training needs to go on."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
        "step": step,
    }
    torch.save(state, f"{path}.new")
    os.replace(f"{path}.new", path)


def load(path, model, optimizer):
    """Bring it all back; the step."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    return state["step"]


# %% [markdown] exercise="L10.1" part="explanation"
# With several processes rank 0 writes the weights; but every process has a random state of its own, so these have to
# be gathered, or follow from (seed, rank, step) as in `paceline train`, which then needs none. It also writes a list
# of all files with their checksums last, so that a checkpoint without it does not count.

# %% exercise="L10.1" part="wrong" expects="momenta"
# the solution, but
# - optimizer.load_state_dict(state["optimizer"])

# %% exercise="L10.1" part="wrong" expects="random"
# the solution, but
# - torch.set_rng_state(state["random"])

# %% exercise="L10.1" part="wrong" expects="torn"
# the solution, but
# - torch.save(state, f"{path}.new")
# + torch.save(state, path)
# - os.replace(f"{path}.new", path)

# %% exercise="L10.1" part="wrong" expects="step"
# the solution, but
# - return state["step"]
# + return 0

# %%
reveal("L10.1", digits_that_agree=show.digits_without_momenta())

# %% [markdown]
# ## Another number of processes
#
# A job that had 8 devices comes back with 6. The batches should stay what they were, or the training is another one:
# the same samples in each step, shared out differently. A sampler that gives process `r` every `W`-th sample does
# that only for whole epochs; in the middle of one, with another `W`, nobody knows any more which samples were seen.
#
# The remedy: make the *global batch* the unit. The order of an epoch and the cut into batches follow from seed, epoch
# and step; only then each batch is shared out.

# %% [markdown] exercise="L10.2" part="task"
# ### Exercise L10.2 · Batches that do not depend on the world
#
# Write `my_part(step, samples, global_batch, seed, rank, world)`: the indices, as a list, that this process trains on
# in a step. Steps count from 0 over all epochs; an epoch has `ceil(samples / global_batch)` of them, and its last
# batch is smaller. Each epoch has a random order of its own, which follows from `seed` and the epoch, and is the same
# on all processes. The parts of a batch differ by one sample at most; some may be empty.
#
# **Done when** the parts of all processes together are the same batch, in the same order, for any `world`, and each
# epoch has every sample once.

# %% exercise="L10.2" part="starter"
import numpy as np


def my_part(step, samples, global_batch, seed, rank, world):
    """This process's samples of a step."""
    raise NotImplementedError


# %% [markdown] exercise="L10.2" part="hint"
# Which epoch is a step in, and which batch of it? What is cut first, and what second?

# %% [markdown] exercise="L10.2" part="hint"
# `divmod(step, steps_per_epoch)` gives both. A generator that is seeded with the pair `(seed, epoch)` gives the
# order. Then cut out the batch, and out of it this process's part.

# %% [markdown] exercise="L10.2" part="hint"
# `order = np.random.default_rng((seed, epoch)).permutation(samples)`; `np.array_split(batch, world)[rank]` makes
# parts that differ by one at most.

# %% exercise="L10.2" part="solution"
import numpy as np


def my_part(step, samples, global_batch, seed, rank, world):
    """This process's samples of a step."""
    epoch, number = divmod(step, -(-samples // global_batch))
    order = np.random.default_rng((seed, epoch)).permutation(samples)
    batch = order[number * global_batch : (number + 1) * global_batch]
    return np.array_split(batch, world)[rank].tolist()


# %% [markdown] exercise="L10.2" part="explanation"
# No state at all: the position in the data is one number, the step. A process without a sample takes part in every
# collective and adds nothing, which needs sums and counts instead of means (exercise L4.4). And the learning rate
# need not be touched, since the global batch is what it was.

# %% exercise="L10.2" part="wrong" expects="depends-on-world"
# the solution, but
# - order = np.random.default_rng((seed, epoch)).permutation(samples)
# + order = np.random.default_rng((seed, epoch, world)).permutation(samples)

# %% exercise="L10.2" part="wrong" expects="same-order"
# the solution, but
# - order = np.random.default_rng((seed, epoch)).permutation(samples)
# + order = np.random.default_rng(seed).permutation(samples)

# %% exercise="L10.2" part="wrong" expects="lost-samples"
# the solution, but
# - epoch, number = divmod(step, -(-samples // global_batch))
# + epoch, number = divmod(step, max(1, samples // global_batch))

# %% exercise="L10.2" part="wrong" expects="unequal-parts"
# the solution, but
# - return np.array_split(batch, world)[rank].tolist()
# + size = -(-global_batch // world)
# + return batch[rank * size : (rank + 1) * size].tolist()

# %%
show.kill_and_resume()

# %% [markdown]
# ## Sixteen bits
#
# Numbers of 16 bits need half the memory and half the bandwidth, and devices compute with them several times as fast.
# `bfloat16` has the range of float32 with fewer digits and usually just works. `float16` has more digits and a small
# range: gradients below $6 \cdot 10^{-8}$ become zero. So the loss is multiplied by a large **scale** before
# backward, and gradients are divided by it afterwards. If the scale is too large, a gradient overflows to infinity;
# then the step is skipped and the scale halved. After many good steps it is doubled.
#
# With several processes there is a trap: an overflow may happen on one process only. If only that one skips its step,
# the weights differ from then on.

# %% [markdown] exercise="L10.3" part="task"
# ### Exercise L10.3 · A scale on which all agree
#
# Write a class `LossScale(initial, growth_interval)` with an attribute `value` and a method `update(overflow)`,
# called once a step on every process with whether *this* process saw an overflow. It returns whether the step is to
# be **taken**, the same on all processes. If any process saw an overflow, the step is not taken and `value` is
# halved. After `growth_interval` steps in a row that were taken, `value` is doubled and the count begins anew.
#
# **Done when** two and three processes agree for any pattern of overflows.

# %% exercise="L10.3" part="starter"
import torch
import torch.distributed as dist


class LossScale:
    """A factor on the loss, on which all processes agree."""

    def __init__(self, initial, growth_interval):
        raise NotImplementedError

    def update(self, overflow):
        """Whether the step is taken."""
        raise NotImplementedError


# %% [markdown] exercise="L10.3" part="hint"
# On what does each process decide, and is it the same everywhere?

# %% [markdown] exercise="L10.3" part="hint"
# "Any process" is the largest of zeros and ones: an `all_reduce` with `dist.ReduceOp.MAX`. An overflow sets the count
# back to 0.

# %% [markdown] exercise="L10.3" part="hint"
# After the collective: `if seen: self.value /= 2; self.good = 0; return False`. Otherwise `self.good += 1`, and at
# `growth_interval` double and set it to 0.

# %% exercise="L10.3" part="solution"
import torch
import torch.distributed as dist


class LossScale:
    """A factor on the loss, on which all processes agree."""

    def __init__(self, initial, growth_interval):
        self.value, self.growth_interval, self.good = float(initial), growth_interval, 0

    def update(self, overflow):
        """Whether the step is taken."""
        seen = torch.tensor(int(overflow))
        dist.all_reduce(seen, op=dist.ReduceOp.MAX)
        if seen:
            self.value /= 2
            self.good = 0
            return False
        self.good += 1
        if self.good == self.growth_interval:
            self.value *= 2
            self.good = 0
        return True


# %% [markdown] exercise="L10.3" part="explanation"
# With plain DDP the trap is often harmless, since an infinite gradient on one process makes the *average* infinite on
# all. It is not where gradients are sharded, clipped before the average, or where an overflow is looked for before
# it. Torch's `GradScaler` looks after the average.

# %% exercise="L10.3" part="wrong" expects="disagree"
# the solution, but
# - dist.all_reduce(seen, op=dist.ReduceOp.MAX)

# %% exercise="L10.3" part="wrong" expects="not-in-a-row"
# the solution, but
# - self.value /= 2
# + self.value /= 2
# - self.good = 0

# %% exercise="L10.3" part="wrong" expects="grows-once"
# the solution, but
# - self.value *= 2
# + self.value *= 2
# - self.good = 0

# %% exercise="L10.3" part="wrong" expects="overflow-taken"
# the solution, but
# - return False
# + return True

# %% [markdown]
# ## Share out the optimizer
#
# Adam keeps two numbers for each weight. With data parallelism every process keeps all of them, and they are equal:
# `W` copies of the same. **Sharding** the optimizer (the first stage of ZeRO, arXiv:1910.02054) gives each process
# the state of a part of the weights. It updates these, and sends them to the others.

# %% [markdown] exercise="L10.4" part="task"
# ### Exercise L10.4 · A sharded optimizer
#
# Write a class `Sharded(parameters, make)` with a method `step()`. `parameters` is a list, `make(part)` makes an
# optimizer for a list of parameters. Each process makes one for its own part only. `step()` is called when all
# gradients are averaged already: it updates the own part, and afterwards every process has all new weights.
#
# Share out by size: go through the parameters from the largest to the smallest (those of equal size in their order),
# and give each to the process that has the fewest elements so far (the lowest rank among equals).
#
# **Done when** weights are those of the whole optimizer, to the bit, and no process keeps state for much more than
# its share.

# %% exercise="L10.4" part="starter"
import torch
import torch.distributed as dist


class Sharded:
    """An optimizer whose state is shared out."""

    def __init__(self, parameters, make):
        raise NotImplementedError

    def step(self):
        """Update this process's part, and get the others'."""
        raise NotImplementedError


# %% [markdown] exercise="L10.4" part="hint"
# Every process has to know the owner of every parameter. Does that take a message?

# %% [markdown] exercise="L10.4" part="hint"
# No: all go through the same list by the same rule. After the own step, each parameter is broadcast from its owner.

# %% [markdown] exercise="L10.4" part="hint"
# `for index in sorted(range(len(parameters)), key=lambda i: -parameters[i].numel())` (sorting keeps the order of
# equals), `owner = min(range(world), key=load.__getitem__)`.

# %% exercise="L10.4" part="solution"
import torch
import torch.distributed as dist


class Sharded:
    """An optimizer whose state is shared out."""

    def __init__(self, parameters, make):
        self.parameters = list(parameters)
        world = dist.get_world_size()
        load, self.owners = [0] * world, [0] * len(self.parameters)
        for index in sorted(range(len(self.parameters)), key=lambda i: -self.parameters[i].numel()):
            owner = min(range(world), key=load.__getitem__)
            self.owners[index] = owner
            load[owner] += self.parameters[index].numel()
        mine = [p for p, owner in zip(self.parameters, self.owners) if owner == dist.get_rank()]
        self.optimizer = make(mine) if mine else None

    def step(self):
        """Update this process's part, and get the others'."""
        if self.optimizer is not None:
            self.optimizer.step()
        for p, owner in zip(self.parameters, self.owners):
            dist.broadcast(p.data, src=owner)


# %% [markdown] exercise="L10.4" part="explanation"
# Memory of the optimizer falls to one `W`-th. The message does not grow: a reduce-scatter of gradients and an
# all-gather of weights are together what an all-reduce of gradients is, as you know from lab 3. Sharding gradients
# and weights as well leads to FSDP, where each process holds one `W`-th of everything and fetches a layer's weights
# when it needs them.

# %% exercise="L10.4" part="wrong" expects="not-sharded"
# the solution, but
# - mine = [p for p, owner in zip(self.parameters, self.owners) if owner == dist.get_rank()]
# + mine = self.parameters

# %% exercise="L10.4" part="wrong" expects="not-sent"
# the solution, but
# - for p, owner in zip(self.parameters, self.owners):
# - dist.broadcast(p.data, src=owner)

# %% exercise="L10.4" part="wrong" expects="not-balanced"
# the solution, but
# - owner = min(range(world), key=load.__getitem__)
# + owner = 0 if index else world - 1

# %% exercise="L10.4" part="wrong" expects="not-sent"
# the solution, but
# - dist.broadcast(p.data, src=owner)
# + dist.broadcast(p.data, src=0)

# %%
show.memory()

# %% [markdown]
# ## Where next
#
# - Your own script: `paceline run` starts it as torchrun does and records what happens; `paceline train` with a
#   `task()` of yours has everything of this course built in.
# - Before paying: `paceline plan speed`, `plan batch` and `plan data` predict time, batch and data, with intervals.
# - After a run: `paceline report`, and `paceline landscape` for what surrounds your weights.
# - Models that do not fit on one device: FSDP and pipelines, of which lab 7 and this one had the beginnings.
#
# `quiz("L10")` draws new numbers each time.
