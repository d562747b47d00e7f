"""Lines of scripts that hand tensors to pandas, Pillow and Matplotlib, and take theirs."""

from __future__ import annotations

import math

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


def test_numpy_takes_tensors():
    t = fb.arange(6.0).reshape(2, 3)
    assert np.asarray(t).shape == (2, 3) and np.array([fb.tensor(1.0), fb.tensor(2.0)]).tolist() == [1.0, 2.0]
    assert np.array([t[0], t[1]]).shape == (2, 3) and np.stack([t, t]).shape == (2, 2, 3) and np.concatenate([t, t]).shape == (4, 3)
    assert np.mean(t.numpy()) == 2.5 and np.argmax(t) == 5
    assert np.allclose(t, t.numpy()) and float(np.sqrt(t).sum()) == pytest.approx(np.sqrt(np.arange(6.0)).sum())
    np.testing.assert_allclose(t, np.arange(6.0).reshape(2, 3))
    assert isinstance(np.ones((2, 3)) * t, fb.Tensor) or np.allclose(np.ones((2, 3)) * t, t)
    with pytest.raises(RuntimeError, match="detach"):
        np.asarray(fb.ones(2, requires_grad=True))


def test_pythons_own_functions():
    t = fb.tensor([3.0, 1.0, 2.0])
    assert sum(t) == 6 and max(t) == 3 and min(t) == 1 and [float(x) for x in sorted(t)] == [1, 2, 3] and len(t) == 3 and list(map(int, t)) == [3, 1, 2]
    assert [x.item() for x in reversed(t)] == [2, 1, 3] and any(t > 2) and not all(t > 2) and 1.0 in t and abs(-t).sum() == 6
    assert sum([t, t]).tolist() == [6, 2, 4] and round(float(t.mean()), 1) == 2.0 and divmod(7, 2) == (3, 1) and t.sum() + 0.5 == 6.5
    assert dict(zip("abc", t.tolist(), strict=True)) == {"a": 3, "b": 1, "c": 2} and [i for i, _ in enumerate(t)] == [0, 1, 2]
    a, b, c = t
    assert (a, b, c) == (3, 1, 2) and [1, 2, 3][fb.tensor(1)] == 2 and list(range(fb.tensor(3))) == [0, 1, 2]
    assert "abc"[fb.tensor(0):fb.tensor(2)] == "ab" and {t: 1}[t] == 1 and len({a, a, b}) == 2
    assert math.sqrt(fb.tensor(4.0)) == 2 and math.isclose(fb.tensor(0.5), 0.5) and int(fb.tensor(7)) == 7 and complex(fb.tensor(1j)) == 1j


def test_format_strings():
    x, n = fb.tensor(1.23456), fb.tensor(7)
    assert f"{x:.2f} {x:8.3f}|{n:04d} {n}" == "1.23    1.235|0007 7" and f"{x.item():.1e}" == "1.2e+00" and "%.3f %d" % (x, n) == "1.235 7"  # noqa: UP031
    assert f"{fb.tensor(0.5):.1%}" == "50.0%" and f"{x:>10.2f}" == "      1.23" and str(fb.tensor([1, 2])) == f"{fb.tensor([1, 2])}" == "tensor([1, 2])"
    with pytest.raises(TypeError):
        f"{fb.ones(2):.2f}"


def test_files_of_python():
    import csv
    import io
    import json
    t = fb.tensor([[1.5, 2.0], [3.0, 4.0]])
    assert json.loads(json.dumps(t.tolist())) == [[1.5, 2.0], [3.0, 4.0]]
    text = io.StringIO()
    csv.writer(text).writerows(t.tolist())
    assert text.getvalue().split() == ["1.5,2.0", "3.0,4.0"]
    again = fb.tensor([[float(v) for v in row] for row in csv.reader(io.StringIO(text.getvalue()))])
    assert fb.equal(again, t)
    stored = io.BytesIO()
    np.save(stored, t)
    stored.seek(0)
    assert np.load(stored).tolist() == t.tolist()


def test_numpys_names_of_parameters():
    t = fb.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    assert t.sum(axis=0).tolist() == [3, 6, 6] and t.mean(axis=(0, 1), keepdims=True).shape == (1, 1) and t.max(axis=0).values.tolist() == [3, 5, 4]
    assert t.argmax(axis=1).tolist() == [0, 1] and t.min(axis=1, keepdims=True).indices.tolist() == [[1], [0]] and t.median(axis=0).values.shape == (3,)
    assert t.softmax(axis=0).sum(axis=0).tolist() == pytest.approx([1, 1, 1]) and fb.cumsum(t, axis=1)[0].tolist() == [3, 4, 6]
    assert t.std(axis=0).shape == t.var(axis=0).shape == t.prod(axis=0).shape == t.amax(axis=0).shape == fb.logsumexp(t, axis=0).shape == (3,)
    assert fb.sort(t, axis=0).values[0].tolist() == [0, 1, 2] and t.argsort(axis=1)[0].tolist() == [1, 2, 0] and fb.any(t > 4, axis=1).tolist() == [False, True]
    assert t.unsqueeze(axis=0).squeeze(axis=0).shape == (2, 3) and fb.cat([t, t], axis=1).shape == fb.stack([t, t], axis=1).reshape(2, 6).shape
    assert len(t.unbind(axis=1)) == 3 and len(t.split(1, axis=1)) == 3 and len(t.chunk(2, axis=0)) == 2 and fb.count_nonzero(t, axis=0).tolist() == [1, 2, 2]
    assert t.gather(axis=1, index=fb.tensor([[0], [1]])).tolist() == [[3], [5]] and fb.topk(t, 1, axis=0).values.tolist() == [[3, 5, 4]]
    assert fb.mean(t, axis=0, out=fb.empty(3)).tolist() == [1.5, 3, 3] and t.norm(axis=0).shape == (3,)
    for wrong in (lambda: t.sum(axis=0, dim=1), lambda: t.exp(axis=0), lambda: t.sum(0, axis=1), lambda: t.reshape(6, axis=0)):
        with pytest.raises(TypeError):
            wrong()
