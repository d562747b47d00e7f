"""Small matrices, many at once: routines for as many matrices as a vector has lanes, element by element beside each other.

For these sizes a routine of LAPACK is mostly overhead. `gather` brings a group of matrices into workspace, where a vector holds the same
element of each; the others compute there, what happens in one lane without regard to the others; `scatter` brings results back. A group at
the end of a batch that has fewer matrices repeats its last one. The routines are called as `job_code`'s are, but for `left`: how many matrices
are left from this group on, a number instead of an address. Names end in the type's letter. Vectors are 64 bytes, as workspace is aligned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtypes import float32, float64, int32, int64
from ...kernels.llvm.emit import Emitter, Module, base, constant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...dtypes import dtype

LANES = {"s": 16, "d": 8}
BYTES = 64  # of a vector


class Lanes(Emitter):
    """A routine being written.  `t`, `w`: the vector types of its values and of whole numbers, which are as wide."""

    def __init__(self, module: Module, letter: str, name: str, *params: str) -> None:
        super().__init__(module, f"void @flambeau_{name}{letter}({', '.join('ptr %' + p for p in params)})")
        self.d: dtype = float32 if letter == "s" else float64
        self.whole: dtype = int32 if letter == "s" else int64
        self.lanes = LANES[letter]
        self.t, self.w, self.i1 = (f"<{self.lanes} x {t}>" for t in (base(self.d), base(self.whole), "i1"))
        self.name = name + letter

    def end(self) -> str:
        self.line("ret void")
        self.finish()
        return "flambeau_" + self.name

    def told(self, name: str) -> str:
        """The number at a parameter's address."""
        return self.op(f"load i64, ptr %{name}")

    def place(self, start: str, index: str) -> str:
        """Where the vector of an element is."""
        return self.at(start, self.mul(index, str(BYTES)))

    def get(self, at: str, whole: bool = False) -> str:
        return self.op(f"load {self.w if whole else self.t}, ptr {at}, align {BYTES}")

    def put(self, value: str, at: str, whole: bool = False) -> None:
        self.line(f"store {self.w if whole else self.t} {value}, ptr {at}, align {BYTES}")

    def number(self, value: float) -> str:
        return constant(value, self.d, self.lanes)

    def wholes(self, value: str) -> str:
        """An i64 in every lane."""
        return self.broadcast(value if base(self.whole) == "i64" or not value.startswith("%") else self.op(f"trunc i64 {value} to i32"),
                              base(self.whole), self.lanes)

    def select(self, condition: str, yes: str, no: str, whole: bool = False) -> str:
        t = self.w if whole else self.t
        return self.op(f"select {self.i1} {condition}, {t} {yes}, {t} {no}")

    def less(self, value: str, a: str, b: str) -> str:
        """value - a b, rounded once."""
        return self.intrinsic("fma", self.d, self.lanes, self.op(f"fneg {self.t} {a}"), b, value)

    def exchange(self, index: str, row: str, rows: str, columns: str, at: str) -> None:
        """Exchanges a row of a matrix (rows, columns) with row `index` (whole, from 0) below it, lane by lane."""
        with self.loop(self.add(row, "1"), rows) as other:
            here = self.op(f"icmp eq {self.w} {index}, {self.wholes(other.i)}")
            some = self.call(f"llvm.vector.reduce.or.v{self.lanes}i1", "i1", (self.i1, here))
            with self.only_if(some), self.loop("0", columns) as column:
                start = self.mul(column.i, rows)
                a, b = (self.place(at, self.add(start, r)) for r in (row, other.i))
                x, y = self.get(a), self.get(b)
                self.put(self.select(here, y, x), a)
                self.put(self.select(here, x, y), b)


def write(module: Module) -> Sequence[str]:
    """Adds all routines; their names."""
    makers = (_gather, _gather_laid, _scatter, _gather_whole, _scatter_whole, _lu, _exchange, _lower, _back, _cholesky, _reflect, _orthogonal, _upper,
              _identity, _product, _spoil)
    return [make(module, letter) for letter in "sd" for make in makers]


def _move(em: Lanes, item: int) -> str:
    """The bytes from the first matrix to that of each lane."""
    last = em.sub(em.op("ptrtoint ptr %left to i64"), "1")
    lane = em.op(f"call <{em.lanes} x i64> @llvm.umin.v{em.lanes}i64(<{em.lanes} x i64> {em.lane_numbers(em.lanes)}, "
                 f"<{em.lanes} x i64> {em.broadcast(last, 'i64', em.lanes)})")
    em.module.declare(f"llvm.umin.v{em.lanes}i64", f"<{em.lanes} x i64> (<{em.lanes} x i64>, <{em.lanes} x i64>)")
    return em.op(f"mul <{em.lanes} x i64> {lane}, {em.broadcast(em.mul(em.told('step'), str(item)), 'i64', em.lanes)}")


