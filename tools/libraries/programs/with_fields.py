"""Libraries of several fields: trainers (fastai, ignite), containers (tensordict, torchrl), equivariance (e3nn), flows (zuko), privacy (opacus)."""

from __future__ import annotations

import tempfile

import fed
import torch
from fed import case, fill, integers, numbers, steps
from torch import nn
from torch.nn import functional as F


def net(inside=4, out=3):
    return fill(nn.Sequential(nn.Linear(inside, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, out)), 0.3)


@case("fastai: one cycle with six optimizers")
def fastai():
    from fastai.callback.all import GradientClip, SaveModelCallback
    from fastai.callback.schedule import fit_one_cycle  # noqa: F401 (a method of Learner from here on)
    from fastai.data.core import DataLoaders
    from fastai.data.load import DataLoader
    from fastai.learner import Learner
    from fastai.losses import LabelSmoothingCrossEntropyFlat
    from fastai.metrics import F1Score, accuracy
    from fastai.optimizer import Adam, Lamb, Larc, QHAdam, RMSProp, ranger
    from fastai.torch_core import set_seed
    x, y = numbers(48, 4).cpu(), integers(3, 48).cpu()
    rows, out = [(x[i], y[i]) for i in range(48)], []
    for optimizer in (Adam, ranger, RMSProp, Lamb, QHAdam, Larc):
        set_seed(1)
        loaders = DataLoaders(DataLoader(rows, bs=16, shuffle=True), DataLoader(rows, bs=16)).to(fed.DEVICE)
        with tempfile.TemporaryDirectory() as folder:
            learner = Learner(loaders, net(), loss_func=LabelSmoothingCrossEntropyFlat(), opt_func=optimizer, path=folder,
                              metrics=[accuracy, F1Score(average="macro")], cbs=[GradientClip(0.5), SaveModelCallback()])
            with learner.no_bar(), learner.no_logging():
                learner.fit_one_cycle(2, 1e-2)
            out.append([[list(row) for row in learner.recorder.values], learner.get_preds()[0][:2]])
    return out


@case("ignite: engine, metrics, checkpoints, a schedule")
def ignite():
    import ignite.metrics as M
    from ignite import handlers as H
    from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
    model, out = net(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(numbers(48, 4), integers(3, 48)), 16)
    trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss(), device=fed.DEVICE)
    evaluator = create_supervised_evaluator(model, {"accuracy": M.Accuracy(), "loss": M.Loss(nn.CrossEntropyLoss()), "precision": M.Precision(average=False),
                                                    "confusion": M.ConfusionMatrix(3)}, device=fed.DEVICE)
    M.RunningAverage(output_transform=lambda x: x).attach(trainer, "average")
    trainer.add_event_handler(Events.ITERATION_STARTED, H.CosineAnnealingScheduler(optimizer, "lr", 0.1, 0.01, 6))

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(engine):
        evaluator.run(rows)
        out.append([dict(evaluator.state.metrics), engine.state.output, engine.state.metrics["average"]])
    with tempfile.TemporaryDirectory() as folder:
        keeper = H.ModelCheckpoint(folder, "m", n_saved=2, require_empty=False)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, keeper, {"model": model, "optimizer": optimizer})
        mean = H.EMAHandler(model, momentum=0.1)
        mean.attach(trainer)
        trainer.run(rows, max_epochs=3)
        kept = torch.load(keeper.last_checkpoint, weights_only=False)
    return [out, list(mean.ema_model.parameters()), list(kept["model"].values())]


@case("tensordict: containers, modules, vmap over parameters")
def tensordict():
    from tensordict import LazyStackedTensorDict, TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential
    d = TensorDict({"a": numbers(3, 4), "b": {"c": numbers(3, 4, 2, seed=1)}}, [3, 4], device=fed.DEVICE)
    lazy = LazyStackedTensorDict.lazy_stack([d, d * 2], 0)
    with tempfile.TemporaryDirectory() as folder:
        kept = TensorDict.load_memmap(d.cpu().memmap(folder).saved_path)["b", "c"]
    model = fill(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), 0.3)
    chain = TensorDictSequential(TensorDictModule(model, ["x"], ["y"]), TensorDictModule(torch.exp, ["y"], ["z"]))
    losses = steps(model, lambda: chain(TensorDict({"x": numbers(5, 4)}, [5]))["z"].square().mean())
    parameters = TensorDict.from_module(model).data
    both = torch.stack([parameters, parameters * 2], 0)

    def call(x, p):
        with p.to_module(model):
            return model(x)
    return [lazy["a"], torch.cat([d, d])["b", "c"], d[d["a"] > 0]["a"], d.mean(0)["a"], (d + d).exp()["a"], kept, losses,
            torch.vmap(call, (None, 0))(numbers(2, 4), both)]


