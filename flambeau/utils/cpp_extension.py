"""Compiled extensions (torch.utils.cpp_extension): Flambeau has none; the names are here so that what only asks for them is imported."""

from __future__ import annotations

from typing import Any

from ..interop import stand_ins

CUDA_HOME: Any = None
ROCM_HOME: Any = None
IS_HIP_EXTENSION = False
_WHY = "extensions in C++ are compiled against PyTorch's own headers, which are not here; write the operation in Python, or see flambeau.library"
globals().update(stand_ins.names(__name__, """BuildExtension load() load_inline() CppExtension() CUDAExtension() SyclExtension() include_paths() library_paths()
 get_default_build_root() _get_build_directory() check_compiler_ok_for_platform() get_cxx_compiler() FileBaton""", _WHY))


def is_ninja_available() -> bool:
    """False: nothing is built."""
    return False


def _is_cuda_file(path: str) -> bool:
    return path.endswith((".cu", ".cuh"))
