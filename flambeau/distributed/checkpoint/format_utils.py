"""From a checkpoint of many files to one that `torch.load` reads, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import DefaultLoadPlanner, save
from .files import Metadata, whole_state


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """`load` with it fills an empty dictionary with all that a checkpoint holds, whole; or, by `keys`, with entries of these names, and what is below them."""

    def __init__(self, keys: Any = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.keys = keys


def dcp_to_torch_save(dcp_checkpoint_dir: Any, torch_save_path: Any) -> None:
    """Writes the whole state of a folder into one file."""
    from ...io.checkpoint import save as save_file
    folder = Path(dcp_checkpoint_dir)
    save_file(whole_state(folder, Metadata.read(folder)), torch_save_path)


def torch_save_to_dcp(torch_save_path: Any, dcp_checkpoint_dir: Any) -> None:
    """Writes a file's state into a folder."""
    from ...io.checkpoint import load as load_file
    save(load_file(torch_save_path, weights_only=False), checkpoint_id=dcp_checkpoint_dir, no_dist=True)
