"""A module that initializes CUDA when it is imported, on a machine that has none."""

import torch

torch.cuda.is_initialized = lambda: True