def _gather(module: Module, letter: str) -> str:
    """gather(left, count, step, a, lanes): so many values of each matrix; step: from matrix to matrix."""
    em = Lanes(module, letter, "gather", "left", "count", "step", "a", "lanes")
    offsets = _move(em, em.d.itemsize)
    with em.loop("0", em.told("count")) as k:
        em.put(em.load_each(em.d, em.lanes, em.at("%a", em.mul(k.i, str(em.d.itemsize))), offsets), em.place("%lanes", k.i))
    return em.end()


def _gather_laid(module: Module, letter: str) -> str:
    """gather_laid(left, part, m, n, down, right, step, a, lanes): A (m, n), whose elements lie `down` and `right` from each other, column by column;
    part: of "L" and "U" a triangle alone."""
    em = Lanes(module, letter, "gather_laid", "left", "part", "m", "n", "down", "right", "step", "a", "lanes")
    offsets, m = _move(em, em.d.itemsize), em.told("m")
    lower, upper = (em.op(f"icmp eq i8 {em.op('load i8, ptr %part')}, {ord(c)}") for c in "LU")
    down, right = (em.mul(em.told(p), str(em.d.itemsize)) for p in ("down", "right"))
    with em.loop("0", em.told("n")) as column:
        source, target = em.at("%a", em.mul(column.i, right)), em.place("%lanes", em.mul(column.i, m))
        begin = em.op(f"select i1 {lower}, i64 {column.i}, i64 0")
        end = em.op(f"select i1 {upper}, i64 {em.smaller(em.add(column.i, '1'), m)}, i64 {m}")
        with em.loop(begin, end) as row:
            em.put(em.load_each(em.d, em.lanes, em.at(source, em.mul(row.i, down)), offsets), em.place(target, row.i))
    return em.end()


def _scatter(module: Module, letter: str) -> str:
    """scatter(left, count, step, lanes, a): back."""
    em = Lanes(module, letter, "scatter", "left", "count", "step", "lanes", "a")
    offsets = _move(em, em.d.itemsize)
    with em.loop("0", em.told("count")) as k:
        em.store_each(em.d, em.lanes, em.get(em.place("%lanes", k.i)), em.at("%a", em.mul(k.i, str(em.d.itemsize))), offsets)
    return em.end()


def _gather_whole(module: Module, letter: str) -> str:
    """gather_whole(left, count, step, a, lanes): the same of int32."""
    em = Lanes(module, letter, "gather_whole", "left", "count", "step", "a", "lanes")
    offsets = _move(em, 4)
    with em.loop("0", em.told("count")) as k:
        value = em.load_each(int32, em.lanes, em.at("%a", em.mul(k.i, "4")), offsets)
        em.put(value if em.whole is int32 else em.op(f"sext <{em.lanes} x i32> {value} to {em.w}"), em.place("%lanes", k.i), True)
    return em.end()


def _scatter_whole(module: Module, letter: str) -> str:
    """scatter_whole(left, count, step, lanes, a): back, as int32."""
    em = Lanes(module, letter, "scatter_whole", "left", "count", "step", "lanes", "a")
    offsets = _move(em, 4)
    with em.loop("0", em.told("count")) as k:
        value = em.get(em.place("%lanes", k.i), True)
        value = value if em.whole is int32 else em.op(f"trunc {em.w} {value} to <{em.lanes} x i32>")
        em.store_each(int32, em.lanes, value, em.at("%a", em.mul(k.i, "4")), offsets)
    return em.end()


