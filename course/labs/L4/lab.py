# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # L4 · Your own DDP
#
# `DistributedDataParallel` is one line in a script, and most of what goes wrong with it goes wrong in silence. In
# this lab you write it yourself: the naive form first, then one flat bucket, then what the real one does, buckets
# that are sent *while* backward is still running. After that the real one holds no secrets, and you know what each of
# its options is for.
#
# What you build works on this machine with two or three processes, and unchanged on eight GPUs. Your exercises are
# checked against **one** process that sees the whole batch, in float64: there, right and wrong lie ten orders of
# magnitude apart.

# %%
from paceline.learn.notebook import *

show = lab("L4")
show.loop()

# %% [markdown]
# ## What has to be true
#
# The picture shows a training step on two processes. Each process (its number is the **rank**) has a full copy of the
# model and its own part of the batch. Three things make the two behave as one:
#
# 1. They begin with the same weights, and with the same buffers (numbers that a model keeps but does not train, such
#    as the statistics of batch norm).
# 2. After each backward, the gradients are **averaged** over the ranks. The mean over the whole batch is the mean of
#    the parts' means, if the parts are equally large.
# 3. The optimizer then does the same on every rank, because it starts from the same and sees the same.
#
# Nothing else is exchanged. No weights are sent after the first step: they stay equal because equal numbers go
# through equal arithmetic, bit for bit.
#
# `torch.distributed` has the two collectives that you need. `dist.broadcast(tensor, src=0)` makes a tensor on every
# rank what it is on rank 0. `dist.all_reduce(tensor)` replaces it, on every rank, by the sum over ranks. Both work in
# place, and both only end when **every** rank has called them.

# %%
# 3 ranks sum their gradients and forget to average: how many times as long is the first step of SGD?
predict("L4.1", unit="times", longer_step=...)

# %% [markdown] exercise="L4.1" part="task"
# ### Exercise L4.1 · The naive form
#
# Write two functions. `synchronise(model)` is called once, before the first step: afterwards every rank holds rank
# 0's parameters and buffers. `average_gradients(model)` is called after each backward: afterwards every `p.grad` is
# the mean over ranks of what the ranks had.
#
# Some parameters have no gradient (`p.grad is None`): frozen ones, and those of a layer that no rank used. They stay
# without. The process group exists already.
#
# **Done when** two and three ranks train what one process trains, within 1e-9 after eight steps, and hold the same
# bits: for plain models, frozen layers, weights that are used twice, layers that are not used, and buffers.

# %% exercise="L4.1" part="starter"
import torch.distributed as dist


def synchronise(model):
    """Give every rank rank 0's parameters and buffers."""
    raise NotImplementedError


def average_gradients(model):
    """Replace each gradient by its mean over ranks."""
    raise NotImplementedError


# %% [markdown] exercise="L4.1" part="hint"
# Which of the two collectives makes things equal, and which one adds up? What is missing between a sum and a mean?

# %% [markdown] exercise="L4.1" part="hint"
# `model.parameters()` and `model.buffers()` are two iterators; both belong to the state. A collective needs a tensor
# without history: `p.data`, or a `torch.no_grad()` around it. Skip gradients that are `None`, on every rank alike.

# %% [markdown] exercise="L4.1" part="hint"
# For each parameter that has a gradient: `dist.all_reduce(p.grad)`, then `p.grad /= dist.get_world_size()`.

# %% exercise="L4.1" part="solution"
import torch.distributed as dist


def synchronise(model):
    """Give every rank rank 0's parameters and buffers."""
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=0)


def average_gradients(model):
    """Replace each gradient by its mean over ranks."""
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


# %% [markdown] exercise="L4.1" part="explanation"
# This is all of data parallelism; the rest of the lab makes it faster. Note what it relies on: every rank goes
# through the parameters in the same order, and agrees on which of them have a gradient. If one rank had used the
# spare layer, it would call one `all_reduce` more than the others, and all would wait for ever, or add up tensors
# that have nothing to do with each other. That is why the real DDP asks about `find_unused_parameters`.
#
# A weight that is used twice is *one* parameter; autograd has added both parts of its gradient before you see it.

