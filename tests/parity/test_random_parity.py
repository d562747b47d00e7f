"""Random numbers on the CPU are PyTorch's, bit for bit, and so is the state of the generator afterwards."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import flambeau

FLOATS, INTEGERS = ("float32", "float64", "float16", "bfloat16"), ("int64", "int32", "int16", "int8", "uint8", "bool")
SIZES = (0, 1, 15, 16, 17, 31, 1000)
TIMES = 6  # calls one after the other: the last ones are learned


def numbers(x):
    """Of a tensor of either, a module's parameters, or a list."""
    if hasattr(x, "state_dict"):
        return np.concatenate([numbers(v).reshape(-1) for v in x.state_dict().values()])
    if not hasattr(x, "dtype"):
        return np.array(x)
    x = x.detach()
    return np.array((x.resolve_conj() if x.is_complex() else x).tolist()).reshape(tuple(x.shape))


def state_of(lib):
    return bytes(lib.get_rng_state().tolist())


def alike(make, seeds=(0, 5), times=TIMES):
    """What `make(lib)` gives, several times from each seed, and where the streams are then."""
    for seed in seeds:
        for lib in (torch, flambeau):
            lib.manual_seed(seed)
        for k in range(times):
            want, got = make(torch), make(flambeau)
            if callable(getattr(want, "stride", None)):
                assert tuple(got.stride()) == tuple(want.stride()) and str(got.dtype) == str(want.dtype)
            w, g = numbers(want), numbers(got)
            assert w.shape == g.shape and np.array_equal(w, g, equal_nan=w.dtype.kind in "fc"), (seed, k)
            assert state_of(torch) == state_of(flambeau), (seed, k)


FLOAT_DRAWS = {
    "rand": lambda t, n, d: t.rand(n, dtype=d), "randn": lambda t, n, d: t.randn(n, dtype=d),
    "uniform_": lambda t, n, d: t.empty(n, dtype=d).uniform_(-2.5, 7.3),
    "uniform_ between numbers that no type has": lambda t, n, d: t.empty(n, dtype=d).uniform_(-1 / 3, 1 / 7),
    "normal_": lambda t, n, d: t.empty(n, dtype=d).normal_(-2.5, 7.3), "bernoulli_": lambda t, n, d: t.empty(n, dtype=d).bernoulli_(0.3),
    "exponential_": lambda t, n, d: t.empty(n, dtype=d).exponential_(2.3), "geometric_": lambda t, n, d: t.empty(n, dtype=d).geometric_(0.3),
    "cauchy_": lambda t, n, d: t.empty(n, dtype=d).cauchy_(0.3, 2.0), "log_normal_": lambda t, n, d: t.empty(n, dtype=d).log_normal_(0.3, 0.5),
    "random_": lambda t, n, d: t.empty(n, dtype=d).random_(), "randint": lambda t, n, d: t.randint(3, 90, (n,), dtype=d),
    "bernoulli": lambda t, n, d: t.bernoulli(t.rand(n, dtype=d)), "dropout": lambda t, n, d: t.nn.functional.dropout(t.ones(n, dtype=d), 0.3),
    "native_dropout": lambda t, n, d: t.native_dropout(t.ones(n, dtype=d), 0.3, True)[0],
    "normal of tensors": lambda t, n, d: t.normal(t.arange(float(n)).to(d), t.full((n,), 0.75).to(d)),
    "normal about a tensor": lambda t, n, d: t.normal(t.arange(float(n)).to(d), 0.7),
    "normal by a tensor": lambda t, n, d: t.normal(0.3, t.arange(float(n)).to(d)),
    "poisson": lambda t, n, d: t.poisson(t.full((n,), 6.0, dtype=d)), "poisson of many": lambda t, n, d: t.poisson(t.full((n,), 40.0, dtype=d)),
    "binomial": lambda t, n, d: t.binomial(t.full((n,), 12.0, dtype=d), t.full((n,), 0.25, dtype=d)),
    "binomial of many": lambda t, n, d: t.binomial(t.full((n,), 120.0, dtype=d), t.full((n,), 0.75, dtype=d))}


@pytest.mark.parametrize("name,d", [(name, d) for name in sorted(FLOAT_DRAWS) for d in FLOATS if "binomial" not in name or d in FLOATS[:2]])
def test_floats(name, d):
    for n in SIZES:
        alike(lambda t, n=n: FLOAT_DRAWS[name](t, n, getattr(t, d)))


