"""`__torch_function__`: subclasses of Tensor keep their class, and other objects may stand in for tensors."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest

import flambeau as fb
from flambeau import nn, overrides
from flambeau.nn import functional as F


class Sub(fb.Tensor):
    pass


class Deeper(Sub):
    pass


class Noting(fb.Tensor):
    noted: list[str] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.noted.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.fixture
def s():
    return fb.arange(1.0, 4.0).as_subclass(Sub)


PLAIN = fb.ones(3)


@pytest.mark.parametrize("f", [
    lambda s: s + 1, lambda s: 1 + s, lambda s: PLAIN + s, lambda s: s - PLAIN, lambda s: 1 - s, lambda s: s / 2, lambda s: 2 / s, lambda s: s @ PLAIN,
    lambda s: s == s, lambda s: s < 2, lambda s: -s, lambda s: s**2, lambda s: fb.add(PLAIN, s), lambda s: fb.sub(s, 1, alpha=2), lambda s: fb.sin(s),
    lambda s: fb.sum(s), lambda s: fb.cat([PLAIN, s]), lambda s: fb.stack((s, s)), lambda s: s.sum(), lambda s: s[0], lambda s: s.T, lambda s: s.data,
    lambda s: s.mean(0), lambda s: F.relu(s), lambda s: F.softmax(s, 0), lambda s: fb.matmul(s, PLAIN), lambda s: PLAIN.mul(s), lambda s: PLAIN.clone().add_(s),
    lambda s: s.clone(), lambda s: s.double(), lambda s: s.to(fb.int64), lambda s: s.detach(), lambda s: fb.where(s > 1, s, PLAIN),
    lambda s: fb.zeros_like(s), lambda s: s.new_zeros(2), lambda s: fb.einsum("i,i->", s, PLAIN), lambda s: fb.linalg.norm(s),
    lambda s: F.mse_loss(s, PLAIN), lambda s: F.linear(s, fb.ones(2, 3)), lambda s: nn.Linear(3, 2)(s), lambda s: s.reshape(3, 1).permute(1, 0),
    lambda s: copy.deepcopy(s), lambda s: fb.clamp(s, 0, 1), lambda s: s.float().round(), lambda s: fb.special.erf(s), lambda s: fb.outer(PLAIN, s),
    lambda s: Deeper([1, 2, 3]) + s, lambda s: fb.fft.fft(s), lambda s: fb.addcmul(s, PLAIN, PLAIN), lambda s: F.layer_norm(s, (3,))])
def test_results_keep_the_class(s, f):
    assert isinstance(f(s), Sub)


def test_several_results_keep_it_too(s):
    for made in (s.unbind(), s.split(1), s.max(0), fb.topk(s, 2), list(s), fb.sort(s)):
        assert {type(x) for x in made} == {Sub}
    assert type(s.max(0)).__name__ == "max" and s.max(0).indices.item() == 2
    assert type(Deeper([1.0]) + s[:1]) is Deeper and type(s[:1] + Deeper([1.0])) is Deeper


def test_values_are_those_of_plain_tensors(s):
    plain = fb.arange(1.0, 4.0)
    assert (s * 2 + fb.exp(s)).tolist() == (plain * 2 + fb.exp(plain)).tolist()
    assert s.shape == (3,) and s.dtype is fb.float32 and len(s) == 3 and s.sum().item() == 6 and bool((s == plain).all())
    assert type(s.as_subclass(fb.Tensor)) is fb.Tensor and s.as_subclass(fb.Tensor).data_ptr() == s.data_ptr()
    assert isinstance(s, fb.Tensor) and fb.is_tensor(s) and repr(s).startswith("Sub([1., 2., 3.]")
    same = s
    s += 1
    s.mul_(2)
    assert s is same and s.tolist() == [4, 6, 8]
    s[0] = 0
    assert s.tolist() == [0, 6, 8] and type(s.numpy()).__name__ == "ndarray"
    again = pickle.loads(pickle.dumps(s))
    assert type(again) is Sub and again.tolist() == [0, 6, 8]
    with pytest.raises(TypeError, match="must be a subclass of Tensor"):
        s.as_subclass(int)


def test_gradients_flow():
    w = fb.ones(3).as_subclass(Sub).requires_grad_()
    assert type(w) is Sub and w.is_leaf and w.requires_grad
    loss = (w * fb.sin(w)).sum() + F.mse_loss(w, fb.zeros(3))
    assert type(loss) is Sub
    loss.backward()
    x = fb.ones(3, requires_grad=True)
    ((x * fb.sin(x)).sum() + F.mse_loss(x, fb.zeros(3))).backward()
    assert fb.equal(w.grad, x.grad)
    w.grad = None
    plain = (w * fb.sin(w)).sum().as_subclass(fb.Tensor) + F.mse_loss(w.as_subclass(fb.Tensor), fb.zeros(3))
    assert type(plain) is fb.Tensor
    plain.backward()
    assert fb.equal(w.grad, x.grad)
    (g,) = fb.autograd.grad((w * w).sum(), w, create_graph=True)
    g.sum().backward()
    assert (w.grad - x.grad).tolist() == [2, 2, 2]


def test_an_optimizer_steps_a_subclass():
    w = nn.Parameter(fb.ones(3))
    v = fb.ones(3).as_subclass(Sub).requires_grad_()
    for p in (w, v):
        optimizer = fb.optim.Adam([p], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (p * p).sum().backward()
            optimizer.step()
    assert fb.allclose(w.detach(), v.detach().as_subclass(fb.Tensor))


@pytest.mark.parametrize("f, name", [
    (lambda g: g + 1, "add"), (lambda g: 2 * g, "mul"), (lambda g: fb.mean(g), "mean"), (lambda g: g.mean(), "mean"), (lambda g: F.relu(g), "relu"),
    (lambda g: fb.cat([g, g]), "cat"), (lambda g: g @ g, "matmul"), (lambda g: g[0], "__getitem__"), (lambda g: fb.softmax(g, 0), "softmax"),
    (lambda g: fb.ones(2) * g, "mul"), (lambda g: F.linear(g, g), "linear"), (lambda g: F.cross_entropy(g, fb.tensor([0, 1])), "cross_entropy"),
    (lambda g: F.smooth_l1_loss(g, g), "smooth_l1_loss"), (lambda g: F.scaled_dot_product_attention(g, g, g), "scaled_dot_product_attention"),
    (lambda g: fb.nn.functional.embedding(fb.tensor([0]), g), "embedding"), (lambda g: fb.var(g), "var")])
def test_the_outermost_function_is_told_and_only_that(f, name):
    g = fb.ones(2, 2).as_subclass(Noting)
    Noting.noted.clear()
    assert type(f(g)) is Noting and Noting.noted == [name]


def test_attributes_are_told():
    g = fb.ones(2, 3).as_subclass(Noting)
    Noting.noted.clear()
    assert g.shape == (2, 3) and g.T.shape == (3, 2) and Noting.noted == ["__get__"] * 3


def test_methods_of_a_subclass_may_call_those_of_the_tensor():
    class Tagged(fb.Tensor):
        @staticmethod
        def __new__(cls, x, tag, *args, **kwargs):
            return super().__new__(cls, x, *args, **kwargs)

        def __init__(self, x, tag):
            self.tag = tag

        def sum(self, *args, **kwargs):
            return super().sum(*args, **kwargs) * 10

        @property
        def shape(self):
            return tuple(super().shape)
    t = Tagged(fb.ones(3), "hi")
    assert t.tag == "hi" and t.sum().item() == 30 and type(t.shape) is tuple


def test_a_subclass_that_wants_none():
    class Quiet(fb.Tensor):
        __torch_function__ = fb._C._disabled_torch_function_impl
    q = fb.ones(2).as_subclass(Quiet)
    assert type(q + 1) is fb.Tensor and type(fb.sin(q)) is fb.Tensor and not overrides.has_torch_function((q,))
    p = nn.Parameter(fb.ones(2))
    assert type(p * 2) is fb.Tensor and not overrides.has_torch_function((p,))


def test_the_block_that_turns_it_off(s):
    with fb._C.DisableTorchFunctionSubclass():
        assert type(s + 1) is fb.Tensor and type(fb.sin(s)) is fb.Tensor and not overrides.has_torch_function((s,))
    assert type(s + 1) is Sub


HANDLED = {}


class Diagonal:
    """n times n, the same number on its diagonal: no tensor at all."""

    def __init__(self, n, value):
        self.n, self.value = n, value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in HANDLED or not all(issubclass(t, (fb.Tensor, Diagonal)) for t in types):
            return NotImplemented
        return HANDLED[func](*args, **(kwargs or {}))


HANDLED[fb.mean] = lambda x: x.value / x.n
HANDLED[fb.add] = lambda a, b: "sum"
HANDLED[fb.matmul] = lambda a, b: "product"
HANDLED[fb.stack] = lambda xs, dim=0: f"stacked {dim}"
HANDLED[fb.nn.functional.linear] = lambda x, w, b=None: "linear"


def test_objects_that_are_no_tensors():
    d = Diagonal(5, 2)
    assert fb.mean(d) == 0.4 and fb.add(d, d) == fb.add(fb.ones(2), d) == fb.add(1, d) == fb.ones(2) + d == "sum"
    assert fb.matmul(d, fb.ones(5, 5)) == fb.matmul(fb.ones(5, 5), d) == "product"
    assert fb.stack([fb.ones(1), d], dim=1) == "stacked 1" and F.linear(d, fb.ones(5)) == "linear"
    for f in (lambda: fb.sum(d), lambda: fb.mul(d, fb.ones(2)), lambda: fb.sin(d), lambda: fb.cat([d])):
        with pytest.raises(TypeError, match=r"no implementation found for 'torch.\w+' on types that implement __torch_function__: \[Diagonal\]"):
            f()
    with pytest.raises(TypeError, match="must be Tensor"):
        fb.sin(3)


def test_the_public_helpers(s):
    d = Diagonal(5, 2)
    assert overrides.has_torch_function((fb.ones(1), d)) and not overrides.has_torch_function((fb.ones(1), 3, None))
    assert overrides.is_tensor_like(d) and overrides.is_tensor_like(fb.ones(1)) and not overrides.is_tensor_like([1])

    def mine(x, y=1):
        if overrides.has_torch_function_unary(x):
            return overrides.handle_torch_function(mine, (x,), x, y=y)
        return "plain"
    HANDLED[mine] = lambda x, y=1: f"mine {y}"
    assert mine(d, y=3) == "mine 3" and mine(fb.ones(1)) == "plain"

    @overrides.wrap_torch_function(lambda x: (x,))
    def wrapped(x):
        return "plain"
    HANDLED[wrapped] = lambda x: "wrapped"
    assert wrapped(d) == "wrapped" and wrapped(1) == "plain"
    found = overrides.get_overridable_functions()
    assert fb.add in found[fb] and F.relu in found[fb.nn.functional] and fb.Tensor.sum in found[fb.Tensor]
    assert overrides.resolve_name(fb.add) == "torch.add" and overrides.resolve_name(fb.Tensor.view) == "torch.Tensor.view"
    assert overrides.is_tensor_method_or_property(fb.Tensor.view) and not overrides.is_tensor_method_or_property(fb.cat)
    assert fb.ones in overrides.get_ignored_functions() and overrides.get_testing_overrides()[fb.add](1, 2) == -1
    assert fb.Tensor.grad.__get__ in overrides.get_default_nowrap_functions()


def test_a_mode_sees_every_operation():
    seen = []

    class Mode(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))
    with Mode():
        x = fb.add(PLAIN, 1)
        x = F.relu(x + 1) - 1
        fb.zeros(2)
        x.sum()
    fb.add(PLAIN, 1)
    assert seen == ["add", "add", "relu", "sub", "zeros", "sum"]


def test_errors_inside_are_the_operations_own(s):
    with pytest.raises(RuntimeError, match="size"):
        fb.matmul(s, fb.ones(4))
    with pytest.raises((TypeError, RuntimeError)):
        fb.sum(s, dim="x")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = s.nothing


def test_plain_tensors_pay_nothing():
    code = """import sys, flambeau as fb
