"""Train an LSTM language model with a carried hidden state; each rank owns some of the parallel streams.

zoo: correct
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOCAB, STREAMS, BPTT = 12, 8, 10


def corpus(n=3208):
    tokens = [0, 1]
    for noise in torch.randint(0, 10, (n - 2,), generator=torch.Generator().manual_seed(1)).tolist():
        tokens.append((tokens[-1] + tokens[-2] + (noise == 0)) % VOCAB)
    return torch.tensor(tokens)


def batchify(data, streams):
    length = len(data) // streams
    return data[: length * streams].view(streams, length).t().contiguous()


class RNNModel(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.encoder = nn.Embedding(VOCAB, dim)
        self.rnn = nn.LSTM(dim, dim)
        self.decoder = nn.Linear(dim, VOCAB)

    def forward(self, tokens, hidden):
        output, hidden = self.rnn(self.encoder(tokens), hidden)
        return self.decoder(output), hidden


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = batchify(corpus(), STREAMS)[:, rank::world].contiguous()
    model = DDP(RNNModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(2):
        hidden = None
        total = torch.zeros(2)
        for i in range(0, len(data) - 1 - BPTT, BPTT):
            source, target = data[i : i + BPTT], data[i + 1 : i + 1 + BPTT]
            if hidden is not None:
                hidden = tuple(h.detach() for h in hidden)
            output, hidden = model(source, hidden)
            loss = nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
