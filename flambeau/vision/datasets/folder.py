"""Images in a folder for each class."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .vision import VisionDataset

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def default_loader(path: str) -> Any:
    """A file as a PIL image of mode "RGB"."""
    from PIL import Image
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


pil_loader = default_loader


def find_classes(directory: Any) -> tuple[list[str], dict[str, int]]:
    """The folders in a folder, sorted, and their numbers.  Raises FileNotFoundError when there are none."""
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {c: i for i, c in enumerate(classes)}


def make_dataset(directory: Any, class_to_idx: dict[str, int] | None = None, extensions: Any = None,
                 is_valid_file: Callable[[str], bool] | None = None, allow_empty: bool = False) -> list[tuple[str, int]]:
    """(path, class) of each file below the class folders, sorted.

    Raises FileNotFoundError for a class without a file, unless allow_empty.
    """
    if (extensions is None) == (is_valid_file is None):
        raise ValueError("Both extensions and is_valid_file cannot be None or not None at the same time")
    tails = (extensions,) if isinstance(extensions, str) else extensions
    accept: Callable[[str], bool] = is_valid_file if is_valid_file is not None else (lambda p: p.lower().endswith(tuple(tails)))
    numbers = find_classes(directory)[1] if class_to_idx is None else class_to_idx
    found, seen = [], set()
    for name in sorted(numbers):
        for folder, _, files in sorted(os.walk(os.path.join(directory, name), followlinks=True)):
            for file in sorted(files):
                path = os.path.join(folder, file)
                if accept(path):
                    found.append((path, numbers[name]))
                    seen.add(name)
    empty = sorted(set(numbers) - seen)
    if empty and not allow_empty:
        raise FileNotFoundError(f"Found no valid file for the classes {', '.join(empty)}. "
                                + (f"Supported extensions are: {', '.join(tails)}" if extensions is not None else ""))
    return found


class DatasetFolder(VisionDataset):
    """Samples in root/<class>/.../file, read by `loader`; `classes`, `class_to_idx`, `samples`, `targets`."""

    def __init__(self, root: Any, loader: Callable[[str], Any], extensions: Any = None, transform: Callable[[Any], Any] | None = None,
                 target_transform: Callable[[Any], Any] | None = None, is_valid_file: Callable[[str], bool] | None = None,
                 allow_empty: bool = False) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.loader, self.extensions = loader, extensions
        self.samples = self.make_dataset(self.root, self.class_to_idx, extensions, is_valid_file, allow_empty)
        self.targets = [t for _, t in self.samples]

    def find_classes(self, directory: Any) -> tuple[list[str], dict[str, int]]:
        """May be overridden to name classes otherwise."""
        return find_classes(directory)

    @staticmethod
    def make_dataset(directory: Any, class_to_idx: dict[str, int], extensions: Any = None, is_valid_file: Callable[[str], bool] | None = None,
                     allow_empty: bool = False) -> list[tuple[str, int]]:
        """May be overridden to find samples otherwise."""
        return make_dataset(directory, class_to_idx, extensions, is_valid_file, allow_empty)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        sample, result = self.loader(path), target
        if self.transform is not None:
            sample = self.transform(sample)
        if self.target_transform is not None:
            result = self.target_transform(result)
        return sample, result

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """`DatasetFolder` of image files, read by Pillow."""

    def __init__(self, root: Any, transform: Callable[[Any], Any] | None = None, target_transform: Callable[[Any], Any] | None = None,
                 loader: Callable[[str], Any] = default_loader, is_valid_file: Callable[[str], bool] | None = None,
                 allow_empty: bool = False) -> None:
        super().__init__(root, loader, IMG_EXTENSIONS if is_valid_file is None else None, transform, target_transform, is_valid_file, allow_empty)
        self.imgs = self.samples