def _lu(module: Module, letter: str) -> str:
    """lanes_lu(m, n, k, a, pivots, info, sign): A (m, n) = P L U over A for its first k columns, all columns taken along; the pivots from 1;
    info: the place of the first zero on U's diagonal, or 0; sign (values): +1 or -1 for an even or odd number of exchanges."""
    em = Lanes(module, letter, "lanes_lu", "m", "n", "k", "a", "pivots", "info", "sign")
    m, n, k = (em.told(p) for p in "mnk")
    start = [(em.w, "zeroinitializer"), (em.t, em.number(1.0))]
    with em.loop("0", k, carried=start) as step:
        info, sign = step.vars
        row, after = step.i, em.add(step.i, "1")
        column = em.place("%a", em.mul(row, m))

        def size(i: str, column: str = column) -> str:
            return em.intrinsic("fabs", em.d, em.lanes, em.get(em.place(column, i)))
        with em.loop(after, m, carried=[(em.t, size(row)), (em.w, em.wholes(row))]) as look:
            value = size(look.i)
            larger = em.op(f"fcmp ogt {em.t} {value}, {look.vars[0]}")
            look.next = [em.select(larger, value, look.vars[0]), em.select(larger, em.wholes(look.i), look.vars[1], True)]
        index = look.vars[1]
        em.put(em.op(f"add {em.w} {index}, {em.wholes('1')}"), em.place("%pivots", row), True)
        moved = em.op(f"icmp ne {em.w} {index}, {em.wholes(row)}")
        em.exchange(index, row, m, n, "%a")
        pivot = em.get(em.place(column, row))
        zero = em.op(f"fcmp oeq {em.t} {pivot}, {em.number(0.0)}")
        first = em.op(f"and {em.i1} {zero}, {em.op(f'icmp eq {em.w} {info}, zeroinitializer')}")
        step.next = [em.select(first, em.wholes(after), info, True), em.select(moved, em.op(f"fneg {em.t} {sign}"), sign)]
        with em.loop(after, m) as i:
            value = em.get(em.place(column, i.i))
            em.put(em.select(zero, value, em.op(f"fdiv {em.t} {value}, {pivot}")), em.place(column, i.i))
        with em.loop(after, n) as j:
            other = em.place("%a", em.mul(j.i, m))
            factor = em.get(em.place(other, row))
            with em.loop(after, m) as i:
                to = em.place(other, i.i)
                em.put(em.less(em.get(to), em.get(em.place(column, i.i)), factor), to)
    em.put(step.vars[0], "%info", True)
    em.put(step.vars[1], "%sign")
    return em.end()


def _exchange(module: Module, letter: str) -> str:
    """lanes_exchange(n, k, pivots, x): the exchanges of rows, from 1, over X (n, k)."""
    em = Lanes(module, letter, "lanes_exchange", "n", "k", "pivots", "x")
    n, k = em.told("n"), em.told("k")
    with em.loop("0", n) as row:
        pivot = em.op(f"sub {em.w} {em.get(em.place('%pivots', row.i), True)}, {em.wholes('1')}")
        em.exchange(pivot, row.i, n, k, "%x")
    return em.end()


def _triangle(module: Module, letter: str, lower: bool) -> str:
    """lanes_lower (lanes_back) (n, k, unit, down, right, a, x): A X = B over B (n, k), by the lower (upper) triangle of A, whose vectors lie `down` and
    `right` from each other; unit: its diagonal is taken as ones."""
    em = Lanes(module, letter, "lanes_lower" if lower else "lanes_back", "n", "k", "unit", "down", "right", "a", "x")
    n, down, right = em.told("n"), em.told("down"), em.told("right")
    divides = em.op(f"icmp eq i64 {em.told('unit')}, 0")
    with em.loop("0", em.told("k")) as column, em.loop("0", n) as step:
        x = em.place("%x", em.mul(column.i, n))
        row = step.i if lower else em.sub(em.sub(n, step.i), "1")
        line, to = em.place("%a", em.mul(row, down)), em.place(x, row)
        begin, end = ("0", row) if lower else (em.add(row, "1"), n)
        with em.loop(begin, end, carried=[(em.t, em.get(to))]) as j:
            j.next = [em.less(j.vars[0], em.get(em.place(line, em.mul(j.i, right))), em.get(em.place(x, j.i)))]
        em.put(j.vars[0], to)
        with em.only_if(divides):
            em.put(em.op(f"fdiv {em.t} {j.vars[0]}, {em.get(em.place(line, em.mul(row, right)))}"), to)
    return em.end()


def _back(module: Module, letter: str) -> str:
    return _triangle(module, letter, False)


def _lower(module: Module, letter: str) -> str:
    return _triangle(module, letter, True)