# %% exercise="L4.1" part="wrong" expects="summed"
# the solution, but
# - p.grad /= dist.get_world_size()

# %% exercise="L4.1" part="wrong" expects="start-differs"
# the solution, but
# - dist.broadcast(tensor.data, src=0)
# - for tensor in [*model.parameters(), *model.buffers()]:
# + pass

# %% exercise="L4.1" part="wrong" expects="buffers-differ"
# the solution, but
# - dist.broadcast(tensor.data, src=0)
# - for tensor in [*model.parameters(), *model.buffers()]:
# + for p in model.parameters():
# +     dist.broadcast(p.data, src=0)

# %% exercise="L4.1" part="wrong" expects="not-reduced"
# the solution, but
# - dist.all_reduce(p.grad)
# - p.grad /= dist.get_world_size()
# + total = p.grad.clone()
# + dist.all_reduce(total)
# + total /= dist.get_world_size()

# %% exercise="L4.1" part="wrong" expects="divided-twice"
# the solution, but
# - if p.grad is not None:
# + if p.grad is not None:
# +     p.grad /= dist.get_world_size()

# %% exercise="L4.1" part="wrong" expects="raised"
import torch.distributed as dist


def synchronise(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=0)


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


# %%
reveal("L4.1", longer_step=show.summed_step(ranks=3))

# %% [markdown]
# A sum instead of a mean is a learning rate that is `world` times too large. Nothing fails; the loss may even fall.
# This is one of the most common mistakes in hand-written loops, and the only way to see it is a comparison with one
# process.
#
# ## One message instead of many
#
# A collective costs a fixed time, however small its tensor is: on this machine some hundred microseconds, between
# machines more. A model with a hundred tensors pays that a hundred times in each step. So put all gradients into one
# flat tensor, reduce that, and put the results back.

# %% [markdown] exercise="L4.2" part="task"
# ### Exercise L4.2 · One flat bucket
#
# Write `synchronise(model)` (as before) and `average_gradients(model)` so that a step issues exactly **one**
# collective, whose tensor holds all gradients and nothing else. All gradients have the same type.
#
# **Done when** the results are those of L4.1, and the tracer counts one collective of the right number of bytes.

# %% exercise="L4.2" part="starter"
import torch
import torch.distributed as dist


def synchronise(model):
    """Give every rank rank 0's parameters and buffers."""
    raise NotImplementedError


def average_gradients(model):
    """Replace each gradient by its mean over ranks, with one collective."""
    raise NotImplementedError


# %% [markdown] exercise="L4.2" part="hint"
# How do you get from a list of tensors of different shapes to one tensor, and back?

# %% [markdown] exercise="L4.2" part="hint"
# `torch.cat` joins flat tensors; `flat.split([...])` takes them apart again by their numbers of elements. `view_as`
# gives a part its shape, and `copy_` writes it into the gradient that is there.

# %% [markdown] exercise="L4.2" part="hint"
# `for grad, part in zip(grads, flat.split([g.numel() for g in grads])): grad.copy_(part.view_as(grad))`

# %% exercise="L4.2" part="solution"
import torch
import torch.distributed as dist


def synchronise(model):
    """Give every rank rank 0's parameters and buffers."""
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=0)


