"""The functions that users call: their parameters, what leaves by a method, and the errors of a wrong call."""

from __future__ import annotations

import inspect
import linecache
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import Tensor
from flambeau._core.engine import fronts
from flambeau._core.engine.fronts import Signature
from flambeau._core.engine.operation import Operation


def made(body: Any, **options: Any) -> Any:
    """The public function of an operation with this body."""
    return Operation(options.pop("name", body.__name__), body, **options).function


# -------------------------------------------------------------------------------------------------------------- signatures
def test_kinds_follow_from_annotations_and_names() -> None:
    def body(input: Tensor, weight: Tensor | None, other: Tensor | float, tensors: list[Tensor], dim: int, *rest: Any, target: Any = None,
             keep: bool = False, **more: Any) -> Any: ...
    s = Signature.of(body)
    assert s.kinds == {"input": fronts.TENSOR, "weight": fronts.OPTIONAL, "other": fronts.NUMBER, "tensors": fronts.TENSORS,
                       "dim": fronts.CONSTANT, "rest": fronts.CONSTANT, "target": fronts.OPEN, "keep": fronts.CONSTANT}
    assert (s.rest, s.more, s.keyword) == ("rest", "more", ("target", "keep"))
    assert s.names() == ("input", "weight", "other", "tensors", "dim", "target", "keep")
    assert s.operands() == (0, 1, 2)
    assert Signature.of(body, {"keep": fronts.SCALAR}).operands() == (0, 1, 2, 6)
    assert s.default("keep") is False and s.default("dim") is fronts.MISSING and s.loose("keep") and not s.loose("target")


def test_a_call_as_written_leaves_out_defaults_and_the_whole_call_does_not() -> None:
    s = Signature(("input", "dim", "keepdim"), ("dtype",), (None, False), {"dtype": None})
    assert s.as_written((1, None, False, None)) == ((1,), {})
    assert s.as_written((1, None, True, 5)) == ((1,), {"keepdim": True, "dtype": 5})
    assert s.as_written((1, 0, False, None)) == ((1, 0), {})
    assert s.whole((1, None, False, None)) == ((1, None, False), {"dtype": None})
    many = Signature(("input", "dim"), (), (3,), rest="sizes", more="named")
    assert many.as_written((1, 3, (7, 8), {"a": 2})) == ((1, 3, 7, 8), {"a": 2})
    assert many.whole((1, 3, (), {})) == ((1, 3), {})


def test_an_exact_constant_tells_types_and_signs_apart_and_a_list_from_nothing() -> None:
    exact = fronts.exact
    values = [0, 0.0, -0.0, False, 1, 1.0, True, np.float64(1), 1j, "1", None, (1,), (1.0,), ((1,), 0.0), ((1,), -0.0)]
    keys = [exact(v) for v in values]
    assert len(set(keys)) == len(values)
    assert exact([1, [2.0]]) == exact((1, (2.0,))) and exact(None) is None


@pytest.mark.parametrize("default", [0.0, -0.0, 1.0, float("nan"), 1j, (0, 1), ()])
def test_a_default_has_the_same_key_whether_it_is_given_or_not(default: Any) -> None:
    s = Signature(("input", "value"), (), (default,))
    key, x = fronts.key_of(s), torch.ones(2)
    assert set(fronts.defaults(s, fronts.constant)) == {"default_value", "told_value"}
    again = type(default)(default) if not isinstance(default, float) else float(str(default))
    assert key((x, default)) == key((x, again)) and key((x, default)) != key((x, 5.0)) and key((x, default)) != key((x, 0))
    if default == 0.0:
        assert key((x, 0.0)) != key((x, -0.0))


def test_no_part_of_a_key_is_kept_of_defaults_that_are_looked_up_quickly() -> None:
    s = Signature(("input", "a", "b", "c", "d", "e"), (), (1, None, "word", True, (1, [2])))
    assert fronts.defaults(s, fronts.constant) == {}


