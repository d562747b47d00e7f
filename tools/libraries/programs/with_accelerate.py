"""accelerate: its loop with accumulation and clipping, mixed precision, checkpoints."""

from __future__ import annotations

import tempfile

import accelerate
import fed
import torch
from fed import DEVICE, case, fill, integers, numbers


def _parts(**options):
    accelerate.state.AcceleratorState._reset_state(True)  # each case has its own
    accelerator = accelerate.Accelerator(cpu=DEVICE == "cpu", **options)
    model = fill(torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)), 0.3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.utils.data.TensorDataset(numbers(24, 6).cpu(), integers(3, 24).cpu())
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    return accelerator, *accelerator.prepare(model, optimizer, loader, schedule)


def _loop(**options):
    accelerator, model, optimizer, loader, schedule = _parts(**options)
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses, accelerator, model


@case("accumulation, clipping, schedule")
def loop():
    losses, accelerator, model = _loop(gradient_accumulation_steps=2)
    return [losses, accelerator.gather(torch.ones(2, device=accelerator.device)), accelerator.num_processes]


@case("mixed precision")
def mixed():
    return [round(v, 2) for v in _loop(mixed_precision="bf16")[0]]


@case("checkpoints")
def checkpoints():
    _, accelerator, model = _loop()
    before = [p.detach().clone() for p in model.parameters()]
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        accelerator.load_state(folder)
    return [all(torch.equal(a, b) for a, b in zip(before, model.parameters())), before[0][0]]


@case("empty weights and a device map")
def empty():
    with accelerate.init_empty_weights():
        model = torch.nn.Linear(4, 3)
    where = model.weight.device.type
    model = accelerate.utils.set_module_tensor_to_device(model, "weight", "cpu", value=torch.ones(3, 4)) or model
    return [where, accelerate.infer_auto_device_map(torch.nn.Linear(2, 2), max_memory={"cpu": 10**6})[""]]


fed.main()
