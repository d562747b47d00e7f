"""Inputs that PyTorch's operator database says must be refused, with PyTorch's exception types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as fb
from tests import processes

MASK = fb.tensor([True, False])


@pytest.mark.parametrize("join", [fb.cat, fb.stack, fb.hstack, fb.vstack, fb.dstack, fb.column_stack])
def test_one_tensor_is_not_a_list_of_tensors(join: Any) -> None:
    with pytest.raises(TypeError, match=join.__name__ + r"\(\): argument 'tensors' .* not Tensor"):
        join(fb.ones(2, 3))


def test_cat_does_not_write_what_it_reads() -> None:
    a, b = fb.ones(2, 3), fb.zeros(4, 3)
    with pytest.raises(RuntimeError, match="single memory location"):
        fb.cat((a, b), out=b)
    assert fb.cat((a, b), out=fb.empty(0)).shape == (6, 3)


@pytest.mark.parametrize("value", [1j, fb.tensor(1j), fb.tensor(1e20), 1e20, fb.tensor(float("nan")), float("inf")])
def test_masked_fill_refuses_what_the_type_cannot_hold(value: Any) -> None:
    with pytest.raises(RuntimeError, match="cannot be converted to type int64.* without overflow"):
        fb.tensor([1, 2]).masked_fill(MASK, value)


def test_masked_fill_takes_what_the_type_can_hold() -> None:
    assert fb.tensor([1, 2]).masked_fill(MASK, fb.tensor(3.7)).tolist() == [3, 2]
    assert fb.tensor([1.0, 2.0]).masked_fill(MASK, fb.tensor(3 + 0j)).tolist() == [3.0, 2.0]


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_memory_that_numpy_owns_does_not_grow() -> None:
    out = fb.from_numpy(np.zeros(2, np.float32))
    with pytest.raises(RuntimeError, match="resize storage that is not resizable"):
        fb.cat((fb.ones(2), fb.ones(2)), out=out)
    with pytest.raises(RuntimeError, match="resize storage that is not resizable"):
        out.resize_(3)
    assert out.resize_(1).shape == (1,)


def test_results_that_do_not_fit_in_place() -> None:
    with pytest.raises(RuntimeError, match="In-place abs is not supported for complex tensors"):
        fb.tensor([1 + 1j]).abs_()
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        fb.tensor([1, 2]).polygamma_(1)
    with pytest.raises(RuntimeError, match="broadcast shape"):
        fb.ones(3, 1, dtype=fb.float64).float_power_(fb.ones(2, dtype=fb.float64))
    with pytest.raises(RuntimeError, match="dtype"):
        fb.multinomial(fb.tensor([0.5, 0.5]), 2, out=fb.empty(2, dtype=fb.float64))


def test_linear_writes_into_out() -> None:
    x, w, b, out = fb.randn(2, 3), fb.randn(4, 3), fb.randn(4), fb.empty(0)
    assert fb.nn.functional.linear(x, w, b, out=out) is out
    assert fb.equal(out, fb.nn.functional.linear(x, w, b))


@pytest.mark.parametrize("write", [fb.scatter, fb.scatter_add])
def test_scattered_values_have_as_many_axes_as_their_index(write: Any, device: str) -> None:
    index = fb.tensor([[2, 1], [1, 2]], device=device)
    with pytest.raises(RuntimeError, match="same number of dimensions as src"):
        write(fb.zeros(3, 5, device=device), 0, index, fb.ones(2, 5, 2, device=device))
    assert write(fb.zeros(3, 5, device=device), 0, index, fb.ones(2, 5, device=device)).sum().item() == 4


B, I, X, W = fb.tensor([True, False]), fb.arange(6), fb.ones(2), fb.ones(2, dtype=fb.float64)
F = fb.nn.functional


@pytest.mark.parametrize("call", [lambda: B - 1, lambda: 1 - B, lambda: B - B, lambda: B - 1.0, lambda: X - B, lambda: B - X, lambda: fb.sub(B, 1),
                                  lambda: fb.rsub(B, 1), lambda: X - True, lambda: B.clone().sub_(1), lambda: fb.sub(X, B, out=fb.empty(0)),
                                  lambda: fb.sub(X, B, alpha=2)])
def test_bools_are_not_subtracted(call):
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Subtraction, the `-` operator, with"):
            call()


@pytest.mark.parametrize("call", [
    lambda: fb.abs(B), lambda: B.clone().abs_(), lambda: B ** B, lambda: fb.addcmul(B, B, B), lambda: fb.dot(B, B), lambda: B @ B,
    lambda: fb.mm(B[None], B[:, None]), lambda: fb.trace(fb.ones(2, 2, dtype=fb.bool)), lambda: fb.kthvalue(B, 1), lambda: fb.lerp(I, I, 0.5),
    lambda: F.mse_loss(I, I), lambda: F.smooth_l1_loss(I, I), lambda: F.huber_loss(I, I), lambda: F.binary_cross_entropy(I[:2], I[:2]),
    lambda: F.soft_margin_loss(I, I), lambda: F.nll_loss(I.view(1, 6), fb.tensor([1])),
    lambda: F.multi_margin_loss(I.view(1, 6), fb.tensor([1])), lambda: F.multilabel_margin_loss(I.view(1, 6), I.view(1, 6)),
    lambda: F.adaptive_avg_pool1d(I.view(1, 1, 6), 2), lambda: F.adaptive_max_pool2d(I.view(1, 1, 2, 3), 2), lambda: F.glu(I, 0),
    lambda: F.interpolate(I.view(1, 1, 6), scale_factor=2), lambda: F.unfold(I.view(1, 1, 2, 3), 2), lambda: F.layer_norm(I, (6,))])
def test_types_that_operations_are_not_for(call):
    with pytest.raises(NotImplementedError, match="not implemented for '(Bool|Long)'"):
        call()


@pytest.mark.parametrize("call", [
    lambda: fb.heaviside(X, W), lambda: fb.lerp(X, W, 0.5), lambda: fb.lerp(X, X, W), lambda: X.clone().lerp_(W, 0.5), lambda: fb.isclose(X, W),
    lambda: fb.allclose(X, W), lambda: fb.einsum("i,i->", X, W), lambda: fb.linalg.cross(fb.ones(3), fb.ones(3, dtype=fb.float64)),
    lambda: fb.cdist(X[None], W[None]), lambda: F.grid_sample(fb.ones(1, 1, 2, 2), fb.zeros(1, 1, 1, 2, dtype=fb.float64), align_corners=False),
    lambda: F.layer_norm(X, (2,), W), lambda: F.prelu(X, W[:1])])
def test_operands_are_of_one_type(call):
    with pytest.raises(RuntimeError, match="(?i)type|did not match"):
        call()


def test_classes_are_long_or_byte():
    x = fb.zeros(2, 3)
    for loss in (F.cross_entropy, F.nll_loss):
        with pytest.raises(RuntimeError, match="Long or Byte"):
            loss(x, fb.tensor([1, 2], dtype=fb.int32))
        assert loss(x, fb.tensor([1, 2], dtype=fb.uint8)).item() == pytest.approx(loss(x, fb.tensor([1, 2])).item())
    with pytest.raises(RuntimeError, match="can't be cast"):
        F.dropout(I, 0.5)
    assert F.dropout(I, 0.5, training=False) is I


def test_leaves_and_matrices_only():
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        fb.ones(3, requires_grad=True).set_(fb.ones(2))
    for shape in ((2,), (2, 2, 2)):
        with pytest.raises(RuntimeError, match="only supported on matrices"):
            fb.zeros(shape).H  # noqa: B018


def test_what_numpy_says_where_it_has_no_room_is_the_operation_s_error():
    """On a size that no memory holds, in a process that has little."""
    processes.says("""
