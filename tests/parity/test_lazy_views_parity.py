"""Conjugate and negative views as PyTorch has them: which results are such views, what they hold, what a write through one changes, which gradients pass."""

from __future__ import annotations

import warnings

import pytest

import flambeau

torch = pytest.importorskip("torch")

READS = """
y.clone()
y.t().contiguous()
y.reshape(-1)
y.t().reshape(-1)
y.expand(3, 2)
y.unbind(0)
y.as_strided((2,), (1,))
y.to(T.complex64)
y.to(T.complex128)
y.mH
x.mH
y.H
y.adjoint()
y.conj()
y.real
y.imag
y.imag.neg()
y._neg_view()
y.imag._neg_view()
y.imag.resolve_neg()
y.resolve_neg()
T.zeros_like(y)
y.data
y.unfold(1, 1, 1)
y.sum()
y.abs()
T.view_as_real(y)
T.view_as_real(T._neg_view(x))
T.view_as_complex(T._neg_view(T.ones(2)))
y.numpy()
y.imag.numpy()
y.view(T.float32)
y.imag.view(T.int32)
T._neg_view(T.tensor([1, 2]))
T._neg_view(T.tensor([True])).tolist()
T.ones(2).conj()
y.detach().requires_grad_()
[y[0], y[0, 1], y[None], y[0:1], y[[0]], y[y.real > 0]]
[v for v in y]
y.tensor_split(2, 1)
y @ y.mH
T.cat([y, x])
T.stack([y, y.resolve_conj()])
T.einsum('ij,kj->ik', y, x)
T.where(y.real > 0, y, y)
T.nn.functional.linear(y, x)
T._foreach_add([y, x], 1)
y == x.conj_physical()
1 - y
y ** 2
y.data_ptr() == x.data_ptr()
repr(y) + repr(y.imag)
"""
WRITES = """
y.mul_(2j)
y.__iadd__(x)
y.__setitem__(0, 1j)
x.__setitem__((0, 0), y[0, 0])
y.copy_(x)
T.add(x, 1, out=y)
y.t_()
y.squeeze_()
y.zero_()
y.imag.mul_(3)
y.real.mul_(3)
y.conj_physical_()
setattr(y, 'imag', T.ones(1, 2))
y.imag.copy_(x.real)
y.masked_fill_(x.real > 2, 1j)
y.__setitem__(x.real > 2, 1j)
y.conj().mul_(1j)
x.mH.mul_(1j)
y._neg_view().fill_(2 + 1j)
"""
GRADIENTS = ["w.conj()", "w.conj().imag", "w.conj().real * 2", "w._neg_view() * w", "w.conj() * w * (1+1j)", "w.conj()[0, 1:] * 1j", "w.mH @ w * 2j",
             "w.conj().resolve_conj() * (1+1j)", "w.conj().conj() * 1j", "w.conj().mul_(2j) * w", "w.conj()[0, :1].mul_(1+2j).sum() + w",
             "w.conj().fill_(1+1j) * w", "w.conj().imag.add_(2.) * w", "(c := w.conj(), w.mul_(1j), c * c)[2]", "w.conj().copy_(w.detach() * 1j) + w"]


def shown(T, r):
    if isinstance(r, T.Tensor):
        values = [f"{v:.5g}" for v in r.detach().reshape(-1).tolist()]
        return tuple(r.shape), r.stride(), str(r.dtype).partition(".")[2], r.is_conj(), r.is_neg(), r._is_view(), [v.replace("-0", "0") for v in values]
    return [shown(T, v) for v in r] if isinstance(r, (tuple, list)) else r


def outcome(T, line, *, write=False):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = T.tensor([[1 + 2j, 3 - 4j]])
        y = x.conj()
        try:
            r = eval(line, {"T": T, "x": x, "y": y})
        except Exception as e:
            return type(e).__name__
        return (shown(T, x), shown(T, y), shown(T, r), x._version) if write else shown(T, r)


@pytest.mark.parametrize("line", READS.strip().splitlines())
def test_what_is_read(line):
    assert outcome(flambeau, line) == outcome(torch, line)


@pytest.mark.parametrize("line", WRITES.strip().splitlines())
def test_what_is_written(line):
    assert outcome(flambeau, line, write=True) == outcome(torch, line, write=True)


@pytest.mark.parametrize("line", GRADIENTS)
def test_gradients(line):
    def work(T):
        q = T.tensor([[1 + 2j, 2 - 1j]], requires_grad=True)
        r = eval(line, {"T": T, "w": q * 1})
        (g,) = T.autograd.grad(r.abs().sum() if r.dtype.is_complex else r.sum(), q)
        return shown(T, r), [complex(round(v.real, 3), round(v.imag, 3)) for v in g.reshape(-1).tolist()]
    assert work(flambeau) == work(torch)
