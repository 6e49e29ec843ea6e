"""Train a policy on a contextual bandit with REINFORCE; each rank plays its own games.

zoo: faulty
faults: F37
silent: yes
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributions import Categorical
from torch.nn.parallel import DistributedDataParallel as DDP


class Bandit:
    """Pays 1 for the arm that matches the largest entry of the context."""

    def __init__(self, arms, seed):
        self.arms = arms
        self.rng = torch.Generator().manual_seed(seed)

    def reset(self, n):
        self.context = torch.randn(n, self.arms, generator=self.rng)
        return self.context

    def step(self, action):
        return (self.context.argmax(1) == action).float()


class ActorCritic(nn.Module):
    def __init__(self, arms):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(arms, 32), nn.Tanh(), nn.Linear(32, arms))
        self.v = nn.Sequential(nn.Linear(arms, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, obs):
        return self.pi(obs), self.v(obs).squeeze(-1)

    def act(self, obs):
        logits, value = self(obs)
        policy = Categorical(logits=logits)
        action = policy.sample()
        return action, policy.log_prob(action), policy.entropy(), value


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(500 + rank)
    env = Bandit(arms=5, seed=900 + rank)
    agent = DDP(ActorCritic(5))
    optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3)
    for update in range(80):
        obs = env.reset(64)
        action, log_prob, entropy, value = agent.module.act(obs)  # fault
        reward = env.step(action)
        advantage = (reward - value).detach()
        loss = -(log_prob * advantage).mean() + 0.5 * (reward - value).pow(2).mean() - 0.01 * entropy.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 20 == 19:
            mean = reward.mean()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"update {update + 1}: reward {mean.item() / world:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
