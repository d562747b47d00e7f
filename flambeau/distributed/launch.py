"""The older command line `python -m torch.distributed.launch`: `torch.distributed.run`, which it was replaced by."""

from __future__ import annotations

from .run import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
