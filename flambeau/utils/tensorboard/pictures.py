"""Arrays as TensorBoard shows them: pictures (PNG), sounds (WAV), histograms."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np

from ..._core.runtime.asking import unasked


def array(x: Any) -> np.ndarray:
    """A NumPy array of a tensor of any device, an array, a number or a list."""
    if hasattr(x, "detach"):
        x = unasked(x.detach().cpu)()
        if x.dtype.name == "bfloat16":  # NumPy has no such type
            x = x.float()
        x = x.numpy()
    return np.asarray(x)


def hwc(x: Any, dataformats: str, most: int = 8) -> np.ndarray:
    """A picture or a batch of pictures as (height, width, channels) uint8; a batch becomes a grid of at most `most` columns.

    dataformats: which axis is which, a permutation of some of N, C, H, W.  Floats are in [0, 1].
    Raises ValueError where the letters do not fit the dimensions, or a picture has not 1, 3 or 4 channels.
    """
    a, axes = array(x), dataformats.upper()
    if a.ndim != len(axes) or len(set(axes)) != len(axes) or not {"H", "W"} <= set(axes) <= set("NCHW"):
        raise ValueError(f"dataformats {dataformats!r} does not name the axes of a picture of shape {a.shape}: one letter of N, C, H, W for each")
    for missing in set("NC") - set(axes):
        a, axes = a[None], missing + axes
    a = a.transpose([axes.index(c) for c in "NHWC"])
    if a.shape[3] not in (1, 3, 4):
        raise ValueError(f"a picture has 1, 3 or 4 channels, not {a.shape[3]}: shape {a.shape[1:]} as (height, width, channels)")
    if a.dtype != np.uint8:
        a = (np.nan_to_num(a.astype(np.float32)) * 255).clip(0, 255).astype(np.uint8)
    n, h, w, c = a.shape
    columns = min(n, most)
    rows = -(-n // columns)
    grid = np.zeros((rows * columns, h, w, c), np.uint8)
    grid[:n] = a
    return grid.reshape(rows, columns, h, w, c).swapaxes(1, 2).reshape(rows * h, columns * w, c)


def png(a: np.ndarray) -> bytes:
    """A (height, width, channels) uint8 array as a PNG file (RFC 2083)."""
    h, w, c = a.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = np.concatenate([np.zeros((h, 1), np.uint8), a.reshape(h, w * c)], 1)  # each line begins with its filter: none
    header = struct.pack(">IIBBBBB", w, h, 8, {1: 0, 3: 2, 4: 6}[c], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines.tobytes())) + chunk(b"IEND", b"")


def wav(a: np.ndarray, rate: int) -> bytes:
    """Samples in [-1, 1] as a WAV file of 16 bits."""
    import wave
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((a.astype(np.float64).clip(-1, 1) * 32767).astype("<i2").tobytes())
    return out.getvalue()


def edges(bins: Any) -> Any:
    """The bins by name: "tensorflow" ones grow by a tenth from 1e-12 to 1e20 on both sides of zero; others are NumPy's."""
    if bins != "tensorflow":
        return bins
    up = 1e-12 * 1.1 ** np.arange(775)
    up = up[up < 1e20]
    return np.concatenate([-up[::-1], [0], up])


def buckets(values: np.ndarray, bins: Any, most: int | None) -> tuple[list[float], list[float]]:
    """Upper limits and counts; empty buckets at both ends are left out but for one."""
    counts, limits = np.histogram(values, bins=edges(bins))
    if most is not None and len(counts) > most:
        step = -(-len(counts) // most)
        counts = np.add.reduceat(counts, np.arange(0, len(counts), step))
        limits = np.append(limits[:-1:step], limits[-1])
    full = np.flatnonzero(counts)
    first, last = (full[0], full[-1] + 1) if full.size else (0, 1)
    # the bucket before the first full one says where that begins
    if first > 0:
        return list(map(float, limits[first:last + 1])), [0.0, *map(float, counts[first:last])]
    return list(map(float, limits[:last + 1])), [0.0, *map(float, counts[:last])]


def precision_recall(labels: Any, predictions: Any, count: int, weights: Any, name: str) -> list[list[float]]:
    """True positives, false positives, true negatives, false negatives, precision and recall at `count` thresholds that lie evenly in [0, 1].

    labels: truths; predictions: probabilities, as many; weights: as many, one for all, or None.  Raises ValueError for other numbers of them.
    """
    truth, given = array(labels).astype(bool).reshape(-1), array(predictions).astype(np.float64).reshape(-1)
    weight = np.asarray(1.0 if weights is None else array(weights), np.float64).reshape(-1)
    if truth.size != given.size or weight.size not in (1, truth.size):
        raise ValueError(f"{name}: there are {truth.size} labels, {given.size} predictions and {weight.size} weights; there must be as many of each")
    weight = np.broadcast_to(weight, truth.shape)
    place = np.floor(given * (count - 1)).clip(0, count - 1).astype(np.int64)
    above, wrong = (np.bincount(place[chosen], weight[chosen], count)[::-1].cumsum()[::-1] for chosen in (truth, ~truth))
    missed, refused = above[0] - above, wrong[0] - wrong
    least = 1e-7  # of what nothing is found, precision is 0
    rows = (above, wrong, refused, missed, above / np.maximum(least, above + wrong), above / np.maximum(least, above + missed))
    return [row.tolist() for row in rows]
