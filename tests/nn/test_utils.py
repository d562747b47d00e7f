"""Clipping, vectors of parameters, sequences, weight norms."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau import nn
from flambeau.nn.utils import clip_grad_norm_, clip_grad_value_, parameters_to_vector, vector_to_parameters
from flambeau.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpack_sequence,
    unpad_sequence,
)


def _with_grads(*grads):
    made = []
    for g in grads:
        p = nn.Parameter(flambeau.zeros(len(g)))
        p.grad = flambeau.tensor(g)
        made.append(p)
    return made


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, float("inf")])
def test_clip_grad_norm(norm):
    values = [[3.0, -4.0], [1.0, 2.0, 2.0]]
    params = [*_with_grads(*values), nn.Parameter(flambeau.zeros(1))]
    expected = np.linalg.norm(np.concatenate(values), norm)
    assert clip_grad_norm_(params, 1.5, norm).item() == pytest.approx(expected, rel=1e-6)
    for p, v in zip(params, values):
        np.testing.assert_allclose(p.grad.numpy(), np.array(v) * 1.5 / (expected + 1e-6), rtol=1e-6)
    small = _with_grads([0.1])
    clip_grad_norm_(small, 5.0)
    assert small[0].grad.tolist() == pytest.approx([0.1])
    assert clip_grad_norm_([], 1.0).item() == 0.0
    with pytest.raises(RuntimeError, match="is non-finite, so it cannot be clipped"):
        clip_grad_norm_(_with_grads([float("nan")]), 1.0, error_if_nonfinite=True)


def test_clip_grad_value():
    (p,) = _with_grads([3.0, -4.0, 0.5])
    clip_grad_value_(p, 1.0)
    assert p.grad.tolist() == [1.0, -1.0, 0.5]


def test_parameters_as_a_vector():
    net = nn.Linear(2, 2)
    vector = parameters_to_vector(net.parameters())
    assert vector.shape == (6,)
    vector_to_parameters(flambeau.arange(6).float(), net.parameters())
    assert net.weight.tolist() == [[0.0, 1.0], [2.0, 3.0]] and net.bias.tolist() == [4.0, 5.0]
    with pytest.raises(TypeError, match="expected torch.Tensor, but got: list"):
        vector_to_parameters([1.0], net.parameters())


def test_padding_and_unpadding():
    a, b = flambeau.tensor([1.0, 2.0, 3.0]), flambeau.tensor([4.0])
    assert pad_sequence([a, b], batch_first=True, padding_value=9.0).tolist() == [[1.0, 2.0, 3.0], [4.0, 9.0, 9.0]]
    assert pad_sequence([a, b], padding_side="left").tolist() == [[1.0, 0.0], [2.0, 0.0], [3.0, 4.0]]
    back = unpad_sequence(pad_sequence([a, b]), flambeau.tensor([3, 1]))
    assert [t.tolist() for t in back] == [[1.0, 2.0, 3.0], [4.0]]


def test_packing():
    rows = [flambeau.tensor([1.0]), flambeau.tensor([2.0, 3.0, 4.0]), flambeau.tensor([5.0, 6.0])]
    packed = pack_sequence(rows, enforce_sorted=False)
    assert isinstance(packed, PackedSequence) and packed.data.tolist() == [2.0, 5.0, 1.0, 3.0, 6.0, 4.0]
    assert packed.batch_sizes.tolist() == [3, 2, 1] and packed.sorted_indices.tolist() == [1, 2, 0]
    assert [t.tolist() for t in unpack_sequence(packed)] == [t.tolist() for t in rows]
    padded, lengths = pad_packed_sequence(packed, padding_value=-1.0, total_length=4)
    assert padded.t().tolist() == [[1.0, -1.0, -1.0, -1.0], [2.0, 3.0, 4.0, -1.0], [5.0, 6.0, -1.0, -1.0]]
    assert lengths.tolist() == [1, 3, 2]
    with pytest.raises(RuntimeError, match="must be sorted in decreasing order"):
        pack_sequence(rows)
    with pytest.raises(RuntimeError, match="has to be greater than 0"):
        pack_padded_sequence(flambeau.zeros(2, 1), [0])
    with pytest.raises(RuntimeError, match="equal to batch_size"):
        pack_padded_sequence(flambeau.zeros(2, 1), [2, 1])


def test_weight_norm():
    net = nn.utils.weight_norm(nn.Linear(3, 2))
    assert {n for n, _ in net.named_parameters()} == {"bias", "weight_g", "weight_v"}
    with flambeau.no_grad():
        net.weight_g.fill_(5.0)
    net(flambeau.zeros(1, 3))
    np.testing.assert_allclose(np.linalg.norm(net.weight.detach().numpy(), axis=1), [5.0, 5.0], rtol=1e-6)
    nn.utils.remove_weight_norm(net)
    assert {n for n, _ in net.named_parameters()} == {"bias", "weight"}
    with pytest.raises(ValueError, match="weight_norm of 'weight' not found"):
        nn.utils.remove_weight_norm(net)


def test_spectral_norm_brings_the_largest_singular_value_to_one():
    net = nn.utils.spectral_norm(nn.Linear(6, 4), n_power_iterations=200)
    net(flambeau.zeros(1, 6))
    assert np.linalg.norm(net.weight.detach().numpy(), 2) == pytest.approx(1.0, abs=1e-4)
    nn.utils.remove_spectral_norm(net)
    assert isinstance(net.weight, nn.Parameter)


@pytest.mark.parametrize(("name", "dtype"), [("double", "float64"), ("float", "float32"), ("half", "float16"), ("long", "int64"), ("int", "int32"),
                                            ("short", "int16"), ("char", "int8"), ("byte", "uint8")])
def test_packed_sequences_are_cast_by_name(name, dtype):
    packed = pack_sequence([flambeau.tensor([1.0, 2.0, 3.0]), flambeau.tensor([4.0])])
    cast = getattr(packed, name)()
    assert type(cast) is PackedSequence and cast.data.dtype is getattr(flambeau, dtype)
    assert cast.data.tolist() == [1, 4, 2, 3] and cast.batch_sizes.tolist() == [2, 1, 1]


def test_a_pruning_that_fails_leaves_the_module_as_it_was() -> None:
    from flambeau.nn.utils import prune

    class Failing(prune.L1Unstructured):
        def compute_mask(self, t, default_mask):
            raise ValueError("no mask")

    m = nn.Linear(3, 2)
    for pruned in (False, True):
        if pruned:
            prune.l1_unstructured(m, "weight", 1)
        before = (list(m.state_dict()), list(m._forward_pre_hooks.values()))
        with pytest.raises(ValueError, match="no mask"):
            Failing.apply(m, "weight", amount=1)
        assert (list(m.state_dict()), list(m._forward_pre_hooks.values())) == before
    assert prune._compute_nparams_toprune(0.4, 17) == 7 and prune._compute_nparams_toprune(3, 17) == 3
    with pytest.raises(ValueError, match="amount=20 should be smaller"):
        prune._validate_pruning_amount(20, 19)


def test_normalised_weights_need_a_shape() -> None:
    for normalise in (nn.utils.weight_norm, nn.utils.spectral_norm):
        with pytest.raises(ValueError, match="can't have uninitialized parameters"):
            normalise(nn.LazyLinear(3))


def test_nothing_cannot_be_packed() -> None:
    for made, lengths in ((flambeau.zeros(0, 0), []), (flambeau.zeros(0, 3), [1, 1, 1])):
        with pytest.raises(RuntimeError, match="Cannot pack empty tensors"):
            nn.utils.rnn.pack_padded_sequence(made, lengths)


def test_norms_over_all_axes_but_one() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    v = flambeau.tensor(x)
    np.testing.assert_allclose(flambeau.norm_except_dim(v, 2, 1).numpy(), np.sqrt((x ** 2).sum((0, 2), keepdims=True)))
    np.testing.assert_allclose(flambeau.norm_except_dim(v, 1, -3).numpy(), np.abs(x).sum((1, 2), keepdims=True))
    np.testing.assert_allclose(flambeau.norm_except_dim(v, pow=3, dim=-1).numpy(), (np.abs(x) ** 3).sum() ** (1 / 3))
    with pytest.raises(IndexError):
        flambeau.norm_except_dim(v, 2, 7)
    with pytest.raises(TypeError, match="'pow' .* must be int"):
        flambeau.norm_except_dim(v, 2.5, 0)
