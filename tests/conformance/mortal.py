"""Flambeau under another name, for the conformance instrument on a real GPU: a process whose GPU a fault has ended ends too, so that the
instrument sees which check it was and goes on in a new one.  Convolutions and products of float32 keep its digits, as in PyTorch's own tests.
With FAKE_ORDER set it plays a GPU, by the tests' fake driver.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import flambeau
from flambeau._core.drivers.nvidia import cuda_errors

_fail = cuda_errors.State.fail


def _last(self: cuda_errors.State, code: Any, what: str) -> Exception:
    error = _fail(self, code, what)
    if self.first:
        print(f"GPU fault: {error}", file=sys.stderr, flush=True)
        os._exit(9)
    return error


# allowed by default for convolutions, as in PyTorch: of eleven bits, which these tolerances are not for
flambeau.backends.cudnn.allow_tf32 = flambeau.backends.cuda.matmul.allow_tf32 = False
cuda_errors.State.fail = _last  # type: ignore[method-assign, assignment]
if os.environ.get("FAKE_ORDER"):
    from tests._core.drivers.nvidia import cases
    cases.MEMORY = 2 << 30
    cases.start(os.environ["FAKE_ORDER"], 1)
sys.modules[__name__] = flambeau
