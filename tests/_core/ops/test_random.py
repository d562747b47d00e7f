"""Random tensors: reproducible everywhere, distributed as they say (tests of fit at a fixed seed), generators and their states."""

from __future__ import annotations

import math
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy  # which imports its parts when they are first asked for

import flambeau as fb
from flambeau.autograd import gradcheck

N = 20_000
PROBABLE = 1e-4  # a fit is refused below this; the seeds are fixed, so a test passes always or never

DRAWS = {
    "rand": lambda dev: fb.rand(7, 5, device=dev), "randn": lambda dev: fb.randn(33, device=dev),
    "rand double": lambda dev: fb.rand(9, dtype=fb.float64, device=dev),
    "randn half": lambda dev: fb.randn(9, dtype=fb.float16, device=dev), "rand bfloat16": lambda dev: fb.rand(9, dtype=fb.bfloat16, device=dev),
    "randn complex": lambda dev: fb.randn(9, dtype=fb.complex64, device=dev), "randint": lambda dev: fb.randint(3, 1000, (40,), device=dev),
    "randint wide": lambda dev: fb.randint(-(1 << 62), 1 << 62, (9,), device=dev), "normal": lambda dev: fb.normal(2.0, 3.0, (9,), device=dev),
    "normal tensors": lambda dev: fb.normal(fb.arange(5.0, device=dev), fb.ones(5, device=dev)), "randperm": lambda dev: fb.randperm(50, device=dev),
    "uniform_": lambda dev: fb.empty(9, device=dev).uniform_(-2, 5), "normal_": lambda dev: fb.empty(4, 3, device=dev).t().normal_(1, 2),
    "exponential_": lambda dev: fb.empty(9, device=dev).exponential_(2.0), "cauchy_": lambda dev: fb.empty(9, device=dev).cauchy_(),
    "log_normal_": lambda dev: fb.empty(9, device=dev).log_normal_(), "geometric_": lambda dev: fb.empty(9, device=dev).geometric_(0.3),
    "random_": lambda dev: fb.empty(9, dtype=fb.int32, device=dev).random_(), "bernoulli": lambda dev: fb.bernoulli(fb.full((50,), 0.3, device=dev)),
    "bernoulli_": lambda dev: fb.empty(50, device=dev).bernoulli_(0.7), "dropout": lambda dev: fb.nn.functional.dropout(fb.ones(50, device=dev)),
    "multinomial": lambda dev: fb.multinomial(fb.arange(1.0, 30, device=dev), 12),
    "multinomial again": lambda dev: fb.multinomial(fb.ones(2, 9, device=dev), 20, replacement=True),
    "poisson": lambda dev: fb.poisson(fb.full((9,), 4.0, device=dev)), "like": lambda dev: fb.randn_like(fb.empty(3, 4, device=dev).t()),
}


@pytest.fixture
def counting():
    """Streams that count, for a test."""
    with fb.random.fork_rng():
        fb.random.set_stream("counter")
        yield
    assert fb.random.get_stream() == "mt19937"


@pytest.mark.parametrize("name", sorted(DRAWS))
def test_one_seed_gives_the_same_numbers_on_every_device_eager_and_lazy(name, device, counting):
    fb.manual_seed(1234)
    want = [DRAWS[name]("cpu") for _ in range(2)]
    fb.manual_seed(1234)
    for dev in [device] if device == "cpu" else ["cuda:0", "cuda:1"] if fb.cuda.device_count() > 1 else ["cuda:0"]:
        got = [DRAWS[name](dev) for _ in range(2)]
        for g, w in zip(got, want, strict=True):
            assert str(g.device) == dev and fb.equal(g.cpu(), w), name
    assert not fb.equal(want[0], want[1])


def test_a_stream_that_counts_does_not_depend_on_shape_or_layout(counting):
    draw = lambda make: fb.manual_seed(3) and make()  # noqa: E731
    flat = draw(lambda: fb.rand(24))
    for shape in ((4, 6), (2, 3, 4), (24, 1)):
        assert draw(lambda shape=shape: fb.rand(shape)).flatten().equal(flat)
    assert draw(lambda: fb.empty(6, 4).t().uniform_()).contiguous().flatten().equal(flat)
    assert draw(lambda: fb.empty(4, 12)[:, ::2].uniform_()).contiguous().flatten().equal(flat)
    assert draw(lambda: fb.cat([fb.rand(10), fb.rand(14)])).equal(flat)
    assert draw(lambda: fb.rand(24, dtype=fb.float64)).shape == (24,)


