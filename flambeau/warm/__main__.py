"""One group of programs in this process: `python -m flambeau.warm NAME`, for `flambeau warm`."""

from __future__ import annotations

import json
import sys

from . import make

kernels, seconds = make(sys.argv[1])
print(json.dumps({"kernels": kernels, "seconds": seconds}))
