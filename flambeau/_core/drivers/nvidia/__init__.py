"""NVIDIA GPUs through cuda.bindings: the one folder that touches it.

`probe`    what is there, without using it (no context, nothing that a fork would poison)
`cuda_errors` results of calls as exceptions; faults after which a device is dead
`driver`   the driver interface: memory, streams, events, copies
`launches` kernels of loop programs: rendered, compiled and loaded when first launched
`native_launch` the way from Python into cuLaunchKernel
`blaslt`   matrix products by cuBLASLt
"""
