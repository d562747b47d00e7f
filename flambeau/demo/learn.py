"""The network of the demo and how it learns.

Written as any PyTorch script is, and nothing in it is Flambeau's own: with `import torch` in the place of the one
import below it runs on PyTorch, which is how the benchmarks compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import flambeau as torch

nn = torch.nn
BATCH = 32
EPOCHS = 10
LEARNING_RATE = 0.01


class DigitsNet(nn.Module):
    """Images (N, 1, 8, 8) to ten scores (N, 10): three convolutions, two of them with 32 channels in or more."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Sequential(nn.Flatten(), nn.Dropout(0.25), nn.Linear(64 * 2 * 2, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.classify(self.features(images))
        return scores


class Learner:
    """A network with its optimizer and data on one device; `epoch` trains once through the data."""

    def __init__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        epochs: int = EPOCHS,
        device: torch.device | str = "cpu",
        seed: int = 0,
    ) -> None:
        torch.manual_seed(seed)
        self.net = DigitsNet().to(device)
        self.images, self.labels = images.to(device), labels.to(device)
        self.loss = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.optimizer = torch.optim.SGD(
            self.net.parameters(), lr=LEARNING_RATE, momentum=0.9, nesterov=True, weight_decay=5e-4
        )
        self.batches = len(images) // BATCH
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=5 * LEARNING_RATE, total_steps=epochs * self.batches
        )

    def steps(self) -> Iterator[torch.Tensor]:
        """One pass over the data in a random order; gives each batch's loss, still on the device.

        The two images left over are another two each time: a batch so small would upset the batch norms.
        """
        self.net.train()
        order = torch.randperm(len(self.images)).to(self.images.device)
        for start in range(0, self.batches * BATCH, BATCH):
            chosen = order[start : start + BATCH]
            self.optimizer.zero_grad()
            loss = self.loss(self.net(self.images[chosen]), self.labels[chosen])
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            yield loss.detach()

    def epoch(self, after_step: Callable[[], None] | None = None) -> float:
        """Trains once through the data, calling `after_step` after each batch; the mean loss of the batches."""
        total = torch.zeros((), device=self.images.device)
        for loss in self.steps():
            total += loss  # on the device: reading each loss would wait for each step
            if after_step is not None:
                after_step()
        return float(total.item()) / self.batches

    def predict(self, images: torch.Tensor) -> torch.Tensor:
        """The digit that the network sees in each image: int64 (N,), on the CPU."""
        self.net.eval()
        with torch.no_grad():
            scores: torch.Tensor = self.net(images.to(self.images.device))
            return scores.argmax(dim=1).cpu()

    def accuracy(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        """The share of images whose digit is seen rightly."""
        return float((self.predict(images) == labels).float().mean().item())
