# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # L3 · Collectives by hand
#
# Everything that processes of a data-parallel training say to each other, they say in **collectives**: operations
# that all of them call together. In this lab you build the important ones from nothing but `send` and `recv`, and
# count what each costs. After it you can say why an all-reduce over 1,000 processes moves hardly more data per
# process than one over 4, and what has to be true for that.
#
# All processes here run on this machine. On GPUs the same algorithms run inside NCCL.

# %%
from paceline_course.notebook import *

show = lab("L3")
show.patterns()

# %% [markdown]
# ## Two words: send and receive
#
# `dist.send(tensor, dst=1)` gives a tensor to rank 1, `dist.recv(tensor, src=0)` fills a tensor with what rank 0
# sends. Both wait: a `send` may end only when the other side has begun to receive. So if two ranks *both* send to
# each other first, both may wait for ever. This is called a **deadlock**, and with small tensors you might not
# notice: they fit into a buffer, and the program only hangs when the model grows.
#
# `dist.isend` and `dist.irecv` return at once with a handle whose `wait()` ends when it is done. With them a rank can
# send and receive at the same time.

# %% [markdown] exercise="L3.1" part="task"
# ### Exercise L3.1 · Broadcast
#
# Write `broadcast(tensor, src)`: afterwards `tensor` is, on every rank, what it was on rank `src`. In place, with
# `dist.send` and `dist.recv` only.
#
# **Done when** it works for 2 to 5 ranks and any `src`.

# %% exercise="L3.1" part="starter"
import torch.distributed as dist


def broadcast(tensor, src):
    """Make the tensor on every rank what it is on rank src."""
    raise NotImplementedError


# %% [markdown] exercise="L3.1" part="hint"
# Who sends, and who receives? How often does each?

# %% [markdown] exercise="L3.1" part="hint"
# Rank `src` sends to each of the others, one after the other. All others receive once, from `src`.

# %% [markdown] exercise="L3.1" part="hint"
# `if dist.get_rank() == src: for dst in range(dist.get_world_size()): if dst != src: dist.send(tensor, dst)`, and
# otherwise `dist.recv(tensor, src)`.

# %% exercise="L3.1" part="solution"
import torch.distributed as dist


def broadcast(tensor, src):
    """Make the tensor on every rank what it is on rank src."""
    if dist.get_rank() == src:
        for dst in range(dist.get_world_size()):
            if dst != src:
                dist.send(tensor, dst)
    else:
        dist.recv(tensor, src)


# %% [markdown] exercise="L3.1" part="explanation"
# Right, and slow: rank `src` sends `W - 1` times, while all others idle. Its connection is the bottleneck, and the
# time grows with the number of ranks.

# %% exercise="L3.1" part="wrong" expects="not-everywhere"
# the solution, but
# - if dst != src:
# + if dst != src and dst <= 1:
# - dist.recv(tensor, src)
# + if dist.get_rank() <= 1: dist.recv(tensor, src)

# %% exercise="L3.1" part="wrong" expects="wrong-source"
# the solution, but
# - if dist.get_rank() == src:
# + src = 0
# + if dist.get_rank() == src:

# %% exercise="L3.1" part="wrong" expects="hang"
# the solution, but
# - dist.send(tensor, dst)
# + dist.recv(tensor, dst)

# %% exercise="L3.1" part="wrong" expects="not-by-hand"
import torch.distributed as dist


def broadcast(tensor, src):
    dist.broadcast(tensor, src)


# %% [markdown]
# ## A tree
#
# Ranks that have the data can help to send it. In the first round one rank sends to one other; now two have it, and
# both send; then four. After `k` rounds `2^k` ranks have it, so `ceil(log2 W)` rounds are enough.

# %%
# How many rounds does a tree take for 1,000 ranks?
predict("L3.2", unit="rounds", rounds_for_1000_ranks=...)

# %% [markdown] exercise="L3.2" part="task"
# ### Exercise L3.2 · Tree broadcast
#
# Write `tree_broadcast(tensor, src)`, with the same result in `ceil(log2 W)` rounds: no rank sends or receives more
# often than that.
#
# It is easiest to think in *virtual* ranks, counted from `src`: `virtual = (rank - src) % W`. In round `k = 0, 1, 2,
# ...` every virtual rank below `2^k` sends to the one that is `2^k` further, if there is one.
#
# **Done when** it works for 2 to 5 ranks and any `src`, and no rank sends more than `ceil(log2 W)` times.

