"""MNIST and its kin: IDX files (Y. LeCun's format: two zero bytes, type, rank, big-endian sizes, then the values)."""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core import ops
from ..._core.tensor import Tensor
from .vision import VisionDataset, missing

_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: str) -> np.ndarray[Any, Any]:
    """The array in an IDX file, plain or gzipped.  Raises ValueError for anything that is not one."""
    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    with (gzip.open(path, "rb") if packed else open(path, "rb")) as file:
        head = file.read(4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES:
            raise ValueError(f"{path} is not an IDX file: it begins with {head!r}")
        sizes = struct.unpack(f">{head[3]}I", file.read(4 * head[3]))
        kind = np.dtype(_TYPES[head[2]])
        wanted = int(np.prod(sizes, dtype=np.int64)) * kind.itemsize
        data = file.read(wanted + 1)
    if len(data) != wanted:
        raise ValueError(f"{path} is {'cut short' if len(data) < wanted else 'too long'}: {'x'.join(map(str, sizes))} values of {kind.itemsize} "
                         f"bytes were promised")
    return np.frombuffer(data, kind).reshape(sizes).astype(kind.newbyteorder("="))


class MNIST(VisionDataset):
    """Handwritten digits: `data` (N, 28, 28) uint8 and `targets` (N,) int64, from IDX files in root/<name>/raw (or root).

    train: the training part or the test part.  Items are (PIL image of mode "L", int) through the transforms.  Without
    Pillow, and with a transform that takes arrays, the image is a NumPy array.
    Raises RuntimeError when files are missing and download is False.
    """

    mirrors = ["https://ossci-datasets.s3.amazonaws.com/mnist/"]
    classes = ["0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six", "7 - seven", "8 - eight", "9 - nine"]
    _parts = {True: "train", False: "t10k"}

    def __init__(self, root: Any, train: bool = True, transform: Callable[[Any], Any] | None = None,
                 target_transform: Callable[[Any], Any] | None = None, download: bool = False) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        if download:
            self.download()
        self.data, self.targets = self._load()

    @property
    def raw_folder(self) -> str:
        return os.path.join(self.root, type(self).__name__, "raw")

    @property
    def processed_folder(self) -> str:
        return os.path.join(self.root, type(self).__name__, "processed")

    @property
    def class_to_idx(self) -> dict[str, int]:
        return {c: i for i, c in enumerate(self.classes)}

    def _names(self) -> list[str]:
        part = self._parts[self.train]
        return [f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"]

    def _find(self, name: str) -> str | None:
        for folder in (self.raw_folder, self.root):
            for tail in ("", ".gz"):
                path = os.path.join(folder, name + tail)
                if os.path.isfile(path):
                    return path
        return None

    def _check_exists(self) -> bool:
        return all(self._find(n) for n in self._names())

    def _load(self) -> tuple[Tensor, Tensor]:
        found = [self._find(n) for n in self._names()]
        if None in found:
            raise missing(type(self).__name__, [os.path.join(self.raw_folder, n + "[.gz]") for n in self._names()], self.mirrors[0])
        images, labels = (read_idx(str(p)) for p in found)
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise ValueError(f"{found[0]} holds {images.shape} and {found[1]} {labels.shape}: images (N, H, W) and labels (N,) were expected")
        o: Any = ops
        return o.from_numpy(images), o.from_numpy(labels.astype(np.int64))

    def download(self) -> None:
        """Fetches what is missing."""
        from ...hub import download_url_to_file
        os.makedirs(self.raw_folder, exist_ok=True)
        for part in self._parts.values():
            for kind in ("images-idx3", "labels-idx1"):
                name = f"{part}-{kind}-ubyte"
                if self._find(name) is None:
                    download_url_to_file(self.mirrors[0] + name + ".gz", os.path.join(self.raw_folder, name + ".gz"))

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image: Any = self.data[index].numpy()
        target: Any = int(self.targets[index])
        try:
            from PIL import Image
            image = Image.fromarray(image)
        except ImportError:
            pass
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __len__(self) -> int:
        return int(self.data.shape[0])

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train else 'Test'}"


class FashionMNIST(MNIST):
    """Zalando's articles of clothing, in MNIST's form."""

    mirrors = ["http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"]
    classes = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


class KMNIST(MNIST):
    """Kuzushiji characters, in MNIST's form."""

    mirrors = ["http://codh.rois.ac.jp/kmnist/dataset/kmnist/"]
    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]


class QMNIST(MNIST):
    """MNIST with its test part restored, in MNIST's form (images and labels of the files given)."""


class EMNIST(MNIST):
    """Letters and digits: `split` is one of byclass, bymerge, balanced, letters, digits, mnist."""

    splits = ("byclass", "bymerge", "balanced", "letters", "digits", "mnist")

    def __init__(self, root: Any, split: str, **options: Any) -> None:
        if split not in self.splits:
            raise ValueError(f"Unknown value '{split}' for argument split. Valid values are {self.splits}.")
        self.split = split
        super().__init__(root, **options)

    def _names(self) -> list[str]:
        part = "train" if self.train else "test"
        return [f"emnist-{self.split}-{part}-images-idx3-ubyte", f"emnist-{self.split}-{part}-labels-idx1-ubyte"]

    def download(self) -> None:
        raise RuntimeError("EMNIST comes as one archive of all splits: unpack its gzip folder into " + self.raw_folder)
