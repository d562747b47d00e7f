"""SummaryWriter: its files read back by a decoder of records and messages of the test's own."""

from __future__ import annotations

import glob
import io
import struct

import numpy as np
import pytest

import flambeau as torch
from flambeau.utils.tensorboard import SummaryWriter, events, pictures, projector


def fields(message: bytes) -> list[tuple[int, object]]:
    """The fields of a protocol buffer message, undone one level."""
    out, at = [], 0

    def varint() -> int:
        nonlocal at
        n = shift = 0
        while True:
            byte = message[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n

    while at < len(message):
        key = varint()
        number, wire = key >> 3, key & 7
        if wire == 0:
            out.append((number, varint()))
        elif wire == 2:
            size = varint()
            out.append((number, message[at:at + size]))
            at += size
        else:
            size = 8 if wire == 1 else 4
            out.append((number, struct.unpack("<d" if wire == 1 else "<f", message[at:at + size])[0]))
            at += size
    return out


def read(folder) -> list[dict[int, object]]:
    """The events of the only file of a folder, their checksums tried."""
    (path,) = glob.glob(f"{folder}/events.out.tfevents.*")
    data = open(path, "rb").read()
    out, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        body = data[at + 12:at + 12 + size]
        assert events.record(body) == data[at:at + 16 + size]
        out.append(dict(fields(body)))
        at += 16 + size
    return out


def values(folder) -> list[tuple[int, bytes, dict[int, object]]]:
    found = read(folder)
    assert found[0][3] == b"brain.Event:2"
    inner = [(e.get(2, 0), dict(fields(dict(fields(e[5]))[1]))) for e in found[1:]]
    return [(step, v[1], v) for step, v in inner]


def test_the_checksum_and_a_record() -> None:
    assert events.crc32c(b"123456789") == 0xE3069283 and events.crc32c(b"") == 0
    assert events.crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert struct.unpack("<Q", events.record(b"abc")[:8]) == (3,) and len(events.record(b"abc")) == 19


def test_numbers(tmp_path, device: str) -> None:
    with SummaryWriter(tmp_path, flush_secs=0) as writer:
        writer.add_scalar("loss", torch.tensor(0.5, device=device), 3)
        writer.add_scalar("loss", np.float64(1e300), 4)
        writer.add_scalar("new", 2, 5, new_style=True)
        writer.add_scalars("both", {"a": 1, "b": 2.0}, 6)
        with pytest.raises(ValueError, match="one number"):
            writer.add_scalar("loss", torch.ones(2))
    found = values(tmp_path)
    assert [(s, t, v.get(2)) for s, t, v in found] == [(3, b"loss", 0.5), (4, b"loss", float("inf")), (5, b"new", None)]
    assert struct.unpack("<f", dict(fields(found[2][2][8]))[5]) == (2.0,)
    assert values(tmp_path / "both_a")[0][2][2] == 1.0 and values(tmp_path / "both_b")[0][:2] == (6, b"both")
    writer.add_scalar("after closing", 1.0)  # goes on in a new file
    writer.close()
    assert len(list(tmp_path.glob("events*"))) == 2


def test_histograms(tmp_path) -> None:
    writer = SummaryWriter(str(tmp_path))
    x = torch.tensor([-3.0, 0.5, 0.5, 2.0], requires_grad=True)
    writer.add_histogram("w", x, 1)
    writer.add_histogram("bf16", torch.ones(4, dtype=torch.bfloat16), 1, bins=4)
    writer.add_histogram("few", np.arange(100.0), max_bins=10)
    with pytest.raises(ValueError, match="empty"):
        writer.add_histogram("none", [])
    writer.close()
    found = [dict(fields(v[5])) for _, _, v in values(tmp_path)]
    h = found[0]
    assert (h[1], h[2], h[3], h[4], h[5]) == (-3.0, 2.0, 4.0, 0.0, 13.5)
    limits, counts = np.frombuffer(h[6]), np.frombuffer(h[7])
    assert len(limits) == len(counts) and counts.sum() == 4 and counts[0] == 0 and limits[0] <= -3 <= limits[1] and limits[-1] >= 2
    assert np.frombuffer(found[1][7]).sum() == 4 and len(np.frombuffer(found[2][7])) <= 12 and np.frombuffer(found[2][7]).sum() == 100


def test_pictures_sounds_and_texts(tmp_path) -> None:
    image = pytest.importorskip("PIL.Image")
    writer = SummaryWriter(str(tmp_path))
    picture = torch.arange(60, dtype=torch.uint8).reshape(3, 4, 5)
    writer.add_image("i", picture, 1)
    writer.add_images("g", torch.rand(10, 1, 4, 5), 1)
    writer.add_audio("s", torch.tensor([[0.0, 2.0, -1.0]]), 1, sample_rate=8000)
    writer.add_text("t", "words", 9)
    with pytest.raises(ValueError, match="dataformats"):
        writer.add_image("i", torch.rand(4, 5))
    with pytest.raises(ValueError, match="channels"):
        writer.add_image("i", torch.rand(2, 4, 5))
    writer.close()
    one, grid, sound, text = values(tmp_path)
    shown = dict(fields(one[2][4]))
    assert (shown[1], shown[2], shown[3]) == (4, 5, 3)
    np.testing.assert_array_equal(np.asarray(image.open(io.BytesIO(shown[4]))), picture.permute(1, 2, 0).numpy())
    assert image.open(io.BytesIO(dict(fields(grid[2][4]))[4])).size == (40, 8)
    assert dict(fields(sound[2][6]))[3] == 3 and b"RIFF" in sound[2][6]
    assert text[0] == 9 and text[1] == b"t/text_summary" and b"words" in text[2][8]


def test_picture_axes() -> None:
    a = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)  # H W C of four channels
    np.testing.assert_array_equal(pictures.hwc(a, "HWC"), a)
    np.testing.assert_array_equal(pictures.hwc(a.transpose(2, 1, 0), "CWH"), a)
    assert pictures.hwc(a[..., 0], "HW").shape == (2, 3, 1)
    assert pictures.hwc(np.array([[[-1.0, 0.5], [np.nan, 2.0]]]), "CHW").reshape(-1).tolist() == [0, 127, 0, 255]


