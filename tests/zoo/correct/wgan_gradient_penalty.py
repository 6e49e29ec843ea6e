"""Train a Wasserstein GAN with gradient penalty on two-dimensional points; two optimizers.

zoo: correct
"""

import torch
import torch.distributed as dist
from torch import autograd, nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

LATENT, LAMBDA, CRITIC_STEPS = 4, 10.0, 2


def mlp(inputs, outputs, width=32):
    return nn.Sequential(nn.Linear(inputs, width), nn.LeakyReLU(0.2), nn.Linear(width, outputs))


def gradient_penalty(critic, real, fake):
    alpha = torch.rand(len(real), 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_()
    (gradient,) = autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    return ((gradient.norm(dim=1) - 1) ** 2).mean()


def circle(n=640):
    angle = torch.linspace(0, 2 * torch.pi, n + 1)[:n]
    return TensorDataset(torch.stack([angle.cos(), angle.sin()], dim=1))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(300 + rank)
    generator, critic = DDP(mlp(LATENT, 2)), DDP(mlp(2, 1))
    opt_g = optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.9))
    opt_d = optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.9))
    data = circle()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        distance = torch.zeros(())
        for step, (real,) in enumerate(loader):
            with torch.no_grad():
                fake = generator(torch.randn(len(real), LATENT))
            scores = critic(torch.cat([real, fake]))
            wasserstein = scores[: len(real)].mean() - scores[len(real) :].mean()
            loss_d = -wasserstein + LAMBDA * gradient_penalty(critic, real, fake)
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()
            distance += wasserstein.detach() / len(loader)
            if step % CRITIC_STEPS == CRITIC_STEPS - 1:
                critic.requires_grad_(False)
                loss_g = -critic.module(generator(torch.randn(len(real), LATENT))).mean()
                opt_g.zero_grad()
                loss_g.backward()
                opt_g.step()
                critic.requires_grad_(True)
        dist.all_reduce(distance)
        if rank == 0:
            print(f"epoch {epoch}: critic distance {distance.item() / world:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