@pytest.mark.parametrize("d", INTEGERS)
def test_integers(d):
    for n in SIZES:
        for make in (lambda t, n: t.empty(n, dtype=getattr(t, d)).random_(), lambda t, n: t.randint(0, 2, (n,), dtype=getattr(t, d)),
                     lambda t, n: t.empty(n, dtype=getattr(t, d)).bernoulli_(0.3)):
            alike(lambda t, n=n, make=make: make(t, n))


@pytest.mark.parametrize("span", [1, 10, (1 << 28) - 1, 1 << 28, 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1])
def test_ranges_of_integers(span):
    alike(lambda t: t.randint(-7, span - 7, (33,)))


@pytest.mark.parametrize("n", [*SIZES, 100_000])
def test_permutations(n):
    alike(lambda t: t.randperm(n), times=3)
    if n <= 127:
        alike(lambda t: t.randperm(n, dtype=t.int8))


@pytest.mark.parametrize("seed", [0, 1, 42, 1234, -3, 1 << 40, (1 << 64) - 1])
def test_a_million_from_any_seed(seed):
    alike(lambda t: t.rand(1_000_000), (seed,), 1)
    alike(lambda t: t.randn(1_000_003), (seed,), 1)


VIEWS = {"turned": lambda x: x.t(), "columns": lambda x: x[:, ::2], "rows": lambda x: x[::2], "column": lambda x: x[:, 1], "later": lambda x: x.view(-1)[3:]}
FILLS = {"uniform_": (-1, 2), "normal_": (1, 2), "random_": (0, 50), "bernoulli_": (0.4,), "exponential_": (2,), "cauchy_": (),
         "log_normal_": (), "geometric_": (0.5,)}