def _cholesky(module: Module, letter: str) -> str:
    """lanes_cholesky(n, a, info): A = L L^T over A, with zeros above; info: the order of the first leading minor that is not positive, from whose
    column on A stays as it was, but for that number itself; or 0."""
    em = Lanes(module, letter, "lanes_cholesky", "n", "a", "info")
    n = em.told("n")
    with em.loop("0", n, carried=[(em.w, "zeroinitializer")]) as step:
        (info,) = step.vars
        after, column = em.add(step.i, "1"), em.place("%a", em.mul(step.i, n))
        with em.loop("0", step.i) as i:
            em.put("zeroinitializer", em.place(column, i.i))

        def rest(i: str, step: str = step.i, column: str = column) -> str:
            """The element of this column less what the columns before it make of it."""
            with em.loop("0", step, carried=[(em.t, em.get(em.place(column, i)))]) as j:
                other = em.place("%a", em.mul(j.i, n))
                j.next = [em.less(j.vars[0], em.get(em.place(other, i)), em.get(em.place(other, step)))]
            return j.vars[0]
        corner = em.place(column, step.i)
        square, was = rest(step.i), em.get(corner)
        alive = em.op(f"icmp eq {em.w} {info}, zeroinitializer")
        good = em.op(f"and {em.i1} {alive}, {em.op(f'fcmp ogt {em.t} {square}, {em.number(0.0)}')}")
        root = em.intrinsic("sqrt", em.d, em.lanes, square)
        em.put(em.select(good, root, em.select(alive, square, was)), corner)
        step.next = [em.select(em.op(f"xor {em.i1} {alive}, {good}"), em.wholes(after), info, True)]
        with em.loop(after, n) as i:
            to = em.place(column, i.i)
            was = em.get(to)
            em.put(em.select(good, em.op(f"fdiv {em.t} {rest(i.i)}, {root}"), was), to)
    em.put(step.vars[0], "%info", True)
    return em.end()


def _apply(em: Lanes, m: str, row: str, column: str, factor: str, to: str) -> None:
    """(I - factor v v^T) over a column `to`, for v that is 1 at `row` and lies below it in `column`."""
    after, corner = em.add(row, "1"), em.place(to, row)
    with em.loop(after, m, carried=[(em.t, em.get(corner))]) as i:
        i.next = [em.intrinsic("fma", em.d, em.lanes, em.get(em.place(column, i.i)), em.get(em.place(to, i.i)), i.vars[0])]
    along = em.op(f"fmul {em.t} {i.vars[0]}, {factor}")
    em.put(em.op(f"fsub {em.t} {em.get(corner)}, {along}"), corner)
    with em.loop(after, m) as i:
        at = em.place(to, i.i)
        em.put(em.less(em.get(at), em.get(em.place(column, i.i)), along), at)


def _reflect(module: Module, letter: str) -> str:
    """lanes_reflect(m, n, k, a, tau): Householder's A = Q R over A (m, n): R above, the vectors of k reflectors below the diagonal, their factors
    in tau. Lengths are worked out on numbers divided by the largest, so that no square is too large or small."""
    em = Lanes(module, letter, "lanes_reflect", "m", "n", "k", "a", "tau")
    m, n = em.told("m"), em.told("n")
    zero, one = em.number(0.0), em.number(1.0)
    with em.loop("0", em.told("k")) as step:
        row, after = step.i, em.add(step.i, "1")
        column = em.place("%a", em.mul(row, m))
        corner = em.get(em.place(column, row))
        with em.loop(after, m, carried=[(em.t, zero)]) as i:
            size = em.intrinsic("fabs", em.d, em.lanes, em.get(em.place(column, i.i)))
            i.next = [em.select(em.op(f"fcmp ugt {em.t} {size}, {i.vars[0]}"), size, i.vars[0])]  # NaN too
        below, size = i.vars[0], em.intrinsic("fabs", em.d, em.lanes, corner)
        scale = em.select(em.op(f"fcmp ugt {em.t} {size}, {below}"), size, below)
        none = em.op(f"fcmp oeq {em.t} {below}, {zero}")
        with em.loop(row, m, carried=[(em.t, zero)]) as i:
            part = em.op(f"fdiv {em.t} {em.get(em.place(column, i.i))}, {scale}")
            i.next = [em.intrinsic("fma", em.d, em.lanes, part, part, i.vars[0])]
        length = em.op(f"fmul {em.t} {scale}, {em.intrinsic('sqrt', em.d, em.lanes, i.vars[0])}")
        top = em.op(f"fneg {em.t} {em.intrinsic('copysign', em.d, em.lanes, length, corner)}")
        tau = em.op(f"fdiv {em.t} {em.op(f'fsub {em.t} {top}, {corner}')}, {top}")
        under = em.op(f"fsub {em.t} {corner}, {top}")
        tau = em.select(none, zero, tau)
        under = em.select(none, one, under)
        em.put(tau, em.place("%tau", row))
        em.put(em.select(none, corner, top), em.place(column, row))
        with em.loop(after, m) as i:
            at = em.place(column, i.i)
            em.put(em.op(f"fdiv {em.t} {em.get(at)}, {under}"), at)
        with em.loop(after, n) as j:
            _apply(em, m, row, column, tau, em.place("%a", em.mul(j.i, m)))
    return em.end()


