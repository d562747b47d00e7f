"""Data sets read from files made here: right ones, cut ones, wrong ones, missing ones."""

from __future__ import annotations

import gzip
import pickle
import struct

import numpy as np
import pytest

import flambeau as torch
from flambeau.vision import datasets, transforms

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def idx(a: np.ndarray) -> bytes:
    return struct.pack(">4B", 0, 0, 8, a.ndim) + struct.pack(f">{a.ndim}I", *a.shape) + a.astype(np.uint8).tobytes()


@pytest.fixture
def digits(tmp_path):
    rng = np.random.default_rng(0)
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    made = {}
    for part, n in (("train", 12), ("t10k", 5)):
        images, labels = rng.integers(0, 256, (n, 28, 28)), rng.integers(0, 10, n)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        (raw / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
        made[part] = images, labels
    return tmp_path, made


def test_mnist(digits) -> None:
    root, made = digits
    for train, part in ((True, "train"), (False, "t10k")):
        d = datasets.MNIST(str(root), train=train, transform=transforms.ToTensor())
        images, labels = made[part]
        assert len(d) == len(labels) and d.data.dtype is torch.uint8 and d.targets.tolist() == labels.tolist()
        x, y = d[3]
        assert x.shape == (1, 28, 28) and y == labels[3]
        np.testing.assert_allclose(x[0].numpy(), images[3] / 255, rtol=1e-6)
    plain = datasets.MNIST(root, train=False)
    assert plain[0][0].mode == "L" and plain[0][0].size == (28, 28) and "Split: Test" in repr(plain)
    batch = next(iter(torch.utils.data.DataLoader(datasets.MNIST(root, transform=transforms.ToTensor()), batch_size=4)))
    assert batch[0].shape == (4, 1, 28, 28) and batch[1].dtype is torch.int64


def test_missing_and_broken_files_say_which(digits, tmp_path) -> None:
    root, _ = digits
    with pytest.raises(RuntimeError, match=r"FashionMNIST needs .*train-images-idx3-ubyte.*Put them there, or pass download=True"):
        datasets.FashionMNIST(root)
    path = root / "MNIST" / "raw" / "train-images-idx3-ubyte"
    whole = path.read_bytes()
    for bad, text in ((whole[:-1], "cut short"), (whole + b"x", "too long"), (b"PNG!" + whole, "not an IDX file"), (b"", "not an IDX file")):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=text):
            datasets.MNIST(root)


def test_cifar(tmp_path) -> None:
    rng = np.random.default_rng(1)
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    all_data = []
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        data = rng.integers(0, 256, (3, 3072)).astype(np.uint8)
        (folder / name).write_bytes(pickle.dumps({b"data": data, b"labels": [1, 2, 3], b"batch_label": b"x"}, protocol=2))
        all_data.append(data)
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"c{i}" for i in range(10)]}, protocol=2))
    d = datasets.CIFAR10(tmp_path, transform=transforms.ToTensor())
    assert len(d) == 15 and d.classes[2] == "c2" and d.data.shape == (15, 32, 32, 3)
    x, y = d[4]
    np.testing.assert_allclose(x.numpy(), all_data[1][1].reshape(3, 32, 32) / 255, rtol=1e-6)
    assert y == 2 and len(datasets.CIFAR10(tmp_path, train=False)) == 3
    with pytest.raises(RuntimeError, match="CIFAR100 needs"):
        datasets.CIFAR100(tmp_path)


def test_a_batch_that_would_run_code_is_refused(tmp_path) -> None:
    class Evil:
        def __reduce__(self):
            return print, ("run",)

    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in datasets.CIFAR10.train_list:
        (folder / name).write_bytes(pickle.dumps({"data": Evil()}, protocol=2))
    with pytest.raises(ValueError, match="not a CIFAR batch.*builtin"):
        datasets.CIFAR10(tmp_path)


def test_image_folder(tmp_path) -> None:
    for c, n in (("cat", 2), ("dog", 3)):
        (tmp_path / c).mkdir()
        for i in range(n):
            Image.new("RGB", (8, 6), (i * 10, 0, 0)).save(tmp_path / c / f"{i}.png")
    (tmp_path / "dog" / "note.txt").write_text("no image")
    d = datasets.ImageFolder(tmp_path, transform=transforms.ToTensor())
    assert len(d) == 5 and d.classes == ["cat", "dog"] and d.targets == [0, 0, 1, 1, 1] and d.class_to_idx["dog"] == 1
    assert d[4][0].shape == (3, 6, 8) and d[4][1] == 1
    (tmp_path / "eel").mkdir()
    with pytest.raises(FileNotFoundError, match="eel"):
        datasets.ImageFolder(tmp_path)
    assert len(datasets.ImageFolder(tmp_path, allow_empty=True)) == 5
    with pytest.raises(FileNotFoundError, match="class folder"):
        datasets.ImageFolder(tmp_path / "cat")


def test_fake_data_is_the_same_each_time() -> None:
    d = datasets.FakeData(5, (3, 4, 4), 7, transforms.ToTensor())
    a, b = d[2], d[2]
    assert torch.equal(a[0], b[0]) and a[1] == b[1] and a[0].shape == (3, 4, 4) and 0 <= a[1] < 7
    with pytest.raises(IndexError):
        d[5]