def average_gradients(model):
    """Replace each gradient by its mean over ranks, with one collective."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for grad, part in zip(grads, flat.split([grad.numel() for grad in grads])):
        grad.copy_(part.view_as(grad))


# %% [markdown] exercise="L4.2" part="explanation"
# One message, at the price of copying every gradient twice and of holding a second copy in memory. The real DDP saves
# the copies, too: with `gradient_as_bucket_view=True` the gradients *are* pieces of the flat tensor from the
# beginning.

# %% exercise="L4.2" part="wrong" expects="many-collectives"
# the solution, but
# - grad.copy_(part.view_as(grad))
# - for grad, part in zip(grads, flat.split([grad.numel() for grad in grads])):
# - flat /= dist.get_world_size()
# - dist.all_reduce(flat)
# - flat = torch.cat([grad.flatten() for grad in grads])
# - grads = [p.grad for p in model.parameters() if p.grad is not None]
# + for p in model.parameters():
# +     if p.grad is not None:
# +         dist.all_reduce(p.grad)
# +         p.grad /= dist.get_world_size()

# %% exercise="L4.2" part="wrong" expects="not-reduced"
# the solution, but
# - grad.copy_(part.view_as(grad))
# + grad = part.view_as(grad)

# %% exercise="L4.2" part="wrong" expects="summed"
# the solution, but
# - flat /= dist.get_world_size()

# %% exercise="L4.2" part="wrong" expects="unequal"
# the solution, but
# - grad.copy_(part.view_as(grad))
# - for grad, part in zip(grads, flat.split([grad.numel() for grad in grads])):
# + start = 0
# + for grad in grads:
# +     grad.copy_(flat[start : start + grad.numel()].view_as(grad))
# +     start += 1

# %% [markdown]
# ## While backward is still running
#
# Backward computes gradients from the last layer to the first. The last layer's gradient is final long before the
# first one's, so its message could be under way while the rest is computed. That is what the real DDP does, and where
# most of its speed comes from.
#
# Two ingredients. A **hook** on a parameter (`p.register_post_accumulate_grad_hook(f)`) is called with `p` as soon as
# `p.grad` is final. And a collective with `async_op=True` returns at once with a handle; `handle.wait()` ends when it
# is complete. Between the two, backward goes on.
#
# Sending each gradient alone would be the many small messages again, so gradients are collected in **buckets** that
# are sent when they are full.

# %%
# 12 gradients of 1 MB, buckets of 3 MB: how many all-reduces has a step?
predict("L4.3", unit="buckets", buckets=...)

# %% [markdown] exercise="L4.3" part="task"
# ### Exercise L4.3 · Buckets and overlap
#
# Write `synchronise(model)` (as before) and a class `Buckets`:
#
# - `Buckets(model, bucket_bytes)` is made once. It puts the parameters that need a gradient into buckets, in the
#   **reverse** of the order of `model.parameters()`: a bucket takes the next parameter if it then has at most
#   `bucket_bytes`, else a new bucket begins. (A parameter that is larger than that has a bucket of its own.) And it
#   hangs a hook on each.
# - As soon as every parameter of a bucket has its gradient, the bucket is sent: one flat tensor, one `all_reduce`
#   with `async_op=True`.
# - `finish()` is called after each backward. It sends what was not sent (a bucket with a parameter that no one used,
#   whose gradient counts as zero), waits for all, and leaves in each `p.grad` the mean over ranks. A parameter whose
#   gradient was `None` on every rank may be left with zeros.
#
# Buckets must be sent in the same order on every rank: send bucket `i` only after bucket `i - 1`.
#
# **Done when** the results are those of L4.1, buckets are as full as they may be, and all but the last are sent
# before backward is over.

# %% exercise="L4.3" part="starter"
import torch
import torch.distributed as dist


def synchronise(model):
    """Give every rank rank 0's parameters and buffers."""
    raise NotImplementedError


class Buckets:
    """Averages gradients over ranks while backward is running."""

    def __init__(self, model, bucket_bytes):
        raise NotImplementedError

    def finish(self):
        """Wait until every gradient is the mean over ranks."""
        raise NotImplementedError


# %% [markdown] exercise="L4.3" part="hint"
# What does a hook have to know in order to decide whether its bucket is full? And what does `finish` have to know
# about each bucket?

# %% [markdown] exercise="L4.3" part="hint"
# Keep for each bucket its parameters, how many of their gradients are missing, and its handle with its flat tensor.
# The hook counts down. Because buckets are sent in order, a method `_send_ready` can send, from the first unsent
# bucket on, all that are full.

# %% [markdown] exercise="L4.3" part="hint"
# Sending: `flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])`, then
# `handle = dist.all_reduce(flat, async_op=True)`. In `finish`, send the rest in order, then for each bucket
# `handle.wait()`, divide, copy back, and set the counters for the next step.

# %% exercise="L4.3" part="solution"
import torch
import torch.distributed as dist


def synchronise(model):
    """Give every rank rank 0's parameters and buffers."""
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=0)


