"""The same small work on many tensors as one launch: the same bits as one by one, on any number of threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.kernels import native
from flambeau._core.ops import foreach
from flambeau._core.ops.binary import MUL
from flambeau._core.runtime import dispatch

SHAPES = [(3,), (128, 128), (512, 128), (7, 5), (), (1000,), (70000,)]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def _parameters() -> list[torch.nn.Parameter]:
    made = [torch.nn.Parameter(torch.randn(s)) for s in SHAPES]
    return [*made, torch.nn.Parameter(torch.randn(40, 30).t())]


def _steps(make: object) -> list[np.ndarray]:
    torch.manual_seed(0)
    parameters = _parameters()
    optimizer = make(parameters)  # type: ignore[operator]
    seen = []
    for _ in range(3):
        for p in parameters:
            p.grad = torch.randn_like(p)
        seen.append(torch.nn.utils.clip_grad_norm_(parameters, 1.0).numpy().copy())
        optimizer.step()
    return seen + [p.detach().numpy().copy() for p in parameters] + [p.grad.numpy().copy() for p in parameters]


@pytest.mark.parametrize("make", [
    lambda ps: torch.optim.AdamW(ps), lambda ps: torch.optim.Adam(ps, amsgrad=True), lambda ps: torch.optim.SGD(ps, lr=0.1),
    lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True)])
def test_a_step_of_many_is_the_step_of_each(make: object, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = []
    whole = native.join

    def join(launches: list[object], numbers: int) -> object:
        joined.append(whole(launches, numbers))
        return joined[-1]
    monkeypatch.setattr(native, "join", join)
    foreach._joined.clear()
    torch.set_num_threads(1)
    one = _steps(make)
    torch.set_num_threads(2)
    two = _steps(make)
    if foreach.routines.generated():
        assert len(joined) >= 3
        assert all(entry is not None for entry in joined)
    monkeypatch.setattr(foreach, "alike", lambda tensors: False)
    for a, b, c in zip(one, two, _steps(make), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


def test_strides_of_axes_of_one_do_not_part_weights_from_gradients() -> None:
    """A 1x1 kernel lies the same channels first and last, so that one launch updates all."""
    items = [((torch.empty_strided((3, 4, 1, 1), strides),), torch.ones(3, 4, 1, 1)) for strides in ((4, 1, 4, 4), (4, 1, 1, 1), (4, 1, 4, 4))]
    assert foreach._plan_updates(MUL, items, (), (), False)[1] == set()
    apart = [((torch.empty_strided((3, 4, 2, 1), (8, 1, 4, 4)),), torch.ones(3, 4, 2, 1)), *items]
    assert foreach._plan_updates(MUL, apart, (), (), False)[1] == {0}


def test_norms_and_scaling_against_numpy() -> None:
    torch.manual_seed(1)
    tensors = [p.detach() for p in _parameters()]
    arrays = [t.numpy().copy() for t in tensors]
    for p in (1.0, 2.0, 3.0, float("inf")):
        got = foreach.norms(tensors, p)
        assert got is not None
        np.testing.assert_allclose(got.numpy(), [np.linalg.norm(a.ravel().astype(float), p) for a in arrays], rtol=3e-6)
    versions = [t._version for t in tensors]
    assert foreach.scale(tensors, torch.tensor(0.5))
    assert [t._version for t in tensors] == [v + 1 for v in versions]
    for t, a in zip(tensors, arrays, strict=True):
        np.testing.assert_array_equal(t.numpy(), a * np.float32(0.5))


def test_what_is_not_alike_is_left_alone() -> None:
    x = torch.ones(4, 3)
    half = torch.tensor(0.5)
    assert not foreach.scale([x, x], half)  # one memory
    assert not foreach.scale([x[0], x[1]], half)
    assert not foreach.scale([x], half)
    assert not foreach.scale([x, torch.ones(foreach.MOST + 1)], half)
    assert not foreach.scale([x, torch.ones(2).to_sparse()], half)
    assert foreach.norms([x, torch.ones(2, dtype=torch.float64)], 2.0) is None
    assert bool((x == 1).all())
    with pytest.raises(RuntimeError, match="more than one element"):
        foreach.scale([x, torch.ones(1).expand(3)], half)


def test_a_shared_gradient_is_scaled_as_often_as_it_is_shared() -> None:
    a, b = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    a.grad = b.grad = torch.tensor([3.0, 4.0])
    total = torch.nn.utils.clip_grad_norm_([a, b], 1.0)
    assert float(total) == pytest.approx(50**0.5)
    np.testing.assert_allclose(a.grad.numpy(), np.array([3.0, 4.0]) / (50**0.5 + 1e-6) ** 2, rtol=1e-6)


def test_observers_see_each_launch() -> None:
    parameters = _parameters()
    optimizer = torch.optim.AdamW(parameters)
    seen: list[str] = []
    for watched in (False, False, True, False):
        for p in parameters:
            p.grad = torch.ones_like(p)
        if watched:
            with dispatch.observe(lambda dev, stream, prepared, args: seen.append(prepared.name)):
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()
        else:
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
    assert seen.count("adam") == len(parameters)
    assert seen.count("norm") == len(parameters) + 1


def test_parameters_that_are_no_longer_alike_are_updated_one_by_one() -> None:
    ps = [torch.nn.Parameter(torch.ones(4)), torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2))]
    optimizer = torch.optim.SGD(ps, lr=1.0)
    for grads in ((1.0, 1.0, 1.0), (1.0, None, 1.0), (None, 1.0, None)):
        for p, g in zip(ps, grads, strict=True):
            p.grad = None if g is None else torch.full_like(p, g)
        optimizer.step()
    assert [float(p.detach()[0]) for p in ps] == [-1.0, -1.0, -1.0]
