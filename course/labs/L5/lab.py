# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # L5 · From one device to many
#
# You have a training script that runs on one device. In this lab you take it to many, step by step, as you would take
# your own. Each step is a function of a few lines with a check of its own; then you put them together, and the whole
# script is checked: that its processes share the samples, that they compute what one process computes, that its
# numbers are exact, and that it leaves cleanly.
#
# After the toy comes a realistic network, where the same steps are all there is.
#
# Some words first. A **process** (or worker) is one running Python; each has one device. `torchrun` starts several of
# them on a machine (a **node**), and several machines may work together. The **world size** is how many processes
# there are in all. The **rank** of a process is its number among all of them, its **local rank** its number on its
# own machine. A **process group** is what they talk through.

# %%
from paceline_course.notebook import *

show = lab("L5")
show.places(machines=2, devices=2)
print(show.toy_source())

# %% [markdown]
# Run it once, on one device. It trains a small network to tell points in a ring from points in the disc inside it.

# %%
show.run_toy()

# %% [markdown]
# ## Step 1: who am I?
#
# `torchrun` starts every process with the same command and tells each one its place by **environment variables**:
# `RANK`, `LOCAL_RANK`, `WORLD_SIZE`, and where the others are to be found (`MASTER_ADDR`, `MASTER_PORT`). A process
# takes the device with its *local* rank: on the second machine, rank 8 of 16 has local rank 0, and there is no GPU
# number 8.
#
# How processes talk is the **backend**: `nccl` between GPUs, `gloo` between CPUs.

# %% [markdown] exercise="L5.1" part="task"
# ### Exercise L5.1 · Place, device, group
#
# Write three functions.
#
# - `device_for(local_rank, gpus)` returns a `torch.device`: `cuda:<local rank>` on a machine with that many GPUs,
#   `cpu` on one without any. (`torch.device("cuda:3")` can be made on any machine.)
# - `backend_for(gpus)` returns `"nccl"` or `"gloo"`.
# - `set_up()` reads the environment, makes the process group, and returns `(rank, local_rank, world, device)`: three
#   ints and a `torch.device`. With a GPU it also makes it the current one (`torch.cuda.set_device`). Where the
#   variables of torchrun are not set, because somebody typed `python train.py`, it makes a group of one process.
#
# For that last case: `dist.init_process_group(backend, rank=0, world_size=1, store=dist.HashStore())` needs no
# address and no port.
#
# **Done when** it works as one, two and three processes, on one machine and on two, and without torchrun.

# %% exercise="L5.1" part="starter"
import os

import torch
import torch.distributed as dist


def device_for(local_rank, gpus):
    """The torch.device of a process."""
    raise NotImplementedError


def backend_for(gpus):
    """How processes talk."""
    raise NotImplementedError


def set_up():
    """Make the process group; (rank, local_rank, world, device)."""
    raise NotImplementedError


# %% [markdown] exercise="L5.1" part="hint"
# Which of the three numbers tells you which GPU is yours? What is in `os.environ` if nobody ran torchrun?

# %% [markdown] exercise="L5.1" part="hint"
# `os.environ` holds text. `"RANK" in os.environ` tells whether torchrun started this process; if so,
# `dist.init_process_group(backend)` finds everything else by itself. `torch.cuda.device_count()` is the number of
# GPUs.

# %% [markdown] exercise="L5.1" part="hint"
# With torchrun: `dist.init_process_group(backend)`, then `rank, local_rank, world = (int(os.environ[name]) for name
# in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))`.

# %% exercise="L5.1" part="solution"
import os

import torch
import torch.distributed as dist


def device_for(local_rank, gpus):
    """The torch.device of a process."""
    return torch.device(f"cuda:{local_rank}" if gpus else "cpu")


def backend_for(gpus):
    """How processes talk."""
    return "nccl" if gpus else "gloo"


def set_up():
    """Make the process group; (rank, local_rank, world, device)."""
    gpus = torch.cuda.device_count()
    if "RANK" in os.environ:
        rank, local_rank, world = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    else:
        rank, local_rank, world = 0, 0, 1
    device = device_for(local_rank, gpus)
    if gpus:
        torch.cuda.set_device(local_rank)
    if "RANK" in os.environ:
        dist.init_process_group(backend_for(gpus))
    else:
        dist.init_process_group(backend_for(gpus), rank=0, world_size=1, store=dist.HashStore())
    return rank, local_rank, world, device


# %% [markdown] exercise="L5.1" part="explanation"
# One process is now a group of one, and everything that follows needs no `if world > 1`. That is worth the two lines:
# code with a branch for one process is two programs, of which you test one.
#
# Pinning (choosing the device by the local rank) matters more than it looks. Without it every process uses GPU 0: it
# works, eight times as slowly, until its memory is full.

# %% exercise="L5.1" part="wrong" expects="place"
# the solution, but
# - return rank, local_rank, world, device
# + return local_rank, rank, world, device

# %% exercise="L5.1" part="wrong" expects="rank-as-local"
# the solution, but
# - return rank, local_rank, world, device
# + return rank, rank, world, device_for(rank, gpus)

# %% exercise="L5.1" part="wrong" expects="text"
# the solution, but
# - rank, local_rank, world = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
# + rank, local_rank, world = (os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))

# %% exercise="L5.1" part="wrong" expects="device"
# the solution, but
# - return torch.device(f"cuda:{local_rank}" if gpus else "cpu")
# + return torch.device("cuda" if gpus else "cpu")