import numpy as np
for size in (2**36, 2**40):
    made = [(np.complex64, torch.float32, lambda x, d, name=name: getattr(torch, name)(x, dtype=d), told + ": out of CPU memory: ")
            for name, told in (("tensor", "tensor"), ("as_tensor", "as_tensor"), ("asarray", "as_tensor"))]  # which asarray is made by
    made.append((np.complex64, torch.float32, lambda x, d: torch.ones(2).new_tensor(x), "new_tensor: out of CPU memory: "))
    made.append((np.float32, None, lambda x, d: torch.tensor(x), "out of CPU memory: tried to allocate "))  # NumPy has no part in it
    for given, dtype, call, begins in made:
        for _ in range(2):  # as its plan is made, and by the plan
            try:
                call(np.broadcast_to(given(1), (size,)), dtype)
            except RuntimeError as error:
                assert str(error).startswith(begins), error
            else:
                raise SystemExit("there was room")
    try:
        torch.hash_tensor(torch.ones(1).expand(size))
    except RuntimeError as error:
        assert str(error).startswith("out of CPU memory: "), error
    else:
        raise SystemExit("there was room")
""")


@pytest.mark.parametrize(("call", "error", "told"), [
    (lambda: fb.softmax(I, 1), IndexError, "out of range"), (lambda: fb.logcumsumexp(I, 1), IndexError, "out of range"),  # axes before types
    (lambda: fb.kthvalue(B, 1, 1), IndexError, "out of range"), (lambda: fb.median(B, 1), IndexError, "out of range"),
    (lambda: fb.ones(2).scatter_add(1, I[:1], fb.ones(1).double()), IndexError, "out of range"),
    (lambda: fb.ones(2).scatter_reduce(1, I[:1], fb.ones(1), "first"), IndexError, "out of range"),
    (lambda: fb.ones(2, 2).index_copy(0, I[:1], fb.ones(2).double()), IndexError, "dimensionality must match"),
    (lambda: fb.ones(()).index_copy(0, I[:2], fb.ones(())), IndexError, "one element"),
    (lambda: fb.ones(2, 2).index_fill(0, I[:1][None], 1), RuntimeError, "to be a vector"),
    (lambda: fb.index_select(fb.ones(()), 0, I[:2]), RuntimeError, "only 1 value"),
    (lambda: fb.baddbmm(fb.ones(2, 2), fb.ones(2, 2), fb.ones(2, 2)), IndexError, "out of range"),
    (lambda: fb.clamp(fb.ones(2), 0, fb.ones(2)), TypeError, "invalid combination"), (lambda: fb.ones(3).mT, RuntimeError, "matrices or batches"),
    (lambda: fb.ones(()).diagonal(0, 0, -1), RuntimeError, "identical"), (lambda: fb.ones(()).flatten(1), IndexError, "out of range"),
    (lambda: fb.ones(()).repeat_interleave(2, 0), IndexError, "no dimensions"), (lambda: fb.cartesian_prod(fb.ones(2, 2)), RuntimeError, "1D vector"),
    (lambda: fb.ones(()).permute(), TypeError, "missing 1 required"), (lambda: fb.ones(()).expand(), TypeError, "missing 1 required"),
    (lambda: F.linear(fb.ones(2, 2), fb.ones(())), RuntimeError, "at least 1D"), (lambda: fb.einsum("ii->i", fb.ones(1, 2)), RuntimeError, "is repeated"),
    (lambda: F.glu(B[:1], 0), RuntimeError, "must be even"), (lambda: F.kl_div(I, I, reduction="sum"), RuntimeError, "Integral inputs"),
    (lambda: F.huber_loss(I, fb.ones(6)), RuntimeError, "can't be cast"), (lambda: fb.cummax(fb.ones(2) * 1j, 0), NotImplementedError, "cummax_cpu"),
    (lambda: F.binary_cross_entropy_with_logits(fb.ones(6), I), RuntimeError, "can't be cast"), (lambda: fb.full((0,), 1j, dtype=fb.float32),
                                                                                                RuntimeError, "complex")])
def test_which_check_comes_first(call, error, told):
    with pytest.raises(error, match=told):
        call()


def test_types_do_not_matter_where_nothing_is_computed():
    z = fb.ones(()) * 1j
    assert fb.softmax(fb.ones(0).long(), 0).dtype is fb.int64 and fb.kthvalue(z, 1).values.item() == 1j and fb.mode(z).indices.item() == 0
    assert fb.mode(fb.ones(2, 0) * 1j, 0).values.shape == (0,) and fb.cummax(fb.ones(0, 2), 5).values.shape == (0, 2)
    assert fb.median(fb.ones(0).long()).item() == fb.iinfo(fb.int64).min and fb.trapezoid(fb.ones(0).bool()).item() is False
    assert F.huber_loss(fb.ones(2), fb.zeros(2).double()).dtype is fb.float32
