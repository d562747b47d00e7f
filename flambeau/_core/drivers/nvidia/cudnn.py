"""Convolutions by cuDNN 9, entered through ctypes.

The calls by descriptor are used, which cuDNN 9 still has, not its graphs: they take every layout, type and group count that is
asked for here, and say themselves which algorithm to take.  Those that were tried (`backends.cudnn.benchmark`) are kept on disk by their times,
for the same GPU and version of the library, so that the next process need not try them.  Names and numbers are those of NVIDIA's cudnn_cnn.h and cudnn_ops.h.
"""

from __future__ import annotations

import ctypes
import math
import threading
from typing import TYPE_CHECKING, Any

from ...kernels import cache
from ...layout import is_channels_last, is_contiguous, numel
from . import libraries

if TYPE_CHECKING:

    from ...dtypes import dtype
    from ...kernels.programs import PreparedLaunch
    from ...kernels.specs import Convolution
    from .driver import NvidiaDriver, Stream
    from .launches import Launches

    Sizes = tuple[int, ...]
    Operand = tuple[Sizes, Sizes]  # sizes and strides

_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
_DEFAULT_MATH, _TENSOR_MATH, _FMA_MATH = 0, 1, 3
_CROSS_CORRELATION = 1
_PLAIN, _LAST = 0, 1  # formats of filters: channels before the axes, or after them
_DETERMINISTIC = 1
_IDENTITY, _PRECOMPUTED = 5, 1  # the activation, and the one algorithm, that a bias can be added with
_REFUSED = range(3000, 4000)
_NO_KERNEL = (4001, 4004, 2003)  # a kernel that could not be compiled, that found no memory, or that wants addresses of a higher alignment
_MOST = 1 << 31
_TRIED_ROOM = 1 << 30  # bytes of workspace that algorithms may use while they are tried
_STATUS = {1001: "it does not start, or a part of it is missing", 1002: "its parts are of different versions", 1008: "a part of it cannot be loaded",
           2000: "an argument is not valid", 4004: "it found no memory on the device"}
# which operation, and how many algorithms of it there are; each takes two operands, a convolution and a result, in this order
_KINDS = {"forward": ("Forward", 8), "images": ("BackwardData", 6), "weights": ("BackwardFilter", 7)}


class Unsupported(NotImplementedError):
    """cuDNN has no kernel for this."""


class Choice(ctypes.Structure):
    """An algorithm, and what the library says of it."""

    _fields_ = (("algorithm", ctypes.c_int), ("status", ctypes.c_int), ("time", ctypes.c_float), ("memory", ctypes.c_size_t),
                ("determinism", ctypes.c_int), ("math", ctypes.c_int), ("reserved", ctypes.c_int * 3))