# %% exercise="L5.1" part="wrong" expects="device-text"
# the solution, but
# - return torch.device(f"cuda:{local_rank}" if gpus else "cpu")
# + return f"cuda:{local_rank}" if gpus else "cpu"

# %% exercise="L5.1" part="wrong" expects="backend"
# the solution, but
# - return "nccl" if gpus else "gloo"
# + return "nccl"

# %% exercise="L5.1" part="wrong" expects="no-group"
# the solution, but
# - torch.cuda.set_device(local_rank)
# + torch.cuda.set_device(local_rank)
# - if "RANK" in os.environ:
# -     dist.init_process_group(backend_for(gpus))
# - else:
# -     dist.init_process_group(backend_for(gpus), rank=0, world_size=1, store=dist.HashStore())

# %% exercise="L5.1" part="wrong" expects="own-group"
# the solution, but
# - dist.init_process_group(backend_for(gpus))
# + dist.init_process_group(backend_for(gpus), rank=0, world_size=1, store=dist.HashStore())

# %% exercise="L5.1" part="wrong" expects="waits"
# the solution, but
# - dist.init_process_group(backend_for(gpus))
# + dist.init_process_group(backend_for(gpus), rank=rank, world_size=world, store=dist.HashStore())

# %% exercise="L5.1" part="wrong" expects="not-set"
import os

import torch
import torch.distributed as dist


def device_for(local_rank, gpus):
    return torch.device(f"cuda:{local_rank}" if gpus else "cpu")


def backend_for(gpus):
    return "nccl" if gpus else "gloo"


def set_up():
    rank, local_rank, world = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    gpus = torch.cuda.device_count()
    dist.init_process_group(backend_for(gpus))
    return rank, local_rank, world, device_for(local_rank, gpus)


# %% exercise="L5.1" part="wrong" expects="not-set"
# the solution, but
# - dist.init_process_group(backend_for(gpus), rank=0, world_size=1, store=dist.HashStore())
# + dist.init_process_group(backend_for(gpus))

# %% [markdown]
# ## Step 2: the data, once a machine
#
# If all processes of a machine download the data, they write the same files at the same time, and one of them reads
# what another has half written. So one process of each machine downloads, and the others wait. Not one process of
# *all*: the other machines have disks of their own.
#
# A **barrier** is a collective without data: `dist.barrier()` ends on every process when all have called it.

# %% [markdown] exercise="L5.2" part="task"
# ### Exercise L5.2 · Download once
#
# Write `prepare_once(download)`. One process of each machine calls `download()`; no process returns before every
# machine has its data. The group exists, and `LOCAL_RANK` is set.
#
# **Done when** it holds for three processes on one machine, for two machines with two processes each, and for one
# process.

# %% exercise="L5.2" part="starter"
import os

import torch.distributed as dist


def prepare_once(download):
    """Call download() on one process of each machine; return when all is there."""
    raise NotImplementedError


# %% [markdown] exercise="L5.2" part="hint"
# Which number is 0 on exactly one process of each machine?

# %% [markdown] exercise="L5.2" part="hint"
# The one process downloads first and then meets the others in a barrier. The others go to the barrier at once.

# %% [markdown] exercise="L5.2" part="hint"
# `if int(os.environ["LOCAL_RANK"]) == 0: download()`, and then, for all, `dist.barrier()`.

# %% exercise="L5.2" part="solution"
import os

import torch.distributed as dist


def prepare_once(download):
    """Call download() on one process of each machine; return when all is there."""
    if int(os.environ["LOCAL_RANK"]) == 0:
        download()
    dist.barrier()


# %% [markdown] exercise="L5.2" part="explanation"
# The barrier stands outside the `if`. Inside it, one process would wait for others who never come: the most common
# way to hang a job.
#
# What happens if `download()` fails? That process ends, and the others wait until their patience is over (half an
# hour by default for gloo). torchrun ends them as soon as it notices, which is one reason to use it.

# %% exercise="L5.2" part="wrong" expects="everybody-downloads"
import torch.distributed as dist


def prepare_once(download):
    download()
    dist.barrier()


# %% exercise="L5.2" part="wrong" expects="one-machine-only"
# the solution, but
# - import os
# - if int(os.environ["LOCAL_RANK"]) == 0:
# + if dist.get_rank() == 0:

# %% exercise="L5.2" part="wrong" expects="nobody-downloads"
# the solution, but
# - if int(os.environ["LOCAL_RANK"]) == 0:
# + if os.environ["LOCAL_RANK"] == 0:

# %% exercise="L5.2" part="wrong" expects="too-early"
# the solution, but
# - if int(os.environ["LOCAL_RANK"]) == 0:
# + dist.barrier()
# + if int(os.environ["LOCAL_RANK"]) == 0:
# - dist.barrier()

# %% exercise="L5.2" part="wrong" expects="too-early"
# the solution, but
# - import torch.distributed as dist
# - dist.barrier()

# %% exercise="L5.2" part="wrong" expects="hang"
# the solution, but
# - dist.barrier()
# +     dist.barrier()

# %% [markdown]
# ## Step 3: share the samples
#
# Every process has the whole data set and trains on its own part of it. A **sampler** decides which samples a loader
# reads, and in which order. `DistributedSampler` shuffles with a seed that is the same everywhere, and gives process
# `r` of `W` every `W`-th sample from the `r`-th on. If the number of samples cannot be divided, it fills up with
# samples from the beginning.
#
# It shuffles by its seed *and the epoch*, and it learns the epoch only if you tell it: `sampler.set_epoch(epoch)`. If
# you forget that, every epoch has the same order, and nothing says so.

