"""What the pool's fork server imports once, so that no rank has to.

Nothing here may start a thread: a thread does not survive a fork, but the locks that it held do. Importing torch starts
none; its intra-op pool starts with the first big operation, and is told here to have one thread, which is none.
"""

from __future__ import annotations

import gc

import numpy as np
import torch
import torch._dynamo  # an optimizer's first method call imports it, which would cost every rank a second
import torch.distributed
import torch.nn.parallel
import torch.optim

PRELOADED = (np, torch)

torch.set_num_threads(1)
# Objects made so far are never looked at by a rank's garbage collector, so their pages stay shared.
gc.freeze()