def fits(sample, distribution):
    assert scipy.stats.kstest(np.asarray(sample, np.float64), distribution.cdf).pvalue > PROBABLE


@pytest.mark.parametrize("d", [fb.float32, fb.float64], ids=str)
@pytest.mark.parametrize("name,draw,distribution", [
    ("rand", lambda d: fb.rand(N, dtype=d), lambda s: s.uniform()), ("randn", lambda d: fb.randn(N, dtype=d), lambda s: s.norm()),
    ("uniform_", lambda d: fb.empty(N, dtype=d).uniform_(-3, 5), lambda s: s.uniform(-3, 8)),
    ("normal_", lambda d: fb.empty(N, dtype=d).normal_(2, 0.5), lambda s: s.norm(2, 0.5)),
    ("normal", lambda d: fb.normal(-1.0, 3.0, (N,), dtype=d), lambda s: s.norm(-1, 3)),
    ("exponential_", lambda d: fb.empty(N, dtype=d).exponential_(0.5), lambda s: s.expon(scale=2)),
    ("cauchy_", lambda d: fb.empty(N, dtype=d).cauchy_(1, 2), lambda s: s.cauchy(1, 2)),
    ("log_normal_", lambda d: fb.empty(N, dtype=d).log_normal_(0.5, 0.8), lambda s: s.lognorm(0.8, scale=math.exp(0.5))),
    ("gamma", lambda d: fb._standard_gamma(fb.full((N,), 2.5, dtype=d)), lambda s: s.gamma(2.5))], ids=lambda v: v if isinstance(v, str) else "")
def test_continuous_distributions(name, draw, distribution, d):
    fb.manual_seed(11)
    t = draw(d)
    assert t.dtype is d
    fits(t.numpy(), distribution(scipy.stats))


def counted(values, expected):
    """Chi-square of counts of 0, 1, ... against probabilities, rare ones pooled at the end."""
    values = np.asarray(values).astype(int)
    counts = np.bincount(values, minlength=len(expected)).astype(float)
    head = counts[:len(expected)]
    want = np.asarray(expected) * len(values)
    keep = want >= 8
    observed, wanted = np.append(head[keep], len(values) - head[keep].sum()), np.append(want[keep], len(values) - want[keep].sum())
    if wanted[-1] < 1:
        observed, wanted = observed[:-1], wanted[:-1] * (observed[:-1].sum() / wanted[:-1].sum())
    assert scipy.stats.chisquare(observed, wanted).pvalue > PROBABLE


@pytest.mark.parametrize("d", [fb.float32, fb.int64, fb.uint8, fb.float16], ids=str)
def test_discrete_distributions(d):
    fb.manual_seed(5)
    counted(fb.randint(0, 10, (N,), dtype=d).numpy(), [0.1] * 10)
    counted(fb.empty(N, dtype=d).random_(3, 9).numpy() - 3, [1 / 6] * 6)
    counted(fb.empty(N, dtype=d).bernoulli_(0.3).numpy(), [0.7, 0.3])
    counted(fb.empty(N, dtype=d).geometric_(0.4).numpy(), [0, *(0.4 * 0.6 ** k for k in range(40))])
    if d.is_floating_point:
        p = fb.rand(N).to(d)
        hit = fb.bernoulli(p)
        assert set(hit.unique().tolist()) == {0.0, 1.0} and abs(hit.float().mean().item() - p.float().mean().item()) < 0.02
        counted(fb.poisson(fb.full((N,), 3.0, dtype=d)).numpy(), scipy.stats.poisson(3).pmf(np.arange(25)))
    counted(fb.binomial(fb.full((N,), 8.0), fb.full((N,), 0.25)).numpy(), scipy.stats.binom(8, 0.25).pmf(np.arange(9)))


def test_whole_types_and_wide_ranges():
    fb.manual_seed(2)
    bits = fb.empty(N, dtype=fb.uint8).random_().numpy()
    counted(bits, [1 / 256] * 256)
    wide = fb.randint(-(1 << 62), 1 << 62, (N,)).numpy().astype(np.float64)
    fits(wide, scipy.stats.uniform(-(2.0 ** 62), 2.0 ** 63))
    assert fb.empty(4000, dtype=fb.bool).random_().float().mean().item() == pytest.approx(0.5, abs=0.05)
    assert fb.empty(4000).random_().max().item() > 2 ** 23
    for d in (fb.float16, fb.bfloat16, fb.float32, fb.float64):
        u = fb.rand(N, dtype=d)
        assert 0 <= u.min().item() and u.max().item() < 1 and abs(u.double().mean().item() - 0.5) < 0.02


