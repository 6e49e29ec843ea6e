"""Train a policy with PPO; acting and evaluating go through one forward, and advantages are normalized over all ranks.

zoo: correct
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributions import Categorical
from torch.nn.parallel import DistributedDataParallel as DDP


class Matching:
    """Pays 1 for naming the largest of the four shown numbers."""

    def __init__(self, n, seed):
        self.n, self.rng = n, torch.Generator().manual_seed(seed)

    def reset(self):
        self.shown = torch.randn(self.n, 4, generator=self.rng)
        return self.shown

    def step(self, action):
        return (self.shown.argmax(1) == action).float()


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh())
        self.pi, self.v = nn.Linear(32, 4), nn.Linear(32, 1)

    def forward(self, obs, action=None):
        h = self.body(obs)
        policy = Categorical(logits=self.pi(h))
        if action is None:
            action = policy.sample()
        return action, policy.log_prob(action), policy.entropy(), self.v(h).squeeze(-1)


def normalize_globally(x):
    moments = torch.stack([x.sum(), x.pow(2).sum(), torch.tensor(float(len(x)))])
    dist.all_reduce(moments)
    mean = moments[0] / moments[2]
    return (x - mean) / (moments[1] / moments[2] - mean**2).clamp(min=1e-8).sqrt()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(20 + rank)
    env = Matching(64, seed=4000 + rank)
    agent = DDP(ActorCritic())
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-2)
    for update in range(1, 31):
        obs = env.reset()
        with torch.no_grad():
            action, old_log_prob, _, value = agent.module(obs)
        reward = env.step(action)
        advantage = normalize_globally(reward - value)
        for _ in range(2):
            _, log_prob, entropy, new_value = agent(obs, action)
            ratio = (log_prob - old_log_prob).exp()
            policy_loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            loss = policy_loss + 0.5 * (new_value - reward).pow(2).mean() - 0.01 * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
        if update % 10 == 0:
            mean = reward.mean() / world
            dist.all_reduce(mean)
            if rank == 0:
                print(f"update {update}: reward {mean.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