def _declared(lib: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the types of what its calls take."""
    p, size, i = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    lib.cudnnGetVersion.restype = size
    for kind, _ in _KINDS.values():
        getattr(lib, f"cudnnConvolution{kind}").argtypes = (p, p, p, p, p, p, p, i, p, size, p, p, p)
        getattr(lib, f"cudnnFindConvolution{kind}AlgorithmEx").argtypes = (p, p, p, p, p, p, p, p, i, p, p, p, size)
        getattr(lib, f"cudnnGetConvolution{kind}Algorithm_v7").argtypes = (p, p, p, p, p, i, p, p)
        getattr(lib, f"cudnnGetConvolution{kind}WorkspaceSize").argtypes = (p, p, p, p, p, i, p)
    lib.cudnnConvolutionBiasActivationForward.argtypes = (p, p, p, p, p, p, p, i, p, size, p, p, p, p, p, p, p, p)
    lib.cudnnAddTensor.argtypes = (p, p, p, p, p, p, p)
    for name in ("Tensor", "Filter", "Convolution", "Activation"):
        getattr(lib, f"cudnnDestroy{name}Descriptor").argtypes = (p,)
    return lib


def load() -> ctypes.CDLL:
    """The library.  Raises OSError where it is not installed."""
    return _declared(libraries.load("cudnn"))


def version() -> int | None:
    """The installed library's version, as 91200 for 9.12; None where there is none."""
    try:
        return int(load().cudnnGetVersion())
    except (OSError, AttributeError):
        return None


def check(code: int, what: str) -> None:
    if code in _REFUSED:
        raise Unsupported(f"cuDNN does not support {what} (status {code})")
    if code:
        raise RuntimeError(f"cuDNN, {what}: {_STATUS.get(code, 'error')} (status {code})")


def _ints(values: Any) -> Any:
    return (ctypes.c_int * len(values))(*values)


def _dense(sizes: Sizes, last: bool) -> Sizes:
    """Strides of elements side by side, channels before the axes or after them."""
    order = (0, *range(2, len(sizes)), 1) if last else tuple(range(len(sizes)))
    strides, step = [0] * len(sizes), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= sizes[axis]
    return tuple(strides)


def _same(operand: Operand, last: bool) -> bool:
    """Whether an operand's elements lie as `_dense` says; strides of axes of length 1 do not matter."""
    sizes, strides = operand
    return all(n == 1 or s == t for n, s, t in zip(sizes, strides, _dense(sizes, last), strict=True))


class Description:
    """One convolution: the library's descriptors for it.  None of this needs a GPU.

    kind: "forward" (y of x and w), "images" (gradient of x, of w and that of y) or "weights" (gradient of w, of x and that of y).
    x, w, y: sizes (batch or outputs, channels, axes) and strides; numbers: padding, stride and dilation.  Raises Unsupported.
    """

    def __init__(self, lib: ctypes.CDLL, kind: str, d: dtype, x: Operand, w: Operand, y: Operand, numbers: tuple[Sizes, Sizes, Sizes], groups: int,
                 bias: bool, tf32: bool) -> None:
        if d.name not in _TYPES:
            raise Unsupported(d.name)
        if any(max(*o[0], *o[1], math.prod(o[0])) >= _MOST for o in (x, w, y)):
            raise Unsupported("2**31 elements or more")
        formats = [last for last in (False, True) if all(_same(o, last) for o in (x, w, y))]
        if not formats:
            raise Unsupported("strides")
        last = formats[0]
        self.lib, self.kind, self.d, self.shape = lib, kind, d, f"{kind} of a convolution of {d} images {x[0]} with weights {w[0]}"
        self._made: list[tuple[str, ctypes.c_void_p]] = []
        number = ctypes.c_double if d.name == "float64" else ctypes.c_float
        self.one, self.zero = number(1), number(0)
        self.math = _TENSOR_MATH if d.itemsize == 2 else _FMA_MATH if d.name == "float32" and not tf32 else _DEFAULT_MATH
        kind_of, n = _TYPES[d.name], len(x[0])
        flat = n == 3  # one axis is two, the first of length 1
        xs, ws, ys = [(*s[:2], 1, s[2]) if flat else s for s, _ in (x, w, y)]
        self.x, self.y = [self._tensor(kind_of, s, _dense(s, last and not flat)) for s in (xs, ys)]
        self.w = self._new("Filter")
        check(lib.cudnnSetFilterNdDescriptor(self.w, kind_of, _LAST if last and not flat else _PLAIN, len(ws), _ints(ws)), "describing weights")
        self.convolution = self._new("Convolution")
        padding, stride, dilation = [(fill, *v) if flat else v for v, fill in zip(numbers, (0, 1, 1), strict=True)]
        check(lib.cudnnSetConvolutionNdDescriptor(self.convolution, len(stride), _ints(padding), _ints(stride), _ints(dilation), _CROSS_CORRELATION,
                                                  1 if d.name == "float64" else 0), "describing a convolution")
        check(lib.cudnnSetConvolutionGroupCount(self.convolution, groups), "describing groups")
        check(lib.cudnnSetConvolutionMathType(self.convolution, self.math), "describing a convolution")
        self.first, self.second, self.out = {"forward": (self.x, self.w, self.y), "images": (self.w, self.y, self.x),
                                             "weights": (self.x, self.y, self.w)}[kind]
        if bias:
            sizes = (1, ys[1], *(1,) * (len(ys) - 2))
            self.bias = self._tensor(kind_of, sizes, _dense(sizes, False))
            self.activation = self._new("Activation")
            check(lib.cudnnSetActivationDescriptor(self.activation, _IDENTITY, 0, ctypes.c_double(0)), "describing a bias")

    def _new(self, what: str) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        check(getattr(self.lib, f"cudnnCreate{what}Descriptor")(ctypes.byref(made)), "describing a convolution")
        self._made.append((what, made))
        return made

    def _tensor(self, kind: int, sizes: Sizes, strides: Sizes) -> ctypes.c_void_p:
        made = self._new("Tensor")
        check(self.lib.cudnnSetTensorNdDescriptor(made, kind, len(sizes), _ints(sizes), _ints(strides)), f"describing a tensor of size {sizes}")
        return made

    def __del__(self) -> None:
        for what, made in getattr(self, "_made", ()):
            destroy = getattr(self.lib, f"cudnnDestroy{what}Descriptor", None)
            if destroy is not None and made:
                destroy(made)

    def suggested(self, handle: ctypes.c_void_p) -> list[Choice]:
        """What the library thinks best, best first."""
        name, count = _KINDS[self.kind]
        found, got = (Choice * count)(), ctypes.c_int(0)
        check(getattr(self.lib, f"cudnnGetConvolution{name}Algorithm_v7")(handle, self.first, self.second, self.convolution, self.out, count,
                                                                          ctypes.byref(got), found), self.shape)
        return [c for c in found[:got.value] if not c.status]

    def room(self, handle: ctypes.c_void_p, most: int) -> int:
        """Bytes of workspace that every algorithm needing no more than `most` is served by."""
        name, count = _KINDS[self.kind]
        size, least = ctypes.c_size_t(), 0
        for algorithm in range(count):
            code = getattr(self.lib, f"cudnnGetConvolution{name}WorkspaceSize")(handle, self.first, self.second, self.convolution, self.out, algorithm,
                                                                               ctypes.byref(size))
            if not code and size.value <= most:
                least = max(least, size.value)
        return least

    def tried(self, handle: ctypes.c_void_p, args: tuple[int, ...], room: int) -> list[Choice]:
        """The algorithms by the time they took, shortest first.  The result is written."""
        name, count = _KINDS[self.kind]
        found, got = (Choice * count)(), ctypes.c_int(0)
        check(getattr(self.lib, f"cudnnFindConvolution{name}AlgorithmEx")(
            handle, self.first, args[1], self.second, args[2], self.convolution, self.out, args[0], count, ctypes.byref(got), found, args[-1],
            room), self.shape)
        return [c for c in found[:got.value] if not c.status]

    def run(self, handle: ctypes.c_void_p, choice: Choice, args: tuple[int, ...], bias: bool) -> int:
        """Queues it; gives the library's status."""
        lib, space, one, zero = self.lib, choice.memory, ctypes.byref(self.one), ctypes.byref(self.zero)
        if choice.math != self.math and self.math != _FMA_MATH:  # that one is asked for: no other may round to TF32
            lib.cudnnSetConvolutionMathType(self.convolution, choice.math)
            self.math = choice.math
        if bias and choice.algorithm == _PRECOMPUTED:
            code: int = lib.cudnnConvolutionBiasActivationForward(
                handle, one, self.first, args[1], self.second, args[2], self.convolution, _PRECOMPUTED, args[-1], space, zero, self.out, args[0],
                self.bias, args[3], self.activation, self.out, args[0])
            if code not in _REFUSED:
                return code
        code = getattr(lib, f"cudnnConvolution{_KINDS[self.kind][0]}")(handle, one, self.first, args[1], self.second, args[2], self.convolution,
                                                                      choice.algorithm, args[-1], space, zero, self.out, args[0])
        if bias and not code:
            code = lib.cudnnAddTensor(handle, one, self.bias, args[3], one, self.out, args[0])
        return code


class Library:
    """cuDNN for the devices of one driver: a handle for each stream, since a handle names the stream it works on."""

    def __init__(self, driver: NvidiaDriver) -> None:
        self.driver, found = driver, libraries.optional("cudnn")
        self.lib: Any = None if found is None else _declared(found)
        self._handles: dict[int | Stream, ctypes.c_void_p] = {}
        self._best: dict[Any, list[Choice]] = {}
        self._lock = threading.RLock()

    def handle(self, place: int | Stream) -> ctypes.c_void_p:
        """The handle for a stream, or for questions about a device."""
        with self._lock:
            found = self._handles.get(place)
            if found is None:
                self.driver._use(place if isinstance(place, int) else place.device)
                found = ctypes.c_void_p()
                check(self.lib.cudnnCreate(ctypes.byref(found)), "starting")
                if not isinstance(place, int):
                    check(self.lib.cudnnSetStream(found, ctypes.c_void_p(place.raw)), "starting")
                self._handles[place] = found
            return found

    def convolution(self, launches: Launches, device: int, what: tuple[Any, ...], room: int | None, benchmark: bool,
                    deterministic: bool) -> PreparedLaunch | None:
        """The launch, whose workspace may shrink once algorithms have been tried; None where there is no algorithm for it."""
        kind, d, x, w, y, _, groups, bias, _ = what
        key = device, *what, deterministic
        try:
            made = Description(self.lib, *what)
            asked = self.handle(device)
            if benchmark and key not in self._best and (found := self._kept(device, what, deterministic)):
                self._best[key] = found
            choices = self._best.get(key) or [c for c in made.suggested(asked) if not deterministic or c.determinism == _DETERMINISTIC]
            choices = [c for c in choices if room is None or c.memory <= room]
        except Unsupported:
            return None
        if not choices:
            return None
        trying = benchmark and key not in self._best
        driver, lock = self.driver, threading.Lock()

        def attempt(handle: ctypes.c_void_p, args: tuple[int, ...], space: int) -> None:
            nonlocal trying
            trying = False
            found = [c for c in made.tried(handle, args, space) if not deterministic or c.determinism == _DETERMINISTIC]
            if found:
                choices[:] = self._best[key] = found
                prepared.workspace = found[0].memory
                cache.store(self._name(device, what, deterministic), b"".join(bytes(c) for c in found))

        def call(stream: Stream, args: tuple[Any, ...]) -> None:
            driver._use(device)
            handle = self._handles.get(stream) or self.handle(stream)
            with lock:  # the descriptor's kind of arithmetic is set before each use
                space = prepared.workspace
                if trying:
                    attempt(handle, args, space)
                while choices and choices[0].memory <= space:
                    code = made.run(handle, choices[0], args, bias)
                    if not code:
                        return
                    if code not in _REFUSED and code not in _NO_KERNEL:
                        self._fault(device, stream, code, made.shape)
                    del choices[0]
                if choices:
                    prepared.workspace = choices[0].memory
            raise Unsupported(f"cuDNN has no algorithm for {made.shape}" + (f" within {space} bytes" if choices else ""))
        flops = 2 * math.prod(y[0]) * math.prod(w[0][1:])
        nbytes = sum(math.prod(o[0]) for o in (x, w, y)) * d.itemsize
        prepared = launches.call(f"convolution_{kind}_{d.name}", device, call, workspace=choices[0].memory, nbytes=nbytes, flops=flops)
        if trying:
            prepared.workspace = max(prepared.workspace, made.room(asked, _TRIED_ROOM if room is None else min(room, _TRIED_ROOM)))
        return prepared

    def _name(self, device: int, *what: Any) -> str:
        """Under which the disk keeps what was tried of a convolution."""
        return cache.key("cudnn convolution", str(self.lib.cudnnGetVersion()), self.driver.properties(device).name, repr(what))

    def _kept(self, device: int, *what: Any) -> list[Choice]:
        """The algorithms as another process, or this one, found them, fastest first; empty where nobody has tried."""
        text, size = cache.load(self._name(device, *what)) or b"", ctypes.sizeof(Choice)
        return [Choice.from_buffer_copy(text, at) for at in range(0, len(text) - size + 1, size)]

    def _fault(self, device: int, stream: Stream, code: int, what: str) -> None:
        libraries.check(self.driver, device, stream, code, "cudnn", what, _STATUS)


def library(launches: Launches) -> Library | None:
    """cuDNN; None where it is not installed."""
    found: Library = launches.library("cudnn", Library)
    return found if found.lib is not None else None


def packed(operands: tuple[Operand, ...]) -> bool:
    """Whether all lie row by row, or all channels last."""
    return all(is_contiguous(*o) for o in operands) or all(is_channels_last(*o) for o in operands)


def convolution(launches: Launches, device: int, spec: Convolution) -> PreparedLaunch | None:
    """None where the library is absent, or has no algorithm for it; for operands that are not packed in one order; and for a transposed one with a
    longer border."""
    x, w, y = spec.x, spec.w, spec.y
    even = all((i + 2 * p - d * (k - 1) - 1) // s + 1 == o
               for i, p, d, k, s, o in zip(x[0][2:], spec.padding, spec.dilation, w[0][2:], spec.stride, y[0][2:], strict=True))
    found = library(launches) if spec.library and even and spec.dtype.kind == "f" and all(numel(o[0]) for o in (x, w, y)) and packed((x, w, y)) else None
    if found is None:
        return None
    benchmark, deterministic, tf32 = spec.how
    what = (spec.kind, spec.dtype, x, w, y, (spec.padding, spec.stride, spec.dilation), spec.groups, spec.bias, tf32)
    return found.convolution(launches, device, what, spec.room, benchmark, deterministic)
