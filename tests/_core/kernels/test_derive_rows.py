"""Derivatives of formulas with named axes: against finite differences, twice, and as loop programs on two targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flambeau._core.dtypes import float32, float64
from flambeau._core.kernels import derive_rows, interpret, llvm
from flambeau._core.kernels import expr as E
from flambeau._core.kernels import formulas as F
from flambeau._core.kernels.expr import Expr
from flambeau._core.kernels.schedule import depth, schedule
from flambeau._core.kernels.simplify import simplify
from tests._core.kernels.row_formulas import FORMULAS, FUSED, SIZES, domain_of, evaluate, run, shape_of


def sorted_place(e: Expr, domain: str) -> str:
    return "".join(a for a in domain if a in F.place(e))


class Case:
    """A formula with its first or second derivative."""

    def __init__(self, name: str, d: Any, order: int, short: bool = True) -> None:
        self.formula = FORMULAS[name]
        leaves, outs, saved = self.formula.made(d)
        self.domain, self.saved = domain_of(leaves), saved
        self.leaves = dict(leaves)
        base = outs
        for level in range(order):
            ups = {f"g{level}{k}": F.operand(f"g{level}{k}", e.dtype, sorted_place(e, self.domain)) for k, e in enumerate(outs)}
            wanted = [e for e in self.leaves.values() if e.dtype.kind == "f"]
            found = derive_rows.gradients(outs, list(ups.values()), wanted)
            if short:
                found = simplify(found, base, saved, outs)
            self.before, self.ups, self.wanted = outs, ups, wanted
            self.gradients = {w.value[0]: e for w, e in zip(wanted, found, strict=True)}
            self.leaves |= ups
            outs = tuple(e for e in found if e is not None)
            if not outs:
                break
        self.outs = outs

    def values(self, rng: np.random.Generator, d: Any = np.float64) -> dict[str, np.ndarray]:
        made = self.formula.values(SIZES, rng, d)
        for n, e in self.leaves.items():
            if n not in made:
                made[n] = rng.standard_normal(shape_of(e.value[1], SIZES)).astype(d)
        return made

    def numbers(self) -> tuple[float, ...]:
        return self.formula.numbers


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", FORMULAS)
def test_against_finite_differences(name: str, order: int) -> None:
    case = Case(name, float64, order)
    values = case.values(np.random.default_rng(1))

    def weighed(at: dict[str, np.ndarray]) -> float:
        """What the gradients are those of: the sum of outputs times the gradients that arrive."""
        outs = evaluate(tuple(case.before), at, case.numbers(), SIZES, case.domain)
        ups = evaluate(tuple(case.ups.values()), at, case.numbers(), SIZES, case.domain)
        return float(sum((np.broadcast_to(o, np.broadcast_shapes(o.shape, u.shape)) * u).sum() for o, u in zip(outs, ups, strict=True)))

    for w in case.wanted:
        n = w.value[0]
        got = case.gradients[n]
        slopes = np.zeros(values[n].shape)
        for at in np.ndindex(values[n].shape):
            sides = []
            for step in (1e-6, -1e-6):
                moved = {**values, n: values[n].copy()}
                moved[n][at] += step
                sides.append(weighed(moved))
            slopes[at] = (sides[0] - sides[1]) / 2e-6
        if got is None:
            assert np.allclose(slopes, 0, atol=1e-6)
            continue
        (found,) = evaluate((got,), values, case.numbers(), SIZES, case.domain)
        axes = [a for a in case.domain if a in w.value[1]]
        found = np.broadcast_to(found, [SIZES[a] if a in w.value[1] else 1 for a in case.domain]).reshape([SIZES[a] for a in axes])
        found = found.transpose([axes.index(a) for a in w.value[1]])
        assert np.allclose(found, slopes, rtol=2e-5, atol=2e-6), (name, n, np.abs(found - slopes).max())


@pytest.mark.parametrize("name", FORMULAS)
def test_short_forms_have_the_same_value(name: str) -> None:
    for order in (1, 2):
        short, long = Case(name, float64, order), Case(name, float64, order, short=False)
        values = short.values(np.random.default_rng(2))
        for n, e in short.gradients.items():
            other = long.gradients[n]
            if e is None or other is None:
                continue
            a, b = evaluate((e, other), values, short.numbers(), SIZES, short.domain)
            assert np.allclose(a, b, rtol=1e-8, atol=1e-10), (name, order, n)


@pytest.mark.parametrize("target", ["interpret", "llvm"])
@pytest.mark.parametrize("name", FORMULAS)
def test_as_programs(name: str, target: str) -> None:
    prepare = {"interpret": interpret, "llvm": llvm}[target].prepare
    rng = np.random.default_rng(3)
    for d, limit in ((float64, 1e-10), (float32, 2e-3)):
        for order in (0, 1, 2):
            case = Case(name, d, order)
            values = case.values(rng, d.np)
            wanted = evaluate(case.outs, {n: v if v.dtype.kind == "i" else v.astype(np.float64) for n, v in values.items()}, case.numbers(), SIZES,
                              case.domain)
            axes = [sorted_place(e, case.domain) for e in case.outs]
            places = {n: e.value[1] for n, e in case.leaves.items()}
            for fused, elements in (("", True), (FUSED.get(name, "c"), False), (FUSED.get(name, "c"), True)):
                made = schedule(case.outs, axes, case.domain, fused, dict.fromkeys(case.domain, 1), elements)
                got = run(made, axes, [e.dtype for e in case.outs], prepare, values, places, case.numbers(), SIZES)
                if got is None:  # operands that do not walk the fused axes as one
                    assert name in ("group_norm", "batch_norm")
                    continue
                for a, b, over in zip(got, wanted, axes, strict=True):
                    b = np.broadcast_to(b, [SIZES[x] if x in over else 1 for x in case.domain]).reshape(a.shape)
                    assert np.allclose(a, b, rtol=limit, atol=limit), (name, order, fused, np.abs(a - b).max())


def gradient(name: str, operand: str = "x", d: Any = float32) -> tuple[Case, Expr]:
    case = Case(name, d, 1)
    found = case.gradients[operand]
    assert found is not None
    return case, found


def at_hand(case: Case, *es: Expr) -> tuple[Expr, ...]:
    """The expressions with saved values in their place."""
    return E.rebuild(es, {s: F.operand(("saved", k), s.dtype, sorted_place(s, case.domain)) for k, s in enumerate(case.saved)}.get)


def nodes(case: Case, e: Expr, op: str) -> list[Expr]:
    return [x for x in E.walk(at_hand(case, e)) if x.op == op]


def reads(case: Case, e: Expr) -> set[Any]:
    return {x.value[0] for x in nodes(case, e, "operand")}


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_what_is_saved_stands_for_the_input(name: str) -> None:
    case, e = gradient(name)
    assert reads(case, e) == {"g00", ("saved", 0)}
    assert depth(at_hand(case, e), "c") == 2  # a sum, and the row


def test_the_forms_that_are_written_by_hand_elsewhere() -> None:
    case, e = gradient("softmax")
    y, g = case.saved[0], case.leaves["g00"]
    assert e is (g - F.total(g * y, "c")) * y
    case, e = gradient("layer_norm")
    assert reads(case, e) == {"g00", "x", "w", ("saved", 0), ("saved", 1)}
    assert depth(at_hand(case, e), "c") == 2 and len(nodes(case, e, "fold")) == 2
    case, e = gradient("layer_norm", "b")
    assert e is F.total(case.leaves["g00"], "r")
    case, e = gradient("std")  # deviations from a mean sum to nothing: no fold is left
    assert not nodes(case, e, "fold")


def test_one_kernel_for_what_one_row_gives() -> None:
    case = Case("layer_norm", float32, 0)
    made = schedule((*case.outs, *case.saved), ["rc", "r", "r"], "rc", "c")
    assert [s.program.kind for s in made.steps] == ["rows"]
    case = Case("layer_norm", float32, 1)
    made = schedule(at_hand(case, *case.outs), ["rc", "c", "c"], "rc", "c")
    assert [s.program.kind for s in made.steps] == ["rows", "reduce"]  # both columns' sums in one


def test_a_fold_where_nothing_varies() -> None:
    w = F.operand("w", float32, "c")
    assert F.total(w, "r") is w * F.extent("r", float32) and F.fold("max", w, "r") is w


def test_the_square_root_of_nothing() -> None:
    case = Case("norm", float64, 1)
    x = np.zeros((SIZES["r"], SIZES["c"]))
    (found,) = evaluate(case.outs, {"x": x, "g00": np.ones(SIZES["r"])}, (), SIZES, "rc")
    assert not found.any()
    again = Case("norm", float64, 2)
    values = {**again.values(np.random.default_rng(0)), "x": x}
    for found in evaluate(again.outs, values, (), SIZES, "rc"):
        assert np.isfinite(found).all()


def test_no_derivative() -> None:
    x = F.operand("x", float32, "rc")
    with pytest.raises(NotImplementedError, match="prod"):
        derive_rows.gradients((F.fold("prod", x, "c"),), (F.operand("g", float32, "r"),), (x,))


def test_cases_reach_through_folds_and_sums_over_axes() -> None:
    """A row's value that is used in one case alone, by elements that have infinities in the other."""
    x, w = F.operand("x", float64, "rc"), F.operand("w", float64, "c")
    f = F.fold("sum", E.where(x > 0.0, w * E.log(x), E.const(0, float64)), "c")
    by_x, by_w = derive_rows.gradients((f,), (F.operand("g", float64, "r"),), (x, w))
    assert by_x is not None and by_w is not None
    at = np.random.default_rng(0).integers(-1, 3, (SIZES["r"], SIZES["c"])).astype(float)
    g, ws = np.arange(1.0, SIZES["r"] + 1), np.arange(2.0, SIZES["c"] + 2)
    there = at > 0
    safe = np.where(there, at, 1)
    with np.errstate(all="ignore"):
        found = evaluate((by_x, by_w), {"x": at, "w": ws, "g": g}, (), SIZES, "rc")
    np.testing.assert_allclose(np.broadcast_to(found[0], at.shape), np.where(there, g[:, None] * ws / safe, 0))
    np.testing.assert_allclose(np.broadcast_to(found[1], (1, SIZES["c"])).reshape(-1), (there * g[:, None] * np.log(safe)).sum(0))