x = fb.ones(4, 4)
y = fb.sin(x + x).sum() * 2
assert 'flambeau.interop.overriding' not in sys.modules and type(fb.Tensor) is type
from flambeau.interop import overriding
class Sub(fb.Tensor): pass
assert fb.Tensor.add is fb.add and type(fb.ones(1) + 1) is fb.Tensor and 'm' not in Sub.__dict__"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == ""


def test_arguments_are_told_as_pytorchs_functions_hand_them_on():
    told = []

    class Told(fb.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            told.append((func.__name__, len(args), sorted(kwargs or {})))
            return super().__torch_function__(func, types, args, kwargs or {})
    x = fb.eye(3).as_subclass(Told)
    for f, expected in ((lambda: fb.einsum("ij,jk", [x, x]), ("einsum", 3, [])), (lambda: fb.einsum("ij,jk", x, x), ("einsum", 3, [])),
                        (lambda: fb.tensordot(x, x, 1), ("tensordot", 2, ["dims", "out"])), (lambda: fb.cat([x, x]), ("cat", 1, [])),
                        (lambda: fb.unique(x), ("unique", 1, ["dim", "return_counts", "return_inverse", "sorted"])), (lambda: x.view((9, 1)), ("view", 2, []))):
        told.clear()
        f()
        assert told[0] == expected


def test_a_class_made_before_the_first_operation():
    """Attributes get other getters when machine code is loaded; they stay the attributes that classes and rules know."""
    code = """if 1:
        import flambeau as fb
        from flambeau.func import batching
        class Early(fb.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                told.append(func)
                return super().__torch_function__(func, types, args, kwargs or {})
        told, shape, looped = [], fb.Tensor.shape, []
        early = fb.ones(2).as_subclass(Early)
        assert early.shape == (2,) and fb.Tensor.shape is shape
        assert told[-1] == fb.Tensor.shape.__get__, told
        by_examples = batching.by_examples
        batching.by_examples = lambda level, func, *rest: looped.append(func) or by_examples(level, func, *rest)
        made = fb.vmap(lambda x: x.sigmoid().sum() * x.shape[0] if x.dtype == fb.float32 and x.requires_grad in (False, True) else x)(fb.zeros(3, 4))
        assert made.tolist() == [8.0] * 3 and not looped, looped
    """
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_what_a_program_puts_on_tensor_asks_no_class(monkeypatch):
    """As in PyTorch: a Python function there is no operation (fastai's `Tensor.set_meta`, which each of its classes has)."""
    told = []

    class Asked(fb.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            told.append(func)
            return NotImplemented
    x = fb.ones(2).as_subclass(Asked)
    monkeypatch.setattr(fb.Tensor, "kind_and", lambda self, other: (type(self).__name__, other), raising=False)
    monkeypatch.setattr(fb.Tensor, "kind_of", property(lambda self: type(self).__name__), raising=False)
    assert x.kind_and(3) == ("Asked", 3) and x.kind_of == "Asked" and not told
    with pytest.raises(TypeError, match="no implementation found"):
        x.bincount()
    assert told
    told.clear()
    monkeypatch.setattr(fb.Tensor, "bincount", lambda self: "replaced " + type(self).__name__)
    assert x.bincount() == "replaced Asked" and not told


def test_what_was_on_tensor_before_the_first_class_asks_no_class():
    code = """if 1:
        import flambeau as fb
        fb.Tensor.kind = lambda self: type(self).__name__
        class Asked(fb.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                raise AssertionError
        assert fb.ones(2).as_subclass(Asked).kind() == "Asked"
    """
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_a_container_given_as_out_is_asked():
    """tensordict's: `torch.stack(containers, 0, out=container)`."""
    class Box:
        def __init__(self, x):
            self.x = x

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            out = kwargs.pop("out", None)
            made = func([b.x for b in args[0]] if isinstance(args[0], list) else args[0].x, *args[1:], **kwargs)
            if out is None:
                return Box(made)
            out.x.copy_(made)
            return out
    boxes, out = [Box(fb.ones(2)), Box(fb.zeros(2))], Box(fb.empty(2, 2))
    assert fb.stack(boxes, 0, out=out) is out and out.x.tolist() == [[1, 1], [0, 0]]
    assert fb.stack(boxes, 1).x.tolist() == [[1, 0], [1, 0]]
    total = Box(fb.empty(2))
    assert fb.sum(out, 0, out=total) is total and total.x.tolist() == [1, 1]
    with pytest.raises(TypeError, match="argument 'out' must be Tensor, not str"):
        fb.stack([fb.ones(2)], 0, out="x")


def test_one_level_is_skipped() -> None:
    told = []

    class Told(fb.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            told.append(func.__name__)
            return overrides.redispatch_function(func, types, args, kwargs)

    def scaled(a, b):
        if overrides.has_torch_function((a, b)):
            return overrides.handle_torch_function(scaled, (a, b), a, b)
        return a * b + 1
    a, b = fb.tensor([3.0]).as_subclass(Told), fb.tensor([4.0])
    assert scaled(a, b).tolist() == [13.0]
    assert told[0] == "scaled" and "mul" in told[1] and len(told) == 2
    with fb._C.DisableTorchFunctionSubclass():
        told.clear()
        a + b
        assert not told
        with overrides.enable_reentrant_dispatch():
            a + b
    assert len(told) == 1


class _Other:
    """An object that answers for operations, and may have operators of its own."""

    answer: object = NotImplemented

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if isinstance(cls.answer, Exception):
            raise cls.answer
        return (func.__name__, args) if cls.answer == "told" else cls.answer

    def __rmatmul__(self, other):
        return "product"

    def __radd__(self, other):
        return "sum"

    def __gt__(self, other):
        return "more"


def test_operators_with_objects_that_answer_ask_pythons_other_operator_where_they_do_not():
    x = fb.ones(2, 2)

    class Told(_Other):
        answer = "told"

    class Refuses(_Other):
        answer = TypeError("not for me")

    class Fails(_Other):
        answer = NotImplementedError("not here")

    other = Told()
    assert (x @ other)[0] == "matmul" and (x @ other)[1] == (x, other) and (x + other)[0] == "add" and x.matmul(other)[0] == "matmul"
    for kind in (_Other, Refuses):
        assert (x @ kind(), x + kind(), x < kind(), x == kind()) == ("product", "sum", "more", False)
        with pytest.raises(TypeError, match="unsupported operand"):
            x - kind()
        with pytest.raises(TypeError):
            x.add(kind())
    for call in (lambda: x @ Fails(), lambda: x + Fails()):
        with pytest.raises(NotImplementedError, match="not here"):
            call()
