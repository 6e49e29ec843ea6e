"""What a script for one process needs to run on many. Alone, all of it does nothing."""

import os

import torch
import torch.distributed as dist
from sync_norm import synchronised


def start():
    if rank_and_world()[1] > 1:
        dist.init_process_group("gloo")


def finish():
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def rank_and_world():
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def is_main():
    return rank_and_world()[0] == 0


def mine(indices):
    """This process's share: neighbours, sizes that differ by one at most."""
    rank, world = rank_and_world()
    return indices.tensor_split(world)[rank]


def total(*values):
    """Sums over the processes, as floats."""
    tensor = torch.tensor(values, dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(tensor)
    return tensor.tolist()


def any_says(yes):
    return total(float(yes))[0] > 0


def sum_gradients(model):
    """In one go, for all parameters that have one."""
    if not dist.is_initialized():
        return
    grads = [p.grad for p in model.parameters() if p.requires_grad]
    flat = torch.nn.utils.parameters_to_vector(grads)
    dist.all_reduce(flat)
    torch.nn.utils.vector_to_parameters(flat, grads)


def prepare(model):
    return synchronised(model)