# %% exercise="L3.2" part="starter"
import torch.distributed as dist


def tree_broadcast(tensor, src):
    """Make the tensor on every rank what it is on rank src, in ceil(log2 W) rounds."""
    raise NotImplementedError


# %% [markdown] exercise="L3.2" part="hint"
# In round `k`, which virtual ranks send, which receive, and which do nothing?

# %% [markdown] exercise="L3.2" part="hint"
# With `step = 2**k`: virtual ranks below `step` send to `virtual + step` (if that is below `W`), and those from
# `step` to `2 * step - 1` receive from `virtual - step`. The real rank of a virtual one is `(virtual + src) % W`.

# %% [markdown] exercise="L3.2" part="hint"
# `step = 1; while step < world: ...; step *= 2`, and inside: `if virtual < step and virtual + step < world:
# dist.send(tensor, (virtual + step + src) % world)`, `elif step <= virtual < 2 * step: dist.recv(tensor, (virtual -
# step + src) % world)`.

# %% exercise="L3.2" part="solution"
import torch.distributed as dist


def tree_broadcast(tensor, src):
    """Make the tensor on every rank what it is on rank src, in ceil(log2 W) rounds."""
    world = dist.get_world_size()
    virtual = (dist.get_rank() - src) % world
    step = 1
    while step < world:
        if virtual < step and virtual + step < world:
            dist.send(tensor, (virtual + step + src) % world)
        elif step <= virtual < 2 * step:
            dist.recv(tensor, (virtual - step + src) % world)
        step *= 2


# %% [markdown] exercise="L3.2" part="explanation"
# Ten rounds for 1,000 ranks instead of 999. The number of *messages* is the same, `W - 1`, but most of them happen at
# the same time. What counts is the longest chain: its latency grows with the logarithm of the number of ranks.

# %% exercise="L3.2" part="wrong" expects="too-many-sends"
import torch.distributed as dist


def tree_broadcast(tensor, src):
    if dist.get_rank() == src:
        for dst in range(dist.get_world_size()):
            if dst != src:
                dist.send(tensor, dst)
    else:
        dist.recv(tensor, src)


# %% exercise="L3.2" part="wrong" expects="wrong-source"
# the solution, but
# - virtual = (dist.get_rank() - src) % world
# + src = 0
# + virtual = dist.get_rank()

# %% exercise="L3.2" part="wrong" expects="no-such-rank"
# the solution, but
# - if virtual < step and virtual + step < world:
# + if virtual < step:
# - dist.send(tensor, (virtual + step + src) % world)
# + dist.send(tensor, virtual + step + src)

# %% exercise="L3.2" part="wrong" expects="hang"
# the solution, but
# - if virtual < step and virtual + step < world:
# + if virtual < step:

# %% exercise="L3.2" part="wrong" expects="not-everywhere"
# the solution, but
# - while step < world:
# + while 2 * step < world:

# %%
reveal("L3.2", rounds_for_1000_ranks=10)

# %% [markdown]
# ## Adding up: the ring
#
# An **all-reduce** leaves the sum over ranks on every rank. The obvious way: send everything to rank 0, add up there,
# broadcast. Rank 0 then receives and sends `W - 1` whole tensors, and with 100 ranks and a model of 1 GB that is 200
# GB through one connection, in every step.
#
# The way out is to let every rank be responsible for a part. Cut the tensor into `W` chunks. If rank `r` had the sum
# of chunk `r` from all ranks, and then gave it to all, each rank would handle little more than one tensor's worth of
# data.
#
# How does the sum of a chunk get to one rank without one rank receiving everything? In a **ring**: each rank sends
# only to the next one, `(rank + 1) % W`, and receives only from the one before. A chunk goes around, and every rank
# that it passes adds its own part.

# %%
show.ring(4)

# %%
# 4 ranks: how much does each send for the reduce-scatter, in tensors? 3? 1? 3/4?
predict("L3.3", unit="tensors", sent_per_rank=...)

