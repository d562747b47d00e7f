"""The GPUs that can be simulated, and the networks between their machines: one row each.

Memory is what `nvidia-smi` reports (MiB).  Every other figure is NVIDIA's own, of these documents; where they quote a
rate with sparsity, half of it stands here:
  T4        "NVIDIA T4 Tensor Core GPU" data sheet (320 GB/s, 8.1 and 65 TFLOP/s); Turing (TU102/104/106) whitepaper:
            float64 at 1/32 of float32
  A100      "NVIDIA A100 80GB" data sheet, SXM column (2,039 GB/s; 9.7, 19.5 by tensor cores, 19.5, 156, 312 TFLOP/s)
  RTX 4090  "NVIDIA Ada GPU Architecture" whitepaper, table of the GeForce RTX 4090 (half with float32 accumulation);
            float64 at 1/64 of float32
  L4        "NVIDIA L4 Tensor Core GPU" data sheet (300 GB/s; 30.3, 120 and 242 TFLOP/s with sparsity); float64 as above
  H100      "NVIDIA H100 Tensor Core GPU" data sheet, SXM column (3.35 TB/s; 34, 67, 67, 989 and 1,979 TFLOP/s)
  H200      "NVIDIA H200 Tensor Core GPU" data sheet, SXM column (4.8 TB/s; rates as the H100)
Links are one direction: half of NVLink's quoted total; PCIe's rate of sixteen lanes (3.0, 4.0 and 5.0 in turn).
A network's rate is that of one port, of which each GPU has its own, as in NVIDIA's DGX A100 (eight HDR ports) and DGX H100 and H200 (eight NDR ports;
their data sheets).  The time from one machine to the next is between those that NCCL's own table of latencies has for a network's ring (2.7 to 14 us by
protocol, `tuning.cc`); Ethernet's is without RDMA, through two hosts' kernels, an estimate.

What a GPU reaches of these rates is told in `reached`; a model file of `flambeau.simulated.calibrate` has both, as measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import reached


class Model:
    """Figures of one GPU: memory in MiB, rates in GB/s and TFLOP/s, caches in MiB, shared memory in KiB.  source: where they come from; reached: what
    it reaches of its rates, which is what work is priced by."""

    __slots__ = ("name", "full_name", "capability", "memory_mib", "bandwidth", "float64", "double_products", "float32", "tf32", "half", "processors",
                 "l2_mib", "shared_kib", "threads", "pcie", "nvlink", "peer", "source", "reached")

    def __init__(self, name: str, full_name: str, capability: tuple[int, int], memory_mib: int, bandwidth: float,
                 float64: float, double_products: float, float32: float, tf32: float, half: float, processors: int,
                 l2_mib: int, shared_kib: int, threads: int, pcie: float, nvlink: float, peer: bool, source: str = reached.PUBLISHED,
                 reaches: reached.Reached | None = None) -> None:
        self.name, self.full_name, self.capability, self.memory_mib = name, full_name, capability, memory_mib
        self.bandwidth, self.float64, self.double_products = bandwidth, float64, double_products
        self.float32, self.tf32, self.half = float32, tf32, half
        self.processors, self.l2_mib, self.shared_kib, self.threads = processors, l2_mib, shared_kib, threads
        self.pcie, self.nvlink, self.peer = pcie, nvlink, peer
        self.source, self.reached = source, reaches or reached.published(self)

    def rated(self) -> dict[str, object]:
        """The figures of the row, by name."""
        return {name: getattr(self, name) for name in RATED}


# fmt: off
_ROWS = (
    # name, full name, capability,
    #   MiB, GB/s, float64, float64 by tensor cores, float32, tf32, half (TFLOP/s), processors,
    #   L2, shared, threads, PCIe, NVLink (GB/s), peer access
    ("T4", "Tesla T4", (7, 5),
        15360, 320.0, 0.253, 0.253, 8.1, 8.1, 65.0, 40, 4, 64, 1024, 15.75, 0, True),
    ("A100", "NVIDIA A100-SXM4-80GB", (8, 0),
        81920, 2039.0, 9.7, 19.5, 19.5, 156.0, 312.0, 108, 40, 164, 2048, 31.5, 300, True),
    ("RTX 4090", "NVIDIA GeForce RTX 4090", (8, 9),
        24564, 1008.0, 1.29, 1.29, 82.6, 82.6, 165.2, 128, 72, 100, 1536, 31.5, 0, False),
    ("L4", "NVIDIA L4", (8, 9),
        23034, 300.0, 0.473, 0.473, 30.3, 60.0, 121.0, 58, 48, 100, 1536, 31.5, 0, True),
    ("H100", "NVIDIA H100 80GB HBM3", (9, 0),
        81559, 3350.0, 34.0, 67.0, 67.0, 494.5, 989.5, 132, 50, 228, 2048, 63.0, 450, True),
    ("H200", "NVIDIA H200", (9, 0),
        143771, 4800.0, 34.0, 67.0, 67.0, 494.5, 989.5, 132, 50, 228, 2048, 63.0, 450, True),
)
# fmt: on
MODELS: dict[str, Model] = {row[0]: Model(*row) for row in _ROWS}
RATED = Model.__slots__[:17]


class Network:
    """What joins machines with GPUs: gigabits a second for each GPU, and seconds from one machine to the next before the first byte is there."""

    __slots__ = ("name", "gigabits", "hop")

    def __init__(self, name: str, gigabits: float, hop: float) -> None:
        self.name, self.gigabits, self.hop = name, gigabits, hop

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.gigabits / 8 * 1e9


NETWORKS: dict[str, Network] = {name: Network(name, gigabits, hop) for name, gigabits, hop in (
    ("XDR", 800.0, 4e-6), ("NDR", 400.0, 4e-6), ("HDR", 200.0, 4e-6), ("EDR", 100.0, 4e-6),
    ("100GbE", 100.0, 3e-5), ("25GbE", 25.0, 3e-5), ("10GbE", 10.0, 3e-5))}


def network(name: str) -> Network:
    """The network of a name, or of gigabits a second for each GPU, such as "400", with InfiniBand's latency.  Raises ValueError."""
    for n in NETWORKS.values():
        if name.strip().lower() == n.name.lower():
            return n
    try:
        gigabits = float(name)
    except ValueError:
        gigabits = 0.0
    if not 0 < gigabits < 1e6:
        raise ValueError(f"network: {name!r} is none; choose one of {', '.join(NETWORKS)}, or gigabits a second for each GPU")
    return Network(name, gigabits, NETWORKS["NDR"].hop)


