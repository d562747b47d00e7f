"""Models: sizes, keys as torchvision's, a forward and backward of each kind, boxes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import flambeau as torch
from flambeau.vision import models, ops


@pytest.mark.parametrize(("name", "count"), [("resnet18", 11689512), ("resnet34", 21797672), ("resnet50", 25557032), ("wide_resnet50_2", 68883240),
                                              ("densenet121", 7978856), ("densenet161", 28681000), ("densenet169", 14149480), ("mobilenet_v2", 3504872),
                                              ("squeezenet1_0", 1248424), ("squeezenet1_1", 1235496)])
def test_sizes_are_torchvisions(name: str, count: int) -> None:
    with torch.device("cpu"):
        net = models.get_model(name)
    assert sum(p.numel() for p in net.parameters()) == count


def test_keys() -> None:
    keys = list(models.resnet18(num_classes=3).state_dict())
    assert keys[0] == "conv1.weight" and "layer1.0.bn2.running_var" in keys and "layer4.0.downsample.1.num_batches_tracked" in keys and keys[-1] == "fc.bias"
    keys = list(models.VGG(models.vgg.make_layers((64, 0, 128, 0), True), num_classes=3, init_weights=False).state_dict())
    assert keys[0] == "features.0.weight" and "features.1.running_mean" in keys and keys[-1] == "classifier.6.bias"
    assert list(models.vgg.make_layers([64, "M", 128, "M"]).state_dict()) == ["0.weight", "0.bias", "3.weight", "3.bias"]
    keys = list(models.DenseNet(4, (2, 1), 8, num_classes=3).state_dict())
    assert keys[0] == "features.conv0.weight" and "features.denseblock1.denselayer2.norm2.running_var" in keys and keys[-1] == "classifier.bias"
    assert "features.transition1.conv.weight" in keys and keys[-3] == "features.norm5.num_batches_tracked"
    keys = list(models.MobileNetV2(num_classes=3).state_dict())
    assert keys[0] == "features.0.0.weight" and "features.1.conv.0.0.weight" in keys and "features.2.conv.1.1.running_mean" in keys
    squeezed = models.squeezenet1_1(num_classes=3)
    assert list(squeezed.state_dict())[:4] == ["features.0.weight", "features.0.bias", "features.3.squeeze.weight", "features.3.squeeze.bias"]
    assert list(squeezed.state_dict())[-2:] == ["classifier.1.weight", "classifier.1.bias"] and squeezed(torch.zeros(1, 3, 64, 64)).tolist() == [[0, 0, 0]]
    with pytest.raises(ValueError, match="version 2_0"):
        models.SqueezeNet("2_0")
    assert "features.18.1.weight" in keys and keys[-2:] == ["classifier.1.weight", "classifier.1.bias"]


@pytest.fixture
def float32() -> Iterator[None]:
    """A GPU's convolutions round to TF32, as PyTorch's, unless told otherwise."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


def test_forward_and_backward(device: str, float32: None) -> None:
    torch.manual_seed(0)
    net = models.ResNet(models.resnet.Bottleneck, [1, 1, 1, 1], num_classes=5).to(device)
    x = torch.randn(2, 3, 32, 32, device=device)
    out = net(x)
    assert out.shape == (2, 5)
    out.square().mean().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in net.parameters())
    again = models.ResNet(models.resnet.Bottleneck, [1, 1, 1, 1], num_classes=5)
    again.load_state_dict({k: v.cpu() for k, v in net.state_dict().items()})
    net.eval()
    again.eval()
    with torch.no_grad():
        assert torch.allclose(net(x).cpu(), again(x.cpu()), atol=1e-5)


@pytest.mark.parametrize("efficient", [False, True])
def test_small_ones_learn(efficient: bool, device: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 16, 16, device=device)
    for net in (models.DenseNet(4, (1, 1), 4, num_classes=3, memory_efficient=efficient),
                models.MobileNetV2(3, 0.25, inverted_residual_setting=[(1, 8, 1, 1), (6, 8, 2, 2)])):
        net.to(device)
        out = net(x)
        out.square().mean().backward()
        assert out.shape == (2, 3) and all(p.grad is not None and bool(p.grad.isfinite().all()) for p in net.parameters())
    with pytest.raises(ValueError, match="4-element list"):
        models.MobileNetV2(inverted_residual_setting=[(1, 2)])


def test_weights_are_the_users(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no weights come with Flambeau.*resnet18-f37072fd.pth at .*checkpoints"):
        models.resnet18(weights="DEFAULT")
    with pytest.raises(FileNotFoundError, match="resnet50-11ad3fa6"):
        models.resnet50(weights=models.ResNet50_Weights.DEFAULT)
    with pytest.raises(ValueError, match="ResNet18_Weights"):
        models.resnet18(weights=models.VGG16_Weights.IMAGENET1K_V1)
    assert models.get_weight("VGG16_BN_Weights.IMAGENET1K_V1") is models.VGG16_BN_Weights.DEFAULT
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    mine = models.resnet18()
    torch.save(mine.state_dict(), models.ResNet18_Weights.DEFAULT.path)
    for arguments in ({"weights": models.ResNet18_Weights.IMAGENET1K_V1}, {"weights": "IMAGENET1K_V1"}, {"pretrained": True}):
        again = models.resnet18(**arguments)
        assert all(torch.equal(a, b) for a, b in zip(mine.state_dict().values(), again.state_dict().values(), strict=True))
    assert len(models.ResNet18_Weights.DEFAULT.transforms().transforms) == 4
    with pytest.raises(ValueError, match="Unknown model"):
        models.get_model("resnet19")


def test_boxes() -> None:
    a = torch.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3], [10, 10, 11, 11]])
    np.testing.assert_allclose(ops.box_iou(a, a).numpy()[0], [1, 1 / 7, 0], rtol=1e-6)
    assert ops.nms(a, torch.tensor([0.5, 0.9, 0.1]), 0.1).tolist() == [1, 2]
