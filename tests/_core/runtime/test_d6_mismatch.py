"""Row D6: one device per operation.  The error's text is a feature, and it must hold for every family of operations."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn, optim

F: Any = nn.functional
BEGINS = "Expected all tensors to be on the same device, but found at least two devices, "


@pytest.fixture(params=["eager", "lazy"])
def gpus(request: pytest.FixtureRequest) -> Iterator[None]:
    with torch.simulate(gpus=2, memory="64MiB", queue=request.param):
        yield


def floats(*shape: int) -> torch.Tensor:
    return torch.rand(*shape) + 0.5


def ints(*shape: int) -> torch.Tensor:
    return torch.randint(0, 3, shape)


def bools(*shape: int) -> torch.Tensor:
    return torch.rand(*shape) > 0.5


# operation, its arguments' names, the call, the arguments' makers
Row = tuple[str, str, Callable[..., Any], tuple[Callable[[], torch.Tensor], ...]]
TWO = (lambda: floats(3, 4),) * 2
TABLE: list[Row] = [
    *[(n, "input other", getattr(torch, n), TWO) for n in (
        "add sub mul div floor_divide remainder fmod maximum minimum fmax fmin atan2 hypot copysign nextafter logaddexp xlogy "
        "eq ne lt le gt ge logical_and logical_or logical_xor ldexp").split()],
    ("pow", "input exponent", torch.pow, TWO),
    *[(n, "input other", getattr(torch, n), (lambda: ints(3, 4),) * 2) for n in ("bitwise_and", "bitwise_or", "bitwise_xor")],
    ("lerp", "input end weight", torch.lerp, (lambda: floats(3),) * 3),
    ("addcmul", "input tensor1 tensor2", torch.addcmul, (lambda: floats(3),) * 3),
    ("clamp", "input min max", torch.clamp, (lambda: floats(3),) * 3),
    ("where", "condition input other", torch.where, (lambda: bools(3), lambda: floats(3), lambda: floats(3))),
    ("matmul", "input other", torch.matmul, (lambda: floats(3, 4), lambda: floats(4, 3))),
    ("mm", "input mat2", torch.mm, (lambda: floats(3, 4), lambda: floats(4, 3))),
    ("bmm", "input mat2", torch.bmm, (lambda: floats(2, 3, 4), lambda: floats(2, 4, 3))),
    ("dot", "input tensor", torch.dot, (lambda: floats(4),) * 2),
    ("addmm", "input mat1 mat2", torch.addmm, (lambda: floats(3, 3), lambda: floats(3, 4), lambda: floats(4, 3))),
    ("einsum", "operands[0] operands[1]", lambda a, b: torch.einsum("ij,jk->ik", a, b), (lambda: floats(3, 4), lambda: floats(4, 3))),
    ("linear", "input weight bias", F.linear, (lambda: floats(2, 3), lambda: floats(4, 3), lambda: floats(4))),
    ("conv1d", "input weight bias", F.conv1d, (lambda: floats(1, 2, 8), lambda: floats(3, 2, 3), lambda: floats(3))),
    ("conv2d", "input weight bias", F.conv2d, (lambda: floats(1, 2, 8, 8), lambda: floats(3, 2, 3, 3), lambda: floats(3))),
    ("conv_transpose2d", "input weight bias", F.conv_transpose2d,
     (lambda: floats(1, 2, 8, 8), lambda: floats(2, 3, 3, 3), lambda: floats(3))),
    ("cat", "tensors[0] tensors[1] tensors[2]", lambda *t: torch.cat(t), (lambda: floats(3),) * 3),
    ("stack", "tensors[0] tensors[1]", lambda *t: torch.stack(t), (lambda: floats(3),) * 2),
    ("gather", "input index", lambda a, b: torch.gather(a, 0, b), (lambda: floats(3, 4), lambda: ints(3, 4))),
    ("scatter", "input index src", lambda a, b, c: torch.scatter(a, 0, b, c), (lambda: floats(3, 4), lambda: ints(3, 4), lambda: floats(3, 4))),
    ("index_select", "input index", lambda a, b: torch.index_select(a, 0, b), (lambda: floats(3, 4), lambda: ints(3))),
    ("index_add", "input index source", lambda a, b, c: torch.index_add(a, 0, b, c), (lambda: floats(3, 4), lambda: ints(3), lambda: floats(3, 4))),
    ("take", "input index", torch.take, (lambda: floats(3, 4), lambda: ints(3))),
    ("put", "input index source", lambda a, b, c: a.put(b, c), (lambda: floats(3, 4), lambda: ints(2), lambda: floats(2))),
    ("masked_fill", "input mask", lambda a, m: torch.masked_fill(a, m, 1.0), (lambda: floats(3, 4), lambda: bools(3, 4))),
    ("masked_select", "input mask", torch.masked_select, (lambda: floats(3, 4), lambda: bools(3, 4))),
    ("masked_scatter", "input mask source", torch.masked_scatter, (lambda: floats(3, 4), lambda: bools(3, 4), lambda: floats(12))),
    *[(n, "input target", getattr(F, n), (lambda: torch.rand(3, 4),) * 2) for n in (
        "mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy binary_cross_entropy_with_logits "
        "poisson_nll_loss soft_margin_loss").split()],
    ("cross_entropy", "input target weight", F.cross_entropy, (lambda: floats(3, 4), lambda: ints(3), lambda: floats(4))),
    ("nll_loss", "input target", F.nll_loss, (lambda: floats(3, 4), lambda: ints(3))),
    ("cosine_embedding_loss", "input1 input2 target", F.cosine_embedding_loss, (lambda: floats(3, 4), lambda: floats(3, 4), lambda: floats(3).sign())),
    ("triplet_margin_loss", "anchor positive negative", F.triplet_margin_loss, (lambda: floats(3, 4),) * 3),
    ("layer_norm", "input weight bias", lambda x, w, b: F.layer_norm(x, (4,), w, b), (lambda: floats(3, 4), lambda: floats(4), lambda: floats(4))),
    ("group_norm", "input weight bias", lambda x, w, b: F.group_norm(x, 2, w, b), (lambda: floats(3, 4), lambda: floats(4), lambda: floats(4))),
    ("batch_norm", "input running_mean running_var weight bias", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, True),
     (lambda: floats(3, 4), *(lambda: floats(4),) * 4)),
    ("embedding", "input weight", F.embedding, (lambda: ints(3), lambda: floats(4, 5))),
    ("prelu", "input weight", F.prelu, (lambda: floats(3, 4), lambda: floats(4))),
    ("scaled_dot_product_attention", "query key value", F.scaled_dot_product_attention, (lambda: floats(1, 2, 3, 4),) * 3),
    ("cosine_similarity", "x1 x2", F.cosine_similarity, TWO),
    ("quantile", "input q", torch.quantile, (lambda: floats(5), lambda: torch.tensor([0.1, 0.2]))),
    ("searchsorted", "sorted_sequence input", torch.searchsorted, (lambda: torch.arange(3.0), lambda: floats(3))),
    ("isin", "elements test_elements", torch.isin, (lambda: ints(3), lambda: ints(2))),
    ("bincount", "input weights", torch.bincount, (lambda: ints(3), lambda: floats(3))),
    ("complex", "real imag", torch.complex, (lambda: floats(3),) * 2),
    ("select_scatter", "input src", lambda a, b: torch.select_scatter(a, b, 0, 1), (lambda: floats(3, 4), lambda: floats(4))),
    ("diagonal_scatter", "input src", torch.diagonal_scatter, (lambda: floats(3, 3), lambda: floats(3))),
    ("histogram", "input bins weight", lambda a, b, w: torch.histogram(a, b, weight=w), (lambda: floats(3), lambda: torch.arange(3.0), lambda: floats(3))),
    ("lu_unpack", "LU_data LU_pivots", torch.lu_unpack, (lambda: floats(3, 3), lambda: torch.tensor([1, 2, 3], dtype=torch.int32))),
    ("solve", "A B", torch.linalg.solve, (lambda: torch.eye(3), lambda: floats(3, 2))),
    ("meshgrid", "tensors[0] tensors[1]", lambda a, b: torch.meshgrid(a, b, indexing="ij"), (lambda: floats(2), lambda: floats(3))),
]


@pytest.mark.parametrize("row", TABLE, ids=[r[0] for r in TABLE])
def test_every_family_names_the_odd_argument(gpus: None, row: Row) -> None:
    name, labels, call, makers = row
    names = labels.split()
    tensors = [make() for make in makers]
    for home, away in (("cuda:0", "cpu"), ("cuda:1", "cuda:0"), ("cpu", "cuda:1")):
        for odd, label in enumerate(names):
            args = [t.to(away if i == odd else home) for i, t in enumerate(tensors)]
            with pytest.raises(RuntimeError) as caught:
                call(*args)
            text = str(caught.value)
            assert text.startswith(BEGINS) and home in text.split("!")[0] and away in text.split("!")[0], text
            assert f" in method {name})" in text.split("\n")[0], text
            for other, t in zip(names, args, strict=True):
                assert f"\n  {other}: {t.dtype} {list(t.shape)} on {t.device}\n" in text, text
            cure = re.findall(r"(\S+)\.to\('([^']+)'\)", text.split("To mend it: ")[1])
            wanted = "cuda:1" if (home, away) == ("cpu", "cuda:1") else home
            if len(names) > 1 and wanted == home and (home, away) != ("cuda:1", "cuda:0"):
                assert cure == [(label, home)], text
            moved = dict(cure)
            args = [t.to(moved[n]) if n in moved else t for n, t in zip(names, args, strict=True)]
            call(*args)  # the cure in the message is a cure


def test_the_whole_text(gpus: None) -> None:
    with pytest.raises(RuntimeError) as caught:
        F.linear(torch.ones(2, 3, device="cuda"), torch.ones(4, 3, device="cuda"), torch.ones(4))
    assert str(caught.value) == (
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
        "(when checking argument for argument bias in method linear)\n"
        "  input: torch.float32 [2, 3] on cuda:0\n"
        "  weight: torch.float32 [4, 3] on cuda:0\n"
        "  bias: torch.float32 [4] on cpu\n"
        "To mend it: bias.to('cuda:0'). flambeau.provenance(True) makes tensors remember the line they came from.")


def test_operators_and_methods_name_their_arguments(gpus: None) -> None:
    a, b = torch.ones(3), torch.ones(3, device="cuda")
    for call in (lambda: a + b, lambda: b - a, lambda: a * b, lambda: a.mul(b), lambda: a < b, lambda: a / b, lambda: a // b, lambda: a ** b):
        with pytest.raises(RuntimeError, match=r"\n  input: .* on (cpu|cuda:0)\n  (other|exponent): .* on (cpu|cuda:0)\n"
                                               r"To mend it: (input|other|exponent)\.to\('cuda:0'\)"):
            call()


@pytest.mark.parametrize("call", [
    lambda a, b: a.add_(b), lambda a, b: a.__imul__(b), lambda a, b: a.copysign_(b), lambda a, b: torch.add(b, b, out=a),
    lambda a, b: torch.exp(b, out=a), lambda a, b: torch.mm(b, b, out=a), lambda a, b: torch.cat([b, b], out=a), lambda a, b: torch.sum(b, 0, out=a),
])
def test_what_is_written_to_stays_and_the_rest_is_to_move(gpus: None, call: Any) -> None:
    for home, away in (("cuda:0", "cpu"), ("cpu", "cuda:0")):
        with pytest.raises(RuntimeError) as caught:
            call(torch.ones(2, 2, device=home), torch.ones(2, 2, device=away))
        assert str(caught.value).startswith(BEGINS + f"{home} and {away}!")
        cures = re.findall(r"(\S+)\.to\('([^']+)'\)", str(caught.value))
        assert cures and all(to == home and name != "out" for name, to in cures), caught.value


def test_indices(gpus: None) -> None:
    x, i, m = torch.arange(6.0, device="cuda"), torch.tensor([1, 3]), torch.tensor([True, False] * 3)
    assert x[i].tolist() == [1, 3] and x[m].tolist() == [0, 2, 4]  # indices on the CPU may go along, as in PyTorch
    x[i] = torch.tensor(9.0)
    assert x.tolist() == [0, 9, 2, 9, 4, 5]
    with pytest.raises(RuntimeError, match=r"^indices should be either on cpu or on the same device as the indexed tensor \(cpu\)(.|\n)*index.to\('cpu'\)"):
        x.cpu()[i.cuda()]
    for write in (lambda: x.__setitem__(i, torch.ones(2)), lambda: x.index_put((i,), torch.ones(2)), lambda: x.index_put_((i,), torch.ones(2)),
                  lambda: x.__setitem__(slice(0, 2), torch.ones(2))):
        with pytest.raises(RuntimeError, match="^" + BEGINS + "cuda:0 and cpu!"):
            write()


def test_gradients_and_optimizers(gpus: None) -> None:
    x = torch.ones(3, device="cuda", requires_grad=True)
    with pytest.raises(RuntimeError, match=r"^invalid gradient at index 0 - expected device cuda:0 but got cpu(.|\n)*gradient.to\('cuda:0'\)"):
        (x * 2).backward(torch.ones(3))
    with pytest.raises(RuntimeError, match="assigned grad has data located on a different device"):
        x.grad = torch.ones(3)
    for kind in (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop):
        p = nn.Parameter(torch.ones(3))
        p.grad = torch.ones(3)
        p.data = p.data.cuda()  # the gradient is left behind, which Module.cuda would not do
        with pytest.raises(RuntimeError, match="^" + BEGINS):
            kind([p], lr=0.1).step()


def test_a_module_names_the_cure_for_all_its_parameters(gpus: None) -> None:
    for net, x in ((nn.Linear(3, 4), torch.ones(2, 3)), (nn.Conv2d(1, 2, 3), torch.ones(1, 1, 5, 5)), (nn.BatchNorm1d(3), torch.ones(2, 3)),
                   (nn.LayerNorm(3), torch.ones(2, 3)), (nn.LSTM(3, 4), torch.ones(5, 2, 3)), (nn.Embedding(3, 4), torch.tensor([1])),
                   (nn.TransformerEncoderLayer(4, 2, 8), torch.ones(3, 1, 4)), (nn.MultiheadAttention(4, 2), None)):
        with pytest.raises(RuntimeError, match="^" + BEGINS) as caught:
            net(x.cuda()) if x is not None else net(*[torch.ones(3, 1, 4, device="cuda")] * 3)
        assert ("module.to('cuda:0')" in str(caught.value)) or isinstance(net, nn.BatchNorm1d), caught.value


def test_zero_dim_cpu_tensors_combine_with_gpu_tensors(gpus: None) -> None:
    one, x = torch.tensor(2.0), torch.ones(3, device="cuda")
    for result, expected in ((x + one, 3), (one + x, 3), (one * x, 2), (x ** one, 1), (torch.where(x > 0, x, one), 1), (torch.maximum(x, one), 2),
                             (torch.lerp(x, x, one), 1), (x.clone().add_(one), 3), (torch.add(x, one, out=torch.empty(3, device="cuda")), 3),
                             (x.clone().masked_fill(x > 0, one), 2)):
        assert result.is_cuda and result.tolist() == [expected] * 3
    leaf = torch.tensor(2.0, requires_grad=True)
    (x * leaf).sum().backward()
    assert leaf.grad.device.type == "cpu" and leaf.grad.item() == 3
    for call in (lambda: one.add_(x[0]), lambda: torch.ones(3) + x[0], lambda: torch.cat([x, one.reshape(1)]), lambda: torch.dot(x, torch.ones(3))):
        with pytest.raises(RuntimeError, match=BEGINS):  # a GPU scalar does not go to the CPU, and one element is not zero-dim
            call()


def test_nothing_is_moved_by_a_refused_operation(gpus: None) -> None:
    from flambeau._core.runtime import dispatch
    a, b = torch.ones(3), torch.ones(3, device="cuda")
    copies: list[Any] = []
    with dispatch.observe(copies=copies.append):
        for call in (lambda: a + b, lambda: F.linear(a, b.reshape(1, 3)), lambda: torch.cat([a, b]), lambda: a.mul_(b)):
            with pytest.raises(RuntimeError, match=BEGINS):
                call()
    assert not copies


class TestProvenance:
    """Where each tensor came from, when the switch is on."""

    def test_the_error_names_the_lines(self, gpus: None) -> None:
        with torch.provenance():
            x = torch.ones(2, 3)
            w = torch.ones(4, 3)
            x = x.to("cuda")  # moved here
            here = torch.provenance.of(x)
            with pytest.raises(RuntimeError) as caught:
                F.linear(x, w)
            assert here is not None and here.startswith(__file__) and f"input: torch.float32 [2, 3] on cuda:0, from {here}" in str(caught.value)
            assert f"weight: torch.float32 [4, 3] on cpu, from {torch.provenance.of(w)}" in str(caught.value)
            first, second = (int(s.rpartition(":")[2]) for s in (here, torch.provenance.of(w) or ""))
            assert first == second + 1
            assert "provenance(True)" not in str(caught.value)

    def test_every_way_to_make_a_tensor(self, gpus: None) -> None:
        x = torch.ones(4, 4)
        for _ in range(2):
            x + x, x.exp(), x @ x  # plans are kept from before the switch
        with torch.provenance():
            assert torch.provenance.of(x) is None
            made = [x + x, x.exp(), x @ x, x + 1, x.t(), x[0], x[x > 0], x.view(16), x.sum(), x.double(), x.cuda(), x.detach(), x.clone(), x.data,
                    torch.cat([x, x]), torch.softmax(x, 0), torch.randn(3), torch.arange(3), torch.tensor([1.0]), torch.from_numpy(x.numpy()),
                    F.relu(x), F.linear(x, x), torch.zeros_like(x), x.pin_memory(), nn.Parameter(x), torch.FloatTensor(3), x + x, x.exp(), x @ x]
            lines = {torch.provenance.of(t) for t in made}
            assert None not in lines and len(lines) <= 3 and all(line and line.startswith(__file__) for line in lines)
            net = nn.Linear(2, 2)
            before = torch.provenance.of(net.weight)
            net.cuda()
            assert before and torch.provenance.of(net.weight) and torch.provenance.of(net.weight) != before
        assert torch.provenance.of(x + x) is None and torch.provenance.of(x @ x) is None and torch.provenance.of(x[0]) is None

    def test_it_nests_and_goes_back(self) -> None:
        assert not torch.provenance.enabled()
        with torch.provenance():
            with torch.provenance(False):
                assert torch.provenance.of(torch.ones(1)) is None
            assert torch.provenance.of(torch.ones(1)) is not None
        assert not torch.provenance.enabled()

    def test_off_leaves_no_trace_in_the_quick_ways(self) -> None:
        made = {getattr(sys.modules["flambeau." + name], "_new") for name in ("_core.tensor", "_core.ops.views", "nn.parameter")}  # noqa: B009
        assert made == {object.__new__}

    def test_the_environment_turns_it_on(self) -> None:
        script = "import flambeau as t\nx = t.ones(2)\ny = x + x\ny = x + x\nprint(t.provenance.of(x), t.provenance.of(y))"
        for value, expected in (("1", "<string>:2 <string>:4"), ("0", "None None"), ("", "None None")):
            out = subprocess.run([sys.executable, "-c", script], env={**os.environ, "FLAMBEAU_PROVENANCE": value}, capture_output=True, text=True,
                                 timeout=100)
            assert out.stdout.strip() == expected, out.stderr
