"""pyro, gpytorch and botorch: variational inference, HMC, Gaussian processes, an optimisation loop."""

from __future__ import annotations

import warnings

import fed
import torch
from fed import DEVICE, case, fill, numbers, steps

warnings.simplefilter("ignore")
torch.set_default_device(DEVICE)  # these libraries make tensors of the numbers that they are given


@case("pyro: variational inference")
def svi():
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO, TraceMeanField_ELBO
    pyro.clear_param_store()
    data = numbers(20) + 2

    def model(data):
        m = pyro.sample("m", dist.Normal(0.0, 3.0))
        with pyro.plate("data", len(data)):
            pyro.sample("x", dist.Normal(m, 1.0), obs=data)

    def guide(data):
        pyro.sample("m", dist.Delta(pyro.param("at", torch.tensor(0.5))))
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.1}), Trace_ELBO())
    losses = [svi.step(data) for _ in range(5)]
    _ = TraceMeanField_ELBO
    return [losses, pyro.param("at")]


@case("pyro: densities, kernels and a trace")
def densities():
    import pyro.distributions as dist
    from pyro.contrib.gp.kernels import RBF
    from pyro.poutine import trace
    x = numbers(4).abs() + 0.1
    made = [dist.Gamma(2.0, x), dist.StudentT(3.0, x), dist.Beta(x, 2.0), dist.VonMises(x, 1.0), dist.LogNormal(x, 1.0), dist.Logistic(x, 1.0) if
            hasattr(dist, "Logistic") else dist.Normal(x, 1.0)]

    def program():
        import pyro
        return pyro.sample("z", dist.Normal(0.0, 1.0), obs=torch.tensor(0.3))
    return [[d.log_prob(torch.tensor(0.4)) for d in made], RBF(2)(numbers(3, 2)), trace(program).get_trace().log_prob_sum()]


@case("pyro: NUTS ends near the truth")
def nuts():
    import pyro
    import pyro.distributions as dist
    from pyro.infer import MCMC, NUTS
    pyro.set_rng_seed(0)
    data = numbers(50) + 2

    def model(data):
        m = pyro.sample("m", dist.Normal(0.0, 10.0))
        with pyro.plate("data", len(data)):
            pyro.sample("x", dist.Normal(m, 1.0), obs=data)
    run = MCMC(NUTS(model), num_samples=60, warmup_steps=40, disable_progbar=True)
    run.run(data)
    return [bool(abs(run.get_samples()["m"].mean() - data.mean()) < 0.15), list(run.get_samples()["m"].shape)]


@case("gpytorch: exact and approximate processes")
def gaussian_processes():
    import gpytorch
    x = torch.linspace(0, 1, 12)
    y = (6 * x).sin() + 0.1 * numbers(12)

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(x, y, likelihood)
            self.mean, self.kernel = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5))

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Exact(likelihood)
    score = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    losses = steps(model, lambda: -score(model(x), y), 5, torch.optim.Adam(model.parameters(), lr=0.1))
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        said = likelihood(model(torch.tensor([0.25, 0.7])))
    return [losses, said.mean, said.variance]


@case("botorch: expected improvement and its best point")
def optimisation():
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood
    x = torch.linspace(0, 1, 7, dtype=torch.float64)[:, None]
    y = -(x - 0.4) ** 2
    model = SingleTaskGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    found = LogExpectedImprovement(model, best_f=y.max())
    at = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None, None]
    point, _ = optimize_acqf(found, torch.tensor([[0.0], [1.0]], dtype=torch.float64), q=1, num_restarts=2, raw_samples=8,
                             batch_initial_conditions=torch.tensor([[[0.3]], [[0.6]]], dtype=torch.float64))
    return [round(float(point), 2), bool(torch.isfinite(found(at)).all())]


_ = fill
fed.main()