def _orthogonal(module: Module, letter: str) -> str:
    """lanes_orthogonal(m, n, k, q, tau): the first n columns of the product of k reflectors, over them."""
    em = Lanes(module, letter, "lanes_orthogonal", "m", "n", "k", "q", "tau")
    m, n, k = (em.told(p) for p in "mnk")
    with em.loop(k, n) as j, em.loop("0", m) as i:
        same = em.op(f"icmp eq i64 {i.i}, {j.i}")
        value = em.op(f"select i1 {same}, {em.t} {em.number(1.0)}, {em.t} {em.number(0.0)}")
        em.put(value, em.place("%q", em.add(em.mul(j.i, m), i.i)))
    with em.loop("0", k) as back:
        row = em.sub(em.sub(k, back.i), "1")
        column, after = em.place("%q", em.mul(row, m)), em.add(row, "1")
        tau = em.get(em.place("%tau", row))
        with em.loop(after, n) as j:
            _apply(em, m, row, column, tau, em.place("%q", em.mul(j.i, m)))
        with em.loop("0", row) as i:
            em.put("zeroinitializer", em.place(column, i.i))
        em.put(em.op(f"fsub {em.t} {em.number(1.0)}, {tau}"), em.place(column, row))
        turned = em.op(f"fneg {em.t} {tau}")
        with em.loop(after, m) as i:
            at = em.place(column, i.i)
            em.put(em.op(f"fmul {em.t} {em.get(at)}, {turned}"), at)
    return em.end()


def _upper(module: Module, letter: str) -> str:
    """lanes_upper(m, wide, n, a, r): R (wide, n) of A (m, n), with zeros below."""
    em = Lanes(module, letter, "lanes_upper", "m", "wide", "n", "a", "r")
    m, wide = em.told("m"), em.told("wide")
    with em.loop("0", em.told("n")) as j, em.loop("0", wide) as i:
        inside = em.op(f"icmp sle i64 {i.i}, {j.i}")
        value = em.get(em.place("%a", em.add(em.mul(j.i, m), i.i)))
        em.put(em.op(f"select i1 {inside}, {em.t} {value}, {em.t} zeroinitializer"), em.place("%r", em.add(em.mul(j.i, wide), i.i)))
    return em.end()


def _identity(module: Module, letter: str) -> str:
    """lanes_identity(n, x)."""
    em = Lanes(module, letter, "lanes_identity", "n", "x")
    n = em.told("n")
    with em.loop("0", n) as j, em.loop("0", n) as i:
        one = em.op(f"icmp eq i64 {i.i}, {j.i}")
        value = em.op(f"select i1 {one}, {em.t} {em.number(1.0)}, {em.t} {em.number(0.0)}")
        em.put(value, em.place("%x", em.add(em.mul(j.i, n), i.i)))
    return em.end()


def _product(module: Module, letter: str) -> str:
    """lanes_product(n, a, sign, det): the product of the diagonal times `sign`."""
    em = Lanes(module, letter, "lanes_product", "n", "a", "sign", "det")
    n = em.told("n")
    with em.loop("0", n, carried=[(em.t, em.number(1.0))]) as k:
        k.next = [em.op(f"fmul {em.t} {k.vars[0]}, {em.get(em.place('%a', em.mul(k.i, em.add(n, '1'))))}")]
    em.put(em.op(f"fmul {em.t} {k.vars[0]}, {em.get('%sign')}"), "%det")
    return em.end()


def _spoil(module: Module, letter: str) -> str:
    """lanes_spoil(count, info, x): infinities where info is not 0."""
    em = Lanes(module, letter, "lanes_spoil", "count", "info", "x")
    failed = em.op(f"icmp ne {em.w} {em.get('%info', True)}, zeroinitializer")
    with em.loop("0", em.told("count")) as k:
        at = em.place("%x", k.i)
        em.put(em.select(failed, em.number(float("inf")), em.get(at)), at)
    return em.end()
