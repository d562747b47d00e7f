"""The meta device: shapes, strides and types as on the CPU, and no values anywhere."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

import flambeau as fb

F = fb.nn.functional


def said(x):
    """What can be known of a result without its values."""
    if isinstance(x, fb.Tensor):
        return tuple(x.shape), x.stride() if x.numel() > 1 else None, x.dtype, x.storage_offset(), x.requires_grad
    return [said(y) for y in x] if isinstance(x, (list, tuple)) else None


OPERATIONS = {
    "a + b": lambda a, b, i: a + b, "a / 2": lambda a, b, i: a / 2, "i + 1.5": lambda a, b, i: i + 1.5, "a > b": lambda a, b, i: a > b,
    "in place": lambda a, b, i: a.add_(1).mul_(b).clamp_(0).zero_(), "sum": lambda a, b, i: [a.sum(), a.sum(1, keepdim=True), a.mean(0)],
    "views": lambda a, b, i: [a.t(), a[1:, ::2], a.reshape(-1), a.unsqueeze(0).expand(5, 4, 6), a.permute(1, 0).contiguous(), a.view(2, 12)],
    "products": lambda a, b, i: [a @ b.t(), fb.einsum("ij,kj->ik", a, b), F.linear(a, b, b[:, 0]), fb.bmm(a[None], b.t()[None]), a.mv(b[0])],
    "order": lambda a, b, i: [*a.sort(1), *a.topk(2), a.argmax(0), *a.max(1), *a.kthvalue(2), *a.median(1), a.cumsum(1)],
    "index": lambda a, b, i: [a[i], a[:, i], a.gather(0, i[None].expand(1, 3)), a.index_select(1, i), a.take(i), a.index_add(0, i, b[:3]),
                              a.index_fill(0, i, 2), a.scatter(0, i[None], b), a.masked_fill(a > 0, 1), fb.where(a > 0, a, b)],
    "joined": lambda a, b, i: [fb.cat([a, b]), fb.stack([a, b], 1), *a.split(2), *a.chunk(3, 1), F.pad(a, (1, 2), "reflect"), a.roll(1, 0), a.flip(1)],
    "softmax": lambda a, b, i: [a.softmax(1), F.layer_norm(a, (6,)), F.cross_entropy(a, i.new_zeros(4)), F.dropout(a), F.gelu(a), a.log_softmax(0)],
    "images": lambda a, b, i: [F.conv2d(a[None, None], b[None, None, :2, :3], padding=1), F.conv_transpose2d(a[None, None], b[None, None, :2, :3]),
                               F.max_pool2d(a[None], 2), *F.max_pool2d(a[None], 2, return_indices=True), F.avg_pool2d(a[None], 2),
                               F.interpolate(a[None, None], scale_factor=2, mode="bilinear"), F.unfold(a[None, None], 2)],
    "attention": lambda a, b, i: F.scaled_dot_product_attention(a[None], b[None], b[None], is_causal=True),
    "matrices": lambda a, b, i: [fb.linalg.inv(a @ a.t()), *fb.linalg.svd(a), *fb.linalg.qr(a), fb.linalg.det(a @ b.t()), *fb.linalg.eigh(a @ a.t()),
                                 fb.linalg.solve(a @ a.t(), b), fb.linalg.norm(a), *fb.linalg.eig(a @ a.t()), fb.linalg.lstsq(a.t(), b.t())[0]],
    "spectra": lambda a, b, i: [fb.fft.fft(a), fb.fft.rfft2(a), fb.fft.irfft(fb.fft.rfft(a)), fb.stft(a[0], 4, return_complex=True)],
    "types": lambda a, b, i: [a.half(), a.long(), a.to(fb.complex64), a.double() + i[0], a.bool(), a.type_as(i)],
    "made": lambda a, b, i: [fb.zeros_like(a), a.new_ones(2, 3), fb.rand_like(a), fb.arange(5, device=a.device), fb.eye(3, device=a.device),
                             fb.randn(2, 2, device=a.device), fb.randperm(4, device=a.device), fb.tensor([1, 2], device=a.device),
                             fb.randint(3, (2,), device=a.device), fb.full((2,), 7, device=a.device), fb.linspace(0, 1, 4, device=a.device)],
    "embedding": lambda a, b, i: [F.embedding(i, a), F.one_hot(i, 5)],
    "many": lambda a, b, i: fb.func.vmap(lambda x: x.sin().sum())(a),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_say_what_they_would_give(name):
    def operands(device):
        a = (fb.arange(24, dtype=fb.float32) * 7 % 11).reshape(4, 6)
        return a.to(device), (a * 3 % 5).to(device), fb.tensor([0, 2, 1]).to(device)
    found, wanted = OPERATIONS[name](*operands("meta")), OPERATIONS[name](*operands("cpu"))
    assert said(found) == said(wanted)
    for t in found if isinstance(found, list) else [found]:
        assert t.is_meta and t.device == fb.device("meta") and not t.is_cpu and not t.is_cuda and t.get_device() == -1


def test_models_are_built_run_and_differentiated():
    with fb.device("meta"):
        net = fb.nn.Sequential(fb.nn.Conv2d(3, 8, 3, padding=1), fb.nn.BatchNorm2d(8), fb.nn.ReLU(), fb.nn.MaxPool2d(2), fb.nn.Flatten(),
                               fb.nn.Dropout(), fb.nn.Linear(8 * 16, 10))
        x = fb.randn(2, 3, 8, 8)
    y = net(x)
    assert y.is_meta and y.shape == (2, 10) and all(p.is_meta for p in net.parameters())
    F.cross_entropy(y, fb.zeros(2, dtype=fb.int64, device="meta")).backward()
    assert all(p.grad.is_meta and p.grad.shape == p.shape for p in net.parameters())
    fb.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    for kind in (fb.optim.AdamW, fb.optim.SGD):
        kind(net.parameters(), lr=0.1).step()
    text = fb.nn.Transformer(16, 2, 1, 1, 32, batch_first=True, device="meta")
    assert text(fb.empty(2, 5, 16, device="meta"), fb.empty(2, 4, 16, device="meta")).shape == (2, 4, 16)
    assert fb.nn.LSTM(3, 4, 2, device="meta")(fb.empty(5, 2, 3, device="meta"))[0].shape == (5, 2, 4)


def test_a_huge_model_costs_no_memory():
    net = fb.nn.Linear(1 << 20, 1 << 20, device="meta")
    assert net.weight.nbytes == 4 << 40 and net(fb.empty(7, 1 << 20, device="meta")).shape == (7, 1 << 20)


def test_modules_get_memory_and_values_afterwards():
    net = fb.nn.Linear(3, 4, device="meta")
    with pytest.raises(NotImplementedError, match="no data! Please use torch.nn.Module.to_empty"):
        net.to("cpu")
    values = fb.nn.Linear(3, 4).state_dict()
    with pytest.warns(UserWarning, match="no-op"):
        net.load_state_dict(values)
    assert net.weight.is_meta
    net.load_state_dict(values, assign=True)
    assert net.weight.device.type == "cpu" and fb.equal(net.weight, values["weight"])
    other = fb.nn.Linear(3, 4, device="meta").to_empty(device="cpu")
    other.load_state_dict(values)
    assert fb.equal(other.bias, values["bias"]) and fb.nn.utils.skip_init(fb.nn.Linear, 3, 4).weight.device.type == "cpu"


def test_files_hold_shapes_without_values():
    """As PyTorch's do."""
    file = io.BytesIO()
    fb.save({"x": fb.ones(2, 3, device="meta")}, file)
    file.seek(0)
    found = fb.load(file)["x"]
    assert found.is_meta and found.shape == (2, 3) and found.dtype is fb.float32


