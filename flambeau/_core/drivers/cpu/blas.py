"""Matrix products by OpenBLAS, one thread of its own per call, tiles shared out over our pool.

The library is the one the `scipy-openblas64` wheel carries (64-bit integers); without that package NumPy's own copy serves, whose
products then run on one thread each too.  A product is one native launch: a small
generated function computes each tile's addresses and calls the library through the pointer in its parameter block.
"""

from __future__ import annotations

import ctypes
import glob
import os
import struct
from functools import cache
from importlib import util
from typing import TYPE_CHECKING, Any

from ... import forks
from ...kernels import native

if TYPE_CHECKING:
    from collections.abc import Callable

_lib: Any = None
_lock = forks.lock()
_LETTER = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
_functions: dict[str, int] = {}


def library() -> Any:
    """The loaded library.  Raises ImportError naming the package when it is not installed."""
    global _lib
    if _lib is None:
        with _lock:
            if _lib is None:
                lib = ctypes.CDLL(_where())
                lib.scipy_openblas_set_num_threads64_(1)
                _lib = lib
    return _lib


def _where() -> str:
    """The library's file: of the package, or of NumPy's wheel, which has the same library, where nothing can be installed."""
    # not imported: the package loads its library for all to see, where the helpers of its LAPACK, which count in 64 bits, take the place
    # of those of the same name in SciPy's, which count in 32 (float32 sizes of workspaces were then 2^34 and up)
    for package, folder in (("scipy_openblas64", "lib"), ("numpy", "../numpy.libs")):
        spec = util.find_spec(package)
        if spec is not None and spec.origin is not None and (found := glob.glob(os.path.join(os.path.dirname(spec.origin), folder, "libscipy_openblas64_*"))):
            return found[0]
    raise ImportError("matrix products need the package scipy-openblas64 (pip install scipy-openblas64)")


def configuration() -> str:
    """OpenBLAS's own description of its version, how it was built and whose kernels it has chosen."""
    get = library().scipy_openblas_get_config64_
    get.restype = ctypes.c_char_p
    return str(get().decode())


def version() -> str:
    """OpenBLAS's version."""
    return configuration().split()[1]


@cache
def packs_always() -> bool:
    """Whether the library packs the operands of every product: it has kernels for small ones that read them in place for these CPUs alone."""
    return {"skylakex", "cooperlake", "sapphirerapids"}.isdisjoint(configuration().lower().split())


def address(name: str) -> int:
    """Where a routine of the library is; `name` without prefix and suffix ("cblas_sgemm", "sgetrf_")."""
    found = _functions.get(name)
    if found is None:
        lib = library()
        full = f"scipy_{name}64_"
        found = _functions[name] = ctypes.cast(getattr(lib, full), ctypes.c_void_p).value or 0
    return found


