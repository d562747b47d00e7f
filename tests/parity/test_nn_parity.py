"""Every layer and loss beside PyTorch's: same printed form, same state, same outputs, same gradients."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

nn, tnn = flambeau.nn, torch.nn


def _array(rng, shape, kind="normal"):
    if kind == "normal":
        return rng.standard_normal(shape).astype(np.float32)
    if kind == "unit":
        return rng.uniform(0.05, 0.95, shape).astype(np.float32)
    if kind == "sign":
        return np.where(rng.uniform(size=shape) < 0.5, -1.0, 1.0).astype(np.float32)
    if kind == "log":
        x = rng.standard_normal(shape)
        return (x - np.log(np.exp(x).sum(-1, keepdims=True))).astype(np.float32)
    return rng.integers(0, int(kind), shape)


def _shared(theirs, mine):
    """Gives our module the values of PyTorch's."""
    state = {k: flambeau.from_numpy(np.array(v.detach().numpy())) for k, v in theirs.state_dict().items()}
    mine.load_state_dict(state)


def _flat(out):
    if isinstance(out, (tuple, list)):
        return [t for o in out for t in _flat(o)]
    return [] if out is None else [out]


def _close(mine, theirs, what, tol=2e-5):
    a, b = mine.detach().numpy(), theirs.detach().numpy()
    assert a.shape == b.shape and a.dtype == b.dtype, what
    np.testing.assert_allclose(a, b, rtol=tol, atol=tol, err_msg=what)