# %% [markdown] exercise="L3.3" part="task"
# ### Exercise L3.3 · Reduce-scatter in a ring
#
# Write `reduce_scatter(tensor)`: returns, on rank `r`, the sum over ranks of chunk `r`, where the chunks are
# `tensor.tensor_split(W)` of a flat tensor. What is in `tensor` afterwards does not matter. Each rank sends `W - 1`
# chunks and no more, to the next rank only, and receives from the one before.
#
# In step `s = 0 ... W - 2`, rank `r` sends chunk `(r - s - 1) % W` and receives chunk `(r - s - 2) % W`, to which it
# adds its own part.
#
# Sending and receiving go on at the same time: `isend`, then `recv`, then `wait()`.
#
# **Done when** it is right for 2 to 5 ranks, whole and floating-point numbers, lengths that `W` does not divide,
# tensors of several megabytes, and each rank sends `(W - 1) / W` of a tensor.

# %% exercise="L3.3" part="starter"
import torch
import torch.distributed as dist


def reduce_scatter(tensor):
    """The sum over ranks of this rank's chunk."""
    raise NotImplementedError


# %% [markdown] exercise="L3.3" part="hint"
# Follow chunk 0 in the picture: where does it begin, whom does it pass, and where does it end?

# %% [markdown] exercise="L3.3" part="hint"
# `chunks = list(tensor.tensor_split(world))` are views, so `chunks[i] += received` adds in place. The received chunk
# needs a tensor of its own: `torch.empty_like(chunks[i])`.

# %% [markdown] exercise="L3.3" part="hint"
# In step `s`: `handle = dist.isend(chunks[(rank - s - 1) % world], right)`, `received = torch.empty_like(chunks[(rank
# - s - 2) % world])`, `dist.recv(received, left)`, `handle.wait()`, and add. At the end return `chunks[rank]`.

# %% exercise="L3.3" part="solution"
import torch
import torch.distributed as dist


def reduce_scatter(tensor):
    """The sum over ranks of this rank's chunk."""
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    chunks = list(tensor.tensor_split(world))
    for step in range(world - 1):
        handle = dist.isend(chunks[(rank - step - 1) % world].contiguous(), right)
        mine = chunks[(rank - step - 2) % world]
        received = torch.empty_like(mine)
        dist.recv(received, left)
        handle.wait()
        mine += received
    return chunks[rank]


# %% [markdown] exercise="L3.3" part="explanation"
# Every connection of the ring is busy in every step, and none carries more than `(W - 1) / W` of a tensor: less than
# one tensor, whatever the number of ranks. The order in which a chunk's parts are added is that of the ring, and it
# is another one for each chunk; so the last digits of a floating-point sum depend on the number of ranks. That is why
# a training on 4 ranks is not bit for bit that on 8.

# %% exercise="L3.3" part="wrong" expects="too-many-bytes"
import torch
import torch.distributed as dist


def reduce_scatter(tensor):
    rank, world = dist.get_rank(), dist.get_world_size()
    total = tensor.clone()
    for other in range(world):
        if other == rank:
            for dst in range(world):
                if dst != rank:
                    dist.send(tensor, dst)
        else:
            received = torch.empty_like(tensor)
            dist.recv(received, other)
            total += received
    return total.tensor_split(world)[rank]


# %% exercise="L3.3" part="wrong" expects="wrong-sum"
# the solution, but
# - mine += received
# + mine.copy_(received)

# %% exercise="L3.3" part="wrong" expects="wrong-chunk"
# the solution, but
# - handle = dist.isend(chunks[(rank - step - 1) % world].contiguous(), right)
# + handle = dist.isend(chunks[(rank - step) % world].contiguous(), right)
# - mine = chunks[(rank - step - 2) % world]
# + mine = chunks[(rank - step - 1) % world]
# - return chunks[rank]
# + return chunks[(rank + 1) % world]

# %% exercise="L3.3" part="wrong" expects="wrong-shape"
# the solution, but
# - chunks = list(tensor.tensor_split(world))
# + chunks = list(tensor[: len(tensor) // world * world].tensor_split(world))

# %% [markdown]
# ## And back: all-gather, all-reduce
#
# Now every rank has one finished chunk. Once more around the ring, this time without adding, and everyone has all of
# them: an **all-gather**. Both together are the all-reduce that moves `2 (W - 1) / W` of a tensor per rank. Watch
# it: a chunk shows whose parts are in it, and is green when it is complete.

