"""Image files and bytes: against Pillow."""

from __future__ import annotations

import io as bytes_io

import numpy as np
import pytest

import flambeau as torch
from flambeau.vision import io

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
A = np.random.default_rng(0).integers(0, 256, (20, 30, 4)).astype(np.uint8)
MODES = {"GRAY": "L", "GRAY_ALPHA": "LA", "RGB": "RGB", "RGB_ALPHA": "RGBA"}


def raw(image, kind: str, **options) -> torch.Tensor:
    held = bytes_io.BytesIO()
    image.save(held, kind, **options)
    return torch.from_numpy(np.frombuffer(held.getvalue(), np.uint8).copy())


def channels(image) -> np.ndarray:
    a = np.array(image)
    return a[None] if a.ndim == 2 else a.transpose(2, 0, 1)


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
def test_each_mode_as_it_is_and_as_another(mode: str, tmp_path) -> None:
    image = Image.fromarray(A).convert(mode)
    held = raw(image, "PNG")
    for made in (io.decode_image(held), io.decode_png(held), io.decode_image(held, "unchanged")):
        np.testing.assert_array_equal(made.numpy(), channels(image))
    for name, pillow in MODES.items():
        np.testing.assert_array_equal(io.decode_image(held, io.ImageReadMode[name]).numpy(), channels(image.convert(pillow)))
        np.testing.assert_array_equal(io.decode_image(held, name.lower()).numpy(), channels(image.convert(pillow)))
    io.write_file(tmp_path / "x.png", held)
    assert torch.equal(io.read_file(tmp_path / "x.png"), held) and torch.equal(io.read_image(tmp_path / "x.png"), io.decode_image(str(tmp_path / "x.png")))


def test_palettes_bits_and_sixteen_bits() -> None:
    palette = Image.fromarray(A[..., :3]).quantize(8)
    np.testing.assert_array_equal(io.decode_image(raw(palette, "PNG")).numpy(), channels(palette.convert("RGB")))
    bits = Image.fromarray(A[..., 0]).convert("1")
    np.testing.assert_array_equal(io.decode_image(raw(bits, "PNG")).numpy(), channels(bits.convert("L")))
    wide = A[..., 0].astype(np.uint16) * 257
    made = io.decode_image(raw(Image.fromarray(wide), "PNG"))
    assert made.dtype is torch.uint16 and made.shape == (1, 20, 30)
    np.testing.assert_array_equal(made.numpy()[0], wide)


def test_frames_of_a_gif() -> None:
    frames = [Image.fromarray(a).quantize(16) for a in (A[..., :3], A[::-1, :, :3].copy())]
    one, both = raw(frames[0], "GIF"), raw(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert io.decode_gif(one).shape == (3, 20, 30) and io.decode_image(both).shape == (2, 3, 20, 30)
    np.testing.assert_array_equal(io.decode_gif(both)[0].numpy(), channels(frames[0].convert("RGB")))


def test_turned_as_exif_says() -> None:
    image = Image.fromarray(A[..., :3])
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    held = raw(image, "JPEG", exif=exif)
    assert io.decode_jpeg(held).shape == (3, 20, 30)
    assert torch.equal(io.decode_jpeg(held, apply_exif_orientation=True), io.decode_jpeg(held).rot90(-1, (1, 2)))


@pytest.mark.parametrize("count", [1, 3])
def test_written_and_read(count: int, tmp_path) -> None:
    x = (torch.arange(20)[:, None] * 9 + torch.arange(30) * 2).expand(count, 20, 30).to(torch.uint8).contiguous()
    assert torch.equal(io.decode_png(io.encode_png(x, 9)), x)
    two = io.decode_jpeg(io.encode_jpeg([x, x], 100))
    assert len(two) == 2 and all(t.shape == x.shape and (t.float() - x.float()).abs().mean() < 2 for t in two)
    io.write_png(x, tmp_path / "x.png")
    io.write_jpeg(x, tmp_path / "x.jpeg", 100)
    assert torch.equal(io.read_image(tmp_path / "x.png"), x) and torch.equal(io.read_image(tmp_path / "x.jpeg"), two[0])


def test_bad_input() -> None:
    x = torch.zeros(3, 4, 4, dtype=torch.uint8)
    for call, words in ((lambda: io.decode_image(torch.zeros(9, dtype=torch.uint8)), "no image of a kind that is known"),
                        (lambda: io.decode_png(io.encode_jpeg(x)), "no image PNG"),
                        (lambda: io.decode_image(torch.zeros(9)), "uint8 tensor, got torch.float32"),
                        (lambda: io.decode_image(x), "one-dimensional"), (lambda: io.encode_png(x.float()), "got torch.float32"),
                        (lambda: io.encode_jpeg(x[:2]), r"shape \(2, 4, 4\)"), (lambda: io.encode_png(x, 10), "0 to 9, got 10"),
                        (lambda: io.write_file("never", x), "one-dimensional")):
        with pytest.raises(RuntimeError, match=words):
            call()
    for call, words in ((lambda: io.encode_jpeg(x, 0), "1 to 100, got 0"), (lambda: io.decode_image(io.encode_png(x), "CMYK"), "UNCHANGED, GRAY"),
                        (lambda: io.decode_image(7), "a path or a one-dimensional")):
        with pytest.raises(ValueError, match=words):
            call()
