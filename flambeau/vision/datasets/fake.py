"""Random images, for trying a pipeline out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._core import ops
from ..._core.runtime.generators import Generator
from .vision import VisionDataset

_ops: Any = ops


class FakeData(VisionDataset):
    """`size` random images of `image_size` (C, H, W) in `num_classes` classes; item i is always the same."""

    def __init__(self, size: int = 1000, image_size: tuple[int, ...] = (3, 224, 224), num_classes: int = 10,
                 transform: Callable[[Any], Any] | None = None, target_transform: Callable[[Any], Any] | None = None,
                 random_offset: int = 0) -> None:
        super().__init__(None, transform=transform, target_transform=target_transform)
        self.size, self.image_size, self.num_classes, self.random_offset = size, tuple(image_size), num_classes, random_offset

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index >= len(self):
            raise IndexError(f"{type(self).__name__} index out of range")
        own = Generator()
        own.manual_seed(index + self.random_offset)
        image: Any = _ops.randn(self.image_size, generator=own)
        target: Any = _ops.randint(0, self.num_classes, (1,), generator=own)[0]
        try:
            from ..transforms.functional import to_pil_image
            image = to_pil_image(image)
        except ImportError:
            pass
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, int(target)

    def __len__(self) -> int:
        return self.size
