# %% [markdown]
# # A small lab

# %%
from paceline_course.notebook import *

# %% [markdown] exercise="L1.1" part="task"
# Write `twice(x)`, see [here](https://example.org).
#
# **Done when** it is twice `x`.


# %% exercise="L1.1" part="starter"
def twice(x):
    raise NotImplementedError


# %% [markdown] exercise="L1.1" part="hint"
# First.

# %% [markdown] exercise="L1.1" part="hint"
# Second.

# %% [markdown] exercise="L1.1" part="hint"
# Third.


# %% exercise="L1.1" part="solution"
def twice(x):
    return 2 * x


# %% [markdown] exercise="L1.1" part="explanation"
# Because.


# %% exercise="L1.1" part="wrong" expects="thrice"
def twice(x):
    return 3 * x


# %% exercise="L1.1" part="wrong" expects="other"
def twice(x):
    return x


# %% exercise="L1.1" part="wrong" expects="missing-name"
def double(x):
    return 2 * x


# %% [markdown] exercise="L1.2" part="task"
# Write `total(value)`: the sum over ranks.
#
# **Done when** every rank has it.


# %% exercise="L1.2" part="starter"
def total(value):
    raise NotImplementedError


# %% [markdown] exercise="L1.2" part="hint"
# First.

# %% [markdown] exercise="L1.2" part="hint"
# Second.

# %% [markdown] exercise="L1.2" part="hint"
# Third.

# %% exercise="L1.2" part="solution"
import torch
import torch.distributed as dist


def total(value):
    tensor = torch.tensor([value])
    dist.all_reduce(tensor)
    return tensor.item()


# %% [markdown] exercise="L1.2" part="explanation"
# Because.


# %% exercise="L1.2" part="wrong" expects="own-value"
def total(value):
    return value


# %% exercise="L1.2" part="wrong" expects="hang"
import torch
import torch.distributed as dist


def total(value):
    tensor = torch.tensor([value])
    if dist.get_rank() == 0:
        dist.all_reduce(tensor)
    return tensor.item()


# %% exercise="L1.2" part="wrong" expects="raised"
def total(value):
    return value / 0
