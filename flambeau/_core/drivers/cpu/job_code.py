"""The machine code of `jobs`: what goes over a batch and calls routines, and routines of our own.

Our routines are called as LAPACK's are: every argument by address, whole numbers of 64 bits, matrices column by column. Their names end in
the type's letter where there is one for each type.

The parameter block of a job: HEAD words (below), its steps, its constants. A step, in words: the routine; the place of an int64; when the
routine is called (1: that is not zero, 0: it is zero, -1: always); how many arguments follow (FEW or MANY); each one's place. A place is
three words: which base (bytes into the table of bases), bytes from there for the first matrix, and bytes from matrix to matrix. The bases
are 0 (so that numbers are places too), the parameter block, the workspace, the operands.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ...dtypes import float32, float64
from ...kernels.llvm.emit import Emitter, Module, base, number
from . import lane_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...dtypes import dtype

HEAD = 6  # words: steps, operands, the workspace's place among the arguments (-1: on the stack), its bytes, matrices in a chunk, nothing
FEW, MANY = 8, 16
STEP = 6  # words of a step before its arguments
NUMBER, BLOCK, WORKSPACE, OPERANDS = 0, 1, 2, 3  # the bases
MOST_OPERANDS = 8
_REAL = {"s": float32, "d": float64}
_TINY = {"s": (2.0 ** -23, 2.0 ** -126), "d": (2.0 ** -52, 2.0 ** -1022)}  # eps, and the least normal number


@cache
def functions() -> dict[str, int]:
    """Where each function is: "job", and our routines by name."""
    from ...kernels.llvm import compile as compiler
    module = Module()
    names = [_job(module), _resized(module, "narrow", 8, 4), _resized(module, "widen", 4, 8), _blocks(module), _permutation(module)]
    names += [_copy(module, item) for item in (4, 8, 16)]
    for letter in "sd":
        names += [_parity(module, letter), _check(module, letter), _pairs(module, letter)]
    names += [make(module, letter) for letter in "sdcz" for make in (_regular, _product)]
    names += lane_code.write(module)
    text = module.text()
    found = compiler.functions(("jobs", text), tuple(names), lambda: text)
    return {name.removeprefix("flambeau_"): address for name, address in found.items()}


def _begin(module: Module, name: str, *params: str) -> Emitter:
    return Emitter(module, f"void @flambeau_{name}({', '.join('ptr %' + p for p in params)})")


def _end(em: Emitter) -> str:
    em.line("ret void")
    em.finish()
    return em.head.split("@")[1].split("(")[0]


def _get(em: Emitter, address: str, t: str = "i64") -> str:
    return em.op(f"load {t}, ptr {address}")


def _item(em: Emitter, address: str, index: str, t: str) -> str:
    return em.op(f"getelementptr {t}, ptr {address}, i64 {index}")


# ----------------------------------------------------------------------------------------------------------- the job
def _job(module: Module) -> str:
    em = Emitter(module, "void @flambeau_job(i64 %begin, i64 %end, ptr %args, ptr %block)")
    bases = em.op(f"alloca [{OPERANDS + MOST_OPERANDS} x i64], align 64", "a")
    steps, operands, where, nbytes, chunk = (em.word("%block", k) for k in range(5))
    here = em.op(f"icmp slt i64 {where}, 0")
    stack = em.op(f"alloca i8, i64 {em.op(f'select i1 {here}, i64 {nbytes}, i64 0')}, align 64", "a")
    given = em.op(f"load i64, ptr {_item(em, '%args', em.op(f'select i1 {here}, i64 0, i64 {where}'), 'i64')}")
    part = em.add(given, em.mul(em.op(f"sdiv i64 %begin, {chunk}"), nbytes))
    room = em.op(f"select i1 {here}, i64 {em.op(f'ptrtoint ptr {stack} to i64')}, i64 {part}")
    for k, value in ((NUMBER, "0"), (BLOCK, em.op("ptrtoint ptr %block to i64")), (WORKSPACE, room)):
        em.line(f"store i64 {value}, ptr {em.at(bases, str(8 * k))}")
    with em.loop("0", operands) as operand:
        value = _get(em, _item(em, "%args", operand.i, "i64"))
        em.line(f"store i64 {value}, ptr {_item(em, bases, em.add(operand.i, str(OPERANDS)), 'i64')}")
    first = em.at("%block", str(8 * HEAD))
    with em.loop("%begin", "%end") as matrix, em.loop("0", steps, carried=[("ptr", first)]) as step:
        (at,) = step.vars
        width = em.word(at, 5)
        few = em.op(f"icmp eq i64 {width}, {FEW}")
        runs = em.label("runs")
        calls, skips = em.label("calls"), em.label("skips")
        sense = em.word(at, 4)
        ask = em.label("ask")
        em.branch(em.op(f"icmp slt i64 {sense}, 0"), runs, ask)
        em.start(ask)
        flag = _get(em, em.op(f"inttoptr i64 {_address(em, bases, at, 1, matrix.i)} to ptr"))
        holds = em.op(f"zext i1 {em.op(f'icmp ne i64 {flag}, 0')} to i64")
        em.branch(em.op(f"icmp eq i64 {holds}, {sense}"), runs, skips)
        em.start(runs)
        many = em.label("many")
        em.branch(few, calls, many)
        for label, count in ((calls, FEW), (many, MANY)):
            em.start(label)
            given = ", ".join(f"i64 {_address(em, bases, at, STEP + 3 * k, matrix.i)}" for k in range(count))
            em.line(f"call void {em.pointer(at, 0)}({given})")
            em.jump(skips)
        em.start(skips)
        step.next = [em.at(at, em.mul(em.add(em.mul(width, "3"), str(STEP)), "8"))]
    return _end(em)


def _address(em: Emitter, bases: str, at: str, word: int, i: str) -> str:
    """The address of a place for matrix i, as a number."""
    begin = _get(em, em.at(bases, em.word(at, word)))
    return em.add(em.add(begin, em.word(at, word + 1)), em.mul(em.word(at, word + 2), i))


# ------------------------------------------------------------------------------------------------------- whole numbers
def _resized(module: Module, name: str, source: int, target: int) -> str:
    """<name>(n, source, target): n signed integers of `source` bytes as integers of `target` bytes."""
    em = _begin(module, name, "n", "source", "target")
    old, made = f"i{8 * source}", f"i{8 * target}"
    with em.loop("0", _get(em, "%n")) as k:
        value = em.op(f"{'trunc' if target < source else 'sext'} {old} {_get(em, _item(em, '%source', k.i, old), old)} to {made}")
        em.line(f"store {made} {value}, ptr {_item(em, '%target', k.i, made)}")
    return _end(em)


def _copy(module: Module, item: int) -> str:
    """copy<bytes>(m, n, down, right, source, target): A (m, n), whose elements lie `down` and `right` from each other, packed column by column."""
    em = _begin(module, f"copy{item}", "m", "n", "down", "right", "source", "target")
    m, down, right = _get(em, "%m"), _get(em, "%down"), _get(em, "%right")
    t = f"i{8 * item}"
    with em.loop("0", _get(em, "%n")) as column:
        source, target = _item(em, "%source", em.mul(column.i, right), t), _item(em, "%target", em.mul(column.i, m), t)
        with em.loop("0", m) as row:
            value = em.op(f"load {t}, ptr {_item(em, source, em.mul(row.i, down), t)}, align {min(item, 8)}")
            em.line(f"store {t} {value}, ptr {_item(em, target, row.i, t)}, align {min(item, 8)}")
    return _end(em)


def _blocks(module: Module) -> str:
    """blocks(n, pivots, wide, bad): sytrf's pivots (int32) as int64; bad (int64): 1 where one is no row from 1 or its negative, or where negative
    ones, which stand for blocks of two, do not come in pairs; else 0."""
    em = _begin(module, "blocks", "n", "pivots", "wide", "bad")
    n = _get(em, "%n")
    with em.loop("0", n, carried=[("i1", "false"), ("i1", "false")]) as k:  # bad so far, within a block
        bad, within = k.vars
        pivot = em.op(f"sext i32 {_get(em, _item(em, '%pivots', k.i, 'i32'), 'i32')} to i64")
        em.line(f"store i64 {pivot}, ptr {_item(em, '%wide', k.i, 'i64')}")
        size = em.call("llvm.abs.i64", "i64", ("i64", pivot), ("i1", "false"))
        outside = em.op(f"icmp uge i64 {em.sub(size, '1')}, {n}")
        negative = em.op(f"icmp slt i64 {pivot}, 0")
        broken = em.op(f"and i1 {within}, {em.op(f'xor i1 {negative}, true')}")
        k.next = [em.op(f"or i1 {bad}, {em.op(f'or i1 {outside}, {broken}')}"),
                  em.op(f"and i1 {negative}, {em.op(f'xor i1 {within}, true')}")]
    bad = em.op(f"or i1 {k.vars[0]}, {k.vars[1]}")
    em.line(f"store i64 {em.op(f'zext i1 {bad} to i64')}, ptr %bad")
    return _end(em)


def _permutation(module: Module) -> str:
    """permutation(m, k, pivots, there, back, failed): k exchanges (int32, from 1) as an order of m rows and its inverse, both int64; failed
    (int32): the first that is no row, from 1, or 0. Such are left out."""
    em = _begin(module, "permutation", "m", "k", "pivots", "there", "back", "failed")
    m = _get(em, "%m")
    em.line("store i32 0, ptr %failed")
    with em.loop("0", m) as row:
        em.line(f"store i64 {row.i}, ptr {_item(em, '%there', row.i, 'i64')}")
    with em.loop("0", _get(em, "%k")) as row:
        other = em.sub(em.op(f"sext i32 {_get(em, _item(em, '%pivots', row.i, 'i32'), 'i32')} to i64"), "1")
        valid = em.op(f"icmp ult i64 {other}, {m}")
        with em.only_if(valid):
            mine, its = _item(em, "%there", row.i, "i64"), _item(em, "%there", other, "i64")
            a, b = _get(em, mine), _get(em, its)
            em.line(f"store i64 {b}, ptr {mine}")
            em.line(f"store i64 {a}, ptr {its}")
        with em.only_if(em.op(f"xor i1 {valid}, true")):
            before = _get(em, "%failed", "i32")
            place = em.op(f"trunc i64 {em.add(row.i, '1')} to i32")
            none = em.op(f"icmp eq i32 {before}, 0")
            em.line(f"store i32 {em.op(f'select i1 {none}, i32 {place}, i32 {before}')}, ptr %failed")
    with em.loop("0", m) as row:
        em.line(f"store i64 {row.i}, ptr {_item(em, '%back', _get(em, _item(em, '%there', row.i, 'i64')), 'i64')}")
    return _end(em)


def _parity(module: Module, letter: str) -> str:
    """parity(n, pivots, sign): +1 or -1 for an even or odd number of exchanges, by pivots (int64, from 1)."""
    d = _REAL[letter]
    em = _begin(module, "parity" + letter, "n", "pivots", "sign")
    with em.loop("0", _get(em, "%n"), carried=[("i64", "0")]) as k:
        after = em.add(k.i, "1")
        moved = em.op(f"icmp ne i64 {_get(em, _item(em, '%pivots', k.i, 'i64'))}, {after}")
        k.next = [em.op(f"xor i64 {k.vars[0]}, {em.op(f'zext i1 {moved} to i64')}")]
    odd = em.op(f"icmp ne i64 {k.vars[0]}, 0")
    em.line(f"store {base(d)} {em.op(f'select i1 {odd}, {base(d)} {number(-1.0, d)}, {base(d)} {number(1.0, d)}')}, ptr %sign")
    return _end(em)


# -------------------------------------------------------------------------------------------------------------- values
def _check(module: Module, letter: str) -> str:
    """check(part, m, n, parts, a, lda, nan, inf, code): what stands at `nan` where numbers of A (m, n; of `parts` reals each) are NaN, else what
    stands at `inf` where any is infinite, else 0; part: "L" or "U" for a triangle, else all."""
    d = _REAL[letter]
    word, lanes = ("i32", 16) if d is float32 else ("i64", 8)
    magnitude, infinity = (0x7FFFFFFF, 0x7F800000) if d is float32 else (0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000)
    em = _begin(module, "check" + letter, "part", "m", "n", "parts", "a", "lda", "nan", "inf", "code")
    part = _get(em, "%part", "i8")
    lower, upper = (em.op(f"icmp eq i8 {part}, {ord(c)}") for c in "LU")
    m, n, parts = (_get(em, p) for p in ("%m", "%n", "%parts"))
    step = em.mul(em.mul(_get(em, "%lda"), parts), str(d.itemsize))
    wide = f"<{lanes} x {word}>"

    def largest(kind: str, address: str, known: str) -> str:
        count = 1 if kind == word else lanes
        bits = em.op(f"and {kind} {em.op(f'load {kind}, ptr {address}, align {d.itemsize}')}, {em.broadcast(str(magnitude), word, count)}")
        return em.op(f"select {'i1' if count == 1 else f'<{count} x i1>'} {em.op(f'icmp ugt {kind} {bits}, {known}')}, {kind} {bits}, {kind} {known}")
    with em.loop("0", n, carried=[(word, "0"), (wide, "zeroinitializer")]) as column:
        after = em.smaller(em.add(column.i, "1"), m)
        begin = em.mul(em.op(f"select i1 {lower}, i64 {em.smaller(column.i, m)}, i64 0"), parts)
        end = em.mul(em.op(f"select i1 {upper}, i64 {after}, i64 {m}"), parts)
        at = em.at("%a", em.mul(column.i, step))
        whole = em.add(begin, em.op(f"and i64 {em.sub(end, begin)}, {-lanes}"))
        with em.loop(begin, whole, str(lanes), [(wide, column.vars[1])]) as row:
            row.next = [largest(wide, _item(em, at, row.i, word), row.vars[0])]
        with em.loop(whole, end, "1", [(word, column.vars[0])]) as rest:
            rest.next = [largest(word, _item(em, at, rest.i, word), rest.vars[0])]
        column.next = [rest.vars[0], row.vars[0]]
    most = em.call(f"llvm.vector.reduce.umax.v{lanes}{word}", word, (wide, column.vars[1]))
    most = em.call(f"llvm.umax.{word}", word, (word, most), (word, column.vars[0]))
    infinite, none = em.op(f"icmp eq {word} {most}, {infinity}"), em.op(f"icmp ugt {word} {most}, {infinity}")
    code = em.op(f"select i1 {infinite}, i64 {_get(em, '%inf')}, i64 0")
    code = em.op(f"select i1 {none}, i64 {_get(em, '%nan')}, i64 {code}")
    em.line(f"store i64 {code}, ptr %code")
    return _end(em)


def _pairs(module: Module, letter: str) -> str:
    """pairs(n, imaginary, v, vectors): complex eigenvectors from geev's real ones: a conjugate pair of eigenvalues shares two columns, the
    real and the imaginary part; the eigenvalue with the positive imaginary part comes first."""
    t = base(_REAL[letter])
    em = _begin(module, "pairs" + letter, "n", "imaginary", "v", "vectors")
    n, zero = _get(em, "%n"), number(0.0, _REAL[letter])
    with em.loop("0", n) as column:
        part = _get(em, _item(em, "%imaginary", column.i, t), t)
        first, second = em.op(f"fcmp ogt {t} {part}, {zero}"), em.op(f"fcmp olt {t} {part}, {zero}")
        real_at = em.sub(column.i, em.op(f"zext i1 {second} to i64"))
        real, imaginary = (_item(em, "%v", em.mul(at, n), t) for at in (real_at, em.add(real_at, em.op(f"zext i1 {em.op(f'or i1 {first}, {second}')} to i64"))))
        to = _item(em, "%vectors", em.mul(em.mul(column.i, n), "2"), t)
        with em.loop("0", n) as row:
            x, y = _get(em, _item(em, real, row.i, t), t), _get(em, _item(em, imaginary, row.i, t), t)
            y = em.op(f"select i1 {second}, {t} {em.op(f'fneg {t} {y}')}, {t} {em.op(f'select i1 {first}, {t} {y}, {t} {zero}')}")
            where = em.mul(row.i, "2")
            em.line(f"store {t} {x}, ptr {_item(em, to, where, t)}")
            em.line(f"store {t} {y}, ptr {_item(em, to, em.add(where, '1'), t)}")
    return _end(em)


def _diagonal(em: Emitter, letter: str) -> tuple[dtype, int, Callable[[str], tuple[str, list[str]]]]:
    """Of a routine with parameters n and lu: the real type, how many of them a number has, and where the k-th number of the diagonal is and what
    it is."""
    real, parts = _REAL["s" if letter in "sc" else "d"], 2 if letter in "cz" else 1
    t, step = base(real), em.mul(em.add(_get(em, "%n"), "1"), str(parts))

    def read(k: str) -> tuple[str, list[str]]:
        at = _item(em, "%lu", em.mul(k, step), t)
        return at, [_get(em, _item(em, at, str(part), t), t) for part in range(parts)]
    return real, parts, read


def _regular(module: Module, letter: str) -> str:
    """regular(n, lu): zeros on U's diagonal are moved by a rounding error of its largest number."""
    em = _begin(module, "regular" + letter, "n", "lu")
    real, parts, read = _diagonal(em, letter)
    t, (eps, tiny) = base(real), _TINY["s" if real is float32 else "d"]

    def size(values: list[str]) -> str:
        sizes = [em.intrinsic("fabs", real, 1, v) for v in values]
        return sizes[0] if parts == 1 else em.op(f"fadd {t} {sizes[0]}, {sizes[1]}")
    n = _get(em, "%n")
    with em.loop("0", n, carried=[(t, number(tiny, real))]) as k:
        k.next = [em.intrinsic("maxnum", real, 1, k.vars[0], size(read(k.i)[1]))]
    small = em.op(f"fmul {t} {k.vars[0]}, {number(eps, real)}")
    small = em.op(f"select i1 {em.op(f'fcmp ogt {t} {small}, {number(tiny, real)}')}, {t} {small}, {t} {number(eps, real)}")
    with em.loop("0", n) as k:
        at, values = read(k.i)
        none = em.op(f"fcmp oeq {t} {size(values)}, {number(0.0, real)}")
        em.line(f"store {t} {em.op(f'select i1 {none}, {t} {small}, {t} {values[0]}')}, ptr {at}")
    return _end(em)


def _product(module: Module, letter: str) -> str:
    """product(n, lu, sign, det): the product of U's diagonal times `sign` (real)."""
    em = _begin(module, "product" + letter, "n", "lu", "sign", "det")
    real, parts, read = _diagonal(em, letter)
    t = base(real)
    with em.loop("0", _get(em, "%n"), carried=[(t, number(1.0, real)), (t, number(0.0, real))]) as k:
        values = read(k.i)[1]
        if parts == 1:
            k.next[0] = em.op(f"fmul {t} {k.vars[0]}, {values[0]}")
        else:
            (a, b), (x, y) = k.vars, values
            for part, (op, p, q) in enumerate((("fsub", (a, x), (b, y)), ("fadd", (a, y), (b, x)))):
                k.next[part] = em.op(f"{op} {t} {em.op(f'fmul {t} {p[0]}, {p[1]}')}, {em.op(f'fmul {t} {q[0]}, {q[1]}')}")
    sign = _get(em, "%sign", t)
    for part in range(parts):
        em.line(f"store {t} {em.op(f'fmul {t} {k.vars[part]}, {sign}')}, ptr {_item(em, '%det', str(part), t)}")
    return _end(em)
