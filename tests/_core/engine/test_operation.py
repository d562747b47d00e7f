"""Operations: planned calls and what their plans depend on, classes that answer, first calls, and the functions' own code."""

from __future__ import annotations

import sys
import threading
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import Tensor
from flambeau._core.engine import fronts, interpreters
from flambeau._core.engine.fronts import FACTOR, NUMBER, SCALAR, VALUE
from flambeau._core.engine.operation import Operation
from flambeau._core.engine.plans import Compose
from flambeau._core.runtime import caches, dispatch


class Planned:
    """A planned operation that counts how often it is planned; its calls give what they were given, and the plan's constants."""

    def __init__(self, body: Any, **kinds: str) -> None:
        self.count = 0

        def plan(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            made = body(*args, **kwargs)
            return made if isinstance(made, (str, Tensor)) else Compose(lambda *given: (made, given))
        signature = fronts.Signature.of(body, kinds)
        self.operation = Operation("planned", plan, planned=True, signature=signature)
        self.call = self.operation.function

    def plans(self, *args: Any, **kwargs: Any) -> int:
        """How many plans were made for a call, made twice."""
        before = self.count
        first, second = self.call(*args, **kwargs), self.call(*args, **kwargs)
        assert repr(first) == repr(second)
        return self.count - before


def constants(input: Tensor, dim: Any = 0, *, mode: str = "", flag: bool = False, fill: Any = None) -> Any:
    return dim, mode, flag, fill


# ------------------------------------------------------------------------------------------------- what a plan depends on
def test_a_plan_is_made_once_for_each_layout_type_and_constant() -> None:
    p, x = Planned(constants), torch.ones(2, 3)
    assert p.plans(x) == 1 and p.plans(torch.zeros(2, 3)) == 0 and p.plans(input=x, dim=0) == 0
    for other in (x.t(), x.double(), torch.ones(3, 2), torch.ones(0, 3), torch.ones(()), x[:, :2], x.to("meta")):
        assert p.plans(other) == 1
        assert p.plans(other) == 0
    assert p.plans(x, 1) == 1 and p.plans(x, mode="a") == 1 and p.plans(x, flag=True) == 1 and p.plans(x, 1, mode="a") == 1
    assert p.call(x, 1, mode="a")[0] == (1, "a", False, None) and p.call(x, 1, mode="a")[1] == (x,)


def test_constants_that_are_equal_but_of_other_types_or_signs_have_plans_of_their_own() -> None:
    p, x = Planned(constants), torch.ones(2)
    for values in ((1, 1.0, True, 1 + 0j), (0.0, -0.0, 0, False), ((1,), (1.0,), (True,)), ((0.0, (0.0,)), (0.0, (-0.0,)))):
        for value in (*values, *values):
            for name in ("dim", "fill"):
                got = p.call(x, **{name: value})[0]
                assert repr(got[0 if name == "dim" else 3]) == repr(value)
    assert p.plans(x, 0.0) == 0


def test_a_plan_does_not_depend_on_the_calls_before_it() -> None:
    x = torch.tensor([float("nan"), 1.0])
    for zero in (0.0, -0.0, 0.0):
        for got in (torch.nan_to_num(x, nan=zero), torch.nan_to_num(x, nan=zero, out=torch.empty(2)), x.clone().nan_to_num_(nan=zero)):
            assert got[0] == 0 and np.signbit(got.numpy()[0]) == np.signbit(zero)
    assert torch.round(x, decimals=1)[1] == 1
    half = torch.nan_to_num(x, nan=0.5, posinf=None)
    assert half.tolist() == [0.5, 1]


def test_a_list_is_a_constant_by_its_contents() -> None:
    p, x, dims = Planned(constants), torch.ones(2), [0, [1]]
    assert p.plans(x, dims) == 1 and p.plans(x, [0, [1]]) == 0
    dims[0] = 1
    assert p.plans(x, dims) == 1 and p.plans(x, []) == 1


def test_no_plan_is_kept_for_constants_that_can_change_or_have_no_hash() -> None:
    p, x = Planned(constants), torch.ones(2)
    for value in (torch.ones(2), [torch.ones(2)], (1, [torch.tensor(1)]), {}, {"a": 1}, set(), np.ones(2), bytearray(1)):
        assert p.plans(x, value) == 2
    assert not p.operation.env["plans"]


def test_nan_as_a_constant_and_as_a_number_is_taken_each_time() -> None:
    p, x = Planned(constants), torch.ones(2)
    for want in (1, 0, 0):
        assert p.plans(x, float("nan")) == want and np.isnan(p.call(x, float("nan"))[0][0])
    assert torch.nan_to_num(torch.tensor([float("nan")]), nan=float("nan")).isnan().all()
    assert torch.clamp(x, min=float("nan")).isnan().all() and torch.add(x, float("nan")).isnan().all()


def numbers(input: Tensor, other: Tensor | float, exponent: Any = 2, alpha: Any = 1, slope: Any = 0.5) -> Any:
    return None


def numeric() -> Planned:
    return Planned(numbers, other=NUMBER, exponent=VALUE, alpha=FACTOR, slope=SCALAR)


def test_a_number_is_given_to_the_call_and_only_its_type_is_planned_for() -> None:
    p, x = numeric(), torch.ones(2)
    assert p.plans(x, 2.0) == 1 and p.plans(x, 3.5) == 0 and p.plans(x, -0.0) == 0 and p.plans(x, float("nan")) == 0
    assert p.plans(x, 2) == 1 and p.plans(x, x) == 1 and p.plans(x, True) == 1 and p.plans(x, 1j) == 1 and p.plans(x, np.float64(2)) == 1
    assert str(p.call(x, -0.0)[1][1]) == "-0.0" and p.call(x, 7)[1][1] == 7 and p.call(x, True)[1][1] is True
    assert p.plans(x, np.int64(2)) == 1 and p.plans(x, np.float64(3)) == 0 and p.plans(x, False) == 0


def test_a_value_has_a_plan_of_its_own_and_a_factor_of_one_too() -> None:
    p, x = numeric(), torch.ones(2)
    assert p.plans(x, x) == 1
    assert [p.plans(x, x, e) for e in (2, 2.0, 3, 3, 2.0)] == [0, 1, 1, 0, 0]
    assert [p.plans(x, x, alpha=a) for a in (1, 1.0, True, True, 2, 3, 2.0, 0, float("nan"), 1.0)] == [0, 1, 1, 0, 1, 0, 1, 0, 0, 0]
    assert [p.plans(x, x, slope=s) for s in (0.25, 1.0, 1, True)] == [0, 0, 1, 1]
    assert p.call(x, x, 2, 5, 7)[1][2:] == (2, 5, 7)


def test_a_tensor_without_dimensions_stands_for_a_number() -> None:
    x = torch.tensor([-1.0, 0.0, 2.0])
    for _ in range(2):
        assert torch.add(x, x, alpha=torch.tensor(2.0)).tolist() == [-3, 0, 6] == x.clone().add_(x, alpha=torch.tensor(2)).tolist()
        assert torch.add(x, x, alpha=torch.tensor(1.0)).tolist() == [-2, 0, 4] == torch.add(x, x, alpha=torch.tensor(1)).tolist()
        assert torch.add(x, x).tolist() == [-2, 0, 4] == x.add(x, alpha=np.float64(1)).tolist()
        for truth in (True, torch.tensor(True)):  # it equals 1, of which there is a plan
            with pytest.raises(RuntimeError, match="Boolean alpha only supported for Boolean results"):
                torch.add(x, x, alpha=truth)
        with pytest.raises(RuntimeError, match="For integral input tensors, argument alpha must not be a floating point number"):
            torch.add(x.long(), x.long(), alpha=1.0)
        assert torch.add(x.long(), x.long()).tolist() == [-2, 0, 4]
        assert F.leaky_relu(x, torch.tensor(0.5)).tolist() == [-0.5, 0, 2]
        assert torch.sub(x, x, alpha=np.float64(3)).tolist() == [2, 0, -4]
    for wrong in (torch.tensor([2.0]), torch.ones(2), torch.ones(0), torch.tensor(2.0, requires_grad=True), np.ones(2)):
        with pytest.raises(TypeError, match=rf"add\(\): argument 'alpha' must be Number, not {type(wrong).__name__}"):
            torch.add(x, x, alpha=wrong)
    for wrong in ("a", None, [1]):
        with pytest.raises(TypeError, match="argument 'alpha' must be"):
            torch.add(x, x, alpha=wrong)


def test_public_calls_with_numbers_have_pytorch_s_types_whatever_was_called_before() -> None:
    i, m = torch.tensor([1, 2]), torch.tensor([True, False])
    for _ in range(2):
        assert [torch.add(i, n).dtype for n in (1, True, 1.0, 1j, np.float64(1), np.int64(1))] == [
            torch.int64, torch.int64, torch.float32, torch.complex64, torch.float32, torch.int64]
        assert [torch.add(m, n).dtype for n in (True, 1, 1.0)] == [torch.bool, torch.int64, torch.float32]
        assert [torch.pow(i, n).dtype for n in (2, 2.0)] == [torch.int64, torch.float32]
        for zero in (0.0, -0.0):
            assert np.signbit((torch.ones(1) * zero).numpy()).item() == np.signbit(zero)
            assert np.signbit(torch.copysign(torch.ones(1), zero).numpy()).item() == np.signbit(zero)


# --------------------------------------------------------------------------------------------------- caches and their worlds
def test_a_body_that_gives_a_result_is_asked_each_time() -> None:
    p = Planned(lambda input: "a result")
    p.operation.signature = fronts.Signature(("input",), kinds={"input": fronts.TENSOR})
    assert p.plans(torch.ones(1)) == 2 and p.call(torch.ones(1)) == "a result" and not p.operation.env["plans"]


def test_plans_are_made_anew_after_forget() -> None:
    p, x = Planned(constants), torch.ones(2)
    assert p.plans(x) == 1
    caches.forget()
    assert p.plans(x) == 1 and p.plans(x) == 0


def test_each_world_has_its_plans() -> None:
    p, x = Planned(constants), torch.ones(2)
    assert p.plans(x) == 1
    for want in (1, 0):
        with dispatch.observe(lambda *launch: None):
            assert p.plans(x) == want
        assert p.plans(x) == 0
    assert p.call.__operation__.own


def test_a_plan_that_became_stale_while_it_was_made_is_not_kept() -> None:
    spoil: list[Any] = []

    def body(input: Tensor) -> Any:
        for f in spoil:
            f()
        return None
    p, x = Planned(body), torch.ones(2)
    spoil.append(caches.forget)
    assert p.plans(x) == 2
    spoil.clear()
    watching: list[Any] = []
    spoil.append(lambda: watching.append(dispatch.observe(lambda *launch: None)))
    try:
        p.call(x)
        spoil.clear()
        assert p.plans(x) == 1
    finally:
        watching[0].close()
    assert p.plans(x) == 1 and p.plans(x) == 0


def test_a_device_change_makes_plans_anew() -> None:
    p, x = Planned(constants), torch.ones(2)
    assert p.plans(x) == 1
    with torch.simulate(gpus=1):
        y = torch.ones(2, device="cuda")
        assert p.plans(x) == 1 and p.plans(y) == 1 and (y + y).cpu().tolist() == [2, 2]
        before = p.count
    p.call(x)
    assert p.count == before + 1
    with torch.simulate(gpus=2):
        assert (torch.ones(2, device="cuda:1") + 1).tolist() == [2, 2]
    assert (x + x).tolist() == [2, 2]


# ------------------------------------------------------------------------------------------------------- classes that answer
class Answering(Tensor):
    asked: list[Any] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.asked.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Stranger:
    """No tensor, and it answers for operations."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func.__name__, len(args), sorted(kwargs or {})


def test_a_subclass_is_asked_once_by_the_outermost_function() -> None:
    x = torch.ones(3).as_subclass(Answering)
    for call, name in ((lambda: torch.relu(x), "relu"), (lambda: torch.add(torch.ones(3), x, alpha=2), "add"), (lambda: torch.cat([torch.ones(1), x]), "cat"),
                       (lambda: F.layer_norm(x, (3,)), "layer_norm"), (lambda: torch.where(torch.ones(3) > 0, 1.0, x), "where"), (lambda: torch.std(x), "std"),
                       (lambda: F.gelu(x), "gelu"), (lambda: torch.sum(x, axis=0), "sum")):
        for _ in range(2):
            Answering.asked.clear()
            assert isinstance(call(), Answering)
            assert [f.__name__ for f in Answering.asked] == [name]


def test_an_object_that_is_no_tensor_answers_with_the_arguments_as_they_were_written() -> None:
    x, s = torch.ones(2), Stranger()
    for _ in range(2):
        assert torch.add(x, s) == ("add", 2, []) and torch.add(x, s, alpha=3) == ("add", 2, ["alpha"])
        assert torch.relu(s) == ("relu", 1, []) and torch.sum(s, axis=1)[0] == "sum"
        assert torch.matmul(x, s) == ("matmul", 2, []) and torch.cat([x, s])[0] == "cat"


def test_a_class_that_answers_leaves_the_functions_and_the_plans_of_plain_tensors_as_they_are() -> None:
    x = torch.ones(5)
    for _ in range(3):  # until their plans are bound
        torch.relu(x), torch.add(x, x)
    codes = [f.__code__ for f in (torch.relu, torch.add)]
    plans = [dict(f.__operation__.env["plans"]) for f in (torch.relu, torch.add)]

    class Late(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return super().__torch_function__(func, types, args, kwargs or {})
    y = x.as_subclass(Late)
    assert type(torch.relu(y)) is Late and type(torch.add(x, y)) is Late
    assert torch.relu(x).tolist() == [1] * 5 and type(torch.relu(x)) is Tensor
    assert [f.__code__ for f in (torch.relu, torch.add)] == codes and torch.relu.__operation__.own
    assert [f.__operation__.env["plans"] for f in (torch.relu, torch.add)] == plans


def test_a_sparse_operand_finds_its_form_and_errors_name_the_operation() -> None:
    dense = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    s = dense.to_sparse()
    for _ in range(2):
        assert torch.mul(s, 2).to_dense().tolist() == [[0, 4], [0, 0]]
        assert torch.matmul(s, dense).tolist() == [[0, 0], [0, 0]]
        assert torch.sum(s).item() == 2
        assert torch.relu(dense).tolist() == dense.tolist()
        with pytest.raises((NotImplementedError, RuntimeError), match="sort"):
            torch.sort(s)


# ------------------------------------------------------------------------------------------------- first calls and own code
@pytest.mark.parametrize("planned", [False, True])
def test_several_threads_make_the_first_call_together(planned: bool) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            def body(input: Tensor, dim: int = 3, *, keep: bool = False) -> Any:
                return Compose(lambda t: (t, dim, keep)) if planned else (input, dim, keep)  # noqa: B023 (used in this round only)
            operation, x, got = Operation("together", body, planned=planned, renames=True), torch.ones(2), []
            ready = threading.Barrier(6)

            def run(f: Any = operation.function, x: Any = x, got: Any = got, ready: Any = ready) -> None:
                ready.wait()
                for i in range(20):
                    got.append(f(x, axis=i, keep=True) if i % 2 else f(x, keep=True))
            threads = [threading.Thread(target=run) for _ in range(6)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert len(got) == 120 and all(g[0] is x and g[2] is True for g in got)
            assert {g[1] for g in got} == {3, *range(1, 20, 2)}
            assert operation.own and list(interpreters._own).count(operation) == 1
    finally:
        sys.setswitchinterval(before)


def test_the_code_is_written_at_the_first_call_only() -> None:
    def body(input: Tensor) -> Any:
        return input
    operation = Operation("late", body)
    assert operation.code is None and not operation.own and repr(operation) == "Operation(late)"
    operation.function(torch.ones(1))
    code = operation.code
    assert code is not None and operation.function.__code__ is code
    operation.function(torch.ones(1))
    assert operation.started().code is code


class Noting(interpreters.Interpreter):
    def __init__(self, *names: str, error: Exception | None = None) -> None:
        self.names, self.error, self.seen = names, error, []  # type: ignore[var-annotated]

    def sees(self, operation: Any) -> bool:
        return operation.name in self.names

    def call(self, operation: Any, function: Any, args: Any, kwargs: Any) -> Any:
        self.seen.append(operation.name)
        if self.error is not None:
            raise self.error
        return function(*args, **kwargs)


def test_the_own_code_is_back_after_an_interpreter_also_after_errors() -> None:
    x = torch.ones(2)
    torch.sinh(x), torch.cosh(x), torch.add(x, x)
    codes = {f: f.__code__ for f in (torch.sinh, torch.cosh, torch.add)}
    noting = Noting("sinh", error=KeyError("mine"))
    interpreters.push(noting)
    try:
        with pytest.raises(KeyError, match="mine"):
            torch.sinh(x)
        assert not torch.sinh.__operation__.own and torch.cosh.__operation__.own and torch.cosh.__code__ is codes[torch.cosh]
    finally:
        interpreters.pop(noting)
    torch.sinh(x)  # the first call that nobody sees puts it back
    for f, code in codes.items():
        assert f.__operation__.own and f.__code__ is code
    quiet = Noting("sinh")
    interpreters.push(quiet)
    try:
        for bad in ((), (3,), (x, x, x)):
            with pytest.raises(TypeError, match=r"sinh\(\)"):
                torch.sinh(*bad)
        assert torch.sinh(input=x).shape == (2,)
    finally:
        interpreters.pop(quiet)
    torch.sinh(x)
    assert torch.sinh.__operation__.own and len(quiet.seen) == 4
    with pytest.raises(ValueError):
        interpreters.pop(quiet)


def test_pushing_and_popping_touches_each_function_once_and_only_those_that_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(2)
    torch.sinh(x), torch.cosh(x), torch.tanh(x)
    touched: list[str] = []
    for name in ("open", "close"):
        plain = getattr(Operation, name)
        monkeypatch.setattr(Operation, name, lambda self, plain=plain, name=name: (touched.append(name + " " + self.name), plain(self))[1])
    one, two = Noting("sinh", "cosh"), Noting("cosh")
    interpreters.push(one)
    opened = sorted(touched)
    interpreters.push(two)
    torch.sinh(x), torch.cosh(x), torch.tanh(x)
    interpreters.pop(one)
    interpreters.pop(two)
    assert sorted(touched) == opened  # leaving touches none
    torch.sinh(x), torch.cosh(x), torch.tanh(x)
    torch.sinh(x), torch.cosh(x), torch.tanh(x)
    assert {t.split()[1] for t in touched} == {"sinh", "cosh"} and set(opened) == {"open sinh", "open cosh"}
    assert len(touched) == 2 * len(opened) and len(set(touched)) == 4
    assert one.seen == ["sinh", "cosh"] and two.seen == ["cosh"]


def test_an_interpreter_that_wants_operations_together_does_not_take_them_apart() -> None:
    together, apart = Noting("sinh"), Noting("sinh")
    together.apart = False  # type: ignore[misc]
    torch.sinh(torch.ones(1))
    interpreters.push(together)
    try:
        assert not interpreters.watched(torch.sinh.__operation__)
        interpreters.push(apart)
        assert interpreters.watched(torch.sinh.__operation__) and not interpreters.watched(torch.add.__operation__)
        interpreters.pop(apart)
    finally:
        interpreters.pop(together)
    assert not interpreters.watched(torch.sinh.__operation__)


def test_a_deprecated_order_and_numpy_s_names_are_shown_once() -> None:
    noting, x = Noting("add", "sum"), torch.ones(2)
    interpreters.push(noting)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.add(x, 2, x).tolist() == [3, 3]
        assert torch.sum(x, axis=0).item() == 2
    finally:
        interpreters.pop(noting)
    assert noting.seen == ["add", "sum"]


def test_epochs_count_what_becomes_stale() -> None:
    at = [caches.epoch]
    caches.forget()
    at.append(caches.epoch)
    with dispatch.observe(lambda *launch: None):
        at.append(caches.epoch)
        with dispatch.observe(lambda *launch: None):
            assert caches.epoch == at[-1]
        assert caches.epoch == at[-1]
    at.append(caches.epoch)
    assert all(b == a + 1 for a, b in pairwise(at))
