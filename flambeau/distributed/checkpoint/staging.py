"""Where a state lies while `async_save` writes it: a copy, which is made before `async_save` returns."""

from __future__ import annotations

import enum
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any


class AsyncCheckpointerType(enum.Enum):
    """What writes: a thread here, for either."""

    THREAD = "thread"
    PROCESS = "process"


@dataclass
class AsyncSaveResponse:
    """staging_completion: done when the state is copied.  upload_completion: done when the checkpoint is whole."""

    staging_completion: Future[Any]
    upload_completion: Future[Any]


@dataclass
class StagingOptions:
    """How the copy is made.  use_async_staging: `async_save` tells of it by a future too.  The others are accepted."""

    use_pinned_memory: bool = True
    use_shared_memory: bool = True
    use_async_staging: bool = True
    use_non_blocking_copy: bool = True


@dataclass
class DefaultStager:
    """Copies a state before it is written."""

    config: StagingOptions = field(default_factory=StagingOptions)

    def close(self) -> None:
        """Nothing is kept."""


def answered(stager: Any, upload: Future[Any]) -> Any:
    """What `async_save` gives."""
    if not getattr(getattr(stager, "config", None), "use_async_staging", False):
        return upload
    copied: Future[Any] = Future()
    copied.set_result(None)
    return AsyncSaveResponse(copied, upload)


__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "DefaultStager", "StagingOptions"]