def test_neighbours_in_the_stream_are_independent():
    fb.manual_seed(9)
    x = fb.rand(N, dtype=fb.float64).numpy()
    cells = np.histogram2d(x[:-1:2], x[1::2], 8, [[0, 1], [0, 1]])[0]
    assert scipy.stats.chisquare(cells.ravel()).pvalue > PROBABLE
    z = fb.randn(N, dtype=fb.complex128).numpy()
    assert abs(np.corrcoef(z.real, z.imag)[0, 1]) < 0.03 and z.real.var() == pytest.approx(0.5, rel=0.05)
    a, b = (fb.manual_seed(s) and fb.rand(N, dtype=fb.float64).numpy() for s in (0, 1))
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.03


def test_permutations_are_uniform():
    fb.manual_seed(4)
    for n in (0, 1, 5, 1000):
        assert sorted(fb.randperm(n).tolist()) == list(range(n))
    codes = [int("".join(map(str, fb.randperm(3).tolist())), 3) for _ in range(1200)]
    _, counts = np.unique(codes, return_counts=True)
    assert len(counts) == 6 and scipy.stats.chisquare(counts).pvalue > PROBABLE
    assert fb.randperm(4, dtype=fb.int32).dtype is fb.int32 and fb.randperm(4, dtype=fb.float32).dtype is fb.float32
    with pytest.raises(RuntimeError, match="non-negative"):
        fb.randperm(-1)
    for n in (fb.tensor(6), fb.tensor([6]), np.int64(6)):
        assert sorted(fb.randperm(n).tolist()) == list(range(6))
    for n in (4.0, fb.tensor(4.0)):
        with pytest.raises(TypeError):
            fb.randperm(n)


def test_multinomial_with_and_without_replacement():
    fb.manual_seed(6)
    w = fb.tensor([1.0, 0.0, 3.0, 6.0])
    counted(fb.multinomial(w, N, replacement=True).numpy(), [0.1, 0, 0.3, 0.6])
    rows = fb.multinomial(w.expand(3000, 4), 2)
    assert rows.shape == (3000, 2) and rows.dtype is fb.int64 and not (rows == 1).any() and (rows[:, 0] != rows[:, 1]).all()
    counted(rows[:, 0].numpy(), [0.1, 0, 0.3, 0.6])  # the first of a draw without replacement
    second = [sum(p * q / (1 - p) for j, p in enumerate((0.1, 0, 0.3, 0.6)) if j != i) for i, q in enumerate((0.1, 0, 0.3, 0.6))]
    counted(rows[:, 1].numpy(), second)
    for args, message in [((w, 4), "not enough non-negative category"), ((w, 5), "n_sample > prob_dist"), ((-w, 1), "element < 0"), ((w * 0, 1),
            "sum of probabilities"),
                          ((w, 0), "n_sample <= 0"), ((w.long(), 1), "floating-point"), ((w.reshape(1, 1, 4), 1), "1 or 2 dim"),
                          ((fb.tensor([float("nan"), 1]), 1), "nan")]:
        with pytest.raises(RuntimeError, match=message):
            fb.multinomial(*args)


def test_dropout_zeroes_and_scales():
    fb.manual_seed(8)
    x = fb.ones(N, requires_grad=True)
    y = fb.nn.functional.dropout(x, 0.25)
    assert y.unique().tolist() == pytest.approx([0.0, 4 / 3])
    counted((y == 0).numpy(), [0.75, 0.25])
    y.sum().backward()
    assert fb.equal(x.grad, y.detach())
    d = fb.nn.functional.dropout
    assert d(x, 0.5, training=False) is x and d(x, 0.0) is x and (d(x, 1.0) == 0).all()
    t = fb.ones(100)
    assert d(t, inplace=True) is t and (t == 0).any()
    for p in (-0.1, 1.1):
        with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1"):
            d(x, p)
    out, mask = fb.native_dropout(fb.ones(1000), 0.5)
    assert mask.dtype is fb.bool and fb.equal(out, mask.float() * 2)