# %%
show.ring_in_motion(4)

# %% [markdown] exercise="L3.4" part="task"
# ### Exercise L3.4 · All-reduce
#
# Write `all_reduce(tensor)`: afterwards the flat `tensor` holds the sum over ranks, on every rank the same bits. In
# place; each rank sends at most `2 (W - 1) / W` of a tensor, to the next rank only.
#
# You may import your last answer: `from L3_3 import reduce_scatter`.
#
# **Done when** it agrees with torch's own for 2 to 5 ranks, and no rank sends more than the bound.

# %% exercise="L3.4" part="starter"
import torch
import torch.distributed as dist


def all_reduce(tensor):
    """Replace the tensor by its sum over ranks."""
    raise NotImplementedError


# %% [markdown] exercise="L3.4" part="hint"
# After the reduce-scatter, which chunk does each rank have to pass on first, and which after that?

# %% [markdown] exercise="L3.4" part="hint"
# In step `s` of the all-gather, rank `r` sends chunk `(r - s) % W` and receives chunk `(r - s - 1) % W`. The chunks
# are views of `tensor`, so that receiving into them fills it.

# %% [markdown] exercise="L3.4" part="hint"
# `handle = dist.isend(chunks[(rank - s) % world], right)`, `dist.recv(chunks[(rank - s - 1) % world], left)`,
# `handle.wait()`.

# %% exercise="L3.4" part="solution"
import torch
import torch.distributed as dist


def all_reduce(tensor):
    """Replace the tensor by its sum over ranks."""
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    chunks = list(tensor.tensor_split(world))
    for step in range(world - 1):
        handle = dist.isend(chunks[(rank - step - 1) % world], right)
        mine = chunks[(rank - step - 2) % world]
        received = torch.empty_like(mine)
        dist.recv(received, left)
        handle.wait()
        mine += received
    for step in range(world - 1):
        handle = dist.isend(chunks[(rank - step) % world], right)
        dist.recv(chunks[(rank - step - 1) % world], left)
        handle.wait()


# %% [markdown] exercise="L3.4" part="explanation"
# `2 (W - 1) / W` tensors per rank: 1 for two ranks, 1.5 for four, 1.998 for a thousand. The *data* do not grow; the
# number of steps does, `2 (W - 1)`, and each has its latency. So large tensors like rings, small tensors on many
# ranks like trees, and libraries choose by size. In lab 7 you measure both terms and predict where the one becomes
# larger than the other.
#
# All ranks hold the same bits, because each chunk was added up once, on one rank, and copied.

# %% exercise="L3.4" part="wrong" expects="too-many-bytes"
import torch
import torch.distributed as dist


def all_reduce(tensor):
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    passing = tensor.clone()
    for step in range(world - 1):
        handle = dist.isend(passing, right)
        received = torch.empty_like(passing)
        dist.recv(received, left)
        handle.wait()
        tensor += received
        passing = received


# %% exercise="L3.4" part="wrong" expects="wrong-sum"
# the solution, but
# - dist.recv(chunks[(rank - step - 1) % world], left)
# + dist.recv(torch.empty_like(chunks[(rank - step - 1) % world]), left)

# %% exercise="L3.4" part="wrong" expects="wrong-sum"
# the solution, but
# - handle = dist.isend(chunks[(rank - step) % world], right)
# + handle = dist.isend(torch.zeros_like(chunks[(rank - step) % world]), right)

# %% exercise="L3.4" part="wrong" expects="not-by-hand"
import torch.distributed as dist


def all_reduce(tensor):
    dist.all_reduce(tensor)


# %%
reveal("L3.3", sent_per_rank=0.75)
show.bytes_by_world()

# %% [markdown]
# ## What you can say now
#
# - Collectives end when all ranks have called them; a send may wait for its receive.
# - A tree has `log2 W` rounds; a ring has `2 (W - 1)` steps and moves `2 (W - 1) / W` of a tensor per rank, however
#   many ranks there are.
# - The order of a sum depends on the number of ranks, and with it the last digits.
#
# `quiz("L3")` draws new numbers each time.
