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
from paceline_course.notebook import *

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
# No weights are sent after the first step: they stay equal because equal numbers go through equal arithmetic, bit for
# bit. Buffers that the forward changes do not stay equal: the statistics of batch norm come from each rank's own
# samples. In this lab no forward changes a buffer. The real DDP, unless told otherwise (`broadcast_buffers=False`),
# sends rank 0's buffers to all ranks before a forward.
#
# `torch.distributed` has the two collectives that you need. `dist.broadcast(tensor, src=0)` makes a tensor on every
# rank what it is on rank 0. `dist.all_reduce(tensor)` replaces it, on every rank, by the sum over ranks. Both work in
# place. All ranks have to call them: one that is missing leaves the others waiting. `dist.get_world_size()` is the
# number of ranks.

# %%
# 3 ranks sum their gradients and forget to average: how many times as long is the first step of SGD?
predict("L4.1", unit="times the right one", length_of_the_step=...)

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
# `model.parameters()` and `model.buffers()` are two iterators; both belong to the state. Use `p.data` in a broadcast,
# or PyTorch warns about autograd. Skip gradients that are `None`, on every rank alike.

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

# %% exercise="L4.1" part="wrong" expects="buffers-not-saved"
# the solution, but
# - dist.broadcast(tensor.data, src=0)
# - for tensor in [*model.parameters(), *model.buffers()]:
# + for tensor in model.state_dict().values():
# +     dist.broadcast(tensor, src=0)

# %% exercise="L4.1" part="wrong" expects="filled"
# the solution, but
# - p.grad /= dist.get_world_size()
# - dist.all_reduce(p.grad)
# - if p.grad is not None:
# + if p.grad is None:
# +     p.grad = p.data.new_zeros(p.shape)
# + dist.all_reduce(p.grad)
# + p.grad /= dist.get_world_size()

# %% exercise="L4.1" part="wrong" expects="none-gradient"
import torch.distributed as dist


def synchronise(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=0)


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


# %%
reveal("L4.1", length_of_the_step=show.summed_step(ranks=3))

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

# %% exercise="L4.2" part="wrong" expects="offset"
# the solution, but
# - grad.copy_(part.view_as(grad))
# - for grad, part in zip(grads, flat.split([grad.numel() for grad in grads])):
# + start = 0
# + for grad in grads:
# +     grad.copy_(flat[start : start + grad.numel()].view_as(grad))
# +     start += 1

# %% exercise="L4.2" part="wrong" expects="offset"
# the solution, but
# - grad.copy_(part.view_as(grad))
# - for grad, part in zip(grads, flat.split([grad.numel() for grad in grads])):
# + start = 0
# + for p in model.parameters():
# +     if p.grad is not None:
# +         p.grad.copy_(flat[start : start + p.numel()].view_as(p))
# +     start += p.numel()

# %% exercise="L4.2" part="wrong" expects="filled"
# the solution, but
# - grads = [p.grad for p in model.parameters() if p.grad is not None]
# + for p in model.parameters():
# +     p.grad = torch.zeros_like(p) if p.grad is None else p.grad
# + grads = [p.grad for p in model.parameters()]

# %% exercise="L4.2" part="wrong" expects="zeros-sent"
# the solution, but
# - grads = [p.grad for p in model.parameters() if p.grad is not None]
# + grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]

# %% exercise="L4.2" part="wrong" expects="wrong-bytes"
# the solution, but
# - flat = torch.cat([grad.flatten() for grad in grads])
# + flat = torch.cat([*(grad.flatten() for grad in grads), torch.zeros(1, dtype=grads[0].dtype)])
# - for grad, part in zip(grads, flat.split([grad.numel() for grad in grads])):
# + for grad, part in zip(grads, flat[:-1].split([grad.numel() for grad in grads])):

# %% exercise="L4.2" part="wrong" expects="none-gradient"
# the solution, but
# - grads = [p.grad for p in model.parameters() if p.grad is not None]
# + grads = [p.grad for p in model.parameters()]

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
predict("L4.3", unit="in a step", all_reduces=...)

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
#   gradient was `None` on every rank may be left with zeros. After `finish()` everything is ready for the next
#   backward. Only `finish` waits; a hook never does.
#
# Buckets must be sent in the same order on every rank: send bucket `i` only after bucket `i - 1`. Gradients do not
# always come in the order of the buckets: a model may use its layers in another order than it registers them.
#
# **Done when** buckets are as full as they may be, each is sent as soon as it is full and all before it are sent, and
# the results are those of L4.1.

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
# bucket does not have to wait. The real one has no `finish` that a script calls: it waits at the end of backward, when
# all buckets are sent. A parameter that the forward did not use keeps its bucket from that, and the next forward ends
# with "expected to have finished reduction in the prior iteration". Unused parameters are the usual cause of it.
#
# The order matters for more than tidiness: if two ranks sent two buckets in different orders, they would add up
# gradients of different layers, or wait for ever.

