"""lightning: Trainer with callbacks, checkpoints, resume."""

from __future__ import annotations

import logging
import tempfile

import fed
import lightning as L
import torch
from fed import DEVICE, case, fill, integers, numbers

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
        self.losses = []

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.losses.append(loss.item())
        self.log("train", loss)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("val", torch.nn.functional.cross_entropy(self.net(x), y))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


def _trainer(folder, epochs, **options):
    return L.Trainer(max_epochs=epochs, accelerator="cpu" if DEVICE == "cpu" else "gpu", devices=1, logger=False, enable_progress_bar=False,
                     enable_model_summary=False, default_root_dir=folder, **options)


def _loader():
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(numbers(16, 6).cpu(), integers(3, 16).cpu()), batch_size=4)


@case("fit, validate, checkpoint, resume")
def fit():
    with tempfile.TemporaryDirectory() as folder:
        net = fill(Net(), 0.3)
        keep = L.pytorch.callbacks.ModelCheckpoint(dirpath=folder, monitor="val", filename="best")
        trainer = _trainer(folder, 2, callbacks=[keep], gradient_clip_val=0.5)
        trainer.fit(net, _loader(), _loader())
        found = trainer.validate(net, _loader(), verbose=False)[0]["val"]
        resumed = Net()
        _trainer(folder, 3, enable_checkpointing=False).fit(resumed, _loader(), ckpt_path=keep.best_model_path)
        again = Net.load_from_checkpoint(keep.best_model_path)
        return [net.losses, found, resumed.losses, again.net[0].weight[0]]


@case("early stopping and accumulation")
def stopping():
    with tempfile.TemporaryDirectory() as folder:
        net = fill(Net(), 0.3)
        trainer = _trainer(folder, 6, callbacks=[L.pytorch.callbacks.EarlyStopping("val", patience=1, min_delta=0.5)], accumulate_grad_batches=2,
                           enable_checkpointing=False)
        trainer.fit(net, _loader(), _loader())
        return [net.losses, trainer.current_epoch]


@case("Fabric")
def fabric():
    made = L.Fabric(accelerator="cpu" if DEVICE == "cpu" else "gpu", devices=1)
    net = fill(torch.nn.Linear(6, 3), 0.3)
    model, optimizer = made.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    losses = []
    for x, y in made.setup_dataloaders(_loader()):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        made.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


fed.main()
