"""NCCL's functions, numbers and structs against the header of its wheel, and what the wheel's library says where no GPU is.

Collectives by NCCL on fake GPUs are in `tests/distributed/test_gpu_queues.py`.
"""

from __future__ import annotations

import ctypes
import os

import pytest

import flambeau as torch
from flambeau._core.drivers.collectives.nccl import library
from flambeau._core.drivers.collectives.nccl.communicator import NCCLCommunicator, unique_id
from flambeau._core.drivers.nvidia import libraries, probe
from tests._core.drivers.nvidia import headers
from tests._core.kernels.cuda_c import build

HEADER = "nccl.h"
# what it reads of CUDA's: only names of types are needed
STUBS = {"cuda_runtime.h": "#pragma once\n#include <stddef.h>\n#include <stdint.h>\n"
                           "typedef struct CUstream_st *cudaStream_t;\ntypedef struct CUevent_st *cudaEvent_t;\n",
         "cuda_fp16.h": "#pragma once\n", "cuda_bf16.h": "#pragma once\n", "cuda_fp8.h": "#pragma once\n"}
there = any((folder / HEADER).exists() for folder in headers.folders())
needs_header = pytest.mark.skipif(not there or bool(build.missing()), reason=build.missing() or "nccl.h is not installed (pip install nvidia-nccl-cu13)")
needs_library = pytest.mark.skipif(not os.path.isabs(libraries.find("nccl")), reason="libnccl is not installed (pip install nvidia-nccl-cu13)")
KINDS = {ctypes.c_int: "int32", ctypes.c_size_t: "int64", ctypes.c_void_p: "pointer", library.UniqueId: "other"}
THEIRS = {"int8": "ncclInt8", "uint8": "ncclUint8", "int32": "ncclInt32", "uint32": "ncclUint32", "int64": "ncclInt64", "uint64": "ncclUint64",
          "float16": "ncclFloat16", "float32": "ncclFloat32", "float64": "ncclFloat64", "bfloat16": "ncclBfloat16"}


@needs_header
def test_prototypes_numbers_and_structs_are_the_headers() -> None:
    wanted = {"ncclSuccess": library.SUCCESS, "ncclInProgress": library.IN_PROGRESS, "ncclInt8": library.BYTES, "NCCL_API_MAGIC": library._MAGIC,
              "NCCL_VERSION(2, 18, 0)": library._VERSION, "NCCL_CONFIG_UNDEF_INT": library._UNSET, "sizeof(ncclUniqueId)": ctypes.sizeof(library.UniqueId),
              **{THEIRS[d.name]: number for d, number in library.TYPES.items()},
              **{{"sum": "ncclSum", "product": "ncclProd", "max": "ncclMax", "min": "ncclMin"}[op]: number for op, number in library.OPS.items()},
              **{f"offsetof(ncclConfig_t, {name})": getattr(library.Config, name).offset for name, *_ in library.Config._fields_}}
    values, functions = headers.ask(tuple(wanted), tuple(library.PROTOTYPES), (HEADER,), STUBS)
    assert values == {**wanted, "NCCL_API_MAGIC": library._MAGIC}
    for name, ours in library.PROTOTYPES.items():
        given = [KINDS.get(kind, "pointer") for kind in ours]
        assert given == [kind for kind, _ in functions.get(name, [])], (name, functions.get(name))


@needs_library
def test_the_library_loads_and_makes_identities_without_a_gpu() -> None:
    lib = library.load()
    version = ctypes.c_int()
    assert lib.ncclGetVersion(ctypes.byref(version)) == 0 and version.value >= library._VERSION
    assert len(unique_id(lib)) == 128 and unique_id(lib) != unique_id(lib)
    if not probe.look().version:
        with pytest.raises(library.NCCLError, match="cuda|CUDA|system|internal"):
            comm = NCCLCommunicator(lib, unique_id(lib), 0, 1)
            while not comm.ready():
                pass


def test_what_nccl_combines() -> None:
    for name in THEIRS:
        d = getattr(torch, name)
        assert all(library.combines(d, op) for op in ("sum", "product", "min", "max")) and not library.combines(d, "band")
        assert library.as_numbers(7, d, "max") == (7, library.TYPES[d], 2)
    assert not any(library.combines(torch.int16, op) for op in library.OPS)
    assert library.combines(torch.complex64, "sum") and not library.combines(torch.complex64, "product")
    assert library.as_numbers(7, torch.complex128, "sum") == (14, library.TYPES[torch.float64], 0)
    assert library.as_numbers(7, torch.bool, "sum") == (7, library.TYPES[torch.uint8], 2)  # any
    assert library.as_numbers(7, torch.bool, "product") == (7, library.TYPES[torch.uint8], 3)  # all
