"""`torch.utils.data._utils.collate`."""

from __future__ import annotations

from ....data.collate import collate, collate_tensor_fn, default_collate, default_collate_fn_map, default_convert, np_str_obj_array_pattern

__all__ = ["collate", "collate_tensor_fn", "default_collate", "default_collate_fn_map", "default_convert", "np_str_obj_array_pattern"]
