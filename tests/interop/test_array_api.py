"""The array API standard's namespace.  The standard's own suite is run by tools/array_api.py; here, what it rests on."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

import flambeau as fb
from flambeau.interop import array_api as xp


def test_an_array_knows_its_namespace():
    x = fb.ones(3)
    assert x.__array_namespace__() is xp and x.__array_namespace__(api_version="2024.12") is xp and xp.__array_api_version__ == "2024.12"
    with pytest.raises(ValueError, match="2030.12"):
        x.__array_namespace__(api_version="2030.12")
    assert x.to_device("cpu") is x


def test_every_name_is_there_and_documented():
    for name in xp.__all__:
        value = getattr(xp, name)
        if inspect.isfunction(value):
            assert value.__doc__, name
    for space in (xp.linalg, xp.fft):
        assert all(callable(getattr(space, n)) for n in space.__all__)
    assert len(xp.__all__) > 150


@pytest.mark.parametrize("a, b, result", [("int8", "uint8", "int16"), ("uint32", "int32", "int64"), ("uint16", "uint64", "uint64"), ("int8", "int64", "int64"),
                                          ("float32", "float64", "float64"), ("float64", "complex64", "complex128"), ("bool", "bool", "bool")])
def test_types_alone_decide(a, b, result):
    x, y = fb.ones((), dtype=getattr(fb, a)), fb.ones(2, dtype=getattr(fb, b))
    assert xp.result_type(x, y) is getattr(fb, result) and xp.add(x, y).dtype is getattr(fb, result)
    assert xp.result_type(y.dtype, x.dtype) is getattr(fb, result)


def test_numbers_take_the_arrays_type():
    x = fb.ones(2, dtype=fb.float64)
    assert xp.add(x, 1).dtype is fb.float64 and xp.multiply(2, fb.ones(2, dtype=fb.int8)).dtype is fb.int8
    for bad in (lambda: xp.add(fb.ones(2, dtype=fb.int8), 1.5), lambda: xp.add(1, 2), lambda: xp.add(x, "x")):
        with pytest.raises(TypeError):
            bad()
    assert xp.result_type(fb.int32, 1.5) is fb.float32 and xp.result_type(fb.float32, 1j) is fb.complex64


def test_answers_where_pytorch_differs():
    x = fb.tensor([[3, 1, 2], [0, 5, 4]], dtype=fb.int32)
    assert xp.sum(x).dtype is fb.int64 and xp.sum(x, axis=1, keepdims=True).tolist() == [[6], [9]] and xp.prod(x, axis=(0, 1)).item() == 0
    assert xp.max(x, axis=0).tolist() == [3, 5, 4] and xp.sort(x, descending=True).tolist() == [[3, 2, 1], [5, 4, 0]]
    assert xp.std(fb.tensor([1.0, 3.0])).item() == 1.0 and xp.var(fb.tensor([1.0, 3.0]), correction=1).item() == 2.0
    values, first, inverse, counts = xp.unique_all(fb.tensor([3, 1, 3]))
    assert (values.tolist(), first.tolist(), inverse.tolist(), counts.tolist()) == ([1, 3], [1, 0], [1, 0, 1], [1, 2])
    assert xp.unique_values(fb.tensor([float("nan"), float("nan")])).shape == (2,)
    assert xp.concat([fb.ones(2), fb.ones(2, 1)], axis=None).shape == (4,)
    assert xp.sign(fb.tensor([float("nan"), -2.0, 0.0])).tolist()[1:] == [-1, 0] and bool(xp.isnan(xp.sign(fb.tensor(float("nan")))))
    assert xp.eye(3, 4, k=1).sum().item() == 3 and xp.linspace(0, 1, 4, endpoint=False).tolist() == [0, 0.25, 0.5, 0.75]
    assert xp.cumulative_sum(fb.tensor([1, 2, 3]), include_initial=True).tolist() == [0, 1, 3, 6]
    assert xp.take(fb.arange(4), fb.tensor([3, 0])).tolist() == [3, 0] and xp.isdtype(fb.float32, ("integral", "real floating"))
    with pytest.raises(ValueError, match="axis 0 has 2 elements"):
        xp.squeeze(fb.ones(2), 0)
    with pytest.raises(ValueError, match="copy=False"):
        xp.reshape(fb.ones(2, 3).T, (6,), copy=False)


def test_linear_algebra_and_transforms():
    a = fb.tensor([[4.0, 1.0], [1.0, 3.0]])
    assert np.allclose(xp.linalg.solve(a, fb.tensor([1.0, 2.0])).numpy(), np.linalg.solve(a.numpy(), np.array([1.0, 2.0])))
    u, s, vh = xp.linalg.svd(a)
    assert np.allclose((u @ fb.diag(s) @ vh).numpy(), a.numpy(), atol=1e-5)
    assert xp.linalg.eigh(a).eigenvalues.shape == (2,) and xp.linalg.matrix_norm(a).item() == pytest.approx(27**0.5)
    assert xp.matmul(a, a).shape == xp.tensordot(a, a, axes=1).shape == (2, 2) and xp.vecdot(fb.tensor([1j]), fb.tensor([1j])).item() == 1
    x = fb.tensor([1.0, 2.0, 3.0, 4.0])
    assert np.allclose(xp.fft.ifft(xp.fft.fft(x)).numpy().real, x.numpy())
    assert np.allclose(xp.fft.rfft(x, n=6).numpy(), np.fft.rfft(x.numpy(), 6))


def test_what_it_says_of_itself(sim_gpus):
    info = xp.__array_namespace_info__()
    assert info.devices() == [fb.device("cpu"), fb.device("cuda", 0), fb.device("cuda", 1)] and info.default_device() == fb.device("cpu")
    assert set(info.dtypes(kind="integral")) == {f"{s}int{n}" for s in ("", "u") for n in (8, 16, 32, 64)}
    assert info.default_dtypes()["integral"] is fb.int64 and info.capabilities()["boolean indexing"]


def test_whole_numbers_beyond_int64_are_exact():
    assert fb.tensor([[9223372039002259455], [0]], dtype=fb.uint64).tolist() == [[9223372039002259455], [0]]


NAMES = [line for line in (Path(__file__).parent / "array_api_names.txt").read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("line", NAMES)
def test_the_standards_functions_take_its_parameters(line):
    name, _, parameters = line.rstrip(")").partition("(")
    found = xp
    for part in name.split("."):
        found = getattr(found, part)
    kinds = list(inspect.signature(found).parameters.values())
    words = [w for w in parameters.split(", ") if w and w != "*"]
    by_place = words[:words.index("/")] if "/" in words else []
    stars = any(k.kind is k.VAR_POSITIONAL for k in kinds)
    assert stars or len([k for k in kinds if k.kind in (k.POSITIONAL_ONLY, k.POSITIONAL_OR_KEYWORD)]) >= len(by_place)
    for word in words[len(by_place) + bool(by_place):]:
        if word.startswith("*"):
            assert stars
        else:
            assert word in [k.name for k in kinds if k.kind is not k.POSITIONAL_ONLY], str(inspect.signature(found))
