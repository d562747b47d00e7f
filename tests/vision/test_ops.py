"""Boxes, regions and layers of detection, by loops over numbers."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau.autograd import gradcheck
from flambeau.vision import ops
from flambeau.vision.transforms import v2


def some_boxes(n: int, seed: int, device="cpu"):
    g = np.random.default_rng(seed)
    corner, size = g.uniform(0, 5, (n, 2)), g.uniform(0.5, 4, (n, 2))
    made = np.concatenate([corner, corner + size], 1)
    return made, torch.tensor(made, device=device)


def iou(a, b) -> float:
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    inside = max(w, 0) * max(h, 0)
    return inside / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inside)


def test_overlaps(device) -> None:
    (a, x), (b, y) = some_boxes(4, 0, device), some_boxes(3, 1, device)
    want = np.array([[iou(p, q) for q in b] for p in a])
    np.testing.assert_allclose(ops.box_iou(x, y).cpu().numpy(), want, rtol=1e-12)
    for i, p in enumerate(a):
        for j, q in enumerate(b):
            around = (max(p[2], q[2]) - min(p[0], q[0])), (max(p[3], q[3]) - min(p[1], q[1]))
            union = (p[2] - p[0]) * (p[3] - p[1]) + (q[2] - q[0]) * (q[3] - q[1])
            union -= want[i, j] * union / (1 + want[i, j])
            whole = around[0] * around[1]
            assert ops.generalized_box_iou(x, y)[i, j].item() == pytest.approx(want[i, j] - (whole - union) / whole)
            apart = ((p[0] + p[2] - q[0] - q[2]) ** 2 + (p[1] + p[3] - q[1] - q[3]) ** 2) / 4
            distance = want[i, j] - apart / (around[0] ** 2 + around[1] ** 2 + 1e-7)
            assert ops.distance_box_iou(x, y)[i, j].item() == pytest.approx(distance)
            v = 4 / np.pi**2 * (np.arctan((p[2] - p[0]) / (p[3] - p[1])) - np.arctan((q[2] - q[0]) / (q[3] - q[1]))) ** 2
            assert ops.complete_box_iou(x, y)[i, j].item() == pytest.approx(distance - v / (1 - want[i, j] + v + 1e-7) * v)


def test_forms_and_suppression(device) -> None:
    _, x = some_boxes(5, 2, device)
    for form in ("xyxy", "xywh", "cxcywh"):
        there = ops.box_convert(x, "xyxy", form)
        np.testing.assert_allclose(ops.box_convert(there, form, "xyxy").cpu().numpy(), x.cpu().numpy(), rtol=1e-12)
    assert ops.box_convert(torch.tensor([[1.0, 2.0, 4.0, 8.0]]), "xyxy", "cxcywh").tolist() == [[2.5, 5.0, 3.0, 6.0]]
    with pytest.raises(ValueError, match="in_fmt xy "):
        ops.box_convert(x, "xy", "xyxy")
    same = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2.1], [0, 0, 2, 2.2]], device=device)
    scores, kinds = torch.tensor([0.1, 0.9, 0.5], device=device), torch.tensor([0, 0, 1], device=device)
    assert ops.nms(same, scores, 0.5).tolist() == [1] and ops.batched_nms(same, scores, kinds, 0.5).tolist() == [1, 2]
    assert ops.batched_nms(same[:0], scores[:0], kinds[:0], 0.5).tolist() == []
    assert ops.clip_boxes_to_image(torch.tensor([[-1.0, 2, 9, 9]]), (5, 6)).tolist() == [[0, 2, 6, 5]]
    assert ops.remove_small_boxes(torch.tensor([[0.0, 0, 1, 3], [0, 0, 2, 2]]), 1.5).tolist() == [1]
    masks = torch.zeros(2, 4, 5)
    masks[0, 1:3, 2:5], masks[1, 3, 0] = 1, 1
    assert ops.masks_to_boxes(masks).tolist() == [[2, 1, 4, 2], [0, 3, 0, 3]]


def one_cell(image, y0, y1, x0, x1, ny, nx) -> float:
    """The mean of ny * nx points of a cell, each between its four pixels."""
    h, w = image.shape
    total = 0.0
    for i in range(ny):
        for j in range(nx):
            y, x = y0 + (i + 0.5) * (y1 - y0) / ny, x0 + (j + 0.5) * (x1 - x0) / nx
            if not (-1 <= y <= h and -1 <= x <= w):
                continue
            y, x = max(y, 0), max(x, 0)
            a, b = min(int(y), h - 1), min(int(x), w - 1)
            c, d = min(a + 1, h - 1), min(b + 1, w - 1)
            p, q = (0.0 if a >= h - 1 else y - a), (0.0 if b >= w - 1 else x - b)
            total += (image[a, b] * (1 - p) * (1 - q) + image[a, d] * (1 - p) * q + image[c, b] * p * (1 - q) + image[c, d] * p * q)
    return total / (ny * nx)


@pytest.mark.parametrize("ratio", [2, -1])
@pytest.mark.parametrize("aligned", [False, True])
def test_regions(ratio: int, aligned: bool, device) -> None:
    g = np.random.default_rng(4)
    maps = g.standard_normal((2, 3, 6, 7))
    boxes = np.array([[0, 1.0, 2.0, 9.0, 11.0], [1, 0.0, 0.0, 4.0, 3.0], [1, -3.0, 5.0, 20.0, 30.0]])
    made = ops.roi_align(torch.tensor(maps, device=device), torch.tensor(boxes, device=device), (2, 3), 0.5, ratio, aligned)
    for k, (n, *box) in enumerate(boxes):
        x1, y1, x2, y2 = (v * 0.5 - (0.5 if aligned else 0) for v in box)
        h, w = y2 - y1, x2 - x1
        if not aligned:
            h, w = max(h, 1), max(w, 1)
        ny, nx = (ratio, ratio) if ratio > 0 else (int(np.ceil(h / 2)), int(np.ceil(w / 3)))
        for c in range(3):
            for i in range(2):
                for j in range(3):
                    want = one_cell(maps[int(n), c], y1 + i * h / 2, y1 + (i + 1) * h / 2, x1 + j * w / 3, x1 + (j + 1) * w / 3, ny, nx)
                    assert made[k, c, i, j].item() == pytest.approx(want, abs=1e-12)
    listed = [torch.tensor(boxes[:1, 1:], device=device), torch.tensor(boxes[1:, 1:], device=device)]
    again = ops.RoIAlign((2, 3), 0.5, ratio, aligned)(torch.tensor(maps, device=device), listed)
    assert torch.equal(again, made)
    with pytest.raises(ValueError, match="boxes must be"):
        ops.roi_align(made, made[0], 2)


def test_gradient_of_regions() -> None:
    x = torch.tensor(np.random.default_rng(1).standard_normal((1, 2, 5, 5)), requires_grad=True)
    boxes = torch.tensor([[0.0, 0.3, 0.2, 4.1, 3.3]], dtype=torch.float64)
    assert gradcheck(lambda t: ops.roi_align(t, boxes, 2, 1.0, 2), (x,))


def test_layers(device) -> None:
    frozen = ops.FrozenBatchNorm2d(3).to(device)
    normal = torch.nn.BatchNorm2d(3, device=device).eval()
    with torch.no_grad():
        normal.weight.copy_(torch.tensor([1.0, 2, 3]))
        normal.bias.copy_(torch.tensor([0.5, 0, -1]))
        normal.running_mean.copy_(torch.tensor([1.0, -1, 0]))
        normal.running_var.copy_(torch.tensor([1.0, 4, 9]))
    frozen.load_state_dict(normal.state_dict())
    x = torch.tensor(np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32), device=device)
    np.testing.assert_allclose(frozen(x).cpu().numpy(), normal(x).detach().cpu().numpy(), rtol=1e-5, atol=1e-5)
    assert not list(frozen.parameters()) and repr(frozen) == "FrozenBatchNorm2d(3, eps=1e-05)"
    assert ops.SqueezeExcitation(3, 2).to(device)(x).shape == x.shape and ops.Conv2dNormActivation(3, 5, 3, 2).to(device)(x).shape == (2, 5, 2, 2)
    assert ops.MLP(4, [6, 2])(torch.ones(3, 4)).shape == (3, 2) and ops.Permute([1, 0])(torch.ones(2, 3)).shape == (3, 2)
    dropped = ops.stochastic_depth(torch.ones(400, 2), 0.25, "row")
    assert {round(v, 5) for v in dropped.flatten().tolist()} == {0.0, 1.33333} and (dropped[:, 0] == dropped[:, 1]).all()
    assert ops.stochastic_depth(x, 0.5, "row", training=False) is x
    with pytest.raises(ValueError, match="mode"):
        ops.stochastic_depth(x, 0.5, "column")


def test_focal_loss() -> None:
    z, y = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64), torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    p = 1 / (1 + np.exp(-z.numpy()))
    truth = np.where(y.numpy() == 1, p, 1 - p)
    want = np.where(y.numpy() == 1, 0.25, 0.75) * (1 - truth) ** 2 * -np.log(truth)
    np.testing.assert_allclose(ops.sigmoid_focal_loss(z, y).numpy(), want, rtol=1e-12)
    assert ops.sigmoid_focal_loss(z, y, reduction="sum").item() == pytest.approx(want.sum())
    with pytest.raises(ValueError, match="arg 'reduction'"):
        ops.sigmoid_focal_loss(z, y, reduction="all")


def test_second_form_of_transforms() -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    image = v2.ToImage()(array)
    assert image.shape == (3, 2, 4) and image.dtype is torch.uint8 and image[1, 1, 2] == array[1, 2, 1]
    assert v2.ToDtype(torch.float32, scale=True)(image).max().item() == pytest.approx(23 / 255) and v2.functional.to_dtype(image).max() == 23
    assert v2.functional.horizontal_flip(image)[0, 0, 0] == image[0, 0, 3] and v2.functional.get_size(image) == [2, 4]
    assert v2.functional.grayscale_to_rgb(image[:1]).shape == (3, 2, 4) and v2.Identity()(image) is image
    assert v2.Compose([v2.ToImage(), v2.CenterCrop(2), v2.ToDtype(torch.float32)])(array).shape == (3, 2, 2)
    with pytest.raises(TypeError, match="pure Tensor"):
        v2.functional.to_image("file")


@pytest.mark.parametrize(("groups", "cut", "stride", "padding", "dilation", "masked"), [
    (1, 1, 1, 1, 1, False), (2, 1, (1, 2), (1, 0), 1, True), (1, 2, 1, 0, (2, 1), True), (2, 2, 2, 1, 1, False)])
def test_a_convolution_whose_taps_are_moved(groups, cut, stride, padding, dilation, masked, device) -> None:
    """Beside the plain convolution where nothing is moved, and beside its definition, tap by tap."""
    g = np.random.default_rng(0)
    x, weight, bias = g.standard_normal((2, 4, 7, 6)), g.standard_normal((6, 4 // cut, 3, 2)), g.standard_normal(6)
    plain = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(weight), torch.tensor(bias), stride, padding, dilation, cut)
    h, w = plain.shape[2:]
    tensors = [torch.tensor(v, device=device) for v in (x, weight, bias)]
    still = torch.zeros(2, 2 * groups * 6, h, w, dtype=torch.float64, device=device)
    np.testing.assert_allclose(ops.deform_conv2d(tensors[0], still, *tensors[1:], stride, padding, dilation).cpu().numpy(), plain.numpy(), rtol=1e-9, atol=1e-9)
    offset = g.standard_normal((2, 2 * groups * 6, h, w)) * 1.5
    mask = g.random((2, groups * 6, h, w)) if masked else None
    got = ops.deform_conv2d(tensors[0], torch.tensor(offset, device=device), *tensors[1:], stride, padding, dilation,
                            None if mask is None else torch.tensor(mask, device=device)).cpu().numpy()
    (sy, sx), (py, px), (dy, dx) = ((v, v) if isinstance(v, int) else v for v in (stride, padding, dilation))

    def at(n, c, y, x_):
        i, j = int(np.floor(y)), int(np.floor(x_))
        return sum(x[n, c, i + a, j + b] * (1 - abs(y - i - a)) * (1 - abs(x_ - j - b)) for a in (0, 1) for b in (0, 1) if 0 <= i + a < 7 and 0 <= j + b < 6)
    for n, o, i, j in ((0, 0, 0, 0), (1, 5, h - 1, w - 1), (1, 2, h // 2, 1)):
        total = bias[o]
        for c in range(4 // cut):
            whole = c + (o // (6 // cut)) * (4 // cut)
            part = whole // (4 // groups)
            for tap in range(6):
                move = offset[n, (part * 6 + tap) * 2:(part * 6 + tap) * 2 + 2, i, j]
                value = at(n, whole, i * sy - py + tap // 2 * dy + move[0], j * sx - px + tap % 2 * dx + move[1])
                total += weight[o, c, tap // 2, tap % 2] * value * (1 if mask is None else mask[n, part * 6 + tap, i, j])
        np.testing.assert_allclose(got[n, o, i, j], total, rtol=1e-9)


def test_moved_taps_have_gradients_and_refuse_other_sizes() -> None:
    layer = ops.DeformConv2d(2, 4, 3, padding=1).double()
    x, offset = torch.rand(1, 2, 4, 4, dtype=torch.float64, requires_grad=True), torch.rand(1, 18, 4, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(1, 9, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *a: layer(*a), (x, offset, mask))
    for bad, words in (((x, offset[:, :17]), "dimension 1 is not valid"), ((x, offset[..., :3]), "offset must be"), ((x, offset, mask[:, :8]), "mask must be")):
        with pytest.raises(RuntimeError, match=words):
            layer(*bad)
    with pytest.raises(ValueError, match="divisible by groups"):
        ops.DeformConv2d(3, 4, 3, groups=2)
    assert repr(layer).startswith("DeformConv2d(2, 4, kernel_size=(3, 3)")
