"""The CPU's instruction set (torch.backends.cpu)."""

from __future__ import annotations


def get_cpu_capability() -> str:
    """"AVX512", "AVX2", "NEON" or "DEFAULT": what kernels are generated for."""
    import platform
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        text = ""
    if platform.machine() in ("aarch64", "arm64"):
        return "NEON"
    return "AVX512" if " avx512f" in text else "AVX2" if " avx2" in text else "DEFAULT"


__all__ = ["get_cpu_capability"]
