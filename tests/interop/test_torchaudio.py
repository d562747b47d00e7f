"""What torchaudio's library registers, beside the sums over all ways and the recurrences sample by sample."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import flambeau as torch
from flambeau.interop import torchaudio


def by_samples(x: np.ndarray, a: np.ndarray, before: np.ndarray) -> np.ndarray:
    p = a.shape[1]
    made = np.concatenate([before, x], -1)
    for i in range(x.shape[-1]):
        made[..., i + p] = x[..., i] - (made[..., i:i + p] * a[:, ::-1]).sum(-1)
    return made[..., p:]


@pytest.mark.parametrize("shape, p", [((1, 1, 10), 2), ((2, 3, 9000), 4), ((1, 2, 4096), 1), ((1, 1, 4097), 3), ((2, 2, 3), 7), ((2, 2, 1), 3),
                                      ((0, 1, 4), 2), ((1, 1, 0), 2), ((2, 3, 5), 0)])
def test_recurrence(shape: tuple[int, ...], p: int) -> None:
    rng = np.random.default_rng(1)
    a = np.stack([np.atleast_1d(np.poly(rng.uniform(-0.95, 0.95, p)))[1:] for _ in range(shape[1])])
    x, before = rng.standard_normal(shape), rng.standard_normal((*shape[:2], p))
    np.testing.assert_allclose(torchaudio.recurrence(x, a, before), by_samples(x, a, before), rtol=1e-10, atol=1e-10)
    if x.size:
        x[..., x.shape[-1] // 2] = np.nan
        assert (np.isfinite(torchaudio.recurrence(x, a, before)) == np.isfinite(by_samples(x, a, before))).all()


@pytest.mark.parametrize("d", ["float32", "float64"])
def test_filters_write_their_output(device: str, d: str) -> None:
    rng, kind = np.random.default_rng(2), getattr(torch, d)
    x, a = rng.standard_normal((2, 2, 300)), np.array([[1.0, -0.5, 0.2], [1.0, 0.3, 0.1]])
    padded = torch.zeros(2, 2, 302, dtype=kind, device=device)
    made = torchaudio.lfilter_core_loop(torch.tensor(x, dtype=kind, device=device), torch.tensor(a[:, ::-1].copy(), dtype=kind, device=device), padded)
    assert made is padded and made.dtype is kind and made[..., :2].abs().sum() == 0
    np.testing.assert_allclose(padded[..., 2:].cpu().numpy(), by_samples(x, a[:, 1:], np.zeros((2, 2, 2))), rtol=1e-5, atol=1e-5)
    with pytest.raises(RuntimeError, match=r"expected \(b, c, n\)"):
        torchaudio.lfilter_core_loop(torch.ones(2, 2, 3), torch.ones(3, 2), torch.ones(2, 2, 4))

    wave, temp, last_in, last_out = (torch.tensor(rng.standard_normal(s), dtype=kind, device=device) for s in ((3, 40), (3, 40), 3, 3))
    want, ins, outs = np.zeros((3, 40)), last_in.cpu().numpy(), last_out.cpu().numpy()
    for i in range(40):
        here = temp[:, i].cpu().numpy()
        outs, ins = here - ins + 0.995 * outs, here
        want[:, i] = 0.5 * wave[:, i].cpu().numpy() + 0.75 * outs
    out = torch.empty(3, 40, dtype=kind, device=device)
    assert torchaudio.overdrive_core_loop(wave, temp, last_in, last_out, out)[2] is out
    np.testing.assert_allclose(out.cpu().numpy(), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(last_in.cpu().numpy(), ins)
    np.testing.assert_allclose(last_out.cpu().numpy(), outs, rtol=1e-4, atol=1e-5)


def collapsed(path: tuple[int, ...], blank: int) -> list[int]:
    return [k for k, _ in itertools.groupby(path) if k != blank]


@pytest.mark.parametrize("labels", [[1, 2], [1, 1], [2], [], [1, 2, 1]])
def test_the_likeliest_way(device: str, labels: list[int]) -> None:
    rng, blank = np.random.default_rng(3), 0
    logs = torch.tensor(rng.standard_normal((1, 5, 3))).log_softmax(-1)
    ways = [w for w in itertools.product(range(3), repeat=5) if collapsed(w, blank) == labels]
    best = max(ways, key=lambda w: sum(logs[0, t, k].item() for t, k in enumerate(w)))
    targets = torch.tensor([labels], dtype=torch.int32, device=device)
    path, scores = torchaudio.forced_align(logs.to(device), targets, torch.tensor([5]), torch.tensor([len(labels)]), blank)
    assert path.dtype is torch.int32 and path.device.type == torch.device(device).type and path.tolist() == [list(best)]
    assert torch.equal(scores.cpu(), logs)


def test_what_cannot_be_aligned() -> None:
    logs = torch.zeros(1, 3, 4)
    with pytest.raises(RuntimeError, match="targets length is too long for CTC. Found log_probs length: 3, targets length: 3, and number of repeats: 2"):
        torchaudio.forced_align(logs, torch.tensor([[1, 1, 1]]), torch.tensor([3]), torch.tensor([3]), 0)
    with pytest.raises(RuntimeError, match="batch dimension for log_probs must be 1"):
        torchaudio.forced_align(logs.expand(2, 3, 4), torch.ones(2, 1, dtype=torch.int64), torch.tensor([3, 3]), torch.tensor([1, 1]), 0)
    with pytest.raises(RuntimeError, match="length mismatch"):
        torchaudio.forced_align(logs, torch.tensor([[1]]), torch.tensor([2]), torch.tensor([1]), 0)


def over_all_ways(logs: np.ndarray, labels: list[int], blank: int) -> float:
    """-log of the sum over all orders of a blank for each step and the labels; the last is a blank."""
    steps, total = len(logs), 0.0
    for places in itertools.combinations_with_replacement(range(steps), len(labels)):
        score, u = 0.0, 0
        for t in range(steps):
            while u < len(labels) and places[u] == t:
                score += logs[t, u, labels[u]]
                u += 1
            score += logs[t, u, blank]
        total += math.exp(score)
    return -math.log(total)


@pytest.mark.parametrize("fused", [True, False])
def test_the_transducers_loss_and_its_gradient(device: str, fused: bool) -> None:
    rng = np.random.default_rng(4)
    given, targets, steps, sizes, blank = rng.standard_normal((3, 4, 3, 5)), [[1, 2], [3, 0], [0, 0]], [4, 2, 3], [2, 1, 0], 4
    if not fused:
        given = torch.tensor(given).log_softmax(-1).numpy()

    def losses(x: np.ndarray) -> list[float]:
        logs = torch.tensor(x).log_softmax(-1).numpy() if fused else x
        return [over_all_ways(logs[k, :n, :u + 1], targets[k][:u], blank) for k, (n, u) in enumerate(zip(steps, sizes, strict=True))]
    args = [torch.tensor(v, dtype=torch.int32, device=device) for v in (targets, steps, sizes)]
    found, slopes = torchaudio.rnnt_loss_forward(torch.tensor(given, device=device), *args, blank, -1.0, fused)
    np.testing.assert_allclose(found.cpu().numpy(), losses(given), rtol=1e-12)
    want = np.zeros_like(given)
    for at in np.ndindex(*given.shape):
        up, down = given.copy(), given.copy()
        up[at] += 1e-6
        down[at] -= 1e-6
        want[at] = (losses(up)[at[0]] - losses(down)[at[0]]) / 2e-6
    np.testing.assert_allclose(slopes.cpu().numpy(), want, atol=1e-8)
    cut = torchaudio.rnnt_loss_forward(torch.tensor(given, device=device), *args, blank, 0.1, fused)[1]
    np.testing.assert_allclose(cut.cpu().numpy(), want.clip(-0.1, 0.1), atol=1e-8)


def test_a_transducer_of_other_shapes() -> None:
    x, n = torch.zeros(1, 4, 3, 5), torch.tensor([4])
    for targets, steps, sizes, blank, words in ((torch.zeros(1, 4), n, n, 0, "expected logits"), (torch.zeros(1, 2), n, n, 0, "output length mismatch"),
                                                (torch.zeros(1, 2), n - 1, n - 2, 0, "input length mismatch"),
                                                (torch.zeros(1, 2), n, n - 2, 5, "blank must be within")):
        with pytest.raises(RuntimeError, match=words):
            torchaudio.rnnt_loss_forward(x, targets.long(), steps, sizes, blank, -1.0, True)
