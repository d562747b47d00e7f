"""Lines of scripts that hand tensors to pandas, Pillow and Matplotlib, and take theirs."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fb


def test_pandas():
    pandas = pytest.importorskip("pandas")
    t = fb.arange(6.0).reshape(3, 2)
    frame = pandas.DataFrame(t, columns=["a", "b"])
    assert frame.shape == (3, 2) and frame["b"].tolist() == [1, 3, 5]
    assert pandas.DataFrame(t.numpy())[0].sum() == 6
    assert pandas.Series(fb.arange(3)).tolist() == [0, 1, 2]
    frame = pandas.DataFrame({"x": [1, 2], "y": [3.0, 4.0]})
    assert fb.tensor(frame.values).tolist() == [[1, 3], [2, 4]] and fb.tensor(frame.values).dtype is fb.float64
    assert fb.tensor(frame["x"].values).tolist() == [1, 2] and fb.tensor(frame["y"]).tolist() == [3, 4]
    assert fb.tensor(frame.to_numpy(dtype=np.float32)).dtype is fb.float32
    assert fb.as_tensor(frame["x"].to_numpy().copy()).tolist() == [1, 2]
    frame["z"] = fb.tensor([7.0, 8.0])
    assert frame["z"].tolist() == [7, 8]


def test_pillow():
    image = pytest.importorskip("PIL.Image")
    picture = image.fromarray(np.arange(12, dtype=np.uint8).reshape(2, 2, 3))
    t = fb.from_numpy(np.array(picture))
    assert t.shape == (2, 2, 3) and t.dtype is fb.uint8 and t.permute(2, 0, 1).float().div(255).max().item() == pytest.approx(11 / 255)
    assert fb.tensor(np.asarray(picture)).sum().item() == 66
    again = image.fromarray(t.numpy())
    assert np.array_equal(np.array(again), np.array(picture))
    back = image.fromarray((fb.rand(3, 4, 5) * 255).byte().permute(1, 2, 0).cpu().numpy())
    assert back.size == (5, 4)


def test_matplotlib():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, (one, two) = pyplot.subplots(1, 2)
    line, = one.plot(fb.arange(3.0), fb.tensor([1.0, 4.0, 9.0]))
    assert np.asarray(line.get_ydata()).tolist() == [1, 4, 9]
    one.plot(fb.arange(3.0))
    one.scatter(fb.rand(5), fb.rand(5), c=fb.arange(5))
    one.hist(fb.rand(100), bins=5)
    one.bar(fb.arange(3), fb.tensor([1.0, 2.0, 3.0]))
    one.axhline(fb.tensor(2.0))
    one.fill_between(fb.arange(3.0), fb.zeros(3), fb.ones(3))
    shown = two.imshow(fb.rand(4, 6))
    assert shown.get_array().shape == (4, 6)
    two.imshow(fb.rand(4, 6, 3))
    two.set_title(f"loss {fb.tensor(1.25):.2f}")
    assert two.get_title() == "loss 1.25"
    figure.canvas.draw()
    pyplot.close(figure)
