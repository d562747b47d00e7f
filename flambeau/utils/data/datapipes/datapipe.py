"""`torch.utils.data.datapipes.datapipe`: both kinds of pipes, and one of each that goes to workers as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....data.pipes import IterDataPipe, MapDataPipe


class _DataPipeSerializationWrapper:
    """A pipe around another. PyTorch pickles that with dill where it must; here it is pickled by itself."""

    def __init__(self, datapipe: Any) -> None:
        self._datapipe = datapipe

    def __len__(self) -> int:
        try:
            return len(self._datapipe)
        except Exception:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length") from None


class _IterDataPipeSerializationWrapper(_DataPipeSerializationWrapper, IterDataPipe[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from self._datapipe


class _MapDataPipeSerializationWrapper(_DataPipeSerializationWrapper, MapDataPipe[Any]):
    def __getitem__(self, index: Any) -> Any:
        return self._datapipe[index]


__all__ = ["IterDataPipe", "MapDataPipe", "_IterDataPipeSerializationWrapper", "_MapDataPipeSerializationWrapper"]
