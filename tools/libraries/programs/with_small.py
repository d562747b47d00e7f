"""Smaller libraries: einops, safetensors, datasets, torchmetrics, torchdiffeq, x-transformers, skorch, sentence-transformers' layers, monai."""

from __future__ import annotations

import tempfile

import fed
import numpy as np
import torch
from fed import case, fill, integers, numbers, steps


@case("einops")
def einops_():
    import einops
    from einops.layers.torch import EinMix, Rearrange, Reduce
    x = numbers(2, 6, 8)
    net = fill(torch.nn.Sequential(Rearrange("b (h d) t -> b h t d", h=3),
                                   EinMix("b h t d -> b h t e", weight_shape="d e", d=2, e=4), Reduce("b h t e -> b e", "mean")), 0.3)
    return [einops.rearrange(x, "b c t -> (b t) c")[3], einops.reduce(x, "b c (t k) -> b t", "max", k=2), einops.einsum(x, x, "b c t, b d t -> c d")[0],
            steps(net, lambda: net(x).square().mean())]


@case("safetensors.torch")
def safetensors_():
    from safetensors.torch import load_file, load_model, save_file, save_model
    net = fill(torch.nn.Linear(4, 3), 0.3)
    with tempfile.TemporaryDirectory() as folder:
        save_file({"a": numbers(2, 3).cpu(), "b": integers(9, 4).cpu(), "c": numbers(3).cpu().to(torch.bfloat16)}, f"{folder}/x.safetensors", {"from": "here"})
        found = load_file(f"{folder}/x.safetensors")
        save_model(net, f"{folder}/m.safetensors")
        other = torch.nn.Linear(4, 3)
        load_model(other, f"{folder}/m.safetensors")
        with open(f"{folder}/x.safetensors", "rb") as file:
            size = len(file.read())
    return [found["a"], found["b"], found["c"], other.weight, size]


@case("datasets")
def datasets_():
    import datasets
    rows = datasets.Dataset.from_dict({"x": np.arange(12.0).reshape(6, 2).tolist(), "y": list(range(6))}).with_format("torch")
    loader = torch.utils.data.DataLoader(rows, batch_size=4)
    return [[b["x"].sum(), b["y"], str(b["x"].dtype)] for b in loader] + [rows[2]["x"], rows["y"][:3]]


@case("torchmetrics")
def torchmetrics_():
    import torchmetrics as M
    p, y = numbers(40, 4).softmax(-1), integers(4, 40)
    made = [M.Accuracy("multiclass", num_classes=4), M.F1Score("multiclass", num_classes=4, average="macro"), M.AUROC("multiclass", num_classes=4),
            M.ConfusionMatrix("multiclass", num_classes=4), M.CalibrationError("multiclass", num_classes=4), M.AveragePrecision("multiclass", num_classes=4)]
    a, b = numbers(30), numbers(30, seed=1)
    regressions = [M.MeanSquaredError(), M.R2Score(), M.PearsonCorrCoef(), M.SpearmanCorrCoef(), M.ExplainedVariance()]
    image = [M.image.StructuralSimilarityIndexMeasure(data_range=1.0), M.image.PeakSignalNoiseRatio(data_range=1.0)]
    u, v = numbers(2, 3, 32, 32).sigmoid(), numbers(2, 3, 32, 32, seed=3).sigmoid()
    return [[m.to(p.device)(p, y) for m in made], [m.to(p.device)(a, b) for m in regressions], [m.to(p.device)(u, v) for m in image]]


@case("torchdiffeq")
def torchdiffeq_():
    from torchdiffeq import odeint, odeint_adjoint
    net = fill(torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)), 0.5)

    class Field(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, t, y):
            return self.net(y)
    t = torch.linspace(0, 1, 4, device=numbers(1).device)
    y = numbers(3, 2)
    return [odeint(Field(), y, t, method="dopri5")[-1], odeint(Field(), y, t, method="rk4")[-1],
            steps(net, lambda: odeint_adjoint(Field(), y, t, method="rk4", adjoint_params=tuple(net.parameters())).square().mean())]


@case("x-transformers")
def x_transformers_():
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper
    net = fill(AutoregressiveWrapper(TransformerWrapper(num_tokens=32, max_seq_len=16,
                                                        attn_layers=Decoder(dim=32, depth=2, heads=2, rotary_pos_emb=True))), 0.1)
    x = integers(32, 2, 12)
    losses = steps(net, lambda: net(x))
    return [losses, net.generate(x[:, :4], 6, temperature=0.0)]


@case("skorch with scikit-learn")
def skorch_():
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from skorch import NeuralNetClassifier

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
            fill(self, 0.3)

        def forward(self, x):
            return self.net(x).softmax(-1)
    x = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0.5)
    net = NeuralNetClassifier(Net, max_epochs=4, lr=0.3, verbose=0, train_split=None, device=fed.DEVICE)
    pipe = make_pipeline(StandardScaler(), net)
    pipe.fit(x, y)
    return [net.history[:, "train_loss"], pipe.predict_proba(x[:2]), cross_val_score(pipe, x, y, cv=2)]


@case("sentence-transformers")
def sentence_transformers_():
    from sentence_transformers import util
    from sentence_transformers.losses import CosineSimilarityLoss  # noqa: F401 (that it is found)
    a, b = numbers(3, 8), numbers(4, 8, seed=1)
    return [util.cos_sim(a, b), util.semantic_search(a, b, top_k=2)[0][0]["score"], util.dot_score(a, b)[0]]


@case("monai")
def monai_():
    from monai.inferers import sliding_window_inference
    from monai.losses import DiceCELoss
    from monai.metrics import DiceMetric
    from monai.networks.nets import UNet
    net = fill(UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1), 0.2)
    x, y = numbers(2, 1, 32, 32), integers(2, 2, 1, 32, 32)
    loss = DiceCELoss(to_onehot_y=True, softmax=True)
    losses = steps(net, lambda: loss(net(x), y))
    net.eval()
    with torch.no_grad():
        whole = sliding_window_inference(numbers(1, 1, 48, 48), (32, 32), 1, net)
        dice = DiceMetric()(net(x).argmax(1, keepdim=True), y)
    return [losses, whole[0, 0, 0, :5], dice]


fed.main()
