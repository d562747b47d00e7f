"""CIFAR-10 and CIFAR-100: the Python batches (pickled dicts of bytes), read without running anything in them."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from .vision import VisionDataset, missing


class _Plain(pickle.Unpickler):
    """Only NumPy's array reconstruction is known."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.split(".")[0], name) in (("numpy", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")):
            return {"ndarray": np.ndarray, "dtype": np.dtype}.get(name) or getattr(__import__("numpy.core.multiarray", fromlist=[name]), name)
        if (module, name) == ("_codecs", "encode"):
            import codecs
            return codecs.encode
        raise pickle.UnpicklingError(f"a CIFAR batch holds arrays, lists, text and numbers only, not {module}.{name}")


def read_batch(path: str) -> dict[str, Any]:
    """The dict in a batch file.  Raises ValueError for anything else."""
    with open(path, "rb") as file:
        raw = file.read()
    try:
        found = _Plain(io.BytesIO(raw), encoding="latin1").load()
    except Exception as error:
        raise ValueError(f"{path} is not a CIFAR batch: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is not a CIFAR batch: it holds {type(found).__name__}")
    return {k.decode() if isinstance(k, bytes) else str(k): v for k, v in found.items()}


class CIFAR10(VisionDataset):
    """Tiny photographs of ten kinds: `data` (N, 32, 32, 3) uint8 array, `targets` list of ints, from root/cifar-10-batches-py.

    Items are (PIL image of mode "RGB", int) through the transforms; without Pillow the image is a NumPy array.
    """

    base_folder = "cifar-10-batches-py"
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    filename = "cifar-10-python.tar.gz"
    train_list = [f"data_batch_{i}" for i in range(1, 6)]
    test_list = ["test_batch"]
    meta = {"filename": "batches.meta", "key": "label_names"}

    def __init__(self, root: Any, train: bool = True, transform: Callable[[Any], Any] | None = None,
                 target_transform: Callable[[Any], Any] | None = None, download: bool = False) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        folder = os.path.join(self.root, self.base_folder)
        names = self.train_list if train else self.test_list
        if download and not all(os.path.isfile(os.path.join(folder, n)) for n in names):
            self.download()
        absent = [os.path.join(folder, n) for n in names if not os.path.isfile(os.path.join(folder, n))]
        if absent:
            raise missing(type(self).__name__, absent, self.url)
        data, targets = [], []
        for n in names:
            batch = read_batch(os.path.join(folder, n))
            data.append(np.asarray(batch["data"], np.uint8))
            targets += list(batch.get("labels", batch.get("fine_labels", ())))
        self.data = np.vstack(data).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        self.targets = [int(t) for t in targets]
        if len(self.targets) != len(self.data):
            raise ValueError(f"{folder}: {len(self.data)} images and {len(self.targets)} labels")
        path = os.path.join(folder, self.meta["filename"])
        self.classes: list[str] = list(read_batch(path)[self.meta["key"]]) if os.path.isfile(path) else []
        self.class_to_idx = {c: i for i, c in enumerate(self.classes)}

    def download(self) -> None:
        """Fetches the archive and takes the batches out of it, and nothing else."""
        import tarfile

        from ...hub import download_url_to_file
        os.makedirs(self.root, exist_ok=True)
        archive = os.path.join(self.root, self.filename)
        if not os.path.isfile(archive):
            download_url_to_file(self.url, archive)
        with tarfile.open(archive) as tar:
            tar.extractall(self.root, filter="data")

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image: Any = self.data[index]
        target: Any = self.targets[index]
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
        return len(self.data)

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train else 'Test'}"


class CIFAR100(CIFAR10):
    """Tiny photographs of a hundred kinds, from root/cifar-100-python."""

    base_folder = "cifar-100-python"
    url = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    filename = "cifar-100-python.tar.gz"
    train_list = ["train"]
    test_list = ["test"]
    meta = {"filename": "meta", "key": "fine_label_names"}
