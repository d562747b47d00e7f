"""What an installed cuDNN says of our graphs of attention and convolutions, in a process of its own and on no GPU: ``python real_cudnn.py LIBCUDA CAPABILITY``.

LIBCUDA is a stand-in for the driver (`stub_cuda.cc`), for the library loads one; CAPABILITY, as 900 for 9.0, is of the device that is
described to it.  A line of JSON for each graph: its name, and the engine and bytes of workspace of the library's best plan.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

DEVICES: dict[int, dict[str, Any]] = {
    800: {"deviceName": "NVIDIA A100-SXM4-80GB", "multiProcessorCount": 108, "maxSharedMemoryPerBlockOptin": 166912, "totalGlobalMem": 85 * 10**9,
          "smClockRateKHz": 1410000, "memClockRateKHz": 1593000, "memoryBusWidth": 5120, "l2CacheSize": 40 << 20, "maxSharedMemoryPerSM": 167936},
    900: {"deviceName": "NVIDIA H200", "multiProcessorCount": 132, "maxSharedMemoryPerBlockOptin": 232448, "totalGlobalMem": 150754820096,
          "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "memoryBusWidth": 6144, "l2CacheSize": 60 << 20, "maxSharedMemoryPerSM": 233472},
    1000: {"deviceName": "NVIDIA B200", "multiProcessorCount": 148, "maxSharedMemoryPerBlockOptin": 232448, "totalGlobalMem": 192 * 10**9,
           "smClockRateKHz": 1965000, "memClockRateKHz": 3996000, "memoryBusWidth": 8192, "l2CacheSize": 126 << 20, "maxSharedMemoryPerSM": 233472}}
_SAME = {"cudaDeviceId": 0, "driverVer": 13000, "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
         "warpSize": 32, "maxSharedMemoryPerBlock": 49152, "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "pciDeviceId": 0,
         "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "isTccDriver": 0, "supportCoopLaunch": 1,
         "oversizedSharedMemoryPerBlock": 0}
# name: type, whether causal, the order of axes, and batch, heads, heads a key head, queries, keys, depth, depth of values
SHAPES: dict[str, tuple[str, bool, str, tuple[int, ...]]] = {
    "gpt2": ("bfloat16", True, "blhd", (8, 12, 1, 1024, 1024, 64, 64)),
    "llama": ("bfloat16", True, "blhd", (2, 32, 4, 4096, 4096, 128, 128)),
    "vit": ("float16", False, "blhd", (32, 12, 1, 197, 197, 64, 64)),
    "heads first": ("float16", True, "bhld", (2, 4, 1, 512, 512, 128, 128)),
    "fewer keys": ("bfloat16", True, "blhd", (2, 4, 1, 1000, 128, 64, 64)),
    "more keys": ("bfloat16", True, "bhld", (2, 4, 1, 128, 1000, 64, 64)),
    "one key head": ("bfloat16", False, "blhd", (2, 8, 8, 300, 333, 128, 128)),
    "odd depths": ("float16", False, "blhd", (2, 4, 1, 200, 300, 40, 24)),
    "shallow": ("bfloat16", True, "blhd", (2, 3, 1, 40, 50, 16, 24)),
    "deep": ("bfloat16", True, "blhd", (2, 4, 1, 512, 512, 256, 256)),
    "deep queries": ("bfloat16", True, "blhd", (2, 4, 1, 512, 512, 192, 128)),
    "few of each": ("float16", True, "bhld", (1, 1, 1, 9, 9, 8, 8)),
    "one query": ("bfloat16", False, "blhd", (4, 8, 2, 1, 640, 128, 128)),
    "very long": ("bfloat16", True, "blhd", (1, 16, 1, 65536, 65536, 128, 128)),
}


# name: images, weights, padding, stride and dilation; the channels of both tell the groups
CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, int, int]] = {
    "3x3": ((64, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1), "1x1": ((32, 256, 14, 14), (1024, 256, 1, 1), 0, 1, 1),
    "stem": ((64, 3, 224, 224), (64, 3, 7, 7), 3, 2, 1), "odd": ((3, 5, 9, 9), (7, 5, 3, 3), 1, 1, 1),
    "one channel": ((256, 1, 28, 28), (32, 1, 3, 3), 1, 1, 1),
    "groups": ((8, 64, 30, 30), (64, 16, 3, 3), 1, 1, 1), "dilated": ((2, 8, 20, 20), (6, 8, 3, 3), 2, 1, 2), "row": ((4, 16, 100), (24, 16, 5), 2, 1, 1),
    "volume": ((2, 4, 9, 9, 9), (6, 4, 3, 3, 3), 1, 2, 1),
}


def operands(name: str, last: bool) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Sizes and strides of a convolution's images, weights and results."""
    from flambeau._core.drivers.nvidia.cudnn_convolutions import _dense
    x, w, padding, stride, dilation = CONVOLUTIONS[name]
    y = (x[0], w[0], *[(i + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for i, k in zip(x[2:], w[2:], strict=True)])
    return {n: (s, _dense(s, last)) for n, s in (("x", x), ("w", w), ("y", y))}


def convolutions(lib: Any, device: Any) -> None:
    import flambeau as torch
    from flambeau._core.drivers.nvidia import cudnn, cudnn_convolutions, cudnn_graph
    ways = [(kind, bias) for kind in ("forward", "images", "weights") for bias in ((False, True) if kind == "forward" else (False,))]
    for name, (x, _, *numbers) in CONVOLUTIONS.items():
        axes = len(x) - 2
        for last in (False, True)[:1 + (axes > 1)]:
            for kind, bias in ways:
                for d in ("float32", "float16", "bfloat16"):
                    o = operands(name, last)
                    told: dict[str, Any] = {"name": f"{name} {d}", "what": f"{kind}{' with bias' if bias else ''}{', channels last' if last else ''}"}
                    padding, stride, dilation = [(n,) * axes for n in numbers]
                    shape = cudnn_convolutions.Shape(kind, getattr(torch, d), o["x"], o["w"], o["y"], (padding, stride, dilation), bias)
                    for aligned in (cudnn_graph.ALIGNED, shape.d.itemsize):
                        for without in ((), (cudnn_graph.TENSOR_CORES, cudnn_graph.ROUNDED) if d == "float32" else (), (cudnn_graph.VARYING,)):
                            try:
                                plan = next(cudnn_graph.plans(shape.graph(lib, aligned), 1 << 62, device=device, without=without), None)
                            except cudnn.Unsupported as error:
                                told["why"], plan = str(error), None
                            told.setdefault("engines", []).append(None if plan is None else [plan.engine(), plan.workspace])
                    print(json.dumps(told), flush=True)


def steps(order: str, sizes: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Of dense operands with the heads before the rows ("bhld") or after them."""
    _, heads, group, length, source, depth, value_depth = sizes

    def dense(h: int, n: int, e: int) -> tuple[int, ...]:
        return (h * n * e, n * e, e, 1) if order == "bhld" else (h * n * e, e, h * e, 1)
    q, k, v, o = (dense(heads, length, depth), dense(heads // group, source, depth), dense(heads // group, source, value_depth),
                  dense(heads, length, value_depth))
    return {"q": q, "k": k, "v": v, "o": o, "g": o, "dq": q, "dk": k, "dv": v}


def main(stub: str, capability: int) -> None:
    ctypes.CDLL(stub, mode=ctypes.RTLD_GLOBAL)
    import flambeau as torch
    from flambeau._core.drivers.nvidia import cudnn, cudnn_attention, cudnn_graph
    lib = cudnn_graph.declared(cudnn.load())
    print(json.dumps({"version": cudnn.version()}), flush=True)
    cudnn_graph.ready()
    device = cudnn_graph.described(lib, json.dumps({"deviceVer": capability} | DEVICES[capability] | _SAME))
    for name, (kind, causal, order, sizes) in SHAPES.items():
        shape = cudnn_attention.Shape(getattr(torch, kind), causal, sizes, sizes[5] ** -0.5, steps(order, sizes))
        for what in ("forward", "backward", "backward in a fixed order"):
            told: dict[str, Any] = {"name": name, "what": what}
            try:
                graph = shape.forward(lib) if what == "forward" else shape.backward(lib, what != "backward")
                plan = next(cudnn_graph.plans(graph, 1 << 62, device=device), None)
            except cudnn.Unsupported as error:
                told["why"], plan = str(error), None
            if plan is not None:
                told |= {"engine": plan.engine(), "workspace": plan.workspace}
                if name == "gpt2":
                    told["again"] = cudnn_graph.Plan(graph, text=plan.text(), device=device).workspace
            print(json.dumps(told), flush=True)
    convolutions(lib, device)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