def model(name: str) -> Model:
    """The model of a name; case, spaces and hyphens do not matter.  A name that ends with ".toml" is a model file's (`flambeau.simulated.calibrate`).

    Raises ValueError that names those there are, or says what is wrong with the file."""
    if name.endswith(".toml"):
        return _of_file(Path(name))

    def plain(text: str) -> str:
        return "".join(ch for ch in text.lower() if ch.isalnum()).removeprefix("nvidia").removeprefix("geforce")
    for m in MODELS.values():
        if plain(name) in (plain(m.name), plain(m.full_name)) or (m.name == "RTX 4090" and plain(name) == "4090"):
            return m
    raise ValueError(f"model: {name!r} cannot be simulated; choose one of {', '.join(MODELS)}, or a model file (.toml)")


def _of_file(path: Path) -> Model:
    rated, source, found = reached.read(path)
    if set(rated) != set(RATED):
        raise ValueError(f"model: {path} lacks {', '.join(sorted(set(RATED) - set(rated))) or 'nothing'} under [rated], and has "
                         f"{', '.join(sorted(set(rated) - set(RATED))) or 'nothing'} that is not expected")
    try:
        major, minor = map(int, rated.pop("capability"))
        wanted: dict[str, Any] = {n: str if n in ("name", "full_name") else bool if n == "peer" else int if n in _WHOLE else float for n in rated}
        return Model(capability=(major, minor), source=source, reaches=found, **{n: wanted[n](value) for n, value in rated.items()})
    except (TypeError, ValueError) as error:
        raise ValueError(f"model: {path} has a figure under [rated] that is none: {error}") from error


_WHOLE = ("memory_mib", "processors", "l2_mib", "shared_kib", "threads")
