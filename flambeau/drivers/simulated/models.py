"""The GPUs that can be simulated: one row each.

Sources: memory as `nvidia-smi` reports it (MiB); bandwidth, peak rates (dense, no sparsity), links and cache from
NVIDIA's data sheets and architecture papers:
  T4        NVIDIA T4 Tensor Core GPU data sheet; Turing architecture paper (TU104)
  A100      NVIDIA A100 Tensor Core GPU data sheet (SXM4, 80 GB)
  RTX 4090  NVIDIA Ada GPU architecture paper, table of the GeForce RTX 4090 (half precision with float32 accumulation)
  L4        NVIDIA L4 Tensor Core GPU data sheet (figures with sparsity halved)
  H100      NVIDIA H100 Tensor Core GPU data sheet (SXM5, 80 GB; figures with sparsity halved)
  H200      NVIDIA H200 Tensor Core GPU data sheet (SXM; figures with sparsity halved)
Links are one direction: half of NVLink's quoted total; PCIe's quoted rate of sixteen lanes.
"""

from __future__ import annotations


class Model:
    """Figures of one GPU: memory in MiB, rates in GB/s and TFLOP/s, caches in MiB, shared memory in KiB."""

    __slots__ = ("name", "full_name", "capability", "memory_mib", "bandwidth", "float64", "float32", "tf32", "half",
                 "processors", "l2_mib", "shared_kib", "threads", "pcie", "nvlink", "peer")

    def __init__(self, name: str, full_name: str, capability: tuple[int, int], memory_mib: int, bandwidth: float,
                 float64: float, float32: float, tf32: float, half: float, processors: int, l2_mib: int,
                 shared_kib: int, threads: int, pcie: float, nvlink: float, peer: bool) -> None:
        self.name, self.full_name, self.capability, self.memory_mib = name, full_name, capability, memory_mib
        self.bandwidth, self.float64, self.float32, self.tf32, self.half = bandwidth, float64, float32, tf32, half
        self.processors, self.l2_mib, self.shared_kib, self.threads = processors, l2_mib, shared_kib, threads
        self.pcie, self.nvlink, self.peer = pcie, nvlink, peer


# fmt: off
_ROWS = (
    # name, full name, capability,
    #   MiB, GB/s, float64, float32, tf32, half (TFLOP/s), processors,
    #   L2, shared, threads, PCIe, NVLink (GB/s), peer access
    ("T4", "Tesla T4", (7, 5),
        15360, 320.0, 0.254, 8.1, 8.1, 65.0, 40, 4, 64, 1024, 15.75, 0, True),
    ("A100", "NVIDIA A100-SXM4-80GB", (8, 0),
        81920, 2039.0, 9.7, 19.5, 156.0, 312.0, 108, 40, 164, 2048, 31.5, 300, True),
    ("RTX 4090", "NVIDIA GeForce RTX 4090", (8, 9),
        24564, 1008.0, 1.29, 82.6, 82.6, 165.2, 128, 72, 100, 1536, 31.5, 0, False),
    ("L4", "NVIDIA L4", (8, 9),
        23034, 300.0, 0.473, 30.3, 60.0, 121.0, 58, 48, 100, 1536, 31.5, 0, True),
    ("H100", "NVIDIA H100 80GB HBM3", (9, 0),
        81559, 3350.0, 34.0, 67.0, 494.5, 989.5, 132, 50, 228, 2048, 63.0, 450, True),
    ("H200", "NVIDIA H200", (9, 0),
        143771, 4800.0, 34.0, 67.0, 494.5, 989.5, 132, 50, 228, 2048, 63.0, 450, True),
)
# fmt: on
MODELS: dict[str, Model] = {row[0]: Model(*row) for row in _ROWS}


def model(name: str) -> Model:
    """The model of a name; case, spaces and hyphens do not matter.  Raises ValueError that names those there are."""
    def plain(text: str) -> str:
        return "".join(ch for ch in text.lower() if ch.isalnum()).removeprefix("nvidia").removeprefix("geforce")
    for m in MODELS.values():
        if plain(name) in (plain(m.name), plain(m.full_name)) or (m.name == "RTX 4090" and plain(name) == "4090"):
            return m
    raise ValueError(f"model: {name!r} cannot be simulated; choose one of {', '.join(MODELS)}")
