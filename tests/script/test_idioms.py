"""The ways real scripts are written: flags for the device, old names, hand-made loops; the same losses with and without GPUs."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run(folder, code: str, *arguments: str, gpus: int = 0) -> list[str]:
    """The lines that the script prints."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code))
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FLAMBEAU_SIM")}
    path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    made = subprocess.run([sys.executable, "-m", "flambeau", "run", "--sim-gpus", str(gpus), str(script), *arguments], cwd=folder,
                          env={**kept, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=120)
    assert made.returncode == 0, made.stderr
    return made.stdout.split("\n")[:-1]


def both(folder, code: str, on: tuple[str, ...] = (), off: tuple[str, ...] = ()) -> list[str]:
    """The lines, the same on the CPU and on two simulated GPUs with the flag that asks for them, and with the one that does not."""
    lines = run(folder, code, *off)
    assert [x for x in run(folder, code, *on, gpus=2) if not x.startswith("device")] == [x for x in lines if not x.startswith("device")]
    assert run(folder, code, *off, gpus=2) == lines
    return lines


def losses(lines: list[str]) -> list[float]:
    return [float(x.split()[1]) for x in lines if x.startswith("loss")]


def test_a_classifier_with_accelerator_flags(tmp_path) -> None:
    lines = both(tmp_path, """
        import argparse
        import torch
        import torch.nn as nn
        import torch.nn.functional as F
        import torch.optim as optim
        from torch.optim.lr_scheduler import StepLR
        from torch.utils.data import DataLoader, TensorDataset, random_split

        class Net(nn.Module):
            def __init__(self):
                super(Net, self).__init__()
                self.conv = nn.Conv2d(1, 4, 3, 1)
                self.drop = nn.Dropout(0.0)
                self.fc = nn.Linear(4 * 9, 3)

            def forward(self, x):
                x = F.max_pool2d(F.relu(self.conv(x)), 2)
                return F.log_softmax(self.fc(self.drop(torch.flatten(x, 1))), dim=1)

        parser = argparse.ArgumentParser()
        parser.add_argument("--no-accel", action="store_true")
        parser.add_argument("--lr", type=float, default=1.0)
        args = parser.parse_args()
        if not args.no_accel and torch.accelerator.is_available():
            device = torch.accelerator.current_accelerator()
            kwargs = {"num_workers": 1, "persistent_workers": True, "pin_memory": True}
        else:
            device, kwargs = torch.device("cpu"), {}
        print("device", device)
        torch.manual_seed(1)
        x = torch.randn(48, 1, 8, 8)
        y = (x.mean((1, 2, 3)) * 20).long().clamp(-1, 1) + 1
        train, test = random_split(TensorDataset(x, y), [40, 8], generator=torch.Generator().manual_seed(3))
        loader = DataLoader(train, batch_size=8, shuffle=False, **kwargs)
        model = Net().to(device)
        optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
        scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
        for epoch in range(1, 4):
            model.train()
            total = 0.0
            for batch_idx, (data, target) in enumerate(loader):
                data, target = data.to(device, non_blocking=True), target.to(device)
                optimizer.zero_grad()
                loss = F.nll_loss(model(data), target)
                loss.backward()
                optimizer.step()
                total += loss.item()
            scheduler.step()
            print("loss {:.3f}".format(total))
        model.eval()
        correct = 0
        with torch.no_grad():
            for data, target in DataLoader(test, batch_size=4):
                pred = model(data.to(device)).argmax(dim=1, keepdim=True)
                correct += pred.eq(target.to(device).view_as(pred)).sum().item()
        assert 0 <= correct <= len(test)
        torch.save(model.state_dict(), "net.pt")
        Net().load_state_dict(torch.load("net.pt", map_location="cpu", weights_only=True))
    """, on=(), off=("--no-accel",))
    found = losses(lines)
    assert len(found) == 3 and found[-1] < found[0]


def test_a_language_model_of_the_old_kind(tmp_path) -> None:
    lines = both(tmp_path, """
        import argparse, math
        import torch
        import torch.nn as nn
        from torch.autograd import Variable

        parser = argparse.ArgumentParser()
        parser.add_argument("--cuda", action="store_true")
        args = parser.parse_args()
        torch.manual_seed(1111)
        if torch.cuda.is_available():
            if not args.cuda:
                pass
            else:
                torch.cuda.manual_seed(1111)

        class Model(nn.Module):
            def __init__(self, tokens, size):
                super().__init__()
                self.encoder = nn.Embedding(tokens, size)
                self.rnn = getattr(nn, "LSTM")(size, size, 2, dropout=0)
                self.decoder = nn.Linear(size, tokens)
                self.decoder.weight = self.encoder.weight
                self.encoder.weight.data.uniform_(-0.1, 0.1)
                self.decoder.bias.data.fill_(0)

            def forward(self, x, hidden):
                output, hidden = self.rnn(self.encoder(x), hidden)
                return self.decoder(output.view(output.size(0) * output.size(1), output.size(2))), hidden

            def init_hidden(self, bsz):
                weight = next(self.parameters()).data
                return (Variable(weight.new(2, bsz, 8).zero_()), Variable(weight.new(2, bsz, 8).zero_()))

        def repackage_hidden(h):
            return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)

        data = torch.LongTensor([(i * i) % 7 for i in range(121)]).narrow(0, 0, 120).view(4, -1).t().contiguous()
        model = Model(7, 8)
        if args.cuda:
            model.cuda()
            data = data.cuda()
        criterion, lr, best = nn.CrossEntropyLoss(), 1.0, None
        for epoch in range(4):
            hidden, total = model.init_hidden(4), 0
            for i in range(0, data.size(0) - 1, 5):
                n = min(5, len(data) - 1 - i)
                x, y = Variable(data[i:i + n]), Variable(data[i + 1:i + 1 + n].view(-1))
                hidden = repackage_hidden(hidden)
                model.zero_grad()
                output, hidden = model(x, hidden)
                loss = criterion(output, y)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
                for p in model.parameters():
                    p.data.add_(p.grad.data, alpha=-lr)
                total += loss.data
            print("loss {:.3f}".format(total.item()))
            if best is None or total.item() < best:
                with open("model.pt", "wb") as f:
                    torch.save(model, f)
                best = total.item()
            else:
                lr /= 4.0
        with open("model.pt", "rb") as f:
            model = torch.load(f, weights_only=False)
        model.rnn.flatten_parameters()
        p = model(data[:1, :1], model.init_hidden(1))[0].squeeze().div(0.8).exp().cpu()
        assert 0 <= torch.multinomial(p, 1)[0] < 7
        print("perplexity", math.exp(best / 6) < 10, type(model).__name__)
    """, on=("--cuda",))
    found = losses(lines)
    assert found[-1] < found[0] and lines[-1] == "perplexity True Model"


def test_half_precision_gradient_penalty_and_averages(tmp_path) -> None:
    lines = run(tmp_path, """
        import copy
        import torch
        from torch import nn
        from torch.cuda.amp import GradScaler, autocast

        torch.manual_seed(0)
        device = torch.device("cuda:1" if torch.cuda.is_available() else "cpu")
        net = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 1)).to(device)
        average = copy.deepcopy(net).requires_grad_(False)
        scaler, optimizer = GradScaler(init_scale=256.0), torch.optim.Adam(net.parameters(), lr=0.01, betas=(0.5, 0.9))
        data = torch.randn(32, 6, device=device)
        for i in range(20):
            x = data
            with autocast():
                out = net(x)
                kind = out.dtype
                loss = nn.functional.mse_loss(out.float(), x.sum(1, keepdim=True))
            x = x.detach().requires_grad_(True)
            slope, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
            loss = loss + 0.1 * ((slope.norm(2, dim=1) - 1) ** 2).mean()
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            for a, p in zip(average.parameters(), net.parameters()):
                a.data.mul_(0.9).add_(p.data, alpha=0.1)
            print("loss", float(loss))
        print(kind, scaler.get_scale(), all(torch.isfinite(p).all() for p in average.parameters()))
    """, gpus=2)
    found = losses(lines)
    assert found[-1] < found[0] and lines[-1] == "torch.float16 256.0 True"


def test_paths_that_scripts_import_by(tmp_path) -> None:
    assert run(tmp_path, """
        import torch.utils.model_zoo as model_zoo
        from torch.amp.autocast_mode import autocast
        from torch.autograd.grad_mode import no_grad
        from torch.cuda.amp.grad_scaler import GradScaler
        from torch.functional import einsum
        from torch.nn.modules.batchnorm import _BatchNorm
        from torch.nn.modules.utils import _pair
        from torch.nn.parallel.data_parallel import DataParallel
        from torch.nn.utils.rnn import pad_sequence
        from torch.optim.adamw import AdamW
        from torch.optim.rmsprop import RMSprop
        from torch.utils.data.distributed import DistributedSampler
        from torch.utils.hooks import RemovableHandle
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils._pytree import tree_map
        from torch._tensor import Tensor
        import torch, torchvision
        assert Tensor is torch.Tensor and AdamW is torch.optim.AdamW and einsum is torch.einsum and no_grad is torch.no_grad
        assert _pair(3) == (3, 3) and issubclass(torch.nn.BatchNorm2d, _BatchNorm)
        assert torchvision.models.VGG16_Weights.IMAGENET1K_V1.value.startswith("vgg16-")
        assert not torch.xpu.is_available() and not torch.mps.is_available() and torch.xpu.device_count() == 0
        print("ok")
    """) == ["ok"]


@pytest.mark.skipif(importlib.util.find_spec("einops") is None, reason="einops is not here")
def test_einops_takes_our_tensors_for_its_own(tmp_path) -> None:
    assert run(tmp_path, """
        import torch
        from einops import rearrange, reduce, repeat
        from einops.layers.torch import Rearrange
        x = torch.arange(2 * 3 * 4 * 4.0, requires_grad=True).view(2, 3, 4, 4)
        y = rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2)
        z = torch.nn.Sequential(Rearrange("b c h w -> b (h w) c"), torch.nn.Linear(3, 2))(x)
        reduce(y, "b n d -> b", "mean").sum().backward()
        print(tuple(y.shape), tuple(z.shape), tuple(repeat(torch.zeros(1, 1, 5), "() n d -> b n d", b=3).shape))
    """) == ["(2, 4, 12) (2, 16, 2) (3, 1, 5)"]