@case("torchrl: advantages, PPO, A2C, a buffer")
def torchrl():
    from tensordict import TensorDict
    from tensordict.nn import NormalParamExtractor, TensorDictModule
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement
    from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
    from torchrl.objectives import A2CLoss, ClipPPOLoss
    from torchrl.objectives.value import GAE

    def small(out):
        return fill(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, out)), 0.3)
    policy, value, out = nn.Sequential(small(4), NormalParamExtractor()), ValueOperator(small(1), ["observation"]), []
    actor = ProbabilisticActor(TensorDictModule(policy, ["observation"], ["loc", "scale"]), in_keys=["loc", "scale"], distribution_class=TanhNormal,
                               return_log_prob=True)
    ends = torch.zeros(3, 5, 1, dtype=torch.bool, device=fed.DEVICE)
    rows = TensorDict({"observation": numbers(3, 5, 4), "action": numbers(3, 5, 2, seed=1).tanh() * 0.9, "action_log_prob": numbers(3, 5, seed=8) * 0.1 - 1,
                       "next": {"observation": numbers(3, 5, 4, seed=2), "reward": numbers(3, 5, 1, seed=3), "done": ends, "terminated": ends}}, [3, 5],
                      device=fed.DEVICE)
    with torch.no_grad():
        GAE(gamma=0.99, lmbda=0.95, value_network=value)(rows)
    for make in (ClipPPOLoss, A2CLoss):
        found = make(actor, value, entropy_bonus=False)(rows.clone())
        sum(v for k, v in found.items() if k.startswith("loss")).backward()
        out.append([[v for k, v in found.items() if k.startswith("loss")], [p.grad for p in policy.parameters()]])
        policy.zero_grad()
        value.zero_grad()
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(20), batch_size=4, sampler=SamplerWithoutReplacement())
    buffer.extend(rows.reshape(-1).cpu())
    torch.manual_seed(3)
    return [rows["advantage"], rows["value_target"], out, [buffer.sample()["observation"] for _ in range(3)]]


@case("e3nn: tensor products, harmonics, gates")
def e3nn():
    from e3nn import nn as enn
    from e3nn import o3
    kinds = o3.Irreps("2x0e+2x1o+1x2e")
    product = fill(o3.FullyConnectedTensorProduct(kinds, kinds, "2x0e+3x1o"), 0.5)
    x, y = numbers(5, kinds.dim), numbers(5, kinds.dim, seed=1)
    gate = enn.Gate("4x0e", [torch.relu], "2x0e", [torch.sigmoid], "2x1o").to(fed.DEVICE)
    return [steps(product, lambda: product(x, y).square().mean()),
            o3.spherical_harmonics([0, 1, 2, 3], numbers(6, 3), True), gate(numbers(3, gate.irreps_in.dim)),
            fill(o3.Linear(kinds, kinds), 0.5)(x), enn.BatchNorm(kinds).to(fed.DEVICE)(x), o3.wigner_3j(1, 2, 1),
            o3.ToS2Grid(2, (6, 7)).to(fed.DEVICE)(numbers(9))]


@case("zuko: nine normalizing flows")
def zuko():
    import zuko as z
    out = []
    for name in "MAF NSF NICE CNF NAF SOSPF BPF UNAF GMM".split():
        torch.manual_seed(0)
        flow = getattr(z.flows, name)(2, 3, **({"components": 3} if name == "GMM" else {"hidden_features": [8, 8]})).to(fed.DEVICE)
        x, c = numbers(6, 2), numbers(6, 3, seed=1)
        out.append(steps(flow, lambda: -flow(c).log_prob(x).mean(), 2))  # noqa: B023 (it is called here)
    return out


@case("opacus: gradients of each sample, a private step's bookkeeping")
def opacus():
    from opacus import PrivacyEngine
    from opacus.grad_sample import GradSampleModule
    from opacus.layers import DPLSTM
    model = fill(nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)), 0.2)
    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(numbers(32, 1, 8, 8), integers(3, 32)), 8)
    engine = PrivacyEngine(accountant="rdp")
    model, optimizer, rows = engine.make_private(module=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), data_loader=rows, noise_multiplier=0.0,
                                                 max_grad_norm=1.0, poisson_sampling=False)
    out = []
    for x, y in rows:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(fed.DEVICE)), y.to(fed.DEVICE))
        loss.backward()
        out.append([loss, [p.grad_sample.norm() for p in model.parameters()]])
        optimizer.step()
    for module, x in ((nn.Embedding(9, 4), integers(9, 3, 5)), (nn.Conv1d(2, 3, 2, padding=1), numbers(3, 2, 7)), (nn.LayerNorm(5), numbers(3, 5)),
                      (nn.Conv2d(2, 4, 3, groups=2, stride=2), numbers(2, 2, 8, 8)), (nn.Conv3d(1, 2, 2), numbers(2, 1, 4, 4, 4))):
        each = GradSampleModule(fill(module, 0.4))
        each(x).square().sum().backward()
        out.append([p.grad_sample for p in each.parameters()])
    return [out, fill(DPLSTM(4, 5, batch_first=True), 0.3)(numbers(2, 3, 4))[0]]


fed.main()
