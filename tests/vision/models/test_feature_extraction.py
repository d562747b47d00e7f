"""What layers of a model give."""

from __future__ import annotations

import copy

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.vision.models import resnet18
from flambeau.vision.models.feature_extraction import create_feature_extractor, get_graph_node_names


def test_names_of_resnet18() -> None:
    train, evaluation = get_graph_node_names(resnet18())
    assert train == evaluation and len(train) == 70
    assert train[:12] == ["x", "conv1", "bn1", "relu", "maxpool", "layer1.0.conv1", "layer1.0.bn1", "layer1.0.relu", "layer1.0.conv2",
                          "layer1.0.bn2", "layer1.0.add", "layer1.0.relu_1"]
    assert train[-3:] == ["avgpool", "flatten", "fc"]


def test_features_are_what_the_layers_give() -> None:
    model = resnet18().eval()
    seen = {}
    x = torch.randn(1, 3, 32, 32)
    with model.layer2.register_forward_hook(lambda m, i, o: seen.update(layer2=o)):
        model(x)
    extractor = create_feature_extractor(model, {"layer2": "mid", "flatten": "flat"})
    made = extractor(x)
    assert list(made) == ["mid", "flat"] and torch.equal(made["mid"], seen["layer2"])
    assert not hasattr(extractor, "fc") and extractor.conv1 is model.conv1
    assert torch.equal(copy.deepcopy(extractor)(x)["flat"], made["flat"])


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        x = self.one(x)
        return self.two(x) if self.training else x * 2


def test_training_and_evaluation_apart() -> None:
    model = Dropped()
    with pytest.warns(UserWarning, match="differ"):
        get_graph_node_names(model)
    extractor = create_feature_extractor(model, train_return_nodes=["two"], eval_return_nodes=["mul"])
    x = torch.ones(1, 2)
    assert list(extractor(x)) == ["two"] and list(extractor.eval()(x)) == ["mul"] and list(extractor.train()(x)) == ["two"]
    assert model.training


def test_leaf_modules() -> None:
    names, _ = get_graph_node_names(nn.Sequential(Dropped()).eval(), {"leaf_modules": [Dropped]})
    assert names == ["input", "0"]


def test_refusals() -> None:
    for given in ({}, {"return_nodes": ["x"], "train_return_nodes": ["x"], "eval_return_nodes": ["x"]}, {"train_return_nodes": ["x"]}):
        with pytest.raises(ValueError, match="train_return_nodes"):
            create_feature_extractor(Dropped(), **given)
    with pytest.raises(ValueError, match="'nowhere' is not present"):
        create_feature_extractor(Dropped(), ["nowhere"], suppress_diff_warning=True)