# --------------------------------------------------------------------------------------------------------- the written code
def test_a_front_takes_arguments_by_place_and_by_name() -> None:
    def scale(input: Tensor, by: float = 2.0, *, shift: float = 0.0) -> Any:
        return input, by, shift
    f, x = made(scale), torch.ones(2)
    for args, kwargs, want in (((x,), {}, (x, 2.0, 0.0)), ((x, 3), {}, (x, 3, 0.0)), ((), {"input": x, "by": 5, "shift": 1}, (x, 5, 1))):
        for _ in range(2):
            got = f(*args, **kwargs)
            assert got[0] is x and got[1:] == want[1:]
    assert inspect.signature(f) == inspect.signature(scale) and f.__name__ == "scale" and f.__wrapped__ is scale


def test_a_front_hands_on_rest_and_more() -> None:
    def several(input: Tensor, *sizes: Any, last: int = 1, **named: Any) -> Any:
        return input, sizes, last, named
    f, x = made(several), torch.ones(1)
    assert f(x, 3, 4, last=2, a=5) == (x, (3, 4), 2, {"a": 5}) and f(x) == (x, (), 1, {})
    assert f(x, 3, 4, last=2, a=5) == (x, (3, 4), 2, {"a": 5})


def test_the_text_of_a_front_can_be_read_in_tracebacks() -> None:
    def shown_in_tracebacks(input: Tensor) -> Any:
        return input
    f = made(shown_in_tracebacks)
    f(torch.ones(1))
    assert f.__code__.co_filename == "<operation shown_in_tracebacks>"
    assert "input.meta" in "".join(linecache.getlines(f.__code__.co_filename))


@pytest.mark.parametrize("first", [True, False])
def test_wrong_counts_and_names_of_arguments_raise_in_python_s_words_at_the_first_call_and_later(first: bool) -> None:
    def narrowed(input: Tensor, dim: int, start: int = 0) -> Any:
        return input
    f, x = made(narrowed), torch.ones(1)
    if not first:
        f(x, 0)
    for args, kwargs, words in (((), {}, "missing 2 required positional arguments: 'input' and 'dim'"),
                                ((x,), {}, "missing 1 required positional argument: 'dim'"),
                                ((x, 0, 0, 0), {}, "takes from 2 to 3 positional arguments but 4 were given"),
                                ((x, 0), {"size": 1}, "got an unexpected keyword argument 'size'"),
                                ((x, 0), {"dim": 1}, "got multiple values for argument 'dim'")):
        with pytest.raises(TypeError) as error:
            f(*args, **kwargs)
        assert str(error.value) == f"narrowed() {words}"


@pytest.mark.parametrize("wrong", [3, [1.0], None, "a", np.ones(2)])
def test_what_is_no_tensor_is_named_with_its_place(wrong: Any) -> None:
    for f, rest, name, place in ((torch.relu, (), "input", 1), (torch.matmul, (torch.ones(2),), "input", 1)):
        with pytest.raises(TypeError, match=rf"{f.__name__}\(\): argument '{name}' \(position {place}\) must be Tensor, not {type(wrong).__name__}"):
            f(wrong, *rest)
    with pytest.raises(TypeError, match=r"argument 'other' \(position 2\) must be Tensor"):
        torch.matmul(torch.ones(2), wrong)


def test_an_error_of_the_body_itself_keeps_its_type_and_words() -> None:
    def failing(input: Tensor, error: Any = None) -> Any:
        raise error
    f = made(failing)
    for error in (ValueError("a value"), RuntimeError("at run time"), IndexError("an index"), TypeError("a type"), AttributeError("a name")):
        with pytest.raises(type(error), match=str(error)):
            f(torch.ones(1), error)


def test_an_error_of_a_first_call_is_shown_without_what_the_engine_met_on_the_way() -> None:
    for wrong in (lambda: torch.add(torch.ones(2), torch.ones(3)), lambda: torch.relu(3), lambda: torch.matmul(torch.ones(2), torch.ones(3)),
                  lambda: torch.add(torch.ones(2), torch.ones(2), alpha="a")):
        for _ in range(2):
            with pytest.raises((RuntimeError, TypeError)) as error:
                wrong()
            assert error.value.__context__ is None or error.value.__suppress_context__


