"""Sobol's sequence against SciPy's, and the properties that scrambling keeps."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb

SobolEngine = fb.quasirandom.SobolEngine


@pytest.mark.parametrize("dimension", [1, 2, 7, 300, 21201])
def test_points_are_scipys(dimension):
    qmc = pytest.importorskip("scipy.stats").qmc  # half a second of collecting, were it imported with this file
    n = 16 if dimension > 1000 else 64
    engine = SobolEngine(dimension)
    got = engine.draw(n, dtype=fb.float64)
    np.testing.assert_array_equal(got.numpy(), qmc.Sobol(dimension, scramble=False, bits=30).random(n))
    assert engine.num_generated == n


def test_draws_go_on_where_the_last_one_ended():
    whole = SobolEngine(3).draw(20)
    engine = SobolEngine(3)
    parts = [engine.draw(), engine.draw(4), engine.fast_forward(6).draw(9)]
    assert fb.equal(fb.cat(parts), fb.cat((whole[:5], whole[11:])))
    assert fb.equal(engine.reset().fast_forward(1).draw(3), whole[1:4]) and engine.num_generated == 4
    out = fb.empty(0)
    assert engine.reset().draw(20, out=out) is out and fb.equal(out, whole)


def test_powers_of_two():
    engine = SobolEngine(2)
    assert fb.equal(fb.cat((engine.draw_base2(2), engine.draw_base2(2))), SobolEngine(2).draw(8))
    with pytest.raises(ValueError, match="power of 2"):
        engine.draw_base2(1)


def test_scrambled_points_are_a_net_and_the_seeds_own():
    points = SobolEngine(5, scramble=True, seed=7).draw(64, dtype=fb.float64).numpy()
    for column in points.T:  # each interval of 1/64 has one of 64 points
        assert sorted((column * 64).astype(int)) == list(range(64))
    assert np.array_equal(points, SobolEngine(5, scramble=True, seed=7).draw(64, dtype=fb.float64).numpy())
    assert not np.array_equal(points, SobolEngine(5, scramble=True, seed=8).draw(64, dtype=fb.float64).numpy())


def test_what_is_refused_and_shown():
    for dimension in (0, 21202):
        with pytest.raises(ValueError, match="dimensionality"):
            SobolEngine(dimension)
    assert repr(SobolEngine(2, True, 3)) == "SobolEngine(dimension=2, scramble=True, seed=3)"
