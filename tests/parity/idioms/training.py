"""Training loops as scripts write them: two players, replay, schedules, averages, second order."""

from __future__ import annotations

import collections
import copy
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from harness import DEV, T, case, fill
from torch.autograd import Variable, grad
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, WeightedRandomSampler, random_split


@case
def gan():
    r = np.random.RandomState(1)
    G = fill(nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(True), nn.Linear(16, 8), nn.Tanh()), 1)
    D = fill(nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 1), nn.Sigmoid()), 2)
    oG = optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.999))
    oD = optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))
    c = nn.BCELoss()
    out = []
    for _i in range(15):
        real = T(r, 6, 8)
        D.zero_grad()
        lab = torch.full((6,), 1.0, device=DEV)
        o = D(real).view(-1)
        e1 = c(o, lab)
        e1.backward()
        f = G(T(r, 6, 4))
        lab.fill_(0.0)
        e2 = c(D(f.detach()).view(-1), lab)
        e2.backward()
        oD.step()
        G.zero_grad()
        lab.fill_(1.0)
        e3 = c(D(f).view(-1), lab)
        e3.backward()
        oG.step()
        out += [e1.item() + e2.item(), e3.item()]
    return out


@case
def wgan_gp():
    r = np.random.RandomState(1)
    D = fill(nn.Sequential(nn.Linear(5, 16), nn.LeakyReLU(0.2), nn.LayerNorm(16), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)))
    o = optim.RMSprop(D.parameters(), lr=1e-3)
    out = []
    for _i in range(10):
        a, b = T(r, 8, 5), T(r, 8, 5)
        al = torch.from_numpy(r.rand(8, 1).astype("float32")).to(DEV)
        x = Variable(al * a + (1 - al) * b, requires_grad=True)
        g = grad(outputs=D(x), inputs=x, grad_outputs=torch.ones(8, 1, device=DEV), create_graph=True, retain_graph=True, only_inputs=True)[0]
        gp = ((g.norm(2, dim=1) - 1) ** 2).mean() * 10
        l = D(b).mean() - D(a).mean() + gp
        o.zero_grad()
        l.backward()
        o.step()
        out.append(l.item())
    return out


@case
def dqn():
    r = np.random.RandomState(0)
    random.seed(0)
    Tr = collections.namedtuple("Tr", "s a n r")
    net = fill(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)))
    tgt = copy.deepcopy(net)
    tgt.load_state_dict(net.state_dict())
    tgt.eval()
    mem = collections.deque([], maxlen=100)
    o = optim.AdamW(net.parameters(), lr=1e-3, amsgrad=True)
    out = []
    for i in range(60):
        s = T(r, 1, 4)
        n = None if i % 7 == 0 else T(r, 1, 4)
        with torch.no_grad():
            a = net(s).max(1).indices.view(1, 1)
        mem.append(Tr(s, a, n, torch.tensor([float(i % 3)], device=DEV)))
        if len(mem) < 16:
            continue
        b = Tr(*zip(*random.sample(mem, 16)))
        mask = torch.tensor(tuple(q is not None for q in b.n), device=DEV, dtype=torch.bool)
        nn_ = torch.cat([q for q in b.n if q is not None])
        q = net(torch.cat(b.s)).gather(1, torch.cat(b.a))
        v = torch.zeros(16, device=DEV)
        with torch.no_grad():
            v[mask] = tgt(nn_).max(1).values
        l = nn.SmoothL1Loss()(q, ((v * 0.99) + torch.cat(b.r)).unsqueeze(1))
        o.zero_grad()
        l.backward()
        nn.utils.clip_grad_value_(net.parameters(), 100)
        o.step()
        out.append(l.item())
        sd = tgt.state_dict()
        pd = net.state_dict()
        for k in pd:
            sd[k] = pd[k] * 0.05 + sd[k] * 0.95
        tgt.load_state_dict(sd)
    return out


@case
def contrastive():
    r = np.random.RandomState(0)
    m = fill(nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 8)))
    o = optim.AdamW(
        [
            {"params": [p for n, p in m.named_parameters() if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for n, p in m.named_parameters() if p.ndim < 2], "weight_decay": 0.0},
        ],
        lr=1e-2,
    )
    sch = optim.lr_scheduler.OneCycleLR(o, max_lr=0.01, total_steps=12)
    out = []
    for _i in range(10):
        x = T(r, 5, 6)
        z = F.normalize(m(torch.cat([x + 0.1 * T(r, 5, 6), x + 0.1 * T(r, 5, 6)])), dim=-1)
        s = z @ z.t() / 0.5
        s = s.masked_fill(torch.eye(10, dtype=torch.bool, device=DEV), float("-inf"))
        lab = torch.cat([torch.arange(5) + 5, torch.arange(5)]).to(DEV)
        l = F.cross_entropy(s, lab)
        l2 = F.triplet_margin_loss(z[:3], z[3:6], z[6:9]) + nn.CosineEmbeddingLoss()(z[:5], z[5:], torch.ones(5, device=DEV))
        o.zero_grad()
        (l + l2).backward()
        o.step()
        sch.step()
        out += [l.item(), l2.item(), sch.get_last_lr()[0]]
    return out


