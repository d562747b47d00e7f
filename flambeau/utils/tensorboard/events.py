"""TensorBoard's event files: records with checksums, each one protocol buffer message, written without their libraries.

A record is its length, the length's checksum, the data, the data's checksum (TFRecord); the checksum is CRC-32C with
the bits turned by 15 and a constant added.  Field numbers are those of TensorFlow's event.proto, summary.proto,
tensor.proto and of TensorBoard's hparams plugin.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any


def _table() -> tuple[int, ...]:
    made = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ 0x82F63B78 if n & 1 else n >> 1  # Castagnoli's polynomial, reversed
        made.append(n)
    return tuple(made)


_CRC = _table()


def crc32c(data: bytes) -> int:
    """CRC-32C (RFC 3720, appendix B.4)."""
    c, table = 0xFFFFFFFF, _CRC
    for byte in data:
        c = table[(c ^ byte) & 255] ^ (c >> 8)
    return c ^ 0xFFFFFFFF


def _masked(data: bytes) -> int:
    c = crc32c(data)
    return (((c >> 15) | (c << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def record(data: bytes) -> bytes:
    """One record of the file."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(length)) + data + struct.pack("<I", _masked(data))


def _varint(n: int) -> bytes:
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def whole(field: int, value: int) -> bytes:
    """A varint field (integers, booleans, enumerations)."""
    return _varint(field << 3) + _varint(value)


def double(field: int, value: float) -> bytes:
    """A double field."""
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    """A float field; what is too large for one becomes infinite."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return _varint(field << 3 | 5) + packed


def part(field: int, value: bytes | str) -> bytes:
    """A length-delimited field: bytes, text or a message inside."""
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def doubles(field: int, values: Iterable[float]) -> bytes:
    """A packed field of doubles."""
    return part(field, b"".join(struct.pack("<d", v) for v in values))


def event(when: float, step: int, summary: bytes | None = None, version: str | None = None) -> bytes:
    """An Event with a summary, or the first one with the version."""
    what = part(5, summary) if summary is not None else part(3, version or "")
    return double(1, when) + (whole(2, step) if step else b"") + what


def _plugin(name: str, content: bytes = b"") -> bytes:
    return part(9, part(1, part(1, name) + (part(2, content) if content else b"")))


def scalar(tag: str, value: float) -> bytes:
    """A Summary of one number."""
    return part(1, part(1, tag) + single(2, value))


def scalar_tensor(tag: str, value: float) -> bytes:
    """The same in the new style: a float tensor of no dimensions for the scalars plugin."""
    return part(1, part(1, tag) + part(8, whole(1, 1) + part(2, b"") + part(5, struct.pack("<f", value))) + _plugin("scalars"))


def image(tag: str, height: int, width: int, channels: int, png: bytes) -> bytes:
    """A Summary of one picture."""
    return part(1, part(1, tag) + part(4, whole(1, height) + whole(2, width) + whole(3, channels) + part(4, png)))


def audio(tag: str, rate: int, frames: int, wav: bytes) -> bytes:
    """A Summary of one sound of one channel."""
    return part(1, part(1, tag) + part(6, single(1, float(rate)) + whole(2, 1) + whole(3, frames) + part(4, wav) + part(5, "audio/wav")))


def text(tag: str, words: str) -> bytes:
    """A Summary of one text."""
    tensor = whole(1, 7) + part(2, part(2, whole(1, 1))) + part(8, words)
    return part(1, part(1, tag + "/text_summary") + part(8, tensor) + _plugin("text"))


def histogram(tag: str, low: float, high: float, count: float, total: float, squares: float, limits: Iterable[float],
              counts: Iterable[float]) -> bytes:
    """A Summary of a histogram: each bucket's upper limit and count."""
    message = (double(1, low) + double(2, high) + double(3, count) + double(4, total) + double(5, squares)
               + doubles(6, limits) + doubles(7, counts))
    return part(1, part(1, tag) + part(5, message))


def pr_curve(tag: str, rows: Sequence[Sequence[float]]) -> bytes:
    """A Summary of a precision-recall curve: true and false positives, true and false negatives, precision and recall, a value each a threshold."""
    count = len(rows[0])
    shape = part(2, part(2, whole(1, len(rows))) + part(2, whole(1, count)))
    tensor = whole(1, 1) + shape + part(5, b"".join(struct.pack("<f", x) for row in rows for x in row))
    return part(1, part(1, tag) + part(8, tensor) + _plugin("pr_curves", whole(2, count)))


def _value(value: Any) -> bytes:
    """google.protobuf.Value."""
    if isinstance(value, bool):
        return whole(4, value)
    return part(3, value) if isinstance(value, str) else double(2, float(value))


def hparams(values: dict[str, Any], metrics: Iterable[str], when: float) -> list[bytes]:
    """Three Summaries of the hparams plugin: what was chosen, what is measured, and that the session ended."""
    kinds = {str: 1, bool: 2}
    infos = b"".join(part(4, part(1, k) + whole(4, kinds.get(type(v), 3))) for k, v in values.items())
    infos += b"".join(part(5, part(1, part(2, m))) for m in metrics)
    started = b"".join(part(1, part(1, k) + part(2, _value(v))) for k, v in values.items())
    parts = (("experiment", part(2, infos)), ("session_start_info", part(3, started + double(5, when))),
             ("session_end_info", part(4, whole(1, 1) + double(2, when))))
    return [part(1, part(1, "_hparams_/" + tag) + _plugin("hparams", message)) for tag, message in parts]
