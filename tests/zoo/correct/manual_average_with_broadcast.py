"""Train without a wrapper: parameters are broadcast once, gradients are averaged by hand, as the PyTorch tutorial does.

zoo: correct
"""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


class Partition:
    def __init__(self, data, index):
        self.data, self.index = data, index

    def __len__(self):
        return len(self.index)

    def batches(self, size):
        x, y = self.data
        for i in range(0, len(self.index), size):
            rows = self.index[i : i + size]
            yield x[rows], y[rows]


class DataPartitioner:
    """Cuts one shuffled index into equal parts."""

    def __init__(self, data, parts, seed):
        self.data = data
        order = torch.randperm(len(data[0]), generator=torch.Generator().manual_seed(seed))
        self.parts = order.chunk(parts)

    def use(self, part):
        return Partition(self.data, self.parts[part])


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def run(rank, size):
    g = torch.Generator().manual_seed(1234)
    x = torch.randn(600, 15, generator=g)
    data = (x, (x[:, :5].sum(1) > x[:, 5:10].sum(1)).long())
    model = nn.Sequential(nn.Linear(15, 50), nn.ReLU(), nn.Linear(50, 2))
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    for epoch in range(3):
        train_set = DataPartitioner(data, size, seed=epoch).use(rank)
        epoch_loss = torch.zeros(2)
        for inputs, target in train_set.batches(15):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), target)
            epoch_loss += torch.tensor([loss.item(), 1.0])
            loss.backward()
            average_gradients(model)
            optimizer.step()
        dist.all_reduce(epoch_loss)
        if rank == 0:
            print("epoch", epoch, "loss", round((epoch_loss[0] / epoch_loss[1]).item(), 4))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()
