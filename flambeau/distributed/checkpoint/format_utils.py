"""From a checkpoint of many files to one that `torch.load` reads, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..._core import dtypes, ops
from . import save
from .files import BytesStorageMetadata, Metadata, read_into, read_object


def dcp_to_torch_save(dcp_checkpoint_dir: Any, torch_save_path: Any) -> None:
    """Writes the whole state of a folder into one file."""
    from ...io.checkpoint import save as save_file
    folder = Path(dcp_checkpoint_dir)
    told = Metadata.read(folder)
    state: dict[Any, Any] = {}
    for name, entry in told.state_dict_metadata.items():
        if isinstance(entry, BytesStorageMetadata):
            value = read_object(folder, entry)
        else:
            value = ops.empty(tuple(entry.size), dtype=getattr(dtypes, entry.dtype if entry.dtype != "bool" else "bool_"))
            read_into(folder, name, entry, value)
        *outer, last = told.planner_data[name]
        at = state
        for k in outer:
            at = at.setdefault(k, {})
        at[last] = value
    save_file(state, torch_save_path)


def torch_save_to_dcp(torch_save_path: Any, dcp_checkpoint_dir: Any) -> None:
    """Writes a file's state into a folder."""
    from ...io.checkpoint import load as load_file
    save(load_file(torch_save_path, weights_only=False), checkpoint_id=dcp_checkpoint_dir, no_dist=True)
