"""torchdata, opacus by expanded weights, pytorch_optimizer, linear_operator, torchsde, nflows and normflows."""

from __future__ import annotations

import fed
import torch
from fed import case, fill, integers, numbers, steps
from torch import nn


@case("torchdata: a loader's state, with workers and without")
def torchdata():
    from torchdata.stateful_dataloader import StatefulDataLoader
    out = []
    for workers in (0, 2):
        torch.manual_seed(0)
        loader = StatefulDataLoader(list(range(20)), batch_size=3, shuffle=True, num_workers=workers)
        batches = iter(loader)
        first = [next(batches).tolist() for _ in range(3)]
        state = loader.state_dict()
        rest = [batch.tolist() for batch in batches]
        resumed = StatefulDataLoader(list(range(20)), batch_size=3, shuffle=True, num_workers=workers)
        resumed.load_state_dict(state)
        out.append([first, rest, [batch.tolist() for batch in resumed]])
    return out


@case("opacus: gradients of each sample by expanded weights and by vmap")
def opacus():
    from opacus.grad_sample import GradSampleModule, GradSampleModuleExpandedWeights
    out = []
    images = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    for module, x in ((nn.Linear(4, 3), numbers(5, 4)), (images, numbers(3, 1, 8, 8)), (nn.Embedding(9, 4), integers(9, 3, 5)),
                      (nn.LayerNorm(5), numbers(3, 5)), (nn.GroupNorm(2, 4), numbers(3, 4, 5)), (nn.Conv1d(2, 3, 2, padding=1), numbers(3, 2, 7))):
        each = GradSampleModuleExpandedWeights(fill(module, 0.4))
        each(x).square().sum().backward()
        out.append([p.grad_sample for p in each.parameters()])
    small = GradSampleModule(fill(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), 0.4), force_functorch=True)
    small(numbers(5, 4)).square().sum().backward()
    return [out, [p.grad_sample for p in small.parameters()]]


@case("pytorch_optimizer: forty optimizers")
def optimizers():
    import pytorch_optimizer as P
    names = """a2grad adabelief adabound adafactor adai adamp adams adan adanorm ademamix aida amos apollo avagrad came diffgrad fadam fromage
     galore gradam grams laprop lars lion mars msvag nero nadam novograd pid qhadam qhm ranger rmsprop sgdp sgdw shampoo sm3 srmm tiger yogi""".split()
    out, left = [], set(P.get_supported_optimizers())
    for name in [n for n in names if n in left]:
        model = fill(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), 0.4)
        torch.manual_seed(0)
        made = P.load_optimizer(name)(model.parameters(), lr=1e-2)
        out.append([name, steps(model, lambda: model(numbers(5, 4)).square().mean(), 3, made)])  # noqa: B023 (it is called here)
    return out


@case("linear_operator: products, solves, determinants")
def linear_operator():
    from linear_operator import operators as O
    a = numbers(6, 6)
    whole = (a @ a.T + 6 * torch.eye(6, device=fed.DEVICE)).requires_grad_()
    out = []
    for made in (O.DenseLinearOperator(whole), O.DenseLinearOperator(whole).add_diagonal(numbers(6).exp()),
                 O.ToeplitzLinearOperator(numbers(6).exp().cumsum(0).flip(0)),
                 O.KroneckerProductLinearOperator(O.DenseLinearOperator(whole[:2, :2]), O.DenseLinearOperator(whole[:3, :3]))):
        out.append([made @ numbers(6, 2), numbers(2, 6) @ made, made.diagonal(), made.to_dense()])
    solved = O.DenseLinearOperator(whole).solve(numbers(6, 2))
    inverse, log = O.DenseLinearOperator(whole).inv_quad_logdet(numbers(6, 1), logdet=True)
    (solved.square().sum() + inverse.sum() + log).backward()
    return [out, solved, inverse, log, whole.grad]


@case("torchsde: an equation with noise, and its gradient")
def torchsde():
    import torchsde as S

    class Equation(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.drift = nn.Linear(3, 3)

        def f(self, t, y):
            return self.drift(y).tanh()

        def g(self, t, y):
            return 0.3 * y.sigmoid()

    class Fed(S.BaseBrownian):
        """Noise that is drawn on the CPU, whichever device it is for."""

        def __init__(self):
            super().__init__()
            self.drawn = S.BrownianInterval(0.0, 1.0, size=(4, 3), entropy=5, levy_area_approximation="space-time")

        def __call__(self, *times, **options):
            found = self.drawn(*times, **options)
            return tuple(x.to(fed.DEVICE) for x in found) if isinstance(found, tuple) else found.to(fed.DEVICE)

        def __repr__(self):
            return "Fed()"

        device = property(lambda self: numbers(1).device)
        dtype = property(lambda self: torch.float32)
        shape = property(lambda self: self.drawn.shape)
        levy_area_approximation = property(lambda self: self.drawn.levy_area_approximation)

    equation, out = fill(Equation(), 0.5), []
    for method in ("euler", "milstein", "srk"):
        equation.zero_grad()
        found = S.sdeint(equation, numbers(4, 3), torch.linspace(0, 1, 3, device=fed.DEVICE), bm=Fed(), method=method, dt=0.1)
        found.square().sum().backward()
        out.append([found, equation.drift.weight.grad])
    return out


@case("nflows and normflows: densities by flows")
def flows():
    import normflows as N
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.transforms import CompositeTransform, MaskedAffineAutoregressiveTransform, ReversePermutation
    from nflows.transforms.autoregressive import MaskedPiecewiseRationalQuadraticAutoregressiveTransform as Splines
    flow = fill(Flow(CompositeTransform([ReversePermutation(4), MaskedAffineAutoregressiveTransform(4, 8), Splines(4, 8, tails="linear", tail_bound=3.0)]),
                     StandardNormal([4])), 0.3)
    coupling = [N.flows.AffineCouplingBlock(N.nets.MLP([2, 8, 4], init_zeros=False)), N.flows.Permute(4, mode="swap")]
    other = fill(N.NormalizingFlow(N.distributions.DiagGaussian(4), coupling), 0.3)
    x = numbers(6, 4)
    return [steps(flow, lambda: -flow.log_prob(x).mean()), steps(other, lambda: other.forward_kld(x))]


fed.main()
