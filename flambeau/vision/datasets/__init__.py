"""Data sets of images on disk (torchvision.datasets)."""

from __future__ import annotations

from .cifar import CIFAR10, CIFAR100
from .fake import FakeData
from .folder import DatasetFolder, ImageFolder, default_loader
from .mnist import EMNIST, KMNIST, MNIST, QMNIST, FashionMNIST
from .vision import VisionDataset

__all__ = ["CIFAR10", "CIFAR100", "EMNIST", "KMNIST", "MNIST", "QMNIST", "DatasetFolder", "FakeData", "FashionMNIST", "ImageFolder",
           "VisionDataset", "default_loader"]
