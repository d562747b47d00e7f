"""Specs: equal ones are equal, others are not, and nothing is taken silently."""

from __future__ import annotations

import inspect

import pytest

from flambeau._core.dtypes import float32, int64
from flambeau._core.kernels import specs
from flambeau._core.kernels.specs import Occurrences, Product, RowsProduct, Sort, Spec, Spread

KINDS = [kind for _, kind in inspect.getmembers(specs, inspect.isclass) if issubclass(kind, Spec) and kind is not Spec]


def product(**more: object) -> Product:
    return Product(float32, 2, 3, 4, (4, 1, 0), (3, 1, 0), (3, 1, 0), **more)  # type: ignore[arg-type]


def test_fields_in_order_by_name_and_with_defaults() -> None:
    p = product(beta=1.0)
    assert (p.dtype, p.m, p.n, p.k, p.batch, p.beta, p.epilogue) == (float32, 2, 3, 4, 1, 1.0, "")
    assert p == Product(float32, 2, 3, 4, (4, 1, 0), (3, 1, 0), (3, 1, 0), 1, 1.0, 1.0)
    assert p.but(beta=0.0) == product() != p
    assert "beta=1.0" in repr(p)


def test_equal_specs_key_caches_and_other_kinds_never_meet() -> None:
    assert {product(): 1}[product()] == 1 and hash(product()) == hash(product())
    rows = ((1,), (1,), (1,))
    assert Sort(float32, (4,), rows, False, 4) != Sort(int64, (4,), rows, False, 4)  # type: ignore[arg-type]
    assert Occurrences(3, 4) != (3, 4) and Spread(3) != (3,)
    cache = {Occurrences(3, 4): "counts"}
    assert cache.get((3, 4)) is None  # type: ignore[call-overload]


def test_what_is_missing_or_unknown_is_an_error() -> None:
    with pytest.raises(TypeError, match="Spread takes n"):
        Spread()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="RowsProduct takes"):
        RowsProduct(float32, 1, 2, 3, 4, True, False, 5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"\['k'\]"):
        product(k=4)
    with pytest.raises(TypeError, match="other"):
        product(other=4)
    with pytest.raises(TypeError):
        product().but(other=4)
    with pytest.raises(AttributeError):
        product().m = 4  # type: ignore[misc]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_says_what_its_launch_is_called_with(kind: type[Spec]) -> None:
    assert kind.fields and "n" in kind.__doc__
    assert "``entry(" in kind.__doc__ or kind.__name__ in ("Loop", "Lapack")
    assert not any(name in dir(tuple) for name in kind.fields)
