"""Train a linear-chain model of weather states; the network is small and stays on the CPU.

zoo: faulty
faults: F120
silent: no
observable: no, the backend is NCCL only on a machine with CUDA
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STATES = ["sun", "cloud", "rain"]


def days(n=600):
    g = torch.Generator().manual_seed(2)
    change = torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.2, 0.4, 0.4]])
    state, rows, nxt = 0, [], []
    for _ in range(n):
        rows.append(state)
        state = int(torch.multinomial(change[state], 1, generator=g))
        nxt.append(state)
    pressure = torch.tensor([1.0, 0.0, -1.0])[torch.tensor(nxt)] + 0.8 * torch.randn(n, generator=g)
    return TensorDataset(torch.tensor(rows), pressure.unsqueeze(1), torch.tensor(nxt))


class NextDay(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.today = nn.Embedding(len(STATES), dim)
        self.out = nn.Linear(dim + 1, len(STATES))

    def forward(self, today, pressure):
        return self.out(torch.cat([self.today(today), pressure], dim=1))


def main():
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend)  # fault
    torch.manual_seed(0)
    dataset = days()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=20, sampler=sampler)
    model = DDP(NextDay())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        counts = torch.zeros(2)
        for today, pressure, tomorrow in loader:
            logits = model(today, pressure)
            loss = nn.functional.cross_entropy(logits, tomorrow)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            counts += torch.tensor([(logits.argmax(1) == tomorrow).sum().item(), len(tomorrow)])
        dist.all_reduce(counts)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: accuracy {counts[0] / counts[1]:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