def test_generators_are_streams_of_their_own():
    g, h = fb.Generator().manual_seed(7), fb.Generator().manual_seed(7)
    fb.manual_seed(0)
    a = fb.rand(5, generator=g)
    fb.rand(3)
    assert fb.equal(a, fb.rand(5, generator=h)) and g.initial_seed() == 7
    state = g.get_state()
    assert state.dtype is fb.uint8 and state.device.type == "cpu"
    b = fb.randn(4, generator=g)
    g.set_state(state)
    assert fb.equal(b, fb.randn(4, generator=g))
    g.set_state(state)
    for copy in (pickle.loads(pickle.dumps(g)), g.clone_state()):
        assert fb.equal(fb.randn(4, generator=copy), b)
    assert fb.Generator().seed() != fb.Generator().seed()
    assert state.shape == (5056,)
    with pytest.raises(RuntimeError, match="wrong size: expected 5056"):
        g.set_state(fb.zeros(3, dtype=fb.uint8))
    with pytest.raises(RuntimeError, match="Invalid mt19937 state"):
        g.set_state(fb.zeros(5056, dtype=fb.uint8))
    with pytest.raises(TypeError, match="ByteTensor"):
        g.set_state(state.float())
    assert fb.equal(g.get_state(), state)  # what is refused changes nothing
    with pytest.raises(ValueError, match="Overflow"):
        g.manual_seed(1 << 64)
    assert g.manual_seed(-1).initial_seed() == (1 << 64) - 1


def test_a_generator_belongs_to_its_kind_of_device(sim_gpus, counting):
    g = fb.Generator("cuda:0").manual_seed(1)
    h = fb.Generator().manual_seed(1)
    assert fb.equal(fb.rand(4, device="cuda:0", generator=g).cpu(), fb.rand(4, generator=h))
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        fb.rand(4, device="cuda", generator=h)
    fb.cuda.manual_seed_all(3)
    a = fb.rand(3, device="cuda:1")
    fb.manual_seed(3)
    assert fb.equal(a.cpu(), fb.rand(3))


@pytest.mark.parametrize("seed,make,printed", [
    (0, lambda: fb.rand(10), [0.4963, 0.7682, 0.0885, 0.1320, 0.3074, 0.6341, 0.4901, 0.8964, 0.4556, 0.6323]),
    (0, lambda: fb.randn(2, 3), [1.5410, -0.2934, -2.1788, 0.5684, -1.0845, -1.3986]),
    (42, lambda: fb.rand(4), [0.8823, 0.9150, 0.3829, 0.9593]), (42, lambda: fb.randn(4), [0.3367, 0.1288, 0.2345, 0.2303]),
    # pytorch.org: "Introduction to PyTorch Tensors", two tensors of one seed
    (1729, lambda: fb.cat([fb.rand(2, 3), fb.rand(2, 3)]), [0.3126, 0.3791, 0.3087, 0.0736, 0.4216, 0.0691, 0.2332, 0.4047, 0.2162, 0.9927, 0.4128, 0.5938]),
    # "Word Embeddings: Encoding Lexical Semantics"
    (1, lambda: fb.nn.Embedding(2, 5)(fb.tensor([0])), [0.6614, 0.2669, 0.0617, 0.6213, -0.4519]),
    # "Introduction to Torch's tensor library": the first row of 3 x 4 x 5
    (1, lambda: fb.randn((3, 4, 5))[0, 0], [-1.5256, -0.7502, -0.6540, -1.6095, -0.1002])])
def test_tutorials_numbers_come_out_as_they_are_printed(seed, make, printed):
    fb.manual_seed(seed)
    assert [round(x, 4) for x in make().flatten().tolist()] == printed


def test_a_stream_is_chosen():
    fb.manual_seed(3)
    ordered = fb.rand(4)
    with fb.random.fork_rng():
        fb.random.set_stream("counter")
        assert fb.random.get_stream() == "counter" and fb.get_rng_state().shape == (16,) and fb.initial_seed() == 3
        counted = fb.rand(4)
        g = fb.Generator().manual_seed(3)
        assert fb.equal(fb.rand(4, generator=g), counted) and not fb.equal(counted, ordered)
        g.set_offset(0)
        assert g.get_offset() == 0 and fb.equal(fb.rand(4, generator=g), counted)
    assert fb.random.get_stream() == "mt19937" and fb.equal(pickle.loads(pickle.dumps(g)).get_state(), g.get_state())
    fb.manual_seed(3)
    for _ in range(6):  # learned calls are of the stream in use
        fb.rand(4)
    fb.manual_seed(3)
    assert fb.equal(fb.rand(4), ordered)
    with pytest.raises(ValueError, match="'mt19937'"):
        fb.random.set_stream("philox")
    with pytest.raises(RuntimeError, match="no offset"):
        fb.Generator().get_offset()


