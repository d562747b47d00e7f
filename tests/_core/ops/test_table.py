"""The op table: a row gives function, method, in-place form, `out=`, gradients and kernel on every device; rows are consistent."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import flambeau as fb
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import interpret
from flambeau._core.ops import table
from flambeau._core.ops.table import REQUIRED, TABLE
from flambeau._core.tensor import Tensor
from flambeau.autograd import gradcheck, gradgradcheck


@pytest.fixture
def scratch():
    """Lets a test add rows, and takes them away again."""
    before = set(TABLE)
    methods = set(Tensor.__dict__)
    yield
    for name in set(TABLE) - before:
        del TABLE[name]
    for name in set(Tensor.__dict__) - methods:
        delattr(Tensor, name)


def made_up(**kwargs):
    """One pointwise operation, stated once: a damped wave with a number given at launch and a constant fixed in the kernel."""
    table.pointwise("wave", "input other", lambda x, y, speed, *, damped: E.sin(x * speed) * (E.exp(-(y * y)) if damped else y),
                    numbers={"speed": 1.0}, consts={"damped": True}, keyword=("damped",), aliases=("ripple", "special.wave"), **kwargs)
    table.attach(Tensor)
    return table.namespace("torch")["wave"]


RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(2, 3)), RNG.normal(size=(3,))


def wave(x, y, speed=1.0, damped=True):
    return np.sin(x * speed) * (np.exp(-y * y) if damped else y)


def test_one_formula_gives_every_form(scratch, device):
    function = made_up()
    x, y = fb.tensor(X).to(device), fb.tensor(Y).to(device)

    def same(t, want):
        assert str(t.device) == device
        np.testing.assert_allclose(t.detach().cpu().numpy(), want, rtol=1e-10)
    same(function(x, y), wave(X, Y))
    same(function(x, y, 2.5), wave(X, Y, 2.5))
    same(function(x, other=y, speed=2, damped=False), wave(X, Y, 2, False))
    same(function(x, 0.5), wave(X, 0.5))
    same(x.wave(y, damped=False), wave(X, Y, 1, False))
    same(x.ripple(y), wave(X, Y))
    same(table.namespace("special")["wave"](x, y), wave(X, Y))
    z, out = x.clone(), fb.empty(0, dtype=fb.float64, device=device)
    version = z._version
    assert z.wave_(y, 3.0) is z and z._version == version + 1
    same(z, wave(X, Y, 3))
    assert function(x, y, out=out) is out and out.shape == (2, 3)
    same(out, wave(X, Y))
    xs = x.requires_grad_(), y.requires_grad_()
    for f in (function, lambda a, b: function(a, b, 1.7, damped=False), lambda a, b: (a * 1).wave_(b)):
        assert gradcheck(f, xs) and gradgradcheck(f, xs)
    assert function(*xs).grad_fn.name() == "WaveBackward0"


def test_the_interpreter_gives_the_kernels_result(scratch):
    function = made_up()
    x, y = fb.tensor(X), fb.tensor(Y)
    program, convert = TABLE["wave"].pointwise.program((x, y), (1.5,), (("damped", True),), fb.float64, None)
    out = np.zeros((2, 3))
    interpret.run(program, (2, 3), ((3, 1), (3, 1), (0, 1)), out.ctypes.data, x.data_ptr(), y.data_ptr(), *[c(1.5) for c in convert])
    np.testing.assert_allclose(out, function(x, y, 1.5).numpy(), rtol=1e-12)


@pytest.mark.parametrize("d", [fb.float16, fb.bfloat16, fb.float32, fb.float64, fb.int64], ids=str)
def test_a_row_works_in_every_type_and_layout(scratch, d):
    function = made_up(promote="float")
    x, y = fb.tensor(X * 3).to(d), fb.tensor(Y * 3).to(d)
    got = function(x.t(), y.reshape(3, 1))
    assert got.dtype is (d if d.is_floating_point else fb.float32)
    want = wave(x.double().t().numpy(), y.double().reshape(3, 1).numpy())
    rtol, atol = {fb.bfloat16: (2e-2, 1e-3), fb.float16: (2e-3, 1e-3)}.get(d, (1e-5, 1e-7))
    np.testing.assert_allclose(got.double().numpy(), want, rtol, atol)


def test_wrong_calls_name_the_argument(scratch):
    function = made_up()
    t = fb.ones(2)
    for call, message in ((lambda: function(t), 'missing 1 required positional arguments: "other"'), (lambda: function(t, t, 1, 2),
            "takes 3 positional arguments but 4"),
                          (lambda: function(t, t, pace=1), "unexpected keyword argument 'pace'"), (lambda: function(t, t, input=t),
                          "multiple values for argument 'input'"),
                          (lambda: function(t, "x"), "argument 'other'.* must be"), (lambda: function(1.0, t), "argument 'input'.* must be Tensor"),
                          (lambda: function(t, t, "fast"), "argument 'speed' must be")):
        with pytest.raises(TypeError, match=message):
            call()


def test_a_general_operation_gets_its_forms_too(scratch):
    @table.op(inplace=True, out=True, aliases=("twin",))
    def doubled(input, k=2):  # noqa: A002
        """Twice."""
        return input * k
    table.attach(Tensor)
    t = fb.ones(3, requires_grad=True)
    assert t.detach().doubled().tolist() == [2, 2, 2] and t.detach().twin(3).tolist() == [3, 3, 3]
    out = fb.empty(0)
    assert table.namespace("torch")["doubled"](t.detach(), out=out) is out and out.tolist() == [2, 2, 2]
    y = t * 1
    assert y.doubled_(5) is y
    y.sum().backward()
    assert t.grad.tolist() == [5, 5, 5]
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        table.namespace("torch")["doubled"](t, out=out)
    with pytest.raises(RuntimeError, match="have dtype float32, but got int64"):
        table.namespace("torch")["doubled"](fb.ones(2), out=fb.empty(2, dtype=fb.int64))
    with pytest.raises(ValueError, match="in the table twice"):
        table.op()(doubled)


def test_out_of_several_results(scratch):
    from flambeau._core.ops.results import named
    both = named("both", "low high")

    @table.op(out=True, method=False)
    def ends(input):  # noqa: A002
        return both(input.min(), input.max())
    f = table.namespace("torch")["ends"]
    low, high = fb.empty(0), fb.empty(0)
    found = f(fb.tensor([3.0, 1.0]), out=(low, high))
    assert found.low is low and low.item() == 1 and high.item() == 3
    with pytest.raises(TypeError, match="must be a tuple of 2 tensors"):
        f(fb.ones(2), out=low)


# ------------------------------------------------------------------------------------------------------------- every row
def test_rows_are_complete():
    assert len(TABLE) > 400
    for key, row in TABLE.items():
        assert callable(row.function) and row.doc and row.signature.startswith("("), key
        assert row.inplace is None or callable(row.inplace), key
        assert set(row.spaces) <= {"torch", "nn.functional", "special", "linalg", "fft", "masked", "signal"}, (key, row.spaces)


def test_every_name_is_where_it_is_said_to_be():
    spaces = {"torch": fb, "special": fb.special, "fft": fb.fft, "linalg": fb.linalg, "nn.functional": fb.nn.functional}
    for key, row in TABLE.items():
        for space in row.spaces:
            if space in spaces and not row.name.startswith("linalg_") and not row.name.startswith("fft_"):
                assert callable(getattr(spaces[space], row.name)), (key, space)
        if row.method and not row.name.startswith("_"):
            assert callable(getattr(Tensor, row.name)) or isinstance(inspect.getattr_static(Tensor, row.name), property), key
            if row.inplace is not None:
                assert hasattr(Tensor, row.name + "_"), key
        for alias in row.aliases:
            place, _, name = alias.rpartition(".")
            if not place:
                assert not row.method or hasattr(Tensor, name), (key, alias)
            elif place in spaces:
                assert hasattr(spaces[place], name), (key, alias)


@pytest.mark.parametrize("space", ["torch", "nn.functional", "special", "linalg", "fft", "masked", "signal"])
def test_one_function_of_a_namespace_is_found_as_in_the_whole(space):
    whole = table.namespace(space)
    assert [n for n, f in whole.items() if table.find(space, n) is not f] == []
    assert [n for n in ("no_such_operation", "no_such_operation_", "", "_", "special.exp2", *{*table.namespace("torch")} - {*whole})
            if table.find(space, n) is not None] == []


def test_required_parameters_have_no_default():
    assert REQUIRED is not None and all("REQUIRED" not in row.signature and "object at" not in row.signature for row in TABLE.values())


def test_functions_are_pickled_by_their_public_names():
    import pickle
    F = fb.nn.functional
    for f in (fb.relu, fb.relu_, fb.add, fb.sum, fb.zeros, fb.matmul, F.gelu, F.relu, F.conv2d, F.linear, F.softmax, fb.fft.fft, fb.linalg.inv, fb.special.erf,
              fb.Tensor.add, fb.linalg.norm):
        assert pickle.loads(pickle.dumps(f)) is f
    for space in (fb, F, fb.linalg, fb.fft, fb.special):
        for name in dir(space):
            f = getattr(space, name)
            if hasattr(f, "__operation__") and not name.startswith("_"):
                assert pickle.loads(pickle.dumps(f)) is f, name
