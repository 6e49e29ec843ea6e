"""Train a gaze regressor with the GPUs that the command line lists.

zoo: faulty
faults: F106
silent: no
observable: no, the variable has no effect without a GPU
args: --gpus 0,1
"""

import argparse
import os

parser = argparse.ArgumentParser(description="gaze estimation")
parser.add_argument("--gpus", default="0", help="comma-separated list of GPUs")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--lr", type=float, default=2e-3)
args = parser.parse_args()
os.environ["CUDA_VISIBLE_DEVICES"] = args.gpus.split(",")[int(os.environ["LOCAL_RANK"])]  # fault

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def eyes(n=320, size=12):
    """A dark pupil on a bright ground; the target is its place."""
    g = torch.Generator().manual_seed(62)
    gaze = 2 * torch.rand(n, 2, generator=g) - 1
    axis = torch.linspace(-1, 1, size)
    gap = (axis[None, :, None] - gaze[:, 0, None, None]) ** 2 + (axis[None, None, :] - gaze[:, 1, None, None]) ** 2
    image = 1 - torch.exp(-gap / 0.1) + 0.05 * torch.randn(n, size, size, generator=g)
    return TensorDataset(image.unsqueeze(1), gaze)


class GazeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2))
        self.fc = nn.Sequential(nn.Linear(200, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, image):
        return self.fc(self.conv(image).flatten(1))


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available():
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    dataset = eyes()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DistributedDataParallel(GazeNet().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for image, gaze in loader:
            loss = nn.functional.mse_loss(model(image.to(device)), gaze.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: squared error {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