def test_draws_of_several_threads_are_whole():
    """Together they have what one thread would have drawn: each a run of it, short ones beside long ones that let other threads run."""
    n, sizes = 60, (3, 1 << 15)
    g = fb.Generator().manual_seed(8)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda k: fb.rand(sizes[k % 2], generator=g), range(n)))
    whole = fb.rand(n // 2 * sum(sizes), generator=fb.Generator().manual_seed(8)).numpy()
    starts = {whole[k:k + 3].tobytes(): k for k in range(len(whole) - 2)}
    places = sorted((starts[p[:3].numpy().tobytes()], len(p), p.numpy()) for p in parts)
    assert [at for at, *_ in places] == list(np.cumsum([0, *[size for _, size, _ in places]]))[:-1]
    for at, size, p in places:
        assert np.array_equal(whole[at:at + size], p)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_draws_on():
    g, far = fb.Generator().manual_seed(8), fb.Generator().manual_seed(8)
    fb.rand(5, generator=g)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, fb.rand(4, generator=g).numpy().tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    got = np.frombuffer(os.read(read, 64), np.float32)
    os.close(read), os.close(write)
    fb.rand(5, generator=far)
    assert np.array_equal(got, fb.rand(4, generator=far).numpy()) and np.array_equal(got, fb.rand(4, generator=g).numpy())


@pytest.mark.parametrize("inplace", [False, True])
def test_a_call_that_is_made_again_has_its_numbers_again(inplace):
    """A second derivative makes a learned call again, as it was drawn."""
    fb.manual_seed(0)
    for _ in range(12):
        x = fb.ones(4, 4, requires_grad=True)
        t = x * 2 if inplace else x
        y = fb.nn.functional.dropout(t, 0.5, True, inplace)
        slope = y.detach().clone()  # of the ones, twos where it is in place
        (g,) = fb.autograd.grad((y * y).sum(), x, create_graph=True)
        assert fb.equal(g, 2 * y * slope)
        (gg,) = fb.autograd.grad(g.sum(), x)
        assert fb.equal(gg, 2 * slope * slope)


def test_global_state_is_saved_and_forked():
    fb.manual_seed(12)
    assert fb.initial_seed() == 12
    state = fb.get_rng_state()
    a = fb.rand(3)
    fb.set_rng_state(state)
    assert fb.equal(a, fb.rand(3))
    with fb.random.fork_rng():
        fb.manual_seed(99)
        fb.rand(10)
    b = fb.rand(3)
    fb.manual_seed(12)
    fb.rand(3)
    assert fb.equal(b, fb.rand(3)) and fb.default_generator.initial_seed() == 12


@pytest.mark.parametrize("call,error", [
    (lambda: fb.rand(2, dtype=fb.int64), (NotImplementedError, RuntimeError)), (lambda: fb.randint(5, 5, (2,)), RuntimeError),
    (lambda: fb.rand(-1), RuntimeError),
    (lambda: fb.empty(2).uniform_(3, 1), RuntimeError), (lambda: fb.empty(2).normal_(0, -1), RuntimeError),
    (lambda: fb.empty(2).exponential_(0), RuntimeError),
    (lambda: fb.empty(2).geometric_(1.5), RuntimeError), (lambda: fb.empty(2).bernoulli_(1.5), RuntimeError),
    (lambda: fb.empty(2).log_normal_(0, 0), RuntimeError),
    (lambda: fb.empty(2).cauchy_(0, 0), RuntimeError), (lambda: fb.empty(2, dtype=fb.int64).normal_(), (NotImplementedError, RuntimeError)),
    (lambda: fb.empty(2).random_(5, 5), RuntimeError), (lambda: fb.normal(0.0, -1.0, (2,)), RuntimeError), (lambda: fb.randint(3), TypeError),
    (lambda: fb.empty(1).expand(3).uniform_(), RuntimeError), (lambda: fb.empty(2).exponential_(lamb=1), TypeError)])
def test_wrong_arguments(call, error):
    with pytest.raises(error):
        call()


def test_options_of_the_factories():
    assert fb.rand(2, 3).shape == fb.rand((2, 3)).shape == fb.rand(size=(2, 3)).shape == (2, 3) and fb.rand(()).shape == () and fb.rand(0, 3).shape == (0, 3)
    assert fb.randn(2, requires_grad=True).is_leaf and fb.randint(5, (2,)).dtype is fb.int64 and fb.randint(0, 5, (2,), dtype=fb.uint8).dtype is fb.uint8
    out = fb.empty(0)
    assert fb.rand(3, out=out) is out and out.shape == (3,) and fb.randint_like(fb.zeros(2), 3, 5).dtype is fb.float32
    t = fb.zeros(3)
    version = t._version
    assert t.uniform_() is t and t._version > version and fb.rand_like(t, dtype=fb.float64).dtype is fb.float64


def test_draws_in_place_cut_the_gradient():
    x = fb.ones(3, dtype=fb.float64, requires_grad=True)
    y = x * 2
    y.uniform_()
    y.sum().backward()
    assert x.grad.tolist() == [0, 0, 0]
    fb.manual_seed(1)
    assert gradcheck(lambda t: fb.manual_seed(1) and fb.nn.functional.dropout(t * t, 0.5), (x,))


@pytest.mark.parametrize(("count", "again"), [(5, True), (1, False), (3, False)])
def test_few_probabilities_are_drawn_alike_however_often(count, again):
    p = fb.tensor([[0.1, 0.2, 0.0, 0.7, 1.5], [1.0, 1.0, 1.0, 0.0, 0.0]])
    got = []
    for _ in range(6):  # the later calls are learned
        fb.manual_seed(11)
        got.append([fb.multinomial(p, count, again), fb.multinomial(p[0].bfloat16(), count, again), fb.rand(2)])
        assert all((x >= 0).all() and (p.gather(1, x) > 0).all() for x in got[-1][:1])
    assert all(fb.equal(a, b) for other in got[1:] for a, b in zip(got[0], other, strict=True))


@pytest.mark.parametrize("span", [1 << 62, (1 << 62) + 12345, 3 << 61, (1 << 63) - 1, (1 << 63) + 99])
def test_integers_of_the_widest_spans_are_what_is_left_of_64_bits(span):
    low = -(1 << 63)
    fb.manual_seed(5)
    bits = fb.randint(low, (1 << 63) - 1, (1000,)).numpy().view(np.uint64) ^ np.uint64(1 << 63)
    fb.manual_seed(5)
    got = fb.randint(low, low + span, (1000,)).numpy().view(np.uint64) ^ np.uint64(1 << 63)
    np.testing.assert_array_equal(got, bits % np.uint64(span))


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint8"])
def test_dropout_of_integers(dtype):
    F, x = fb.nn.functional, fb.ones(3, dtype=getattr(fb, dtype))
    made = F.dropout(x, 1.0)
    assert made.dtype is x.dtype and not made.any() and F.dropout(x[:0]).shape == (0,)
    with pytest.raises(RuntimeError, match="can't be cast"):
        F.dropout(x)
    F.dropout(x, 1.0, inplace=True)
    assert not x.any()


def test_draws_from_rates_that_require_grad() -> None:
    rates = fb.tensor([0.5, 0.25], requires_grad=True)
    for _ in range(6):
        rates.grad = None
        fb.poisson(rates).sum().backward()
        assert rates.grad is not None and rates.grad.tolist() == [0.0, 0.0]
        for count, chance in ((rates.detach() * 8, rates), (rates * 8, rates.detach())):
            with pytest.raises(RuntimeError, match="derivative for aten::binomial is not implemented"):
                fb.binomial(count, chance).sum().backward()
    fb.manual_seed(3)
    drawn = fb.poisson(rates * 20).detach()
    fb.manual_seed(3)
    assert fb.equal(drawn, fb.poisson(rates.detach() * 20))


def test_a_state_that_lies_otherwise_is_taken_too() -> None:
    state = fb.get_rng_state()
    first = fb.rand(5)
    for other in (fb.stack([state, state], 1)[:, 1], state.flip(0).flip(0), state.clone()):
        fb.set_rng_state(other)
        assert fb.get_rng_state().equal(state) and fb.rand(5).equal(first)