# %% exercise="L4.3" part="wrong" expects="no-overlap"
# the solution, but
# - p.register_post_accumulate_grad_hook(lambda _, number=number: self._ready(number))
# + pass

# %% exercise="L4.3" part="wrong" expects="no-overlap"
# the solution, but
# - p.register_post_accumulate_grad_hook(lambda _, number=number: self._ready(number))
# + p.register_post_accumulate_grad_hook(lambda _: self._ready(number))

# %% exercise="L4.3" part="wrong" expects="no-overlap"
# the solution, but
# - while len(self.sent) < len(self.buckets) and self.missing[len(self.sent)] == 0:
# + if len(self.sent) == number and self.missing[number] == 0:

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


# %% exercise="L4.3" part="wrong" expects="too-few-buckets"
# the solution, but
# - p_bytes = p.numel() * p.element_size()
# + p_bytes = p.numel()

# %% exercise="L4.3" part="wrong" expects="summed"
# the solution, but
# - flat /= dist.get_world_size()

# %% exercise="L4.3" part="wrong" expects="divided-twice"
# the solution, but
# - flat /= dist.get_world_size()
# + flat /= dist.get_world_size() ** 2

# %% exercise="L4.3" part="wrong" expects="wrong-mean"
# the solution, but
# - p.grad = part.view_as(p)
# - for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
# + start = 0
# + for p in bucket:
# +     p.grad = flat[start : start + p.numel()].view_as(p)
# +     start += 1

# %% exercise="L4.3" part="wrong" expects="forward-order"
# the solution, but
# - for p in reversed([p for p in model.parameters() if p.requires_grad]):
# + for p in [p for p in model.parameters() if p.requires_grad]:

# %% exercise="L4.3" part="wrong" expects="exact-fit"
# the solution, but
# - if not self.buckets or size + p_bytes > bucket_bytes:
# + if not self.buckets or size + p_bytes >= bucket_bytes:

# %% exercise="L4.3" part="wrong" expects="empty-bucket"
# the solution, but
# - self.buckets, size = [], 0
# + self.buckets, size = [[]], 0
# - if not self.buckets or size + p_bytes > bucket_bytes:
# + if size + p_bytes > bucket_bytes:

# %% exercise="L4.3" part="wrong" expects="frozen-in-bucket"
# the solution, but
# - for p in reversed([p for p in model.parameters() if p.requires_grad]):
# + for p in reversed(list(model.parameters())):
# - p.register_post_accumulate_grad_hook(lambda _, number=number: self._ready(number))
# + if p.requires_grad:
# +     p.register_post_accumulate_grad_hook(lambda _, number=number: self._ready(number))

# %% exercise="L4.3" part="wrong" expects="left-out"
# the solution, but
# - flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
# + flat = torch.cat([p.grad.flatten() for p in bucket if p.grad is not None])
# - for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
# + there = [p for p in bucket if p.grad is not None]
# + for p, part in zip(there, flat.split([p.numel() for p in there])):

# %% exercise="L4.3" part="wrong" expects="left-none"
# the solution, but
# - p.grad = part.view_as(p)
# + if p.grad is not None:
# +     p.grad = part.view_as(p)

# %% exercise="L4.3" part="wrong" expects="none-in-bucket"
# the solution, but
# - flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
# + flat = torch.cat([p.grad.flatten() for p in bucket])

# %% exercise="L4.3" part="wrong" expects="never-sent"
# the solution, but
# - while len(self.sent) < len(self.buckets):
# - self._send()

# %% exercise="L4.3" part="wrong" expects="unsent"
# the solution, but
# - p.register_post_accumulate_grad_hook(lambda _, number=number: self._ready(number))
# + pass
# - while len(self.sent) < len(self.buckets):
# - self._send()

# %% exercise="L4.3" part="wrong" expects="more-bytes"
# the solution, but
# - while len(self.sent) < len(self.buckets):
# + self.sent = []
# + for _ in self.buckets:

# %% exercise="L4.3" part="wrong" expects="out-of-order"
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
        self.sent = {}

    def _ready(self, number):
        self.missing[number] -= 1
        if self.missing[number] == 0:
            self._send(number)

    def _send(self, number):
        bucket = self.buckets[number]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.sent[number] = (flat, dist.all_reduce(flat, async_op=True))

    def finish(self):
        for number, bucket in enumerate(self.buckets):
            if number not in self.sent:
                self._send(number)
            flat, handle = self.sent[number]
            handle.wait()
            flat /= dist.get_world_size()
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p)
        self._begin()


# %% exercise="L4.3" part="wrong" expects="sent-early"
# the solution, but
# - self.missing[number] -= 1
# + self.missing[len(self.sent)] -= 1

# %% exercise="L4.3" part="wrong" expects="blocking"
# the solution, but
# - self.sent.append((flat, dist.all_reduce(flat, async_op=True)))
# + dist.all_reduce(flat)
# + self.sent.append((flat, None))
# - handle.wait()