# %% [markdown] exercise="L5.3" part="task"
# ### Exercise L5.3 · Loader and epochs
#
# Write two functions.
#
# - `make_loader(dataset, global_batch, seed)` returns `(loader, sampler)`: a `DataLoader` for this process with a
#   `DistributedSampler`, whose order follows from the seed. The batch of one process is its share of the global batch,
#   which can be divided by the world size.
# - `epoch_of(loader, sampler, epoch)` returns something to iterate over: the batches of this epoch.
#
# **Done when** the processes together see every sample in each epoch, none of them twice but the few that fill up; in
# a new order each time, and in another one with another seed.

# %% exercise="L5.3" part="starter"
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def make_loader(dataset, global_batch, seed):
    """The loader of this process, and its sampler."""
    raise NotImplementedError


def epoch_of(loader, sampler, epoch):
    """The batches of one epoch."""
    raise NotImplementedError


# %% [markdown] exercise="L5.3" part="hint"
# How many samples has one process in a step? And what does the sampler need to know before an epoch begins?

# %% [markdown] exercise="L5.3" part="hint"
# `DistributedSampler(dataset, seed=seed)` asks the process group for rank and world size. A loader that has a sampler
# must not shuffle by itself.

# %% [markdown] exercise="L5.3" part="hint"
# `DataLoader(dataset, batch_size=global_batch // dist.get_world_size(), sampler=sampler)`; in `epoch_of`,
# `sampler.set_epoch(epoch)` and `return loader`.

