from collections import defaultdict

import torch
import torch.distributed as dist


class SmoothedValue:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, n=1):
        self.count += n
        self.total += value * n

    def synchronize_between_processes(self):
        if not is_dist_avail_and_initialized():
            return
        t = torch.tensor([self.count, self.total], dtype=torch.float64)
        dist.barrier()
        dist.all_reduce(t)
        self.count, self.total = int(t[0]), t[1].item()

    @property
    def global_avg(self):
        return self.total / self.count


class MetricLogger:
    def __init__(self):
        self.meters = defaultdict(SmoothedValue)

    def log_every(self, loader, print_freq, header):
        for number, batch in enumerate(loader):
            yield batch
            if number % print_freq == 0 and is_main_process():
                print(f"{header}  [{number}/{len(loader)}]  {self}")

    def synchronize_between_processes(self):
        for meter in self.meters.values():
            meter.synchronize_between_processes()

    def __str__(self):
        return "  ".join(f"{name}: {meter.global_avg:.4f}" for name, meter in self.meters.items())


def accuracy(output, target, topk=(1,)):
    _, pred = output.topk(max(topk), 1)
    correct = pred.eq(target[:, None])
    return [100.0 * correct[:, :k].sum().item() / len(target) for k in topk]


def is_dist_avail_and_initialized():
    return dist.is_available() and dist.is_initialized()


def get_world_size():
    return dist.get_world_size() if is_dist_avail_and_initialized() else 1


def is_main_process():
    return not is_dist_avail_and_initialized() or dist.get_rank() == 0


def save_on_master(*args, **kwargs):
    if is_main_process():
        torch.save(*args, **kwargs)
