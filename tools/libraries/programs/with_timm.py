"""timm and open_clip, which both import torchvision: ten models of many families, files, contrastive training."""

from __future__ import annotations

import tempfile

import fed
import timm
import timm.optim
import torch
from fed import DEVICE, case, fill, integers, numbers, steps

MODELS = {"resnet18": {}, "mobilenetv3_small_050": {}, "efficientnet_b0": {}, "convnext_atto": {}, "vit_tiny_patch16_224": {"img_size": 32},
          "swin_tiny_patch4_window7_224": {"img_size": 56, "embed_dim": 24, "depths": (1, 1, 1, 1), "num_heads": (1, 2, 2, 2)}, "regnetx_002": {},
          "mixer_s32_224": {"img_size": 64}, "deit_tiny_patch16_224": {"img_size": 32}, "densenet121": {}}


def _model(name: str, options) -> None:
    @case(name)
    def run():
        model = timm.create_model(name, num_classes=5, **options)
        fill(model, 0.02)
        size = options.get("img_size", 64)
        x, y = numbers(2, 3, size, size), integers(5, 2)
        model.eval()  # the statistics of two small images would say little
        losses = steps(model, lambda: torch.nn.functional.cross_entropy(model(x), y), 2, torch.optim.SGD(model.parameters(), lr=1e-3))
        return losses


for _name, _options in MODELS.items():
    _model(_name, _options)


@case("features and files")
def features():
    model = fill(timm.create_model("resnet18", features_only=True), 0.05).eval()
    shapes = [list(f.shape) for f in model(numbers(1, 3, 64, 64))]
    whole = fill(timm.create_model("resnet18", num_classes=5), 0.05).eval()
    with tempfile.NamedTemporaryFile(suffix=".pth") as file:
        torch.save(whole.state_dict(), file.name)
        again = timm.create_model("resnet18", num_classes=5, checkpoint_path=file.name).to(DEVICE).eval()
    x = numbers(1, 3, 64, 64)
    return [shapes, bool(torch.equal(again(x), whole(x)))]


@case("its own optimizers")
def optimizers():
    losses = []
    for name in ("lamb", "adan", "lion", "madgrad", "nadamw"):
        net = fill(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)), 0.3)
        made = timm.optim.create_optimizer_v2(net, name, lr=1e-2)
        x, y = numbers(8, 6), integers(3, 8)
        losses.append(steps(net, lambda net=net, x=x, y=y: torch.nn.functional.cross_entropy(net(x), y), 3, made))
    return losses


@case("open_clip")
def open_clip_():
    from open_clip.loss import ClipLoss
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg
    net = fill(CLIP(16, CLIPVisionCfg(layers=2, width=32, head_width=8, patch_size=8, image_size=32), CLIPTextCfg(
        context_length=12, vocab_size=50, width=32, heads=4, layers=2)), 0.1)
    pixels, words = numbers(4, 3, 32, 32), integers(49, 4, 12)
    words[:, -1] = 49
    loss = ClipLoss()
    return steps(net, lambda: loss(*net(pixels, words)[:2], net.logit_scale.exp()), 3)


fed.main()
