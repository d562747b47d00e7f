"""What TensorBoard's projector reads: tables of points and of their labels, a sheet of their pictures, and a file that names them all."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from . import pictures

if TYPE_CHECKING:
    from collections.abc import Sequence


def sheet(images: Any) -> np.ndarray:
    """(N, C, H, W) pictures, floats in [0, 1] or uint8, row by row on a sheet of ceil(sqrt(N)) columns that is as high as wide: uint8 (side, side, C)."""
    shape = tuple(images.shape)
    if len(shape) != 4 or shape[1] not in (1, 3):
        raise ValueError(f"label_img is (N, C, H, W) of 1 or 3 channels, got shape {shape}")
    placed = pictures.hwc(images, "NCHW", math.ceil(math.sqrt(shape[0])))
    side = max(placed.shape[:2])
    square = np.zeros((side, side, 3), np.uint8)
    square[:placed.shape[0], :placed.shape[1]] = placed
    return square


def write(folder: str, points: np.ndarray, metadata: Sequence[Any] | None, header: Sequence[str] | None, images: Any) -> None:
    """The tables and the sheet in a folder, which is made."""
    os.makedirs(folder, exist_ok=True)
    files = {"tensors.tsv": "".join("\t".join(map(str, row)) + "\n" for row in points.tolist()).encode()}
    if metadata is not None:
        lines = ["\t".join(map(str, row)) for row in (header, *metadata)] if header else list(map(str, metadata))
        files["metadata.tsv"] = ("\n".join(lines) + "\n").encode()
    if images is not None:
        files["sprite.png"] = pictures.png(sheet(images))
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)


def entry(tag: str, step: int, subfolder: str, labels: bool, size: tuple[int, int] | None) -> str:
    """One table's part of `projector_config.pbtxt`, a message EmbeddingInfo as text. size: a picture's width and height; None without pictures."""
    def quoted(text: str) -> str:
        return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:03o}" for b in text.encode()) + '"'
    lines = [f"tensor_name: {quoted(f'{tag}:{step:05d}')}"]
    if labels:
        lines.append(f"metadata_path: {quoted(f'{subfolder}/metadata.tsv')}")
    if size is not None:
        lines += ["sprite {", f"  image_path: {quoted(f'{subfolder}/sprite.png')}", *[f"  single_image_dim: {n}" for n in size], "}"]
    lines.append(f"tensor_path: {quoted(f'{subfolder}/tensors.tsv')}")
    return "embeddings {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"
