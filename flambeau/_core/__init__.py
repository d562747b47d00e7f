"""The engine: what the public packages beside this one stand on.

From the ground up: `dtypes`, `layout`, `errors`; `kernels` (formulas, and the code made of them); `drivers` (devices); `runtime`
(memory, streams, copies); `tensor`, `autograd` (the tape) and `ops` (the operations).  Names here may change; programs
use `flambeau` and the packages that are called as PyTorch's are.
"""

from . import forks as forks  # before all else: its hooks at forks must be the first
