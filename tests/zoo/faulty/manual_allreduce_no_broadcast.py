"""Train a policy with PPO-like updates and hand-written gradient averaging, in the style of cleanrl.

zoo: faulty
faults: F39
silent: yes
"""

import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim
from torch.distributions.normal import Normal


class PointEnv:
    """A point that should be pushed to the origin."""

    def __init__(self, n, rng):
        self.rng = rng
        self.state = rng.normal(size=(n, 2)).astype(np.float32)

    def step(self, action):
        self.state = 0.9 * self.state + 0.3 * np.clip(action, -1, 1)
        reward = -np.square(self.state).sum(1)
        fresh = self.rng.random(len(self.state)) < 0.1
        self.state[fresh] = self.rng.normal(size=(fresh.sum(), 2))
        return self.state.astype(np.float32), reward.astype(np.float32)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
        self.logstd = nn.Parameter(torch.full((2,), -0.5))

    def forward(self, obs):
        return Normal(self.mean(obs), self.logstd.exp())


local_rank = int(os.environ["LOCAL_RANK"])
world_size = int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", rank=local_rank, world_size=world_size)
seed = 1 + local_rank
random.seed(seed)
torch.manual_seed(seed)
env = PointEnv(64, np.random.default_rng(seed))

agent = Agent()  # fault
optimizer = optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
obs = torch.from_numpy(env.state)
for update in range(40):
    with torch.no_grad():
        policy = agent(obs)
        action = policy.sample()
        old_logprob = policy.log_prob(action).sum(1)
    next_obs, reward = env.step(action.numpy())
    reward = torch.from_numpy(reward)
    advantage = reward - reward.mean()
    for _ in range(2):
        ratio = (agent(obs).log_prob(action).sum(1) - old_logprob).exp()
        loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        if world_size > 1:
            flat = torch.cat([p.grad.view(-1) for p in agent.parameters()])
            dist.all_reduce(flat, op=dist.ReduceOp.SUM)
            offset = 0
            for p in agent.parameters():
                p.grad.data.copy_(flat[offset : offset + p.numel()].view_as(p.grad) / world_size)
                offset += p.numel()
        optimizer.step()
    obs = torch.from_numpy(next_obs)
    if update % 20 == 19:
        mean = reward.mean() / world_size
        dist.all_reduce(mean)
        if local_rank == 0:
            print(f"update {update + 1}, reward {mean.item():.3f}")
dist.destroy_process_group()