def test_hparams_and_a_graph(tmp_path) -> None:
    writer = SummaryWriter(str(tmp_path))
    writer.add_hparams({"lr": 0.1, "name": "x", "big": True, "none": None}, {"accuracy": 0.75}, run_name="run")
    with pytest.warns(UserWarning, match="trace"):
        writer.add_graph(torch.nn.Linear(2, 2), torch.ones(1, 2))
    writer.close()
    found = values(tmp_path / "run")
    assert [t for _, t, _ in found] == [b"_hparams_/experiment", b"_hparams_/session_start_info", b"_hparams_/session_end_info", b"accuracy"]
    assert found[-1][2][2] == 0.75 and b"hparams" in found[0][2][9]


def test_summaries_that_loggers_write_themselves(tmp_path) -> None:
    """What Lightning's TensorBoardLogger does with its hyperparameters."""
    from flambeau.utils.tensorboard.summary import hparams, scalar, text
    writer = SummaryWriter(str(tmp_path))
    for part in (*hparams({"lr": torch.tensor(0.1), "on": False, "none": None}, {"score": -1}), scalar("x", torch.tensor([2.5])), text("t", "words")):
        writer._get_file_writer().add_summary(part, 3)
    writer.close()
    found = values(tmp_path)
    assert [t for _, t, _ in found[:4]] == [b"_hparams_/experiment", b"_hparams_/session_start_info", b"_hparams_/session_end_info", b"x"]
    assert all(step == 3 for step, _, _ in found) and found[3][2][2] == 2.5 and found[4][1] == b"t/text_summary"
    with pytest.raises(TypeError, match="metric_dict should be a dictionary"):
        hparams({})


def test_the_usual_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    writer = SummaryWriter(comment="_try")
    writer.close()
    assert writer.get_logdir().startswith("runs/") and writer.log_dir.endswith("_try") and list((tmp_path / "runs").glob("*/events*"))


