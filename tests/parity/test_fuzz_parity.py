"""The fuzzers' own comparison: what it finds, and what it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]


def test_a_training_program_finds_a_planted_fault():
    """No difference as it is, and one at the right line once an optimizer is wrong."""
    code = """
import flambeau
from tools.fuzz import models_process as m
from tools.fuzz.models_generator import gen
program = ({"x0": ("float64", (3, 4), 1), "y0": ("float64", (3, 2), 2)}, [
    "h = x0", "l0 = fill(T.nn.Linear(4, 2, dtype=T.float64, device=D), 3)", "h = l0(h)", "e = T.nn.functional.mse_loss(h, y0)",
    "ps = [p for p in l0.parameters()]", "!e.backward()", "o = T.optim.SGD(ps, lr=0.1)", "!o.step()"])
flambeau.simulate(gpus=1, memory="1GiB", queue="lazy")
assert m.differences(program) == [], m.differences(program)
whole = flambeau.optim.SGD.__init__
flambeau.optim.SGD.__init__ = lambda self, p, lr: whole(self, p, lr=lr * 1.001)
found = m.differences(program)
assert [(c[0], c[1], n) for c, n, _ in found] == [("cpu value", "step", 7), ("cuda value", "step", 7)], found
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


INSTRUMENT = ROOT.parent / "shared" / "instruments" / "programs" / "fuzz.py"


@pytest.mark.skipif(not INSTRUMENT.exists(), reason="the instrument does not lie beside the checkout")
def test_a_difference_that_pytorch_explains_gets_its_word_and_a_fault_does_not():
    code = f"""
from pathlib import Path
import numpy as np
from tools.fuzz import programs_process as p
i = p.load(Path({str(INSTRUMENT)!r}), Path({str(ROOT)!r}))
p.note_raising(i)
def kinds(inputs, *lines):
    values = [(d, np.asarray(a, "float32" if d.endswith("16") and d != "int16" else d), g) for d, a, g in inputs]
    return [c[0] for c, _, _ in p.differences(i, (values, list(lines)))]
f = lambda a, d="float32", g=False: (d, a, g)
assert kinds([f([-6., 2.])], "v[0].sqrt()", "v[1].signbit()") == ["value-inherited"]
assert kinds([f([[-2.75, -3.25, 0.]], "float16")], "T.nn.functional.cosine_similarity(v[0], v[0], dim=0)") == ["value-nearer"]
assert kinds([f([[1., 2.], [3., 4.]])], "v[0].t()", "T.isin(v[1], v[1])") == ["torch-error-lacking"]
assert kinds([f([[[1., 2., 3.]]])], "!v[0][T.tensor([[0, 1]])] = 0.5") == ["value-after-raising-unwritten"]
assert kinds([f([np.nan, np.nan])], "T.mode(v[0], -1)") == ["value-nan"]
assert kinds([f([5, 1], "uint8"), f([5., 2.], g=True)], "v[0].eq_(v[1])") == ["requires_grad-integer"]
assert kinds([f([1., 2.])], "v[0].exp()", "v[1][:]", "!v[1].requires_grad_()") == ["requires_grad-after-lost"]
assert kinds([f([1., 2., 3.])], "v[0].unfold(0, 2, 1)", "v[1].mul_(2)") == ["flambeau-error-shared"]
right = i.flambeau.Tensor.sin
i.flambeau.Tensor.sin = lambda self: right(self) + 0.1
assert kinds([f([1., 2.])], "v[0].sin()") == ["value"]
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