LAYERS = [
    ("Linear", (3, 4), {}, [(2, 3)]),
    ("Linear", (3, 4), {"bias": False}, [(5, 2, 3)]),
    ("Bilinear", (3, 4, 2), {}, [(5, 3), (5, 4)]),
    ("Identity", (1,), {"x": 2}, [(2, 3)]),
    ("Flatten", (), {}, [(2, 3, 4)]),
    ("Unflatten", (1, (2, 3)), {}, [(2, 6, 4)]),
    ("Conv1d", (2, 4, 3), {"padding": 1, "stride": 2}, [(2, 2, 7)]),
    ("Conv2d", (2, 4, 3), {"padding": "same", "dilation": 2}, [(2, 2, 6, 5)]),
    ("Conv2d", (4, 4, (3, 2)), {"groups": 2, "bias": False, "padding": (1, 2), "padding_mode": "circular"},
     [(2, 4, 6, 5)]),
    ("Conv2d", (2, 2, 3), {"padding": 1, "padding_mode": "reflect"}, [(2, 2, 5, 5)]),
    ("Conv3d", (2, 3, 2), {}, [(1, 2, 3, 4, 3)]),
    ("ConvTranspose1d", (2, 4, 3), {"stride": 2, "output_padding": 1}, [(2, 2, 5)]),
    ("ConvTranspose2d", (4, 2, 3), {"stride": 2, "padding": 1, "groups": 2}, [(2, 4, 4, 3)]),
    ("MaxPool1d", (2,), {}, [(2, 3, 7)]),
    ("MaxPool2d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, [(2, 3, 8, 7)]),
    ("MaxPool3d", (2,), {}, [(2, 3, 4, 4, 4)]),
    ("AvgPool1d", (2,), {}, [(2, 3, 7)]),
    ("AvgPool2d", (3,), {"stride": 2, "padding": 1, "count_include_pad": False}, [(2, 3, 8, 7)]),
    ("AvgPool3d", (2,), {}, [(2, 3, 4, 4, 4)]),
    ("LPPool1d", (2.0, 3), {}, [(2, 3, 7)]),
    ("LPPool2d", (2.0, 3), {"stride": 1}, [(2, 3, 7, 6)]),
    ("AdaptiveAvgPool1d", (3,), {}, [(2, 3, 7)]),
    ("AdaptiveAvgPool2d", ((2, None),), {}, [(2, 3, 7, 5)]),
    ("AdaptiveMaxPool2d", (2,), {}, [(2, 3, 7, 5)]),
    ("BatchNorm1d", (3,), {}, [(4, 3)]),
    ("BatchNorm2d", (3,), {"momentum": None}, [(4, 3, 2, 5)]),
    ("BatchNorm3d", (3,), {"affine": False, "track_running_stats": False}, [(4, 3, 2, 2, 2)]),
    ("InstanceNorm1d", (3,), {}, [(4, 3, 5)]),
    ("InstanceNorm2d", (3,), {"affine": True, "track_running_stats": True}, [(4, 3, 5, 4)]),
    ("LayerNorm", (5,), {}, [(4, 3, 5)]),
    ("LayerNorm", ((3, 5),), {"bias": False}, [(4, 3, 5)]),
    ("RMSNorm", (5,), {}, [(4, 5)]),
    ("GroupNorm", (2, 4), {}, [(3, 4, 5)]),
    ("LocalResponseNorm", (3,), {"alpha": 0.1}, [(2, 5, 4, 3)]),
    ("Dropout", (0.3,), {"eval": True}, [(3, 4)]),
    ("Dropout2d", (0.3,), {"eval": True}, [(3, 4, 2, 2)]),
    ("AlphaDropout", (0.3,), {"eval": True}, [(3, 4)]),
    *[(name, (), {}, [(3, 4)]) for name in (
        "ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "Sigmoid", "Tanh", "LogSigmoid",
        "Softsign",
        "Tanhshrink", "ELU", "CELU", "LeakyReLU", "PReLU", "GELU", "GLU", "Softplus", "Hardshrink", "Softshrink",
        "Hardtanh")],
    ("GELU", ("tanh",), {}, [(3, 4)]),
    ("Threshold", (0.1, 0.5), {}, [(3, 4)]),
    ("RReLU", (), {"eval": True}, [(3, 4)]),
    ("Softmax", (1,), {}, [(3, 4)]),
    ("Softmin", (1,), {}, [(3, 4)]),
    ("LogSoftmax", (-1,), {}, [(3, 4)]),
    ("Softmax2d", (), {}, [(2, 3, 2, 2)]),
    ("ConstantPad1d", ((1, 2), 0.5), {}, [(2, 3, 4)]),
    ("ZeroPad2d", ((1, -1, 0, 2),), {}, [(2, 3, 4, 5)]),
    ("ReflectionPad1d", (2,), {}, [(2, 3, 4)]),
    ("ReflectionPad2d", ((1, 2, 0, 1),), {}, [(2, 3, 4, 5)]),
    ("ReplicationPad2d", ((1, 2, 3, 1),), {}, [(2, 3, 4, 5)]),
    ("ReplicationPad3d", (1,), {}, [(2, 3, 2, 3, 2)]),
    ("CircularPad2d", ((1, 2, 3, 1),), {}, [(2, 3, 4, 5)]),
    ("PixelShuffle", (2,), {}, [(2, 8, 3, 2)]),
    ("PixelUnshuffle", (2,), {}, [(2, 2, 4, 6)]),
    ("ChannelShuffle", (2,), {}, [(2, 4, 3, 2)]),
    ("Unfold", ((2, 3),), {"dilation": (1, 2), "padding": 1, "stride": 2}, [(2, 3, 6, 7)]),
    ("Fold", ((5, 4), 2), {"padding": 1, "stride": 2}, [(2, 8, 9)]),
    ("Upsample", (), {"scale_factor": 2}, [(2, 3, 4, 3)]),
    ("Upsample", ((5, 7),), {"mode": "nearest"}, [(2, 3, 4, 3)]),
    ("Upsample", ((5, 7),), {"mode": "bilinear"}, [(2, 3, 4, 3)]),
    ("Upsample", (), {"scale_factor": 1.7, "mode": "bicubic", "align_corners": True}, [(2, 3, 4, 5)]),
    ("Upsample", ((3, 9),), {"mode": "bicubic"}, [(2, 3, 4, 5)]),
    ("Upsample", (7,), {"mode": "linear", "align_corners": True}, [(2, 3, 4)]),
    ("Upsample", ((3, 2, 5),), {"mode": "trilinear"}, [(2, 3, 2, 4, 3)]),
    ("UpsamplingBilinear2d", (), {"scale_factor": 2}, [(2, 3, 4, 3)]),
    ("CosineSimilarity", (), {}, [(3, 4), (3, 4)]),
    ("PairwiseDistance", (), {}, [(3, 4), (3, 4)]),
    ("RNN", (3, 5), {"nonlinearity": "relu", "num_layers": 2}, [(6, 2, 3)]),
    ("LSTM", (3, 5), {"num_layers": 2, "bidirectional": True, "batch_first": True}, [(2, 6, 3)]),
    ("LSTM", (3, 5), {"proj_size": 2, "bias": False}, [(6, 2, 3)]),
    ("GRU", (3, 5), {"bidirectional": True}, [(6, 3)]),
    ("RNNCell", (3, 5), {}, [(2, 3), (2, 5)]),
    ("GRUCell", (3, 5), {}, [(2, 3), (2, 5)]),
    ("LSTMCell", (3, 5), {}, [(2, 3)]),
    ("TransformerEncoderLayer", (8, 2, 16, 0.0), {}, [(5, 2, 8)]),
    ("TransformerEncoderLayer", (8, 2, 16, 0.0, "gelu"), {"batch_first": True, "norm_first": True}, [(2, 5, 8)]),
    ("TransformerDecoderLayer", (8, 2, 16, 0.0), {}, [(5, 2, 8), (4, 2, 8)]),
    ("Transformer", (8, 2, 1, 1, 16, 0.0), {}, [(4, 2, 8), (5, 2, 8)]),
    ("MultiheadAttention", (8, 2), {}, [(5, 2, 8), (4, 2, 8), (4, 2, 8)]),
    ("MultiheadAttention", (8, 2), {"kdim": 6, "vdim": 4, "add_bias_kv": True, "add_zero_attn": True,
                                    "batch_first": True},
     [(2, 5, 8), (2, 4, 6), (2, 4, 4)]),
]


@pytest.mark.parametrize("case", LAYERS, ids=lambda c: f"{c[0]}-{c[1]}-{c[2]}".replace(" ", ""))
def test_layer(case):
    name, args, kwargs, shapes = case
    kwargs = dict(kwargs)
    evaluate = kwargs.pop("eval", False)
    torch.manual_seed(0)
    theirs, mine = getattr(tnn, name)(*args, **kwargs), getattr(nn, name)(*args, **kwargs)
    if evaluate:
        theirs.eval()
        mine.eval()
    assert repr(mine) == repr(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    for key, value in theirs.state_dict().items():
        assert tuple(mine.state_dict()[key].shape) == tuple(value.shape), key
    _shared(theirs, mine)
    rng = np.random.default_rng(1)
    arrays = [_array(rng, s) for s in shapes]
    a = [flambeau.from_numpy(x.copy()).requires_grad_() for x in arrays]
    b = [torch.from_numpy(x.copy()).requires_grad_() for x in arrays]
    for _ in range(2):  # twice: running statistics move
        outs, refs = _flat(mine(*a)), _flat(theirs(*b))
    assert len(outs) == len(refs)
    for out, ref in zip(outs, refs):
        _close(out, ref, "output")
    weights = [_array(rng, tuple(r.shape)) for r in refs]
    sum((o * flambeau.from_numpy(w)).sum() for o, w in zip(outs, weights)).backward()
    sum((o * torch.from_numpy(w)).sum() for o, w in zip(refs, weights)).backward()
    for i, (x, y) in enumerate(zip(a, b)):
        if y.grad is not None:
            _close(x.grad, y.grad, f"gradient of input {i}", 1e-4)
    for (key, p), (_, q) in zip(mine.named_parameters(), theirs.named_parameters()):
        assert (p.grad is None) == (q.grad is None), key
        if q.grad is not None:
            _close(p.grad, q.grad, f"gradient of {key}", 2e-4)
    for (key, p), (_, q) in zip(mine.named_buffers(), theirs.named_buffers()):
        _close(p, q, key)


LOSSES = [
    ("L1Loss", {}, ["normal", "normal"], [(4, 3), (4, 3)]),
    ("MSELoss", {}, ["normal", "normal"], [(4, 3), (4, 3)]),
    ("SmoothL1Loss", {"beta": 0.7}, ["normal", "normal"], [(4, 3), (4, 3)]),
    ("HuberLoss", {"delta": 0.7}, ["normal", "normal"], [(4, 3), (4, 3)]),
    ("BCELoss", {}, ["unit", "unit"], [(4, 3), (4, 3)]),
    ("BCEWithLogitsLoss", {}, ["normal", "unit"], [(4, 3), (4, 3)]),
    ("KLDivLoss", {"log_target": True}, ["log", "log"], [(4, 3), (4, 3)]),
    ("KLDivLoss", {}, ["log", "unit"], [(4, 3), (4, 3)]),
    ("PoissonNLLLoss", {"full": True}, ["normal", "4"], [(4, 3), (4, 3)]),
    ("GaussianNLLLoss", {"full": True}, ["normal", "normal", "unit"], [(4, 3)] * 3),
    ("HingeEmbeddingLoss", {}, ["normal", "sign"], [(4, 3), (4, 3)]),
    ("SoftMarginLoss", {}, ["normal", "sign"], [(4, 3), (4, 3)]),
    ("MarginRankingLoss", {"margin": 0.1}, ["normal", "normal", "sign"], [(5,)] * 3),
    ("CosineEmbeddingLoss", {"margin": 0.1}, ["normal", "normal", "sign"], [(5, 3), (5, 3), (5,)]),
    ("TripletMarginLoss", {"swap": True}, ["normal"] * 3, [(5, 3)] * 3),
    ("MultiMarginLoss", {"p": 2}, ["normal", "3"], [(5, 3), (5,)]),
    ("MultiLabelMarginLoss", {}, ["normal", "3"], [(5, 3), (5, 3)]),
    ("MultiLabelSoftMarginLoss", {}, ["normal", "unit"], [(5, 3), (5, 3)]),
    ("CrossEntropyLoss", {}, ["normal", "3"], [(5, 3), (5,)]),
    ("CrossEntropyLoss", {"label_smoothing": 0.1, "ignore_index": 1}, ["normal", "3"], [(5, 3, 2), (5, 2)]),
    ("NLLLoss", {}, ["log", "3"], [(5, 3), (5,)]),
]


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("case", LOSSES, ids=lambda c: f"{c[0]}-{c[1]}".replace(" ", ""))
def test_loss(case, reduction):
    name, kwargs, kinds, shapes = case
    mine, theirs = getattr(nn, name)(reduction=reduction, **kwargs), getattr(tnn, name)(reduction=reduction, **kwargs)
    assert repr(mine) == repr(theirs)
    rng = np.random.default_rng(2)
    arrays = [_array(rng, s, k) for s, k in zip(shapes, kinds)]
    a = [flambeau.from_numpy(x.copy()) for x in arrays]
    b = [torch.from_numpy(x.copy()) for x in arrays]
    for x, y, kind in zip(a, b, kinds):
        if y.is_floating_point() and kind != "sign":
            x.requires_grad_()
            y.requires_grad_()
    out, ref = mine(*a), theirs(*b)
    _close(out, ref, "loss")
    out.sum().backward()
    ref.sum().backward()
    for i, (x, y) in enumerate(zip(a, b)):
        if y.grad is not None:
            _close(x.grad, y.grad, f"gradient of argument {i}")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("concatenated", [False, True])
def test_ctc_loss(reduction, concatenated):
    rng = np.random.default_rng(3)
    logits = rng.standard_normal((7, 3, 5)).astype(np.float32)
    targets = np.array([[1, 1, 2], [3, 4, 0], [2, 0, 0]])
    lengths = [3, 2, 1]
    if concatenated:
        targets = np.concatenate([t[:n] for t, n in zip(targets, lengths)])
    a, b = flambeau.from_numpy(logits.copy()).requires_grad_(), torch.from_numpy(logits.copy()).requires_grad_()
    out = nn.CTCLoss(reduction=reduction)(a.log_softmax(-1), flambeau.from_numpy(targets), [7, 5, 6], lengths)
    ref = tnn.CTCLoss(reduction=reduction)(b.log_softmax(-1), torch.from_numpy(targets), [7, 5, 6], lengths)
    _close(out, ref, "loss")
    out.sum().backward()
    ref.sum().backward()
    _close(a.grad, b.grad, "gradient")


def test_packed_sequences():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((6, 3, 4)).astype(np.float32)
    lengths = [4, 6, 1]
    theirs, mine = tnn.GRU(4, 5, bidirectional=True), nn.GRU(4, 5, bidirectional=True)
    _shared(theirs, mine)
    pack, pad = flambeau.nn.utils.rnn.pack_padded_sequence, flambeau.nn.utils.rnn.pad_packed_sequence
    out, h = mine(pack(flambeau.from_numpy(x), lengths, enforce_sorted=False))
    ref, hr = theirs(tnn.utils.rnn.pack_padded_sequence(torch.from_numpy(x), lengths, enforce_sorted=False))
    padded, sizes = pad(out, total_length=7)
    expected, expected_sizes = tnn.utils.rnn.pad_packed_sequence(ref, total_length=7)
    _close(padded, expected, "output")
    _close(h, hr, "state")
    assert sizes.tolist() == expected_sizes.tolist()


GRIDS = [(m, p, a) for m in ("bilinear", "nearest", "bicubic") for p in ("zeros", "border",
                                                                         "reflection") for a in (False, True)]


@pytest.mark.parametrize("mode,padding,align", GRIDS)
def test_grid_sample(mode, padding, align):
    rng = np.random.default_rng(5)
    x, g = rng.standard_normal((2, 3, 4, 5)).astype(np.float32), rng.uniform(-1.4, 1.4, (2, 3, 2, 2)).astype(np.float32)
    out = nn.functional.grid_sample(flambeau.from_numpy(x), flambeau.from_numpy(g), mode, padding, align)
    _close(out, tnn.functional.grid_sample(torch.from_numpy(x), torch.from_numpy(g), mode, padding, align), "values",
           1e-4)


@pytest.mark.parametrize("d", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(("n", "kernel", "outputs"), [(2, (2, 3), (4, 3)), (2, (1, 2), (1, 7)), (3, (2, 2, 1), (3, 4, 5)), (3, (4, 3, 3), (2, 3, 2))])
def test_fractional_pooling_takes_the_same_elements(d, n, kernel, outputs):
    rng = np.random.default_rng(5)
    x, samples = rng.standard_normal((2, 3, *(9, 8, 7)[:n])), rng.uniform(0, 1, (2, 3, n))
    x[rng.uniform(size=x.shape) < 0.02 * (d == "float64")] = np.nan
    f = f"fractional_max_pool{n}d"
    there = getattr(tnn.functional, f)(torch.from_numpy(x).to(getattr(torch, d)), kernel, outputs, return_indices=True,
                                       _random_samples=torch.from_numpy(samples).to(getattr(torch, d)))
    here = getattr(nn.functional, f)(flambeau.from_numpy(x).to(getattr(flambeau, d)), kernel, outputs, return_indices=True,
                                     _random_samples=flambeau.from_numpy(samples).to(getattr(flambeau, d)))
    for a, b in zip(here, there, strict=True):
        np.testing.assert_array_equal(a.double().numpy(), b.double().numpy())


def test_grid_sample_of_volumes_and_affine_grid():
    rng = np.random.default_rng(6)
    x, theta = rng.standard_normal((2, 3, 4, 5, 3)).astype(np.float32), rng.standard_normal((2, 3,
                                                                                             4)).astype(np.float32) / 2
    grid = nn.functional.affine_grid(flambeau.from_numpy(theta), (2, 3, 3, 4, 2), align_corners=False)
    expected = tnn.functional.affine_grid(torch.from_numpy(theta), (2, 3, 3, 4, 2), align_corners=False)
    _close(grid, expected, "grid")
    out = nn.functional.grid_sample(flambeau.from_numpy(x), grid, align_corners=True)
    _close(out, tnn.functional.grid_sample(torch.from_numpy(x), expected, align_corners=True), "values", 1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
def test_antialiased_resize(mode):
    x = np.random.default_rng(7).standard_normal((2, 3, 9, 8)).astype(np.float32)
    out = nn.functional.interpolate(flambeau.from_numpy(x), (4, 5), mode=mode, antialias=True)
    _close(out, tnn.functional.interpolate(torch.from_numpy(x), (4, 5), mode=mode, antialias=True), "values", 1e-4)


def test_functions_with_other_arguments():
    rng = np.random.default_rng(8)
    x = rng.standard_normal((5, 4)).astype(np.float32)
    F, TF, a, b = nn.functional, tnn.functional, flambeau.from_numpy(x), torch.from_numpy(x)
    _close(F.pdist(a), TF.pdist(b), "pdist", 1e-4)
    _close(F.normalize(a, p=1, dim=0), TF.normalize(b, p=1, dim=0), "normalize")
    _close(F.one_hot(flambeau.tensor([[0, 2], [1, 2]]), 4), TF.one_hot(torch.tensor([[0, 2], [1, 2]]), 4), "one_hot")
    pooled, where = tnn.functional.max_pool2d(b.reshape(1, 1, 5, 4), 2, return_indices=True)
    _close(F.max_unpool2d(flambeau.from_numpy(pooled.numpy()), flambeau.from_numpy(where.numpy()), 2,
                          output_size=(5, 4)),
           TF.max_unpool2d(pooled, where, 2, output_size=(5, 4)), "max_unpool2d")


@pytest.mark.parametrize("dtype, tol", [("float32", 2e-5), ("float64", 1e-12), ("bfloat16", 2e-2), ("float16", 2e-3), ("int64", 0)])
@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("base", [(3,), (1, 3), (4, 3), (4, 1), (1,), ()])
def test_addmm_activation(dtype, tol, gelu, base):
    """PyTorch's fused operation, which has no gradient there."""
    rng = np.random.default_rng(9)
    arrays = [rng.integers(-4, 5, s) / (1 if dtype == "int64" else 4) for s in (base, (4, 5), (5, 3))]
    mine = [flambeau.tensor(a).to(getattr(flambeau, dtype)) for a in arrays]
    theirs = [torch.tensor(a).to(getattr(torch, dtype)) for a in arrays]
    if gelu and dtype == "int64":
        for module, args in ((flambeau, mine), (torch, theirs)):
            with pytest.raises((NotImplementedError, RuntimeError), match="not implemented for 'Long'"):
                module._addmm_activation(*args, use_gelu=True)
        return
    for more in ({}, {"beta": 2, "alpha": 3}, {"beta": 0}):
        a, b = flambeau._addmm_activation(*mine, use_gelu=gelu, **more), torch._addmm_activation(*theirs, use_gelu=gelu, **more)
        assert str(a.dtype) == str(b.dtype) and tuple(a.shape) == tuple(b.shape)
        np.testing.assert_allclose(a.double().numpy(), b.double().numpy(), rtol=tol, atol=tol)
        filled = flambeau._addmm_activation(flambeau.full_like(mine[0], 7 if dtype == "int64" else np.nan), *mine[1:], use_gelu=gelu, **more)
        other = torch._addmm_activation(torch.full_like(theirs[0], 7 if dtype == "int64" else np.nan), *theirs[1:], use_gelu=gelu, **more)
        np.testing.assert_allclose(filled.double().numpy(), other.double().numpy(), rtol=tol, atol=tol)
    with flambeau.autocast("cpu"), torch.autocast("cpu"):
        assert str(flambeau._addmm_activation(*mine).dtype) == str(torch._addmm_activation(*theirs).dtype)
