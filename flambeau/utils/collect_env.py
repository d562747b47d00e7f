"""What this machine and this installation are, for a report of an error (torch.utils.collect_env): `flambeau info`, in the form PyTorch's has."""

from __future__ import annotations

import os
import platform
import sys
from typing import NamedTuple


class SystemEnv(NamedTuple):
    """The answers, each a text."""

    torch_version: str
    is_debug_build: str
    cuda_compiled_version: str
    os: str
    python_version: str
    python_platform: str
    is_cuda_available: str
    cuda_device_names: str
    cpu_info: str
    packages: str


def get_env_info() -> SystemEnv:
    """Looks it all up; starts no GPU that is not there."""
    import importlib.metadata

    from .. import cuda
    there = cuda.is_available()
    names = [f"GPU {i}: {cuda.get_device_name(i)}" for i in range(cuda.device_count())] if there else []
    wanted = ("numpy", "scipy", "llvmlite", "safetensors", "ml_dtypes", "transformers", "lightning", "torchvision")
    found = []
    for name in wanted:
        try:
            found.append(f"{name}=={importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    return SystemEnv(f"{sys.modules['flambeau'].__version__} (Flambeau)", "False", "none: kernels are compiled when they are first used",
                     f"{platform.system()} {platform.release()} ({platform.machine()})",
                     f"{sys.version.split()[0]} ({sys.maxsize.bit_length() + 1}-bit runtime)", platform.platform(), str(there),
                     "\n".join(names) or "none", f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores", "\n".join(found))


_TOLD = (("PyTorch version", "torch_version"), ("Is debug build", "is_debug_build"), ("CUDA used to build PyTorch", "cuda_compiled_version"), ("OS", "os"),
         ("Python version", "python_version"), ("Python platform", "python_platform"), ("Is CUDA available", "is_cuda_available"),
         ("GPU models and configuration", "cuda_device_names"), ("CPU", "cpu_info"), ("Versions of relevant libraries", "packages"))


def pretty_str(envinfo: SystemEnv) -> str:
    """A line for each answer; those of several lines are indented."""
    return "\n".join(f"{told}:" + (" " + text if "\n" not in (text := getattr(envinfo, name)) else "\n  " + text.replace("\n", "\n  ")) for told, name in _TOLD)


def get_pretty_env_info() -> str:
    """`pretty_str` of what is found now."""
    return pretty_str(get_env_info())


def main() -> None:
    """Prints it: ``python -m torch.utils.collect_env`` inside `flambeau run`."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