def test_precision_recall_curves(tmp_path) -> None:
    labels, given = torch.tensor([1, 0, 1, 1, 0]), torch.tensor([0.9, 0.8, 0.3, 1.0, 0.0])
    writer = SummaryWriter(str(tmp_path))
    writer.add_pr_curve("p", labels, given, 3, num_thresholds=11, weights=np.array([1.0, 2.0, 1.0, 1.0, 1.0]))
    with pytest.raises(ValueError, match=r"add_pr_curve 'p': there are 5 labels, 4 predictions"):
        writer.add_pr_curve("p", labels, given[:4])
    writer.close()
    ((step, tag, value),) = values(tmp_path)
    tensor = dict(fields(value[8]))
    rows = np.frombuffer(tensor[5], np.float32).reshape(6, 11)
    assert (step, tag, tensor[1]) == (3, b"p", 1) and b"pr_curves" in value[9]
    for k, line in enumerate(rows.T):
        found = np.floor(given.numpy().astype(np.float64) * 10) >= k  # the threshold, as the buckets have it
        truth, weight = labels.numpy() == 1, np.array([1.0, 2.0, 1.0, 1.0, 1.0])
        tp, fp, tn, fn = (weight[a & b].sum() for a, b in ((truth, found), (~truth, found), (~truth, ~found), (truth, ~found)))
        np.testing.assert_allclose(line, (tp, fp, tn, fn, tp / max(tp + fp, 1e-7), tp / (tp + fn)), rtol=1e-6)


def test_points_for_the_projector(tmp_path) -> None:
    writer = SummaryWriter(tmp_path)
    images = torch.linspace(0, 1, 7 * 4 * 5).reshape(7, 1, 4, 5).expand(7, 3, 4, 5)
    writer.add_embedding(torch.arange(21.0).reshape(7, 3) / 8, metadata=[f'é"{i}' for i in range(7)], label_img=images)
    writer.add_embedding(np.arange(6).reshape(3, 2), metadata=[["x", 1], ["y", 2], ["z", 3]], metadata_header=["n", "v"], global_step=12, tag="in/ner")
    first, second = tmp_path / "00000" / "default", tmp_path / "00012" / "in%2fner"
    assert np.array_equal(np.loadtxt(first / "tensors.tsv"), np.arange(21).reshape(7, 3) / 8)
    assert (first / "metadata.tsv").read_text("utf-8") == "".join(f'é"{i}\n' for i in range(7))
    assert (second / "tensors.tsv").read_text() == "0\t1\n2\t3\n4\t5\n" and (second / "metadata.tsv").read_text() == "n\tv\nx\t1\ny\t2\nz\t3\n"
    assert not (second / "sprite.png").exists() and (first / "sprite.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    sheet = projector.sheet(images)  # seven pictures of 4 x 5 on 3 x 3 places, as high as wide
    assert sheet.shape == (15, 15, 3) and not sheet[12:].any() and not sheet[8:, 5:].any()
    assert np.array_equal(sheet[4:8, 5:10, 1], (images[4, 1].numpy() * 255).astype(np.uint8))
    assert (tmp_path / "projector_config.pbtxt").read_text() == r'''embeddings {
  tensor_name: "default:00000"
  metadata_path: "00000/default/metadata.tsv"
  sprite {
    image_path: "00000/default/sprite.png"
    single_image_dim: 5
    single_image_dim: 4
  }
  tensor_path: "00000/default/tensors.tsv"
}
embeddings {
  tensor_name: "in/ner:00012"
  metadata_path: "00012/in%2fner/metadata.tsv"
  tensor_path: "00012/in%2fner/tensors.tsv"
}
'''
    for wrong, message in (({"mat": torch.ones(3)}, "2D"), ({"mat": torch.ones(3, 2), "metadata": [1]}, "#labels"),
                           ({"mat": torch.ones(3, 2), "label_img": images}, "#images"),
                           ({"mat": torch.ones(1, 2), "metadata": [[1, 2]], "metadata_header": ["a"]}, "header")):
        with pytest.raises(AssertionError, match=message):
            writer.add_embedding(**wrong)
    with pytest.raises(ValueError, match="channels"):
        writer.add_embedding(torch.ones(1, 2), label_img=torch.ones(1, 2, 3, 3))