class Buckets:
    """Averages gradients over ranks while backward is running."""

    def __init__(self, model, bucket_bytes):
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            p_bytes = p.numel() * p.element_size()
            if not self.buckets or size + p_bytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += p_bytes
        self._begin()
        for number, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, number=number: self._ready(number))

    def _begin(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.sent = []  # (flat tensor, handle) of each bucket, in order

    def _ready(self, number):
        self.missing[number] -= 1
        while len(self.sent) < len(self.buckets) and self.missing[len(self.sent)] == 0:
            self._send()

    def _send(self):
        bucket = self.buckets[len(self.sent)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.sent.append((flat, dist.all_reduce(flat, async_op=True)))

    def finish(self):
        """Wait until every gradient is the mean over ranks."""
        while len(self.sent) < len(self.buckets):
            self._send()
        for bucket, (flat, handle) in zip(self.buckets, self.sent):
            handle.wait()
            flat /= dist.get_world_size()
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p)
        self._begin()


# %% [markdown] exercise="L4.3" part="explanation"
# This is the reducer of `DistributedDataParallel` in its main features: buckets in the reverse of the order of
# registration, a hook a parameter, asynchronous all-reduces in a fixed order, and a wait at the end. Its options now
# explain themselves. `bucket_cap_mb` (25 by default) is `bucket_bytes`: larger buckets mean fewer messages, smaller
# ones an earlier start. `find_unused_parameters` finds the parameters whose hook will never come, so that their
# bucket does not have to wait for `finish`. And the message "expected to have finished reduction in the prior
# iteration" means that somebody began the next forward without `finish`.
#
# The order matters for more than tidiness: if two ranks sent two buckets in different orders, they would add up
# gradients of different layers, or wait for ever.

# %% exercise="L4.3" part="wrong" expects="no-overlap"
import torch
import torch.distributed as dist


def synchronise(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=0)


class Buckets:
    def __init__(self, model, bucket_bytes):
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            p_bytes = p.numel() * p.element_size()
            if not self.buckets or size + p_bytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += p_bytes

    def finish(self):
        for bucket in self.buckets:
            flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
            dist.all_reduce(flat)
            flat /= dist.get_world_size()
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p)


# %% exercise="L4.3" part="wrong" expects="too-many-buckets"
import torch
import torch.distributed as dist


def synchronise(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=0)


class Buckets:
    def __init__(self, model, bucket_bytes):
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.handles = []
        for p in self.trained:
            p.register_post_accumulate_grad_hook(lambda p: self.handles.append(dist.all_reduce(p.grad, async_op=True)))

    def finish(self):
        for handle in self.handles:
            handle.wait()
        self.handles = []
        for p in self.trained:
            if p.grad is not None:
                p.grad /= dist.get_world_size()


# %% exercise="L4.3" part="wrong" expects="too-few-buckets"
import torch
import torch.distributed as dist


def synchronise(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=0)


class Buckets:
    def __init__(self, model, bucket_bytes):
        self.trained = [p for p in model.parameters() if p.requires_grad]

    def finish(self):
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in self.trained])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p, part in zip(self.trained, flat.split([p.numel() for p in self.trained])):
            p.grad = part.view_as(p)


# %% exercise="L4.3" part="wrong" expects="summed"
import torch
import torch.distributed as dist


def synchronise(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=0)


class Buckets:
    def __init__(self, model, bucket_bytes):
        self.trained = list(reversed([p for p in model.parameters() if p.requires_grad]))
        self.pending = []
        for p in self.trained:
            p.register_post_accumulate_grad_hook(lambda p: self.pending.append(dist.all_reduce(p.grad, async_op=True)))

    def finish(self):
        for handle in self.pending:
            handle.wait()
        self.pending = []


# %% exercise="L4.3" part="wrong" expects="blocking"
import torch
import torch.distributed as dist


def synchronise(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=0)


