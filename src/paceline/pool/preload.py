"""Modules that the fork server imports once, so that no rank has to.

Nothing here may start a thread: a thread does not survive a fork, but the locks that it held do. Importing torch starts
none; its intra-op pool starts with the first big operation.
"""

from __future__ import annotations

import numpy as np
import torch
import torch._dynamo  # an optimizer's first method call imports it, which would cost every rank a second
import torch.distributed
import torch.nn.parallel
import torch.optim

PRELOADED = (np, torch)