# %% exercise="L5.3" part="solution"
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def make_loader(dataset, global_batch, seed):
    """The loader of this process, and its sampler."""
    sampler = DistributedSampler(dataset, seed=seed)
    return DataLoader(dataset, batch_size=global_batch // dist.get_world_size(), sampler=sampler), sampler


def epoch_of(loader, sampler, epoch):
    """The batches of one epoch."""
    sampler.set_epoch(epoch)
    return loader


# %% [markdown] exercise="L5.3" part="explanation"
# `batch_size` in a loader is the batch of *one process*. Keep the global batch fixed when you add processes, and your
# learning rate stays right; keep the batch of a process fixed, and the global batch grows with the world size, which
# is the subject of lab 8.
#
# The check reads which samples your loop really received, from inside the loader. It is the only way to see a
# forgotten `set_epoch`: losses and accuracies look fine.

# %% exercise="L5.3" part="wrong" expects="everybody-sees-all"
# the solution, but
# - from torch.utils.data.distributed import DistributedSampler
# - sampler = DistributedSampler(dataset, seed=seed)
# - return DataLoader(dataset, batch_size=global_batch // dist.get_world_size(), sampler=sampler), sampler
# + return DataLoader(dataset, batch_size=global_batch // dist.get_world_size(), shuffle=True), None
# - sampler.set_epoch(epoch)

# %% exercise="L5.3" part="wrong" expects="same-order"
# the solution, but
# - sampler.set_epoch(epoch)

# %% exercise="L5.3" part="wrong" expects="batch-size"
# the solution, but
# - import torch.distributed as dist
# - return DataLoader(dataset, batch_size=global_batch // dist.get_world_size(), sampler=sampler), sampler
# + return DataLoader(dataset, batch_size=global_batch, sampler=sampler), sampler

# %% exercise="L5.3" part="wrong" expects="overlap"
# the solution, but
# - sampler = DistributedSampler(dataset, seed=seed)
# + sampler = DistributedSampler(dataset, seed=seed + dist.get_rank())

# %% exercise="L5.3" part="wrong" expects="missing-samples"
# the solution, but
# - return DataLoader(dataset, batch_size=global_batch // dist.get_world_size(), sampler=sampler), sampler
# + size = global_batch // dist.get_world_size()
# + return DataLoader(dataset, batch_size=size, sampler=sampler, drop_last=True), sampler

# %% exercise="L5.3" part="wrong" expects="seed-ignored"
# the solution, but
# - sampler = DistributedSampler(dataset, seed=seed)
# + sampler = DistributedSampler(dataset)

# %% exercise="L5.3" part="wrong" expects="float-batch"
# the solution, but
# - return DataLoader(dataset, batch_size=global_batch // dist.get_world_size(), sampler=sampler), sampler
# + return DataLoader(dataset, batch_size=global_batch / dist.get_world_size(), sampler=sampler), sampler

# %% exercise="L5.3" part="wrong" expects="small-batch"
# the solution, but
# - return DataLoader(dataset, batch_size=global_batch // dist.get_world_size(), sampler=sampler), sampler
# + return DataLoader(dataset, batch_size=global_batch // dist.get_world_size() ** 2, sampler=sampler), sampler

# %% exercise="L5.3" part="wrong" expects="not-shuffled"
# the solution, but
# - sampler = DistributedSampler(dataset, seed=seed)
# + sampler = DistributedSampler(dataset, seed=seed, shuffle=False)

# %% [markdown]
# ## Step 4: wrap the model
#
# `DistributedDataParallel(model)` does what you built in lab 4: it makes all processes begin with rank 0's weights
# and buffers, and averages gradients during backward. You call the wrapper as you called the model, `ddp(x)`. The
# model inside stays there, as `ddp.module`, for saving and for evaluation.
#
# Its hooks sit on the parameters, which are the same for both. So what if a step goes past the wrapper?

# %%
# 10 steps call ddp.module(x) instead of ddp(x), and then backward() as always. In how many are gradients averaged?
predict("L5.4", unit="of 10", steps_with_averaged_gradients=...)

# %% [markdown] exercise="L5.4" part="task"
# ### Exercise L5.4 · Wrap and step
#
# Write `wrap(model, device)`, which moves the model to the device and returns it wrapped; and `train_step(ddp,
# optimizer, inputs, labels)`, one step of training with cross entropy, the mean over this process's samples. It
# returns that loss as a number, not as a tensor.
#
# `device_ids` is for GPUs: `[device.index]` there, `None` on a CPU.
#
# **Done when** two and three processes train what one process trains on the same samples, within 1e-9, and hold the
# same bits.

# %% exercise="L5.4" part="starter"
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def wrap(model, device):
    """The model on its device, synchronised."""
    raise NotImplementedError


def train_step(ddp, optimizer, inputs, labels):
    """One step; the loss."""
    raise NotImplementedError


# %% [markdown] exercise="L5.4" part="hint"
# Which of the lines of a single-device step have to change?

# %% [markdown] exercise="L5.4" part="hint"
# None of the lines of the step: only what is called is now the wrapper. `device.type` tells a GPU from a CPU.

# %% [markdown] exercise="L5.4" part="hint"
# `return DistributedDataParallel(model.to(device), device_ids=[device.index] if device.type == "cuda" else None)`

# %% exercise="L5.4" part="solution"
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def wrap(model, device):
    """The model on its device, synchronised."""
    return DistributedDataParallel(model.to(device), device_ids=[device.index] if device.type == "cuda" else None)


def train_step(ddp, optimizer, inputs, labels):
    """One step; the loss."""
    loss = nn.functional.cross_entropy(ddp(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


# %% [markdown] exercise="L5.4" part="explanation"
# The number that `train_step` returns is the loss of *this process's* samples. For a log it has to be averaged over
# processes, weighted by their samples; the gradients need no such care here, because the parts are equally large.
#
# A number, because a loss tensor that is kept for a log keeps the graph of its whole step, with all activations.

# %% exercise="L5.4" part="wrong" expects="ranks-differ"
# the solution, but
# - return DistributedDataParallel(model.to(device), device_ids=[device.index] if device.type == "cuda" else None)
# + return DistributedDataParallel(model.to(device))
# - loss = nn.functional.cross_entropy(ddp(inputs), labels)
# + loss = nn.functional.cross_entropy(ddp.module(inputs), labels)

# %% exercise="L5.4" part="wrong" expects="not-wrapped"
# the solution, but
# - return DistributedDataParallel(model.to(device), device_ids=[device.index] if device.type == "cuda" else None)
# + return model.to(device)

# %% exercise="L5.4" part="wrong" expects="summed-loss"
# the solution, but
# - loss = nn.functional.cross_entropy(ddp(inputs), labels)
# + loss = nn.functional.cross_entropy(ddp(inputs), labels, reduction="sum")

# %% exercise="L5.4" part="wrong" expects="times-world"
# the solution, but
# - from torch import nn
# + import torch.distributed as dist
# + from torch import nn
# - loss.backward()
# + (loss * dist.get_world_size()).backward()

# %% exercise="L5.4" part="wrong" expects="device-ids"
# the solution, but
# - return DistributedDataParallel(model.to(device), device_ids=[device.index] if device.type == "cuda" else None)
# + return DistributedDataParallel(model.to(device), device_ids=[device.index])

# %% exercise="L5.4" part="wrong" expects="gradients-add-up"
# the solution, but
# - optimizer.zero_grad()

# %% exercise="L5.4" part="wrong" expects="nothing-moves"
# the solution, but
# - optimizer.zero_grad()
# - loss.backward()
# + loss.backward()
# + optimizer.zero_grad()

# %% exercise="L5.4" part="wrong" expects="loss-tensor"
# the solution, but
# - return loss.item()
# + return loss

# %% exercise="L5.4" part="wrong" expects="loss-type"
# the solution, but
# - return loss.item()

# %% exercise="L5.4" part="wrong" expects="loss-value"
# the solution, but
# - return loss.item()
# + return nn.functional.cross_entropy(ddp.module(inputs), labels).item()

# %%
reveal("L5.4", steps_with_averaged_gradients=show.synchronised_steps())

# %% [markdown]
# The forward of the wrapper tells the hooks that a backward is to come. Without it they do nothing, and the backward is
# that of a plain model. There is no error; the processes only drift apart. So the forward of training has to go
# **through the wrapper**.

# %% [markdown]
# ## Step 5: exact numbers
#
# To evaluate on several processes, each takes a part, and the results are put together. Two things go wrong easily,
# and nothing says so. `DistributedSampler` **fills up**: with 1,003 samples on 4 processes it counts 1,004, one sample
# twice. And the mean of the processes' accuracies is not the accuracy, if their parts are not equally large.
#
# A partition without filling up is one line: `range(rank, len(dataset), world)`. Right answers and counts are added
# up over processes, and divided once. Put the sums where the model is: `nccl` reduces only tensors on the GPU.

# %% [markdown] exercise="L5.5" part="task"
# ### Exercise L5.5 · Evaluate exactly
#
# Write `evaluate(model, dataset, batch_size)`. Each process evaluates its own part of `dataset` (pairs of input and
# label); on all of them it returns `(right, counted)`, two whole numbers (ints) over *all* samples. `model` is the
# plain one, what `ddp.module` is: evaluation has no backward that a wrapper would prepare. It is in eval mode
# meanwhile, and in training mode afterwards.
#
# **Done when** 1,003 samples on 1 to 4 processes are each counted once, by one process.

# %% exercise="L5.5" part="starter"
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def evaluate(model, dataset, batch_size):
    """Right answers and samples, over all processes."""
    raise NotImplementedError


# %% [markdown] exercise="L5.5" part="hint"
# Which samples are yours? Which two numbers does your part give, and which collective puts them together?

# %% [markdown] exercise="L5.5" part="hint"
# `Subset(dataset, indices)` is a part of a data set, and a loader takes it as it is. Put both numbers into one
# tensor, so that one `all_reduce` does for both.

# %% [markdown] exercise="L5.5" part="hint"
# `part = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))`; after the loop `totals =
# torch.tensor([right, counted], device=next(model.parameters()).device)`, `dist.all_reduce(totals)`, and `.item()` of
# each.

# %% exercise="L5.5" part="solution"
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset


def evaluate(model, dataset, batch_size):
    """Right answers and samples, over all processes."""
    part = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
    device = next(model.parameters()).device
    totals = torch.zeros(2, dtype=torch.int64, device=device)
    model.eval()
    with torch.no_grad():
        for inputs, labels in DataLoader(part, batch_size=batch_size):
            inputs, labels = inputs.to(device), labels.to(device)
            totals[0] += (model(inputs).argmax(dim=1) == labels).sum()
            totals[1] += len(labels)
    model.train()
    dist.all_reduce(totals)
    return totals[0].item(), totals[1].item()


# %% [markdown] exercise="L5.5" part="explanation"
# Whole numbers, added up: there is nothing to round, and the result does not depend on the number of processes. Parts
# may differ by a sample, because evaluation has no collective inside its loop. Training has one a step, which is why
# its parts must have equally many *batches*, and why the sampler fills up there.

# %% exercise="L5.5" part="wrong" expects="padded"
# the solution, but
# - from torch.utils.data import DataLoader, Subset
# + from torch.utils.data import DataLoader
# + from torch.utils.data.distributed import DistributedSampler
# - part = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
# - for inputs, labels in DataLoader(part, batch_size=batch_size):
# + for inputs, labels in DataLoader(
# +     dataset, batch_size=batch_size, sampler=DistributedSampler(dataset, shuffle=False)
# + ):

# %% exercise="L5.5" part="wrong" expects="dropped"
# the solution, but
# - for inputs, labels in DataLoader(part, batch_size=batch_size):
# + for inputs, labels in DataLoader(part, batch_size=batch_size, drop_last=True):

# %% exercise="L5.5" part="wrong" expects="batch-counted"
# the solution, but
# - totals[1] += len(labels)
# + totals[1] += batch_size

# %% exercise="L5.5" part="wrong" expects="own-part"
# the solution, but
# - dist.all_reduce(totals)

# %% exercise="L5.5" part="wrong" expects="only-rank-0"
# the solution, but
# - dist.all_reduce(totals)
# + dist.reduce(totals, 0)

# %% exercise="L5.5" part="wrong" expects="reduced-often"
# the solution, but
# - totals[1] += len(labels)
# + totals[1] += len(labels)
# + dist.all_reduce(totals)
# - dist.all_reduce(totals)

# %% exercise="L5.5" part="wrong" expects="not-shared"
# the solution, but
# - from torch.utils.data import DataLoader, Subset
# + from torch.utils.data import DataLoader
# - part = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
# - for inputs, labels in DataLoader(part, batch_size=batch_size):
# + for inputs, labels in DataLoader(dataset, batch_size=batch_size):
# - dist.all_reduce(totals)

# %% exercise="L5.5" part="wrong" expects="not-shared"
# the solution, but
# - from torch.utils.data import DataLoader, Subset
# + from torch.utils.data import DataLoader
# - part = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
# - for inputs, labels in DataLoader(part, batch_size=batch_size):
# + for inputs, labels in DataLoader(dataset, batch_size=batch_size):

# %% exercise="L5.5" part="wrong" expects="unequal-parts"
# the solution, but
# - part = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
# + part = Subset(dataset, range(len(dataset) if dist.get_rank() == 0 else 0))

# %% exercise="L5.5" part="wrong" expects="parts-overlap"
# the solution, but
# - part = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
# + size = len(dataset) // dist.get_world_size() + 2
# + start = min(dist.get_rank() * (size - 1), len(dataset) - size)
# + part = Subset(dataset, range(start, start + size))

# %% exercise="L5.5" part="wrong" expects="train-mode"
# the solution, but
# - model.eval()
# - model.train()

# %% exercise="L5.5" part="wrong" expects="left-eval"
# the solution, but
# - model.train()

# %% exercise="L5.5" part="wrong" expects="rate-not-count"
# the solution, but
# - return totals[0].item(), totals[1].item()
# + return (totals[0] / totals[1]).item(), totals[1].item()

# %% exercise="L5.5" part="wrong" expects="tensors"
# the solution, but
# - return totals[0].item(), totals[1].item()
# + return totals[0], totals[1]

# %% exercise="L5.5" part="wrong" expects="floats"
# the solution, but
# - totals = torch.zeros(2, dtype=torch.int64, device=device)
# + totals = torch.zeros(2, device=device)

# %% [markdown]
# ## Step 6: the whole script
#
# Now take the toy to many processes. Everything that you need is above; some lines move, few are new. What is left to
# decide is who writes: the log, the weights and what is printed are for **one** process, the one with rank 0. The
# others stay silent, and go through the same collectives.

# %% [markdown] exercise="L5.6" part="task"
# ### Exercise L5.6 · The toy on many devices
#
# The starter is the single-device script. Convert it, so that `torchrun` can start it with any number of processes,
# and `python` with one. Keep its options, its log (the same columns; `loss` may be rank 0's), its weights and its
# names.
#
# The global batch stays what `--global-batch` says; it is up to the user to choose one that the number of processes
# divides. (The default of 64 on 3 processes becomes 3 times 21, which is 63, and nothing says so.) The saved weights
# must fit the plain model. At the end, `dist.destroy_process_group()`.
#
# You may import your earlier answers: `from L5_1 import set_up` works, as they stand in the same folder.
#
# **Done when** the processes share the samples of each epoch, agree after every step, save what one process gets from
# the same batches, write one log with exact `right` and `counted`, on two machines too, and leave cleanly.

# %% exercise="L5.6" part="starter" expects="everybody-sees-all"
# the file toy.py

# %% [markdown] exercise="L5.6" part="hint"
# Go through `main` line by line. Which lines are the same on every process, which concern only a part of the data,
# and which are for rank 0 alone?

# %% [markdown] exercise="L5.6" part="hint"
# `set_up()` first; loader and epochs from step 3; wrap the model before the loop; `evaluate` from step 5 on every
# process, with the plain model. Opening the log, writing to it, printing and saving are for rank 0. Evaluation is not:
# all processes take part in its collective.

# %% [markdown] exercise="L5.6" part="hint"
# `sampler = DistributedSampler(train_data, seed=options.seed)`, and a loader with `batch_size=options.global_batch //
# world, sampler=sampler`; `sampler.set_epoch(epoch)` first in each epoch. `ddp = DistributedDataParallel(model,
# device_ids=[device.index] if device.type == "cuda" else None)`, after `model.to(device)`; inputs and labels go to the
# device as well. A log that only rank 0 has can be `log = csv.writer(file) if rank == 0 else None`. The weights to save
# are `ddp.module.state_dict()`.

# %% exercise="L5.6" part="solution"
import argparse
import contextlib
import csv
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset
from torch.utils.data.distributed import DistributedSampler


class Rings(Dataset):
    """Points in a ring or in the disc inside it."""

    def __init__(self, samples, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(2, (samples,), generator=generator)
        radius = 0.8 * torch.rand(samples, generator=generator) + 0.9 * self.labels
        angle = 6.2832 * torch.rand(samples, generator=generator)
        self.points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1).double()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.points[index], self.labels[index]


def make_model():
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)).double()


def set_up():
    """Make the process group; (rank, local_rank, world, device)."""
    gpus = torch.cuda.device_count()
    backend = "nccl" if gpus else "gloo"
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if gpus:
        torch.cuda.set_device(local_rank)
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, rank=0, world_size=1, store=dist.HashStore())
    device = torch.device(f"cuda:{local_rank}" if gpus else "cpu")
    return dist.get_rank(), local_rank, dist.get_world_size(), device