def test_values_are_refused(sim_gpus):
    x = fb.ones(2, 3, device="meta")
    for read in (x.tolist, lambda: x.cpu(), lambda: x.to("cuda"), lambda: x.nonzero(), lambda: x[x > 0], lambda: bool(x[0, 0]),
                 lambda: fb.ones(2, 3).copy_(x), lambda: fb.equal(x, x), lambda: x.unique()):
        with pytest.raises(NotImplementedError, match="meta tensor"):
            read()
    with pytest.raises(RuntimeError, match="cannot be called on meta tensors"):
        x.sum().item()
    with pytest.raises(TypeError, match="can't convert meta device type tensor to numpy"):
        x.numpy()
    with pytest.raises(RuntimeError, match="at least two devices"):
        x + fb.ones(2, 3)
    with pytest.raises(RuntimeError, match="cannot pin"):
        x.pin_memory()
    with pytest.raises(BufferError, match="meta"):
        x.__dlpack__()
    for given in (fb.ones(2, 3), fb.ones(2, 3, device="cuda")):
        assert x.copy_(given) is x and given.to("meta").shape == (2, 3)
    assert (x + fb.tensor(1.0)).is_meta and (x + 1).is_meta


def test_text_copies_and_files():
    x = fb.ones(2, 3, device="meta", dtype=fb.int64)
    assert repr(x) == "tensor(..., device='meta', size=(2, 3), dtype=torch.int64)"
    assert repr(fb.ones(2, device="meta")) == f"{fb.ones(2, device='meta')}" == "tensor(..., device='meta', size=(2,))"
    assert f"{fb.ones((), device='meta')}" == "tensor(..., device='meta', size=())"
    p = fb.nn.Parameter(fb.empty(3, 2, device="meta").t())
    for made in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(made) is fb.nn.Parameter and made.is_meta and made.shape == (2, 3) and made.requires_grad
    assert pickle.loads(pickle.dumps(p)).stride() == (1, 2)
    file = io.BytesIO()
    fb.save({"a": fb.ones(3)}, file)
    file.seek(0)
    assert fb.load(file, map_location="meta")["a"].is_meta
    y = x[1:]
    assert y.storage_offset() == 3 and y.data_ptr() == x.data_ptr() + 24 and x.untyped_storage().nbytes() == 48
    assert fb.empty(4, device="meta").data_ptr() != fb.empty(4, device="meta").data_ptr()


def test_as_the_default_device():
    fb.set_default_device("meta")
    try:
        assert fb.ones(2).is_meta and fb.nn.Linear(2, 2).weight.is_meta and fb.get_default_device() == fb.device("meta")
    finally:
        fb.set_default_device(None)
    assert not fb.ones(2).is_meta and fb.empty(1, device="meta:0").is_meta
