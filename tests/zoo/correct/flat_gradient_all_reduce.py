"""Train an actor-critic on a contextual task with one flattened gradient all-reduce, in the style of cleanrl.

zoo: correct
"""

import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.distributions import Categorical

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
torch.manual_seed(1)


class Grid:
    """Walk along a line to the goal; each copy of the environment starts at a random cell."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.position = self.rng.integers(-4, 5, size=n)

    def observe(self):
        return torch.tensor(np.stack([self.position, np.abs(self.position)], 1), dtype=torch.float32) / 4

    def step(self, action):
        before = np.abs(self.position)
        self.position = np.clip(self.position + 2 * action - 1, -5, 5)
        reward = (before - np.abs(self.position)).astype(np.float32)
        done = self.position == 0
        self.position[done] = self.rng.integers(1, 5, size=done.sum()) * self.rng.choice([-1, 1], size=done.sum())
        return torch.from_numpy(reward)


actor = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2))
critic = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1))
agent = nn.ModuleList([actor, critic])
for tensor in agent.state_dict().values():
    dist.broadcast(tensor, src=0)
torch.manual_seed(1 + rank)
envs = Grid(32, seed=1000 + rank)
optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3, eps=1e-5)
global_step = 0
for update in range(1, 61):
    obs = envs.observe()
    policy, value = Categorical(logits=actor(obs)), critic(obs).squeeze(1)
    action = policy.sample()
    reward = envs.step(action.numpy())
    global_step += world_size * len(reward)
    advantage = (reward - value).detach()
    loss = -(policy.log_prob(action) * advantage).mean() + 0.5 * (value - reward).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    grads = [p.grad for p in agent.parameters()]
    flat = _flatten_dense_tensors(grads)
    dist.all_reduce(flat)
    flat /= world_size
    for g, reduced in zip(grads, _unflatten_dense_tensors(flat, grads)):
        g.copy_(reduced)
    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
    optimizer.step()
    if update % 20 == 0:
        mean_reward = reward.mean() / world_size
        dist.all_reduce(mean_reward)
        if rank == 0:
            print(f"global_step={global_step}, mean reward={mean_reward.item():.3f}")
dist.destroy_process_group()