@pytest.mark.parametrize("d", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("view", sorted(VIEWS))
def test_views_are_filled_in_the_order_of_memory(view, d):
    for name, args in FILLS.items():
        def fill(t, name=name, args=args):
            x = t.zeros(12, 10, dtype=getattr(t, d))
            getattr(VIEWS[view](x), name)(*args)
            return x
        alike(fill, times=4)


def test_layouts_and_complex_numbers():
    for make in (lambda t: t.zeros(3, 4, 5).permute(2, 0, 1).uniform_(), lambda t: t.zeros(4, 1, 5).permute(2, 1, 0).normal_(),
                 lambda t: t.empty(2, 3, 4, 5).to(memory_format=t.channels_last).normal_(), lambda t: t.rand_like(t.empty(4, 5).t()),
                 lambda t: t.randn_like(t.empty(2, 3, 4, 5).to(memory_format=t.channels_last)), lambda t: t.randint_like(t.empty(5, 4).t(), 0, 9),
                 lambda t: t.zeros(4, 5).t().bernoulli_(t.linspace(0, 1, 20).view(5, 4)), lambda t: t.bernoulli(t.linspace(0, 1, 20).view(5, 4).t()),
                 lambda t: t.nn.functional.dropout(t.ones(5, 4).t(), 0.3), lambda t: t.randn(9, dtype=t.complex64), lambda t: t.rand(3, dtype=t.complex128),
                 lambda t: t.randn(3, 3, dtype=t.complex128), lambda t: t.zeros(9, 2, dtype=t.complex64)[:, 0].normal_(1, 2)):
        alike(make)


def test_choices_and_dropout():
    f = lambda t: t.nn.functional  # noqa: E731
    for make in (lambda t: t.multinomial(t.arange(1.0, 60), 20), lambda t: t.multinomial(t.arange(1.0, 60), 1),
                 lambda t: t.multinomial(t.arange(1.0, 60), 50, True), lambda t: t.multinomial(t.arange(1.0, 61).view(6, 10), 1, True),
                 lambda t: t.multinomial(t.arange(1.0, 60), 1, True), lambda t: t.distributions.Categorical(t.arange(1.0, 61).view(6, 10)).sample(),
                 lambda t: t.multinomial(t.arange(1.0, 61).view(6, 10), 4), lambda t: t.multinomial(t.arange(1.0, 61).view(6, 10).double(), 14, True),
                 lambda t: f(t).dropout1d(t.ones(3, 4, 5), 0.4, True), lambda t: f(t).dropout2d(t.ones(3, 4, 5, 2), 0.4, True),
                 lambda t: f(t).dropout3d(t.ones(2, 3, 2, 2, 2), 0.4, True), lambda t: f(t).alpha_dropout(t.ones(3, 4, 5), 0.4, True),
                 lambda t: f(t).feature_alpha_dropout(t.ones(3, 4, 5), 0.4, True), lambda t: f(t).rrelu(t.arange(-20.0, 20), training=True),
                 lambda t: t._standard_gamma(t.tensor([0.1, 0.5, 1.0, 3.0, 100.0] * 4)),
                 lambda t: t._sample_dirichlet(t.tensor([[0.5, 1.0, 3.0], [0.1, 0.1, 4.0]])),
                 lambda t: t._standard_gamma(t.tensor([0.1, 0.5, 1.0, 3.0, 100.0] * 4, dtype=t.float64))):
        alike(make)


@pytest.mark.parametrize("shape", [(6, 5), (5, 9), (4, 4)])
def test_low_ranks_begin_with_pytorchs_numbers(shape):
    singular = []
    for t in (torch, flambeau):
        t.manual_seed(3)
        a = t.arange(float(shape[0] * shape[1]), dtype=t.float64).view(*shape).sin()
        singular.append([*t.svd_lowrank(a, 2, niter=0)[1].tolist(), *t.pca_lowrank(a, 2, niter=0)[1].tolist(), t.rand(1).item()])
    np.testing.assert_allclose(*singular, rtol=1e-9)


def test_the_weights_that_attention_drops():
    make = lambda t: t.nn.functional.scaled_dot_product_attention(t.zeros(2, 3, 4, 4), t.zeros(2, 3, 4, 4), t.eye(4).expand(2, 3, 4, 4), dropout_p=0.5)  # noqa: E731
    alike(make)


MODULES = {
    "Linear": (5, 7), "Conv2d": (3, 8, 3), "ConvTranspose2d": (3, 8, 3), "Embedding": (10, 6), "EmbeddingBag": (10, 6), "Bilinear": (3, 4, 5), "RNN": (4, 5, 2),
    "LSTM": (4, 5, 2), "GRU": (4, 5, 2), "LSTMCell": (4, 5), "GRUCell": (4, 5), "MultiheadAttention": (8, 2), "TransformerEncoderLayer": (8, 2, 16),
    "TransformerDecoderLayer": (8, 2, 16)}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_modules_begin_with_pytorchs_values(name):
    alike(lambda t: getattr(t.nn, name)(*MODULES[name]), times=2)


@pytest.mark.parametrize("name,args", [
    ("uniform_", (-1, 2)), ("normal_", (1, 2)), ("trunc_normal_", ()), ("trunc_normal_", (0, 1, 2.0, 3.0)), ("trunc_normal_", (0, 0.02, -0.04, 0.04)),
    ("xavier_uniform_", ()), ("xavier_normal_", ()), ("kaiming_uniform_", ()), ("kaiming_normal_", ()), ("sparse_", (0.3,))])
def test_initial_values(name, args):
    alike(lambda t: getattr(t.nn.init, name)(t.empty(60, 50), *args), times=2)


def test_orders_of_samplers_and_loaders():
    class Numbers:
        def __len__(self):
            return 23

        def __getitem__(self, i):
            return i

    def data(t):
        return t.utils.data

    def distributed(t):
        s = data(t).distributed.DistributedSampler(range(23), 3, 1, seed=5)
        s.set_epoch(2)
        return list(s)

    def generators(t):
        g = t.Generator().manual_seed(3)
        s = data(t).RandomSampler(range(20), generator=g)
        return [*s, *s, *data(t).RandomSampler(range(20), True, 64, generator=g), *t.rand(3, generator=g).tolist()]
    for make in (
            lambda t: [i for part in data(t).random_split(range(50), [30, 20]) for i in part.indices],
            lambda t: [i for part in data(t).random_split(range(50), [0.5, 0.5], t.Generator().manual_seed(42)) for i in part.indices],
            lambda t: list(data(t).RandomSampler(range(20))), lambda t: list(data(t).RandomSampler(range(20), True, 70)),
            lambda t: list(data(t).RandomSampler(range(20), False, 70)), lambda t: list(data(t).SubsetRandomSampler(range(20))),
            lambda t: list(data(t).WeightedRandomSampler([0.1, 0.5, 2.0, 1.0], 30)),
            lambda t: list(data(t).WeightedRandomSampler([0.1, 0.5, 2.0, 1.0], 4, False)),
            distributed, generators, lambda t: [i for b in data(t).DataLoader(Numbers(), 4, shuffle=True) for i in b.tolist()]):
        alike(make, times=3)


def test_workers_draw_from_pytorchs_seeds():
    def drawn(t):
        class Random(t.utils.data.Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, i):
                return t.rand(2)
        return [x for b in t.utils.data.DataLoader(Random(), 2, num_workers=2) for x in b.flatten().tolist()]
    alike(drawn, (0,), 1)


def test_states_go_from_one_to_the_other():
    torch.manual_seed(11)
    torch.randn(7)  # which keeps a second normal number
    state = torch.get_rng_state()
    flambeau.set_rng_state(flambeau.tensor(state.tolist(), dtype=flambeau.uint8))
    assert np.array_equal(flambeau.randn(5).numpy(), torch.randn(5).numpy()) and flambeau.initial_seed() == torch.initial_seed()
    flambeau.rand(700)
    torch.set_rng_state(torch.tensor(flambeau.get_rng_state().tolist(), dtype=torch.uint8))
    assert np.array_equal(flambeau.rand(5).numpy(), torch.rand(5).numpy())
    g, h = torch.Generator(), flambeau.Generator()
    assert g.initial_seed() == h.initial_seed() and bytes(g.get_state().tolist()) == bytes(h.get_state().tolist())


def test_a_model_trains_as_in_pytorch():
    def losses(t):
        model = t.nn.Sequential(t.nn.Linear(4, 8), t.nn.ReLU(), t.nn.Dropout(0.3), t.nn.Linear(8, 1))
        optimizer, x, y, found = t.optim.SGD(model.parameters(), 0.1), t.randn(32, 4), t.randn(32, 1), []
        for _ in range(10):
            loss = ((model(x) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(round(loss.item(), 4))
        return found
    alike(losses, times=1)


REFUSED = {
    **{name: lambda x, name=name: getattr(x, name)() for name in ("exponential_", "cauchy_", "log_normal_", "bernoulli_", "normal_", "uniform_")},
    "geometric_": lambda x: x.geometric_(0.5), "bernoulli_ of each": lambda x: x.bernoulli_(x.real.new_full((2,), 0.5)),
    "bernoulli": lambda x: x.bernoulli(), "bernoulli of p": lambda x: x.bernoulli(0.5), "poisson": lambda x: of(x).poisson(x),
    "binomial": lambda x: of(x).binomial(x, x), "multinomial": lambda x: of(x).multinomial(x, 1), "gamma": lambda x: of(x)._standard_gamma(x),
    "dirichlet": lambda x: of(x)._sample_dirichlet(x), "dropout": lambda x: of(x).nn.functional.dropout(x),
    "dropout in place": lambda x: of(x).nn.functional.dropout(x, inplace=True), "dropout1d": lambda x: of(x).nn.functional.dropout1d(x.reshape(1, 2)),
    "rrelu": lambda x: of(x).nn.functional.rrelu(x, training=True), "rand_like": lambda x: of(x).rand_like(x), "randn_like": lambda x: of(x).randn_like(x)}


def of(x):
    """The library of a tensor."""
    return torch if isinstance(x, torch.Tensor) else flambeau


@pytest.mark.parametrize("d", ["complex64", "complex32", "complex128", "int64", "bool", "float32"])
@pytest.mark.parametrize("name", REFUSED)
def test_types_that_are_not_drawn_of(name, d):
    """Complex numbers were filled with what bytes happened to be there."""
    told = []
    for lib in (torch, flambeau):
        x = lib.ones(2).to(getattr(lib, d))
        try:
            REFUSED[name](x)
            told.append("")
        except (RuntimeError, ValueError, NotImplementedError) as error:
            text = re.sub(r"you specified .*", "you specified", str(error)).removeprefix("dropout(): ")  # PyTorch's cauchy_ says C's name of the type
            told.append(f"{type(error).__name__}: {text}")
    assert told[0] == told[1]