class Buckets:
    def __init__(self, model, bucket_bytes):
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            p_bytes = p.numel() * p.element_size()
            if not self.buckets or size + p_bytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += p_bytes
        self._begin()
        for number, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, number=number: self._ready(number))

    def _begin(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.sent = 0

    def _ready(self, number):
        self.missing[number] -= 1
        while self.sent < len(self.buckets) and self.missing[self.sent] == 0:
            self._send()

    def _send(self):
        bucket = self.buckets[self.sent]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            p.grad = part.view_as(p)
        self.sent += 1

    def finish(self):
        while self.sent < len(self.buckets):
            self._send()
        self._begin()


# %%
reveal("L4.3", buckets=show.buckets_of(12, 3))
show.timelines()

# %% [markdown]
# Each bar is a collective, from the moment it is sent until it is complete; the grey band is backward. In the first
# row all of the waiting comes after backward. In the last row most of it is hidden: what you pay is only what sticks
# out.
#
# ## Parts that are not equally large
#
# The mean of means is the mean only where the parts are equal. They often are not: the last batch of an epoch,
# sentences of different length, masked tokens. The remedy is to divide by the number of *all* samples, and to undo
# that averaging divides by the number of ranks as well.

# %% [markdown] exercise="L4.4" part="task"
# ### Exercise L4.4 · Unequal parts
#
# Write `loss_for_backward(loss_sum, count)`. `loss_sum` is this rank's loss, summed over its samples (a tensor with
# history); `count` is how many they are, as an `int`, and may be 0. Return the number on which backward has to run,
# so that after an **average over ranks** the gradient is that of the mean over all samples of all ranks.
#
# **Done when** ranks with 7 and 3 samples, with 4 and 4, and with 5, 0 and 2 train what one process trains.

# %% exercise="L4.4" part="starter"
import torch
import torch.distributed as dist


def loss_for_backward(loss_sum, count):
    """This rank's part of the mean over all samples, made ready for an average over ranks."""
    raise NotImplementedError


# %% [markdown] exercise="L4.4" part="hint"
# Write down the mean over all samples as a sum over ranks. Then write down what an average over ranks makes of the
# ranks' losses. Which factor is missing between the two?

# %% [markdown] exercise="L4.4" part="hint"
# The mean is (sum of the ranks' sums) / (sum of the ranks' counts). An average divides by the number of ranks, which
# is one division too many. The total count takes a collective of its own.

# %% [markdown] exercise="L4.4" part="hint"
# `total = torch.tensor(float(count))`, `dist.all_reduce(total)`, and then `loss_sum * dist.get_world_size() /
# total.item()`.

# %% exercise="L4.4" part="solution"
import torch
import torch.distributed as dist


def loss_for_backward(loss_sum, count):
    """This rank's part of the mean over all samples, made ready for an average over ranks."""
    total = torch.tensor(float(count), dtype=torch.float64)
    dist.all_reduce(total)
    return loss_sum * dist.get_world_size() / total.item()


# %% [markdown] exercise="L4.4" part="explanation"
# A sum and a count, reduced separately and divided once: this is the only way that is right for every split. It costs
# a collective of eight bytes, which can ride along with the gradients (Paceline's own trainer hides it in a bucket).
# Where counts are known beforehand, as for a sampler's last batch, it costs nothing.
#
# With a rank that has no sample the loss is an empty sum, 0, and its gradient is zero: it takes part in every
# collective and changes nothing. A rank that skips its step instead leaves the others waiting.

# %% exercise="L4.4" part="wrong" expects="mean-of-means"
import torch
import torch.distributed as dist


def loss_for_backward(loss_sum, count):
    return loss_sum / max(count, 1)


# %% exercise="L4.4" part="wrong" expects="count-of-ranks"
# the solution, but
# - total = torch.tensor(float(count), dtype=torch.float64)
# + total = torch.tensor(float(count))
# - return loss_sum * dist.get_world_size() / total.item()
# + return loss_sum / total.item()

# %% exercise="L4.4" part="wrong" expects="summed"
import torch
import torch.distributed as dist


def loss_for_backward(loss_sum, count):
    return loss_sum


# %% exercise="L4.4" part="wrong" expects="mismatch"
# the solution, but
# - total = torch.tensor(float(count), dtype=torch.float64)
# + if count == 0:
# +     return loss_sum
# + total = torch.tensor(float(count))

# %% [markdown]
# ## Several backwards, one synchronisation
#
# Where the batch that you want does not fit into memory, it is cut into micro-batches whose gradients add up before
# the optimizer steps. With DDP each backward would synchronise, though only the last one needs to: averaging sums is
# the same as summing averages, but costs a collective each time. `with ddp.no_sync():` lets backward run without.
#
# Here you use torch's own `DistributedDataParallel`.

# %% [markdown] exercise="L4.5" part="task"
# ### Exercise L4.5 · Accumulation
#
# Write `accumulated_step(ddp, optimizer, micro_batches, loss_of)`: one optimizer step over a list of equally large
# micro-batches. `ddp` is a wrapped model, and `loss_of(ddp, micro_batch)` gives the mean loss over this rank's
# micro-batch. The step has to be that of the mean over all samples of all micro-batches, and only the last backward
# may synchronise.
#
# The forward belongs inside `no_sync()` as well: DDP decides there.
#
# **Done when** three micro-batches train what one batch trains, with the collectives of one backward a step.

# %% exercise="L4.5" part="starter"
import contextlib


def accumulated_step(ddp, optimizer, micro_batches, loss_of):
    """One optimizer step over all micro-batches, with one synchronisation."""
    raise NotImplementedError


# %% [markdown] exercise="L4.5" part="hint"
# Which micro-batch is the last one? What has each micro-batch's mean to be divided by, to add up to the mean of all?

# %% [markdown] exercise="L4.5" part="hint"
# Set the gradients to zero once, before the loop. Use `contextlib.nullcontext()` in the place of `ddp.no_sync()` for
# the last one. Divide each loss by the number of micro-batches.

# %% [markdown] exercise="L4.5" part="hint"
# `with contextlib.nullcontext() if number == len(micro_batches) - 1 else ddp.no_sync(): (loss_of(ddp, part) /
# len(micro_batches)).backward()`

# %% exercise="L4.5" part="solution"
import contextlib


def accumulated_step(ddp, optimizer, micro_batches, loss_of):
    """One optimizer step over all micro-batches, with one synchronisation."""
    optimizer.zero_grad()
    last = len(micro_batches) - 1
    for number, part in enumerate(micro_batches):
        with contextlib.nullcontext() if number == last else ddp.no_sync():
            (loss_of(ddp, part) / len(micro_batches)).backward()
    optimizer.step()


# %% [markdown] exercise="L4.5" part="explanation"
# The effective batch is micro-batch × micro-batches × ranks, and that is the batch that your learning rate has to
# fit. An off-by-one is the classic mistake here: if the last micro-batch is inside `no_sync` too, no gradient is ever
# synchronised, the ranks drift apart, and every rank's loss curve looks fine.


# %% exercise="L4.5" part="wrong" expects="ranks-differ"
def accumulated_step(ddp, optimizer, micro_batches, loss_of):
    optimizer.zero_grad()
    for part in micro_batches:
        with ddp.no_sync():
            (loss_of(ddp, part) / len(micro_batches)).backward()
    optimizer.step()


# %% exercise="L4.5" part="wrong" expects="synced-too-often"
def accumulated_step(ddp, optimizer, micro_batches, loss_of):
    optimizer.zero_grad()
    for part in micro_batches:
        (loss_of(ddp, part) / len(micro_batches)).backward()
    optimizer.step()


# %% exercise="L4.5" part="wrong" expects="not-divided"
# the solution, but
# - (loss_of(ddp, part) / len(micro_batches)).backward()
# + loss_of(ddp, part).backward()

# %% exercise="L4.5" part="wrong" expects="not-accumulated"
# the solution, but
# - optimizer.zero_grad()
# - for number, part in enumerate(micro_batches):
# + for number, part in enumerate(micro_batches):
# +     optimizer.zero_grad()
# - (loss_of(ddp, part) / len(micro_batches)).backward()
# + loss_of(ddp, part).backward()

# %% [markdown]
# ## What you can say now
#
# - Data parallelism is: the same start, the mean of the gradients, the same step. Weights are never averaged.
# - A sum for a mean, a forgotten buffer, a rank that does not take part: none raises an error, and a comparison with
#   one process finds all of them.
# - Buckets trade the number of messages against an early start; `no_sync` saves messages that nobody needs.
# - Unequal parts take sums and counts.
#
# `quiz("L4")` draws new numbers each time.
