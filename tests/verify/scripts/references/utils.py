"""Helpers in the style of torchvision's references."""

import os
import time
from collections import defaultdict, deque

import torch
import torch.distributed as dist


class SmoothedValue:
    def __init__(self, window_size=20):
        self.deque, self.total, self.count = deque(maxlen=window_size), 0.0, 0

    def update(self, value, n=1):
        self.deque.append(value)
        self.count += n
        self.total += value * n

    def synchronize_between_processes(self):
        t = reduce_across_processes([self.count, self.total])
        self.count, self.total = int(t[0]), float(t[1])

    @property
    def global_avg(self):
        return self.total / self.count


class MetricLogger:
    def __init__(self):
        self.meters = defaultdict(SmoothedValue)

    def update(self, **values):
        for name, value in values.items():
            self.meters[name].update(value.item() if isinstance(value, torch.Tensor) else value)

    def synchronize_between_processes(self):
        for meter in self.meters.values():
            meter.synchronize_between_processes()

    def log_every(self, iterable, print_freq, header):
        began = time.time()
        for i, obj in enumerate(iterable):
            yield obj
            if i % print_freq == 0:
                shown = "  ".join(f"{name}: {meter.global_avg:.4f}" for name, meter in self.meters.items())
                print(f"{header} [{i}/{len(iterable)}] {shown}")
        print(f"{header} Total time: {time.time() - began:.1f}")


def reduce_across_processes(val):
    t = torch.tensor(val, dtype=torch.float64)
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
        dist.all_reduce(t)
    return t


def save_on_master(*args, **kwargs):
    if not dist.is_initialized() or dist.get_rank() == 0:
        torch.save(*args, **kwargs)


def setup_for_distributed(is_master):
    import builtins

    builtin_print = builtins.print

    def print(*args, **kwargs):
        force = kwargs.pop("force", False)
        if is_master or force:
            builtin_print(*args, **kwargs)

    builtins.print = print


def init_distributed_mode(args):
    if "RANK" not in os.environ:
        args.distributed = False
        return
    args.rank, args.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    args.distributed = True
    dist.init_process_group("gloo", rank=args.rank, world_size=args.world_size)
    dist.barrier()
    setup_for_distributed(args.rank == 0)
