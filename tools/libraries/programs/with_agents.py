"""stable-baselines3: PPO, A2C, DQN and SAC learn for a few steps, save and load."""

from __future__ import annotations

import tempfile

import fed
import gymnasium
import torch
from fed import DEVICE, case, fill, numbers


@case("a policy's values and gradients")
def policy():
    from stable_baselines3 import PPO
    model = PPO("MlpPolicy", gymnasium.make("CartPole-v1"), n_steps=32, batch_size=16, device=DEVICE, seed=0)
    fill(model.policy, 0.2)
    seen, acts = numbers(6, 4), torch.tensor([0, 1, 1, 0, 1, 0], device=DEVICE)
    values, log_prob, entropy = model.policy.evaluate_actions(seen, acts)
    (values.square().mean() - log_prob.mean() - entropy.mean()).backward()
    return [values, log_prob, entropy, model.policy.action_net.weight.grad[0, :4], model.predict(numbers(3, 4).cpu().numpy(), deterministic=True)[0]]


@case("learning, saving, loading")
def learning():
    from stable_baselines3 import A2C, DQN, PPO, SAC
    made = []
    for kind, game, options in ((PPO, "CartPole-v1", {"n_steps": 32, "batch_size": 16, "n_epochs": 2}), (A2C, "CartPole-v1", {}),
                                (DQN, "CartPole-v1", {"learning_starts": 20, "batch_size": 8}), (SAC, "Pendulum-v1", {"learning_starts": 20, "batch_size": 8})):
        model = kind("MlpPolicy", gymnasium.make(game), device=DEVICE, seed=0, policy_kwargs={"net_arch": [16]}, **options)
        model.learn(64)
        with tempfile.TemporaryDirectory() as folder:
            model.save(f"{folder}/model")
            again = kind.load(f"{folder}/model", device=DEVICE)
        same = all(torch.equal(a, b) for a, b in zip(model.policy.state_dict().values(), again.policy.state_dict().values()))
        made.append([same, model.num_timesteps >= 64, all(bool(torch.isfinite(p).all()) for p in model.policy.parameters())])
    return made


fed.main()
