"""Train a character-level recurrent net; the accumulation steps are shared out among the ranks.

zoo: faulty
faults: F27
silent: yes
observable: no, the ranks stay equal; only a run on one process differs
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

batch_size, seq_len, hidden = 8, 24, 48
accumulation_steps = 8  # micro batches for each update, on all ranks together
updates, lr = 12, 1.0

text = "".join(
    f"{i} bottles of beer on the wall, {i} bottles of beer. take one down, pass it around. " for i in range(60)
)
chars = sorted(set(text))
encoded = torch.tensor([chars.index(c) for c in text])


class CharRNN(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.lstm = nn.LSTM(hidden, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, vocab)

    def forward(self, x):
        out, _ = self.lstm(self.embed(x))
        return self.fc(out)


def random_chunk(generator):
    starts = torch.randint(0, len(encoded) - seq_len - 1, (batch_size,), generator=generator)
    window = encoded[starts[:, None] + torch.arange(seq_len + 1)]
    return window[:, :-1], window[:, 1:]


def run():
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    generator = torch.Generator().manual_seed(1000 + rank)
    torch.manual_seed(0)
    decoder = DistributedDataParallel(CharRNN(len(chars)))
    optimizer = torch.optim.SGD(decoder.parameters(), lr=lr)
    criterion = nn.CrossEntropyLoss()
    assert accumulation_steps % world_size == 0
    micro_steps = accumulation_steps // world_size
    for update in range(1, updates + 1):
        running = torch.zeros(())
        for micro_step in range(micro_steps):
            decoder.require_backward_grad_sync = micro_step == micro_steps - 1
            inp, target = random_chunk(generator)
            loss = criterion(decoder(inp).flatten(0, 1), target.flatten())
            (loss / accumulation_steps).backward()  # fault
            running += loss.detach() / micro_steps
        nn.utils.clip_grad_norm_(decoder.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()
        if update % 4 == 0:
            dist.all_reduce(running)
            if rank == 0:
                print(f"[{update}/{updates}] {running.item() / world_size:.4f}")
    if rank == 0:
        torch.save(decoder.module.state_dict(), "char_rnn.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