# ---------------------------------------------------------------------------------------------------------------- tiles
# parameter block: 0 routine, 1 transA, 2 transB, 3 M, 4 N, 5 K, 6 lda, 7 ldb, 8 ldc, 9 tile length, 10 tiles a matrix,
# 11 split along N (else M), 12-14 bytes from tile to tile in C, A, B, 15-17 bytes from matrix to matrix in C, A, B,
# 18-19 alpha, 20-21 beta (bits: real part, imaginary part)
def _text(letter: str) -> str:
    """The IR of the tile function for one element type."""
    kind = {"s": "float", "d": "double"}.get(letter)
    if kind:
        scalars = f"""
  %alpha.p = getelementptr i64, ptr %block, i64 18
  %alpha = load {kind}, ptr %alpha.p
  %beta.p = getelementptr i64, ptr %block, i64 20
  %beta = load {kind}, ptr %beta.p"""
        alpha, beta = f"{kind} %alpha", f"{kind} %beta"
    else:
        scalars = """
  %alpha.p = getelementptr i64, ptr %block, i64 18
  %beta.p = getelementptr i64, ptr %block, i64 20"""
        alpha, beta = "ptr %alpha.p", "ptr %beta.p"
    loads = "".join(f"\n  %p{i}.p = getelementptr i64, ptr %block, i64 {i}\n  %p{i} = load i64, ptr %p{i}.p" for i in range(18))
    return f"""
define void @tiles_{letter}(i64 %begin, i64 %end, ptr %args, ptr %block) #0 {{
entry:{loads}{scalars}
  %fn = inttoptr i64 %p0 to ptr
  %ta = trunc i64 %p1 to i32
  %tb = trunc i64 %p2 to i32
  %c0 = load i64, ptr %args
  %a.p = getelementptr i64, ptr %args, i64 1
  %a0 = load i64, ptr %a.p
  %b.p = getelementptr i64, ptr %args, i64 2
  %b0 = load i64, ptr %b.p
  %along = icmp ne i64 %p11, 0
  %length = select i1 %along, i64 %p4, i64 %p3
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %loop, label %done
loop:
  %t = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %matrix = sdiv i64 %t, %p10
  %whole = mul i64 %matrix, %p10
  %tile = sub i64 %t, %whole
  %start = mul i64 %tile, %p9
  %left = sub i64 %length, %start
  %short = icmp slt i64 %left, %p9
  %size = select i1 %short, i64 %left, i64 %p9
  %m = select i1 %along, i64 %p3, i64 %size
  %n = select i1 %along, i64 %size, i64 %p4
  %c1 = mul i64 %tile, %p12
  %c2 = mul i64 %matrix, %p15
  %c3 = add i64 %c1, %c2
  %c4 = add i64 %c0, %c3
  %a1 = mul i64 %tile, %p13
  %a2 = mul i64 %matrix, %p16
  %a3 = add i64 %a1, %a2
  %a4 = add i64 %a0, %a3
  %b1 = mul i64 %tile, %p14
  %b2 = mul i64 %matrix, %p17
  %b3 = add i64 %b1, %b2
  %b4 = add i64 %b0, %b3
  %c = inttoptr i64 %c4 to ptr
  %a = inttoptr i64 %a4 to ptr
  %b = inttoptr i64 %b4 to ptr
  call void %fn(i32 101, i32 %ta, i32 %tb, i64 %m, i64 %n, i64 %p5, {alpha}, ptr %a, i64 %p6, ptr %b, i64 %p7, {beta}, ptr %c, i64 %p8)
  %next = add i64 %t, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


_tile_functions: dict[str, int] = {}


def _tile_function(letter: str) -> int:
    found = _tile_functions.get(letter)
    if found is None:
        from ...kernels.llvm import compile as compiler
        name = f"tiles_{letter}"
        found = _tile_functions[letter] = compiler.functions(("blas tiles", letter, _text(letter)), (name,), lambda: _text(letter))[name]
    return found


def _bits(v: complex, letter: str) -> tuple[int, int]:
    v = complex(v)
    if letter in "sc":
        packed = struct.pack("<ff", v.real, v.imag) + b"\0" * 8
    else:
        packed = struct.pack("<dd", v.real, v.imag)
    return struct.unpack("<qq", packed)


_UNPACKED = 1_000_000  # products of numbers, up to which the kernels that pack nothing are taken: beyond, a few rows take two to ten times as long


def _tiling(m: int, n: int, k: int, neighbours: bool) -> tuple[int, bool]:
    """The tile's length and whether it cuts N.  By sizes and layout alone: the library rounds by a tile's shape, and results are not to depend on how
    many threads there are.  neighbours: what a tile has of the operand that is cut lies in one piece, so that short tiles read no line twice."""
    longest = max(m, n)
    if 2 * m * n * k < 1 << 18:
        return longest, n >= m
    length = 64 if longest <= 512 else 128 if longest <= 4096 else -(-longest // 512) * 16
    unpacked = _UNPACKED // (min(m, n) * k) & -16
    if length > unpacked >= (16 if neighbours else 64) and not packs_always():
        length = unpacked
    return min(length, longest), n >= m


def gemm(d: str, m: int, n: int, k: int, a: tuple[bool, int, int], b: tuple[bool, int, int], c: tuple[int, int], batch: int = 1,
         alpha: complex = 1.0, beta: complex = 0.0) -> Callable[..., None]:
    """A native launch ``entry(C, A, B)``: C = alpha A B + beta C for `batch` matrices, row-major.

    d: the element type's name.  a, b: (transposed, leading dimension, elements from matrix to matrix).  c: (leading
    dimension, elements from matrix to matrix).  m, n, k are not zero.
    """
    letter = _LETTER[d]
    item = {"s": 4, "d": 8, "c": 8, "z": 16}[letter]
    flops = 2 * m * n * k * batch
    length, along_n = _tiling(m, n, k, b[0] if n >= m else not a[0])
    count = -(-(n if along_n else m) // length)
    (ta, lda, a_step), (tb, ldb, b_step), (ldc, c_step) = a, b, c
    # the next tile: further columns of B and C, or further rows of A and C
    c_tile = length * item if along_n else length * ldc * item
    a_tile = 0 if along_n else length * item * (1 if ta else lda)
    b_tile = length * item * (ldb if tb else 1) if along_n else 0
    params = [address(f"cblas_{letter}gemm"), 112 if ta else 111, 112 if tb else 111, m, n, k, lda, ldb, ldc, length, count,
              int(along_n), c_tile, a_tile, b_tile, c_step * item, a_step * item, b_step * item, *_bits(alpha, letter), *_bits(beta, letter)]
    total = count * batch
    return native.make_entry([(_tile_function(letter), total, max(1, total // (8 * max(native.get_num_threads(), 1))))], params, 3,
                             parallel=flops > 1 << 18)