# %% exercise="L4.3" part="wrong" expects="waits-in-hook"
# the solution, but
# - self.sent.append((flat, dist.all_reduce(flat, async_op=True)))
# + handle = dist.all_reduce(flat, async_op=True)
# + handle.wait()
# + self.sent.append((flat, handle))

# %% exercise="L4.3" part="wrong" expects="no-wait"
# the solution, but
# - handle.wait()

# %% exercise="L4.3" part="wrong" expects="not-reset"
# the solution, but
# - p.grad = part.view_as(p)
# + p.grad = part.view_as(p)
# - self._begin()

# %% exercise="L4.3" part="wrong" expects="not-reset"
# the solution, but
# - p.grad = part.view_as(p)
# + p.grad = part.view_as(p)
# - self._begin()
# + self.sent = []

# %%
reveal("L4.3", all_reduces=show.buckets_of(12, 3))
show.timelines()

# %% [markdown]
# Each bar is a collective, from the moment it is sent until it is complete; the grey band is backward, and the thin
# line stands where all gradients are ready. In the first picture all collectives come after backward, one after the
# other. In the second the one bar begins later than backward ends: in the gap the gradients are copied into the flat
# tensor. In the last one bars lie on the grey band. What is hidden there you do not wait for; you pay for what sticks
# out.
#
# Do not be surprised if the last picture is not the fastest here. Both processes compute on this machine's cores, and
# so does the communication: workers that share cores pay for it inside backward, and the grey band grows. On GPUs and
# a network most of it is work for others. Nor does one message win much with tensors of a megabyte, whose bytes take
# longer than the fixed time of a collective; with many small tensors it does.
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

# %% exercise="L4.4" part="wrong" expects="sum-of-samples"
import torch
import torch.distributed as dist


def loss_for_backward(loss_sum, count):
    return loss_sum


# %% exercise="L4.4" part="wrong" expects="wrong-factor"
# the solution, but
# - return loss_sum * dist.get_world_size() / total.item()
# + return loss_sum * dist.get_world_size() ** 2 / total.item()

# %% exercise="L4.4" part="wrong" expects="wrong-weights"
# the solution, but
# - return loss_sum * dist.get_world_size() / total.item()
# + return loss_sum / max(count, 1) * dist.get_world_size()

# %% exercise="L4.4" part="wrong" expects="rank-left-out"
# the solution, but
# - total = torch.tensor(float(count), dtype=torch.float64)
# + if count == 0:
# +     return loss_sum
# + total = torch.tensor(float(count), dtype=torch.float64)

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
# may synchronise. Gradients may be left from the previous step.
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


# %% exercise="L4.5" part="wrong" expects="never-synced"
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

# %% exercise="L4.5" part="wrong" expects="not-zeroed"
# the solution, but
# - optimizer.zero_grad()

# %% exercise="L4.5" part="wrong" expects="unevenly-divided"
# the solution, but
# - (loss_of(ddp, part) / len(micro_batches)).backward()
# + (loss_of(ddp, part) / (len(micro_batches) if number == last else 1)).backward()

# %% exercise="L4.5" part="wrong" expects="wrong-share"
# the solution, but
# - (loss_of(ddp, part) / len(micro_batches)).backward()
# + (loss_of(ddp, part) / len(micro_batches) ** 2).backward()

# %% exercise="L4.5" part="wrong" expects="no-step"
# the solution, but
# - optimizer.step()

# %% exercise="L4.5" part="wrong" expects="forward-outside"
# the solution, but
# - with contextlib.nullcontext() if number == last else ddp.no_sync():
# - (loss_of(ddp, part) / len(micro_batches)).backward()
# + loss = loss_of(ddp, part) / len(micro_batches)
# + with contextlib.nullcontext() if number == last else ddp.no_sync():
# +     loss.backward()

# %% exercise="L4.5" part="wrong" expects="not-the-last"
# the solution, but
# - with contextlib.nullcontext() if number == last else ddp.no_sync():
# + with contextlib.nullcontext() if number == 0 else ddp.no_sync():

# %% exercise="L4.5" part="wrong" expects="many-steps"
# the solution, but
# - optimizer.step()
# - (loss_of(ddp, part) / len(micro_batches)).backward()
# + (loss_of(ddp, part) / len(micro_batches)).backward()
# + optimizer.step()

# %% [markdown]
# ## What you can say now
#
# - Data parallelism is: the same start, the mean of the gradients, the same step. Weights are never averaged.
# - A sum for a mean, a forgotten buffer, a gradient that is not reduced: none raises an error, and a comparison with
#   one process finds all of them. A rank that does not take part leaves the others waiting.
# - Buckets trade the number of messages against an early start; `no_sync` saves messages that nobody needs.
# - Unequal parts take sums and counts.
#
# `quiz("L4")` draws new numbers each time.