@case
def sched_warmup_ema():
    r = np.random.RandomState(0)
    m = fill(nn.Linear(4, 3))
    ema = copy.deepcopy(m).requires_grad_(False)
    swa = optim.swa_utils.AveragedModel(m)
    o = optim.SGD(m.parameters(), lr=0.1, nesterov=True, momentum=0.9)
    s = optim.lr_scheduler.SequentialLR(
        o, [optim.lr_scheduler.LinearLR(o, 0.1, total_iters=3), optim.lr_scheduler.CosineAnnealingLR(o, T_max=10)], milestones=[3]
    )
    out = []
    for _i in range(12):
        l = F.mse_loss(m(T(r, 5, 4)), T(r, 5, 3))
        o.zero_grad()
        l.backward()
        tot = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        o.step()
        s.step()
        swa.update_parameters(m)
        for a, b in zip(ema.parameters(), m.parameters()):
            a.mul_(0.9).add_(b.data, alpha=0.1)
        out += [l.item(), float(tot), s.get_last_lr()[0], ema.weight.sum().item(), swa.module.weight.sum().item()]
    o2 = optim.Adam(m.parameters(), lr=1.0)
    l2 = optim.lr_scheduler.LambdaLR(o2, lambda k: min((k + 1) ** -0.5, (k + 1) * 4**-1.5))
    l3 = []
    for _ in range(8):
        o2.step()
        l2.step()
        l3.append(o2.param_groups[0]["lr"])
    return out + l3


@case
def data_idioms():
    class D(Dataset):
        def __init__(s, n):
            s.n = n

        def __len__(s):
            return s.n

        def __getitem__(s, i):
            return {"x": np.full(3, i, dtype=np.float32), "y": i % 2, "name": f"n{i}", "t": torch.tensor([i])}

    g = torch.Generator().manual_seed(42)
    a, b = random_split(D(10), [7, 3], generator=g)
    assert len(a) == 7 and len(b) == 3 and sorted(list(a.indices) + list(b.indices)) == list(range(10))
    f = random_split(range(10), [0.5, 0.3, 0.2])
    assert [len(v) for v in f] == [5, 3, 2]
    out = []
    for bt in DataLoader(Subset(D(10), [1, 3, 5, 7]), batch_size=3, num_workers=2, pin_memory=False):
        out += [bt["x"].sum().item(), bt["y"].dtype == torch.int64, len(bt["name"]), tuple(bt["t"].shape) == (len(bt["name"]), 1)]
    for x, y in DataLoader(
        TensorDataset(torch.arange(10.0), torch.arange(10)),
        batch_size=4,
        drop_last=True,
        collate_fn=lambda b: (torch.stack([v[0] for v in b]) * 2, [v[1] for v in b]),
    ):
        out += [x.sum().item(), sum(int(v) for v in y)]
    dl = DataLoader(D(4), sampler=WeightedRandomSampler([0, 0, 1.0, 0], 5))
    out.append(sum(v["y"].item() for v in dl))
    out.append(len(ConcatDataset([D(3), D(4)])))
    it = iter(DataLoader(D(4), batch_size=2))
    next(it)
    next(it)
    try:
        next(it)
        out.append(0)
    except StopIteration:
        out.append(1)
    return [float(v) for v in out]


@case
def amp_loop():
    r = np.random.RandomState(0)
    m = fill(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)))
    o = optim.SGD(m.parameters(), lr=0.1)
    sc = torch.amp.GradScaler(DEV.type, enabled=DEV.type == "cuda")
    torch.cuda.amp.GradScaler(enabled=False)
    out = []
    for _i in range(6):
        x = T(r, 8, 6)
        y = torch.from_numpy(r.randint(0, 2, 8)).to(DEV)
        with torch.autocast(device_type=DEV.type, dtype=torch.bfloat16):
            p = m(x)
            assert p.dtype == torch.bfloat16
            l = F.cross_entropy(p, y)
        assert l.dtype == torch.float32
        o.zero_grad()
        sc.scale(l).backward()
        sc.unscale_(o)
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        sc.step(o)
        sc.update()
        out.append(round(l.item(), 1))
    return out


@case
def maml_higher_order():
    r = np.random.RandomState(0)
    w = T(r, 3, 1).requires_grad_()
    o = optim.Adam([w], lr=0.01)
    out = []
    for _i in range(6):
        fast = w
        for _k in range(3):
            x = T(r, 10, 3)
            y = x.sum(1, keepdim=True).sin()
            (g,) = torch.autograd.grad(F.mse_loss(x @ fast, y), fast, create_graph=True)
            fast = fast - 0.1 * g
        x = T(r, 10, 3)
        l = F.mse_loss(x @ fast, x.sum(1, keepdim=True).sin())
        o.zero_grad()
        l.backward()
        o.step()
        out.append(l.item())
    H = torch.autograd.functional.hessian(lambda v: (v**3).sum(), torch.arange(3.0))
    J = torch.autograd.functional.jacobian(lambda v: v.exp(), torch.arange(3.0))
    f = torch.func.vmap(torch.func.grad(lambda v: (v**2).sum()))(torch.arange(4.0).view(2, 2))
    return out + [H.sum().item(), J.sum().item(), f.sum().item()]


@case
def lbfgs_rosen():
    x = torch.tensor([-1.5, 2.0], requires_grad=True, device=DEV)
    o = optim.LBFGS([x], lr=1, max_iter=20, line_search_fn="strong_wolfe")
    out = []

    def cl():
        o.zero_grad()
        l = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
        l.backward()
        return l

    for _ in range(3):
        out.append(round(o.step(cl).item(), 3))
    return out