def evaluate(model, data, device):
    """How many answers are right, and how many were asked, over all processes."""
    part = Subset(data, range(dist.get_rank(), len(data), dist.get_world_size()))
    totals = torch.zeros(2, dtype=torch.int64, device=device)
    with torch.no_grad():
        for points, labels in DataLoader(part, batch_size=100):
            points, labels = points.to(device), labels.to(device)
            totals[0] += (model(points).argmax(dim=1) == labels).sum()
            totals[1] += len(labels)
    dist.all_reduce(totals)
    return totals[0].item(), totals[1].item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--global-batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("result"))
    options = parser.parse_args()

    rank, _, world, device = set_up()
    torch.manual_seed(options.seed)
    train_data, eval_data = Rings(1000, seed=1), Rings(1003, seed=2)
    model = make_model().to(device)
    ddp = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=options.lr, momentum=0.9)
    sampler = DistributedSampler(train_data, seed=options.seed)
    loader = DataLoader(train_data, batch_size=options.global_batch // world, sampler=sampler)

    with contextlib.ExitStack() as stack:
        log = None
        if rank == 0:
            options.out.mkdir(parents=True, exist_ok=True)
            log = csv.writer(stack.enter_context((options.out / "log.csv").open("w", newline="")))
            log.writerow(["epoch", "loss", "right", "counted"])
        for epoch in range(options.epochs):
            sampler.set_epoch(epoch)
            total = samples = 0
            for points, labels in loader:
                points, labels = points.to(device), labels.to(device)
                loss = nn.functional.cross_entropy(ddp(points), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item() * len(labels)
                samples += len(labels)
            right, counted = evaluate(model, eval_data, device)
            if rank == 0:
                log.writerow([epoch, total / samples, right, counted])
                print(f"epoch {epoch}: loss {total / samples:.4f}, {right} of {counted} right")
    if rank == 0:
        torch.save(ddp.module.state_dict(), options.out / "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()


# %% [markdown] exercise="L5.6" part="explanation"
# Six things changed: the group, the wrapper, the sampler, `set_epoch`, the sums in `evaluate`, and who writes. The
# step itself did not change at all.
#
# The check of the weights does not prescribe an order of samples. It reads from your loaders which samples each
# process had in each step, puts them together, and trains one process on them: if your data parallelism is right, the
# weights agree to the last digits, whatever you drew.
#
# For your own scripts the tool does the same steps: `paceline run` starts them as torchrun does, and adds a record of
# each run.

# %% exercise="L5.6" part="wrong" expects="same-order"
# the solution, but
# - sampler.set_epoch(epoch)

# %% exercise="L5.6" part="wrong" expects="module-prefix"
# the solution, but
# - torch.save(ddp.module.state_dict(), options.out / "model.pt")
# + torch.save(ddp.state_dict(), options.out / "model.pt")

# %% exercise="L5.6" part="wrong" expects="own-part"
# the solution, but
# - dist.all_reduce(totals)

# %% exercise="L5.6" part="wrong" expects="group-left"
# the solution, but
# - dist.destroy_process_group()

# %% exercise="L5.6" part="wrong" expects="two-machines"
# the solution, but
# - torch.save(ddp.module.state_dict(), options.out / "model.pt")
# + pass
# - dist.destroy_process_group()
# + if os.environ.get("LOCAL_RANK", "0") == "0":
# +     torch.save(ddp.module.state_dict(), options.out / "model.pt")
# + dist.destroy_process_group()

# %% exercise="L5.6" part="wrong" expects="several-logs"
# the solution, but
# - log = None
# + log = None
# - if rank == 0:
# + if log is None:
# - if rank == 0:
# + log.writerow([epoch, total / samples, right, counted])
# + if rank == 0:
# - log.writerow([epoch, total / samples, right, counted])
# - if rank == 0:
# + if log is not None:

# %% exercise="L5.6" part="wrong" expects="several-saves"
# the solution, but
# - torch.save(ddp.module.state_dict(), options.out / "model.pt")
# + pass
# - dist.destroy_process_group()
# + options.out.mkdir(parents=True, exist_ok=True)
# + torch.save(ddp.module.state_dict(), options.out / "model.pt")
# + dist.destroy_process_group()

# %% exercise="L5.6" part="wrong" expects="some-alone"
# the solution, but
# - right, counted = evaluate(model, eval_data, device)
# - if rank == 0:
# + if rank == 0:
# +     right, counted = evaluate(model, eval_data, device)

# %% exercise="L5.6" part="wrong" expects="rate"
# the solution, but
# - optimizer = torch.optim.SGD(ddp.parameters(), lr=options.lr, momentum=0.9)
# + optimizer = torch.optim.SGD(ddp.parameters(), lr=options.lr * world, momentum=0.9)

# %% exercise="L5.6" part="wrong" expects="floats"
# the solution, but
# - totals = torch.zeros(2, dtype=torch.int64, device=device)
# + totals = torch.zeros(2, device=device)

# %% exercise="L5.6" part="wrong" expects="printed-twice"
# the solution, but
# - right, counted = evaluate(model, eval_data, device)
# + right, counted = evaluate(model, eval_data, device)
# + print(f"epoch {epoch}: loss {total / samples:.4f}, {right} of {counted} right")

# %% exercise="L5.6" part="wrong" expects="ranks-differ"
# the solution, but
# - loss = nn.functional.cross_entropy(ddp(points), labels)
# + loss = nn.functional.cross_entropy(model(points), labels)

# %% [markdown]
# ## Two machines
#
# Nothing in the script knows how many machines there are. On each of two machines one would type the same command, with
# the address of one of them, where they meet:
#
# ```
# torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint first:29400 --rdzv-id mine train.py
# ```
#
# Here both "machines" are this one: two agents that find each other, with one process each.

# %%
show.two_agents()

# %% [markdown]
# ## A realistic network
#
# The toy had everything but size. The next one is a WideResNet, with batch norm, on images; its steps are the same.
# Two questions come up that the toy did not ask: how fast are *all* processes together, and who decides that it is
# enough?
#
# An early stop is a trap. If each process stops when *its* numbers say so, some leave the loop and the others wait
# for them in the next collective, for ever. Everybody has to decide the same, on numbers that are equal everywhere.

# %% [markdown] exercise="L5.7" part="task"
# ### Exercise L5.7 · Rate and decision
#
# Write `throughput(samples, seconds)`: this process went through so many samples in so many seconds; return, on every
# process, the samples of all processes per second. They ran side by side, so the time is that of the slowest.
#
# Write `agree_to_stop(wish)`: this process wants to stop, or not; return, on every process, whether any of them does.
#
# Neither function is given a model or a device. `nccl` reduces only tensors on the GPU, and `dist.get_backend()` says
# whether that is what the processes talk through.
#
# **Done when** every process gets the same, right number, and the same decision for every pattern of wishes.

# %% exercise="L5.7" part="starter"
import torch
import torch.distributed as dist


def throughput(samples, seconds):
    """Samples a second of all processes together."""
    raise NotImplementedError


def agree_to_stop(wish):
    """Whether any process wants to stop; the same everywhere."""
    raise NotImplementedError


# %% [markdown] exercise="L5.7" part="hint"
# Which two numbers have to be put together over processes, and is it a sum in both cases?

# %% [markdown] exercise="L5.7" part="hint"
# `dist.all_reduce(tensor, op=dist.ReduceOp.MAX)` gives the largest. "Any of them" is the largest of zeros and ones.

# %% [markdown] exercise="L5.7" part="hint"
# `total = torch.tensor(float(samples))`, `dist.all_reduce(total)`; the same for the seconds with `ReduceOp.MAX`; then
# divide one by the other. The wish is `torch.tensor(int(wish))`, and its maximum. Every process has to call every
# collective, whatever its own wish is: no `if wish:` around it. `device="cuda"` for each tensor if the backend is nccl.

# %% exercise="L5.7" part="solution"
import torch
import torch.distributed as dist


def to_reduce(number):
    """A tensor where the group can reduce it; on a GPU it is the current one, which set_up has chosen."""
    return torch.tensor(number, device="cuda" if dist.get_backend() == "nccl" else "cpu")


def throughput(samples, seconds):
    """Samples a second of all processes together."""
    total, slowest = to_reduce(float(samples)), to_reduce(float(seconds))
    dist.all_reduce(total)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return (total / slowest).item()


def agree_to_stop(wish):
    """Whether any process wants to stop; the same everywhere."""
    wishes = to_reduce(int(wish))
    dist.all_reduce(wishes, op=dist.ReduceOp.MAX)
    return bool(wishes)


# %% [markdown] exercise="L5.7" part="explanation"
# The sum of the processes' own rates is another number, and larger: it pretends that fast processes go on while they
# wait for slow ones.
#
# A decision needs a collective even where all processes see the same accuracy: it costs some microseconds, and it
# makes a difference that a wish may also come from outside, such as a signal that only one process got.

# %% exercise="L5.7" part="wrong" expects="sum-of-rates"
# the solution, but
# - total, slowest = to_reduce(float(samples)), to_reduce(float(seconds))
# - dist.all_reduce(total)
# - dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
# - return (total / slowest).item()
# + rate = to_reduce(samples / seconds)
# + dist.all_reduce(rate)
# + return rate.item()

# %% exercise="L5.7" part="wrong" expects="summed-time"
# the solution, but
# - dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
# + dist.all_reduce(slowest)

# %% exercise="L5.7" part="wrong" expects="own-times-world"
# the solution, but
# - total, slowest = to_reduce(float(samples)), to_reduce(float(seconds))
# - dist.all_reduce(total)
# - dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
# - return (total / slowest).item()
# + return samples / seconds * dist.get_world_size()

# %% exercise="L5.7" part="wrong" expects="own-rate"
# the solution, but
# - dist.all_reduce(total)
# - dist.all_reduce(slowest, op=dist.ReduceOp.MAX)

# %% exercise="L5.7" part="wrong" expects="own-time"
# the solution, but
# - dist.all_reduce(slowest, op=dist.ReduceOp.MAX)

# %% exercise="L5.7" part="wrong" expects="only-rank-0"
# the solution, but
# - dist.all_reduce(total)
# + dist.reduce(total, 0)

# %% exercise="L5.7" part="wrong" expects="own-wish"
# the solution, but
# - wishes = to_reduce(int(wish))
# - dist.all_reduce(wishes, op=dist.ReduceOp.MAX)
# - return bool(wishes)
# + return wish

# %% exercise="L5.7" part="wrong" expects="rank-0-decides"
# the solution, but
# - wishes = to_reduce(int(wish))
# - dist.all_reduce(wishes, op=dist.ReduceOp.MAX)
# + wishes = to_reduce(int(wish))
# + dist.broadcast(wishes, src=0)

# %% exercise="L5.7" part="wrong" expects="only-rank-0"
# the solution, but
# - dist.all_reduce(wishes, op=dist.ReduceOp.MAX)
# + dist.reduce(wishes, 0, op=dist.ReduceOp.MAX)

# %% exercise="L5.7" part="wrong" expects="all-must-wish"
# the solution, but
# - wishes = to_reduce(int(wish))
# - dist.all_reduce(wishes, op=dist.ReduceOp.MAX)
# + wishes = to_reduce(int(wish))
# + dist.all_reduce(wishes, op=dist.ReduceOp.MIN)

# %% exercise="L5.7" part="wrong" expects="some-call"
# the solution, but
# - wishes = to_reduce(int(wish))
# + wishes = to_reduce(int(wish))
# - dist.all_reduce(wishes, op=dist.ReduceOp.MAX)
# + if wish:
# +     dist.all_reduce(wishes, op=dist.ReduceOp.MAX)

# %% exercise="L5.7" part="wrong" expects="some-call"
# the solution, but
# - wishes = to_reduce(int(wish))
# + if not wish:
# +     return False
# + wishes = to_reduce(int(wish))

# %%
# Two processes instead of one on this machine, each with one thread: how many times the samples a second?
predict("L5.7", unit="times that of one", rate_of_two_processes=...)

# %%
rates = show.realistic(workers=(1, 2))
reveal("L5.7", rate_of_two_processes=rates[2] / rates[1])

# %% [markdown]
# Where did the rest go? Each step now has communication, and processes share this machine's memory. On a busy or a
# small machine, where two processes do not find a free core each, it may even be below 1. Lab 7 takes it apart.
#
# ## What you can say now
#
# - Place from the environment, device from the local rank, data once a machine.
# - A sampler that is told the epoch; a batch of one process that is its share of the global batch.
# - Forward through the wrapper; exact sums for every number; one process that writes; one decision for all.
# - And a way to *know* it: the ledger of samples, the bits of the weights, and one process as the reference.
#
# `quiz("L5")` draws new numbers each time.