# -------------------------------------------------------------------------------------------------------------- out=, NumPy
def test_out_is_handed_to_the_form_that_the_operation_has() -> None:
    def doubled(input: Tensor, by: int = 2) -> Any:
        return input * by
    calls: list[Any] = []

    def write(out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        calls.append((args, kwargs))
        return out.copy_(doubled(*args, **kwargs))
    f, x, room = made(doubled, out=write), torch.ones(2), torch.empty(2)
    assert f(x, out=room) is room and room.tolist() == [2, 2]
    assert f(x, 3, out=room) is room and room.tolist() == [3, 3] and f(x, out=None).tolist() == [2, 2]
    assert [(len(a), k) for a, k in calls] == [(1, {}), (2, {})]
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
        made(doubled)(x, out=room)


def reduced(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    return dim, keepdim


def chosen(input: Tensor, dim: int, index: Any) -> Any:
    return dim, index


def test_numpy_s_names_of_parameters_are_taken() -> None:
    x = torch.ones(2)
    f = made(reduced, renames=True, out=lambda out, args, kwargs: (out, len(args), kwargs))
    for _ in range(2):
        assert f(x, axis=1) == (1, False) and f(x, axis=0, keepdims=True) == (0, True) and f(x, 2, keepdims=True) == (2, True)
    assert f(x, axis=1, out="there") == ("there", 2, {})
    for kwargs, words in (({"axis": 1, "dim": 0}, "got multiple values for argument 'dim'"), ({"axes": 1}, "got an unexpected keyword argument 'axes'")):
        with pytest.raises(TypeError) as error:
            f(x, **kwargs)
        assert words in str(error.value)
    with pytest.raises(TypeError, match="unexpected keyword argument 'axis'"):
        made(reduced)(x, axis=1)


def test_an_axis_that_must_be_named_may_be_by_either_name() -> None:
    x, f = torch.ones(2), made(chosen, renames=True)
    for _ in range(2):
        assert f(x, 0, 5) == f(x, axis=0, index=5) == f(x, dim=0, index=5) == f(x, index=5, axis=0) == (0, 5)
    for args, kwargs, name in (((x, 0), {}, "index"), ((), {"dim": 0, "index": 5}, "input"), ((x,), {"axis": 0}, "index"), ((x,), {"index": 5}, "dim"),
                               ((x,), {"index": 5}, "dim")):
        with pytest.raises(TypeError, match=rf'chosen\(\) missing 1 required positional arguments: "{name}"'):
            f(*args, **kwargs)
    with pytest.raises(TypeError, match="unexpected keyword argument 'keepdims'"):
        f(x, 0, 5, keepdims=True)
    assert repr(fronts.MISSING) == "<required>"


def test_operands_may_have_numpy_s_names() -> None:
    x, y = torch.arange(1.0, 4.0), torch.full((3,), 2.0)
    for _ in range(5):
        assert torch.add(x1=x, x2=y).tolist() == torch.add(x, x2=y).tolist() == x.add(x2=y).tolist() == [3, 4, 5]
        assert torch.mul(x, x2=2).tolist() == torch.multiply(x1=x, other=2).tolist() == [2, 4, 6] and torch.sum(a=x, axis=0).item() == 6
        assert torch.matmul(x1=x, x2=y).item() == 12 and torch.sin(x=x).tolist() == x.sin().tolist() and torch.lt(x, x2=2).tolist() == [True, False, False]
        assert x.clone().sub_(x2=y).tolist() == [-1, 0, 1] and torch.add(x1=x, x2=y, out=torch.empty(3)).tolist() == [3, 4, 5]
    for call, words in ((lambda: torch.add(x, x1=x, other=y), "multiple values for argument 'input'"), (lambda: torch.sin(x2=x), "keyword argument 'x2'"),
                        (lambda: torch.add(x1=x), '"other"'), (lambda: torch.sin(), '"input"')):
        with pytest.raises(TypeError, match=words):
            call()


def test_public_reductions_and_axis_forms_take_numpy_s_names() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.sum(x, axis=1, keepdims=True).tolist() == [[3], [12]] == x.sum(axis=1, keepdims=True).tolist()
    assert torch.cumsum(x, axis=1).tolist() == [[0, 1, 3], [3, 7, 12]]
    room = torch.empty(2)
    assert torch.sum(x, axis=1, out=room) is room and room.tolist() == [3, 12]


def test_a_deprecated_order_of_arguments_is_put_in_order() -> None:
    x, g = torch.ones(2), torch.full((2,), 3.0)
    with pytest.warns(UserWarning, match="deprecated"):
        assert torch.add(x, 2, g).tolist() == [7, 7]
    with pytest.warns(UserWarning, match="deprecated"):
        assert x.clone().addcmul_(0.5, g, g).tolist() == [5.5, 5.5]
    room = torch.empty(2)
    with pytest.warns(UserWarning, match="deprecated"):
        assert torch.add(x, 2, g, out=room) is room and room.tolist() == [7, 7]
    with pytest.raises(TypeError, match=r"add\(\) takes 2 positional arguments but 4 were given"):
        torch.add(x, g, g, g)


# ------------------------------------------------------------------------------------------------------------ nothing but sizes
SIZED = (torch.empty, torch.ones, torch.zeros, torch.ones(2, dtype=torch.float64).new_zeros)


@pytest.mark.parametrize("make", SIZED, ids=lambda f: f.__name__)
def test_factories_called_with_sizes_take_integers_only(make: Any) -> None:
    for _ in range(3):
        for sizes in ((2, 3), ((2, 3),), ([2, 3],), (torch.Size((2, 3)),)):
            assert make(*sizes).shape == (2, 3)
        assert make(5).shape == (5,) and make((5,)).shape == (5,) and make(()).shape == () == make([]).shape
        assert make(1, 2).shape == (1, 2)
        for wrong in ((2.0, 3), ((2.0, 3),), ("2",), (None,), (2, None), ((2, "3"),)):
            with pytest.raises(TypeError):
                make(*wrong)
        with pytest.raises(TypeError, match="nonsense"):
            make(2, 3, nonsense=1)
        assert make(2, 3, dtype=torch.int64).dtype is torch.int64 and make(2, 3).dtype is not torch.int64
        assert make(2, 3, requires_grad=True).requires_grad and not make(2, 3).requires_grad


def test_factories_called_with_sizes_find_plans_that_other_calls_have_made() -> None:
    x = torch.ones(2, 13)
    torch.zeros((3, 11), dtype=torch.float32)
    x.new_ones((3, 11), requires_grad=False)
    for _ in range(2):
        assert torch.zeros(3, 11).tolist() == [[0] * 11] * 3 and x.new_ones((3, 11)).tolist() == [[1] * 11] * 3
    assert (3, 11) in torch.zeros.__operation__.env["quick"]
    assert (x.meta, (3, 11)) in type(x).new_ones.__operation__.env["quick"]


def test_factories_called_with_sizes_follow_the_defaults_of_the_moment() -> None:
    assert torch.zeros(2, 5).dtype is torch.float32
    try:
        torch.set_default_dtype(torch.float64)
        assert torch.zeros(2, 5).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.zeros(2, 5).dtype is torch.float32
    assert devices_of_a_thread(lambda: torch.zeros(2, 5)) == ["cpu", "meta", "cpu"]
    assert devices_of_a_thread(lambda: torch.ones(2).new_zeros(2, 5)) == ["cpu", "meta", "cpu"]


def devices_of_a_thread(make: Any) -> list[str]:
    """Where a factory makes its tensor before another default device is chosen, meanwhile, and in a thread that has chosen none."""
    found = [make().device.type]
    with torch.device("meta"):
        found.append(make().device.type)
        thread = threading.Thread(target=lambda: found.append(make().device.type))
        thread.start()
        thread.join()
    return found


def test_factories_called_with_sizes_are_seen_by_interpreters() -> None:
    from flambeau.overrides import TorchFunctionMode

    seen = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append((func.__name__, args, kwargs))
            return func(*args, **(kwargs or {}))
    torch.zeros(2, 7)
    with Watch():
        torch.zeros(2, 7)
        torch.zeros((2, 7), dtype=torch.int32)
    assert seen == [("zeros", (2, 7), {}), ("zeros", ((2, 7),), {"dtype": torch.int32})]


def test_floats_stand_for_themselves_where_nothing_else_equals_them() -> None:
    from decimal import Decimal
    from fractions import Fraction

    for told in (fronts.constant, fronts.exact):
        assert told(0.5) == 0.5 and told(float("inf")) == complex("inf+1j") and told(2.0) == 2 + 1j and told(0.0) == 1.5j and told(-0.0) == -1.5j
        assert told(float("nan")) == (float, "nan") and told(2 + 1j) == (complex, 2 + 1j)
        assert len({told(v) for v in (1, 1.0, True and 1, 0.5, 1.5, 2, 2.0, 0.0, -0.0, 0)}) == 9
    for other in (Decimal("0.5"), Fraction(1, 2), np.float32(0.5), np.float64(0.5), 0.5 + 0j):
        assert other == 0.5 and fronts.exact(other) != 0.5


def test_a_call_that_warns_is_one_builtin() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made = [torch.range(0, 3).tolist() for _ in range(6)]
    assert made == [[0, 1, 2, 3]] * 6 and len(said) == 6 and {w.filename for w in said} == {__file__}
    (run,) = torch.range.__operation__.env["plans"].values()
    assert run.__name__ == "flambeau_call"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="range is deprecated"):
            torch.range(0, 3)


def test_what_stands_in_args_may_be_named_as_one_sequence() -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    a = x.numpy()
    for made, want in ((x.view(size=(6, 4)), a.reshape(6, 4)), (x.reshape(shape=[4, 6]), a.reshape(4, 6)), (x.permute(dims=(2, 0, 1)), a.transpose(2, 0, 1)),
                       (torch.permute(input=x, dims=(1, 0, 2)), a.transpose(1, 0, 2)), (x.expand(size=(2, -1, 3, 4)), np.broadcast_to(a, (2, 2, 3, 4))),
                       (x.flip(dims=[0]), a[::-1]), (x.repeat(repeats=(1, 2, 1)), np.tile(a, (1, 2, 1))), (torch.tile(input=x, dims=(2,)), np.tile(a, 2)),
                       (x[:1].sum_to_size(size=(3, 4)), a[0]), (torch.zeros(size=(2, 0)), np.zeros((2, 0))), (x.new_ones(size=[3]), np.ones(3)),
                       (torch.view_copy(size=(24,), input=x), a.reshape(24)), (torch.ones(3, 2).resize_(size=(2, 3)), np.ones((2, 3)))):
        np.testing.assert_array_equal(made.numpy(), want)
    assert torch.rand(size=(2, 3)).shape == (2, 3) and torch.empty(size=torch.Size([4]), dtype=torch.int8).shape == (4,)
    for wrong, message in ((lambda: x.reshape(6, shape=(4,)), "multiple values for argument 'shape'"),
                           (lambda: torch.zeros(size=3), "must be tuple of ints, not int"),
                           (lambda: x.view(sizes=(24,)), "unexpected keyword argument 'sizes'"), (lambda: torch.reshape(shape=(24,)), 'missing 1 .*"input"'),
                           (lambda: torch.rand(2, size=(3,)), "multiple values for argument 'size'")):
        with pytest.raises(TypeError, match=message):
            wrong()


def test_other_names_of_parameters() -> None:
    x, y = torch.arange(12.0).reshape(3, 4), torch.ones(3, 3)
    for named in ({"sections": 2}, {"indices": [2]}, {"indices_or_sections": 2}):
        for parts in (x.hsplit(**named), torch.hsplit(input=x, **named)):
            assert [p.tolist() for p in parts] == [x[:, :2].tolist(), x[:, 2:].tolist()]
    assert [p.shape for p in x.tensor_split(tensor_indices_or_sections=torch.tensor([1]))] == [(1, 4), (2, 4)]
    np.testing.assert_array_equal(y.clone().addmm_(mat1=x, mat2=x.t(), beta=2).numpy(), 2 + x.numpy() @ x.numpy().T)
    with pytest.raises(TypeError, match="multiple values for argument 'indices_or_sections'"):
        x.hsplit(2, sections=2)
    with pytest.raises(TypeError, match='missing 1 required .*"indices_or_sections"'):
        x.hsplit()
