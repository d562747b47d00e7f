"""What the data sets share: their folder, their transforms, their repr, and how a missing file is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ...data import Dataset


class StandardTransform:
    """A transform of the image and one of the target, as one of both."""

    def __init__(self, transform: Callable[[Any], Any] | None = None, target_transform: Callable[[Any], Any] | None = None) -> None:
        self.transform, self.target_transform = transform, target_transform

    def __call__(self, image: Any, target: Any) -> tuple[Any, Any]:
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target


class VisionDataset(Dataset[Any]):
    """A data set of images below the folder `root`.

    transform, target_transform: applied to each; or transforms, to the pair.
    """

    def __init__(self, root: Any = None, transforms: Callable[..., Any] | None = None, transform: Callable[[Any], Any] | None = None,
                 target_transform: Callable[[Any], Any] | None = None) -> None:
        self.root: Any = os.path.expanduser(root) if isinstance(root, str) else root
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ValueError("Only transforms or transform/target_transform can be passed as argument")
        self.transform, self.target_transform = transform, target_transform
        has = transform is not None or target_transform is not None
        self.transforms: Any = StandardTransform(transform, target_transform) if has else transforms

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def extra_repr(self) -> str:
        """More lines for the repr."""
        return ""

    def __repr__(self) -> str:
        lines = [f"Number of datapoints: {len(self)}"]
        if self.root is not None:
            lines.append(f"Root location: {self.root}")
        lines += self.extra_repr().splitlines()
        if self.transforms is not None:
            lines.append(f"StandardTransform\nTransform: {self.transform!r}" if self.transform is not None else repr(self.transforms))
        return "\n".join([f"Dataset {type(self).__name__}", *["    " + line for text in lines for line in text.split("\n")]])


def missing(what: str, paths: list[str], where: str) -> RuntimeError:
    """For files that are not there."""
    return RuntimeError(f"Dataset not found: {what} needs {' and '.join(paths)}. Put {'it' if len(paths) == 1 else 'them'} there, or pass "
                        f"download=True to fetch from {where}")
