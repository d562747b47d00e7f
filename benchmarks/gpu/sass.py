"""What a kernel's machine code for sm_90 does, without a GPU: instructions that a warp issues, by the pipe that takes them.

The code, disassembled by nvdisasm (package nvidia-cuda-nvdisasm), is followed warp by warp.  Integers are worked out, since branches and
loops depend on them; what comes from memory or from floats is unknown, and a branch on such a value goes the usual way: special values lie
behind a branch, or behind a call that the branch avoids.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# Lanes a clock of a multiprocessor of compute capability 9.0: CUDA C++ Programming Guide, "Arithmetic Instructions".
RATES = {"fma": 128, "int": 64, "alu": 64, "special": 16, "double": 64, "memory": 32, "shuffle": 32, "tensor": 128, "other": 128}
ISSUED = 128  # four warps a clock
_PARAMETERS = 0x210  # where they begin in bank 0 on sm_90
_MOST = 100_000  # instructions of a warp that are followed
Value = tuple[np.ndarray, np.ndarray]  # of each lane: 32 bits, and whether they are known


def disassembler() -> str | None:
    """Where nvdisasm is."""
    found = shutil.which("nvdisasm")
    places = (Path(p) for p in dict.fromkeys((sysconfig.get_paths()["purelib"], *sys.path)) if p)
    return found or next((str(f) for p in places for f in sorted(p.glob("nvidia/*/bin/nvdisasm"))), None)


class Instruction(NamedTuple):
    guard: str
    op: str
    args: tuple[str, ...]


class Code:
    """A function's instructions, and the place of each label."""

    def __init__(self, instructions: list[Instruction], labels: dict[str, int]) -> None:
        self.instructions, self.labels = instructions, labels

    @functools.cached_property
    def targets(self) -> frozenset[int]:
        return frozenset(self.labels.values())


_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")


def functions(cubin: bytes) -> dict[str, Code]:
    """The code of a cubin by function.  Raises FileNotFoundError where there is no nvdisasm."""
    tool = disassembler()
    if tool is None:
        raise FileNotFoundError("nvdisasm is not here: pip install nvidia-cuda-nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=True).stdout
    return parse(text)


def parse(text: str) -> dict[str, Code]:
    """The code by function from nvdisasm's text."""
    found: dict[str, Code] = {}
    code = Code([], {})
    for line in text.splitlines():
        if m := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
            code = found[m[1]] = Code([], {})
        elif m := re.match(r"([.$\w]+):", line):
            code.labels[m[1]] = len(code.instructions)
        elif m := _LINE.search(line):
            code.instructions.append(Instruction(m[2] or "", m[3], tuple(a.strip() for a in _split(m[4]))))
    return found


def _split(text: str) -> list[str]:
    return [a for a in re.split(r",(?![^\[(]*[\])])", text) if a.strip()] if text else []


def pipe(op: str) -> str:
    """Which pipe takes an instruction."""
    base = op.split(".")[0]
    if base in ("MUFU", "F2F", "F2I", "I2F", "FRND", "POPC", "FLO", "BREV", "I2I"):
        return "special"
    if base in ("FADD", "FMUL", "FFMA", "FSWZADD", "HFMA2", "HADD2", "HMUL2"):
        return "fma"
    if base == "IMAD":
        return "fma" if ".MOV" in op else "int"
    if re.match(r"D(ADD|MUL|FMA|SETP)", base):
        return "double"
    if base == "SHFL":
        return "shuffle"
    if re.match(r"(LD|ST|ATOM|RED)(?!UX)", base) and base not in ("LDC", "LDGDEPBAR"):
        return "memory"
    if base.endswith("MMA"):
        return "tensor"
    if base.startswith("U") or base in ("BRA", "EXIT", "BAR", "BSSY", "BSYNC", "NOP", "WARPSYNC", "CALL", "RET", "S2R", "S2UR", "CS2R", "LDC", "R2UR", "DEPBAR",
                                         "LDGDEPBAR", "MEMBAR", "ERRBAR", "CCTL", "VOTE", "REDUX", "BMOV", "BREAK", "KILL", "BPT", "YIELD"):
        return "other"
    return "alu"


def occupancy(registers: int, threads: int, shared: int) -> float:
    """The part of a multiprocessor's 64 warps that blocks of so many threads, registers each and bytes of shared memory can fill."""
    warps = -(-threads // 32)
    of_registers = 65536 // (-(-registers * 32 // 256) * 256 * warps)
    of_shared = 227 * 1024 // (-(-shared // 128) * 128 + 1024)
    return min(of_registers, of_shared, 64 // warps, 32) * warps / 64


class Counts(Counter[str]):
    """How often each opcode was issued.  guessed: whether a branch out of a loop depends on what memory holds, which is not followed: it was
    taken not to be gone, so that the loop runs to its bound."""

    guessed = False


def follow(code: Code, parameters: bytes, grid: tuple[int, int, int], block: tuple[int, int, int], at: tuple[int, int, int], warp: int) -> Counts:
    """How often a warp of the block at `at` issues each instruction, by its opcode.  Raises RuntimeError where there is no end of it."""
    return _Warp(code, parameters, grid, block, at, warp).run()


_ALL = np.ones(32, bool)
_M32 = np.uint64(0xFFFFFFFF)


def _constant(x: int) -> Value:
    return np.full(32, x & 0xFFFFFFFF, np.uint64), _ALL


_UNKNOWN: Value = np.zeros(32, np.uint64), np.zeros(32, bool)


def _signed(x: np.ndarray) -> np.ndarray:
    return x.astype(np.uint32).view(np.int32).astype(np.int64)


def _table(lut: int, a: np.ndarray, b: np.ndarray, c: np.ndarray, whole: Any) -> np.ndarray:
    """Each bit by a table of three bits."""
    out: np.ndarray = a & ~a
    for k in range(8):
        if lut >> k & 1:
            out = out | ((a if k & 4 else a ^ whole) & (b if k & 2 else b ^ whole) & (c if k & 1 else c ^ whole))
    return out


class _Warp:
    def __init__(self, code: Code, parameters: bytes, grid: tuple[int, int, int], block: tuple[int, int, int], at: tuple[int, int, int], warp: int) -> None:
        self.code, self.bank = code, bytearray(_PARAMETERS) + parameters
        for k in range(3):
            self.bank[4 * k:4 * k + 4] = block[k].to_bytes(4, "little")
            self.bank[12 + 4 * k:16 + 4 * k] = grid[k].to_bytes(4, "little")
        threads = block[0] * block[1] * block[2]
        number = np.arange(32, dtype=np.uint64) + np.uint64(32 * warp)
        x, y, z = number % np.uint64(block[0]), number // np.uint64(block[0]) % np.uint64(block[1]), number // np.uint64(block[0] * block[1])
        self.special: dict[str, Value] = {"SR_TID.X": (x, _ALL), "SR_TID.Y": (y, _ALL), "SR_TID.Z": (z, _ALL),
                                          "SR_LANEID": (np.arange(32, dtype=np.uint64), _ALL), "SRZ": _constant(0)}
        for k, axis in enumerate("XYZ"):
            self.special[f"SR_CTAID.{axis}"] = _constant(at[k])
        self.live = number < np.uint64(threads)
        self.targets = code.targets
        self.next = np.zeros(32, np.int64)
        self.registers: dict[str, Value] = {}
        self.counts = Counts()

    # ------------------------------------------------------------------------------------------------------- operands
    def get(self, text: str) -> Value:
        """The 32 bits of an operand."""
        text = text.replace(".reuse", "")
        if text.startswith("-") and not re.match(r"-(0x|\d|\+?INF|QNAN)", text):
            v, known = self.get(text[1:])
            return (np.uint64(1 << 32) - v) & _M32, known
        if text.startswith("~"):
            v, known = self.get(text[1:])
            return v ^ _M32, known
        if re.fullmatch(r"U?RZ", text):
            return _constant(0)
        if re.fullmatch(r"U?R\d+", text):
            return self.registers.get(text, _UNKNOWN)
        if re.fullmatch(r"-?0x[0-9a-f]+", text):
            return _constant(int(text, 16))
        if m := re.fullmatch(r"c\[0x0\]\[0x([0-9a-f]+)\]", text):
            at = int(m[1], 16)
            return _constant(int.from_bytes(self.bank[at:at + 4], "little")) if at + 4 <= len(self.bank) else _UNKNOWN
        if re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", text):
            return _constant(int(np.float32(text).view(np.uint32)))
        return _UNKNOWN

    def pair(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """The 64 bits of an operand."""
        text = text.replace(".reuse", "").removesuffix(".64")
        if m := re.fullmatch(r"(U?R)(\d+)", text):
            (low, a), (high, b) = self.get(text), self.get(f"{m[1]}{int(m[2]) + 1}")
        elif m := re.fullmatch(r"c\[0x0\]\[0x([0-9a-f]+)\]", text):
            (low, a), (high, b) = self.get(text), self.get(f"c[0x0][{hex(int(m[1], 16) + 4)}]")
        else:
            (low, a), (high, b) = self.get(text), _constant(-1 if text.startswith("-0x") else 0)
        return high << np.uint64(32) | low, a & b

    def test(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """A predicate."""
        negated = text.startswith("!")
        name = text.lstrip("!@")
        if name in ("PT", "UPT"):
            return (~_ALL if negated else _ALL), _ALL
        v, known = self.registers.get(name, _UNKNOWN)
        v = v.astype(bool)
        return (~v if negated else v), known

    def put(self, name: str, v: np.ndarray, known: np.ndarray, lanes: np.ndarray) -> None:
        if name in ("RZ", "URZ", "PT", "UPT"):
            return
        old, was = self.registers.get(name, _UNKNOWN)
        self.registers[name] = np.where(lanes, v.astype(np.uint64) & _M32, old), np.where(lanes, known, was)

    def put_pair(self, name: str, v: np.ndarray, known: np.ndarray, lanes: np.ndarray) -> None:
        self.put(name, v & _M32, known, lanes)
        if m := re.fullmatch(r"(U?R)(\d+)", name):
            self.put(f"{m[1]}{int(m[2]) + 1}", v >> np.uint64(32), known, lanes)

    # -------------------------------------------------------------------------------------------------------- running
    def run(self) -> Counts:
        with np.errstate(all="ignore"):
            for _ in range(_MOST):
                if not self.live.any():
                    return self.counts
                place = int(self.next[self.live].min())  # those behind go first, so that lanes meet again
                if place >= len(self.code.instructions):
                    return self.counts
                self.step(place, self.live & (self.next == place))
        raise RuntimeError(f"a warp issued {_MOST} instructions and had not ended")

    def step(self, place: int, lanes: np.ndarray) -> None:
        i = self.code.instructions[place]
        self.next[lanes] = place + 1
        self.counts[i.op] += 1
        sure = lanes
        if i.guard:
            v, known = self.test(i.guard[1:])
            lanes, sure = lanes & v & known, lanes & (v | ~known)
        base, *more = i.op.split(".")
        if base == "EXIT":
            self.live = self.live & ~lanes
        elif base in ("BRA", "CALL", "RET", "BREAK", "BRX", "JMP"):
            avoids = base == "BRA" and self.avoids_a_call(place)
            if not avoids and (sure & ~lanes).any() and self.leaves_a_loop(place):
                self.counts.guessed = True
            self.jump(base, i.args, sure if avoids else lanes)
        elif sure.any():
            # where it is not known whether an instruction is done, its result is not known either
            self.compute(base.removeprefix("U") if base not in ("UMOV",) else "MOV", more, list(i.args), sure, lanes)

    def avoids_a_call(self, place: int) -> bool:
        """Whether a branch leads past a call: of what divides numbers that need care, for one."""
        for at in range(place + 1, min(place + 12, len(self.code.instructions))):
            op = self.code.instructions[at].op
            if op.startswith("CALL"):
                return True
            if op.startswith(("BRA", "EXIT", "RET")) or at in self.targets:
                return False
        return False

    def leaves_a_loop(self, place: int) -> bool:
        """Whether a branch leads past one that leads back to before it."""
        code = self.code
        where = re.search(r"`\(([^)]*)\)", code.instructions[place].args[-1])
        for back in code.instructions[place + 1:code.labels[where[1]]] if where else ():
            if back.op.startswith("BRA") and (to := re.search(r"`\(([^)]*)\)", back.args[-1])) and code.labels[to[1]] <= place:
                return True
        return False

    def jump(self, base: str, args: tuple[str, ...], lanes: np.ndarray) -> None:
        where = re.search(r"`\(([^)]*)\)", args[-1]) if args else None
        for a in args[:-1]:  # a predicate beside the guard
            if re.fullmatch(r"!?U?P\w+", a):
                v, known = self.test(a)
                lanes = lanes & v & known
        if base == "RET":
            v, known = self.get(args[0].split()[0])
            self.next[lanes & known] = (v // np.uint64(16)).astype(np.int64)[lanes & known]
            self.live = self.live & ~(lanes & ~known)
        elif where is not None:
            self.next[lanes] = self.code.labels[where[1]]

    def compute(self, base: str, more: list[str], args: list[str], lanes: np.ndarray, certain: np.ndarray) -> None:
        tell = certain[lanes].all()
        rule = getattr(self, "_" + base.lower(), None)
        if rule is not None and rule(more, args, lanes):
            if not tell:
                self.forget(base, more, args, lanes & ~certain)
            return
        self.forget(base, more, args, lanes)

    def forget(self, base: str, more: list[str], args: list[str], lanes: np.ndarray) -> None:
        """What an instruction writes is not known from here on."""
        if base.startswith(("ST", "RED", "BAR", "BSSY", "BSYNC", "NOP", "WARPSYNC", "MEMBAR", "DEPBAR", "LDGSTS", "LDGDEPBAR", "CCTL")) and base != "REDUX":
            return
        wide = 4 if "128" in more else 2 if {"64", "WIDE", "F64"} & set(more) or base[0] == "D" else 4 if base.endswith("MMA") else 1
        for a in args[:1] + [b for b in args[1:3] if re.fullmatch(r"U?P\d", b) and (re.fullmatch(r"U?P\w+", args[0]) or base in ("SHFL", "IADD3"))]:
            if m := re.fullmatch(r"(U?R)(\d+)", a):
                for k in range(wide):
                    self.put(f"{m[1]}{int(m[2]) + k}", *_UNKNOWN, lanes)
            elif re.fullmatch(r"U?P\d", a):
                self.put(a, *_UNKNOWN, lanes)
        if base == "SHFL" and len(args) > 1:
            self.put(args[1], *_UNKNOWN, lanes)

    # ------------------------------------------------------------------------------------------------- integers by opcode
    def _mov(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        self.put(args[0], *self.get(args[1]), lanes)
        return True

    def _s2r(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        self.put(args[0], *self.special.get(args[1], _UNKNOWN), lanes)
        return True

    _s2ur = _s2r

    def _cs2r(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        if args[1] != "SRZ":
            return False
        self.put(args[0], *_constant(0), lanes) if "32" in more else self.put_pair(args[0], np.zeros(32, np.uint64), _ALL, lanes)
        return True

    def _r2ur(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        v, known = self.get(args[-1])
        first = int(np.flatnonzero(lanes)[0])
        self.put(args[0], np.full(32, v[first]), np.full(32, known[first]), _ALL)
        return True

    def _ldc(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        if "64" in more:
            self.put_pair(args[0], *self.pair(args[1]), lanes)
        elif set(more) & {"U8", "S8", "U16", "S16"}:
            return False
        else:
            self.put(args[0], *self.get(args[1]), lanes)
        return True

    def _hfma2(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        """Nothing but a constant put into a register, two halves of it."""
        if [a.lstrip("-") for a in args[1:3]] != ["RZ", "RZ"] or not all(re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", a) for a in args[3:5]):
            return False
        high, low = (int(np.float16(float(a)).view(np.uint16)) for a in args[3:5])
        self.put(args[0], *_constant(high << 16 | low), lanes)
        return True

    def _imad(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        d, *rest = args
        if re.fullmatch(r"U?P\w+", rest[0]):  # a carry out
            return False
        (a, ka), (b, kb) = self.get(rest[0]), self.get(rest[1])
        known = (ka | (kb & (b == 0))) & (kb | (ka & (a == 0)))
        if "WIDE" in more or "HI" in more:
            product = a * b if "U32" in more else (_signed(a) * _signed(b)).astype(np.uint64)
            c, kc = self.pair(rest[2])
            if "HI" in more:
                self.put(d, product + c >> np.uint64(32), known & kc, lanes)
            else:
                self.put_pair(d, product + c, known & kc, lanes)
            return True
        c, kc = self.get(rest[2])
        carry = np.zeros(32, np.uint64)
        if "X" in more:
            p, kp = self.test(rest[3])
            carry, kc = p.astype(np.uint64), kc & kp
        self.put(d, a * b + c + carry, known & kc, lanes)
        return True

    def _iadd3(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        d, *rest = args
        outs = []
        while re.fullmatch(r"U?P(\d|T)", rest[0]):
            outs.append(rest.pop(0))
        total, known = np.zeros(32, np.uint64), _ALL
        for text in rest[:3]:
            v, k = self.get(text)
            total, known = total + v, known & k
        if "X" in more:
            for text in rest[3:]:
                p, k = self.test(text)
                total, known = total + p.astype(np.uint64), known & k
        self.put(d, total, known, lanes)
        for number, out in enumerate(outs):
            self.put(out, (total >> np.uint64(32)) > np.uint64(number), known, lanes)
        return True

    def _viadd(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        (a, ka), (b, kb) = self.get(args[1]), self.get(args[2])
        self.put(args[0], a + b, ka & kb, lanes)
        return True

    def _lea(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        d, *rest = args
        out = rest.pop(0) if re.fullmatch(r"U?P(\d|T)", rest[0]) else ""
        carry, kc = np.zeros(32, np.uint64), _ALL
        if "X" in more:
            p, kc = self.test(rest.pop())
            carry = p.astype(np.uint64)
        shift = np.uint64(int(rest.pop(), 16))
        (a, ka), (b, kb) = self.get(rest[0]), self.get(rest[1])
        known = ka & kb & kc
        if "HI" in more:
            if "SX32" in more:
                wide = _signed(a).astype(np.uint64)
            else:
                c, k = self.get(rest[2])
                wide, known = c << np.uint64(32) | a, known & k
            total = (wide << shift >> np.uint64(32) & _M32) + b + carry
        else:
            total = (a << shift & _M32) + b + carry
        self.put(d, total, known, lanes)
        if out:
            self.put(out, total >> np.uint64(32), known, lanes)
        return True

    def _shf(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        (low, a), (shift, s), (high, b) = (self.get(x) for x in args[1:4])
        shift = shift & np.uint64(63 if "U64" in more or "S64" in more else 31) if "W" in more else np.minimum(shift, np.uint64(63))
        wide = high << np.uint64(32) | low
        if "L" in more:
            moved = wide << shift
        elif "S32" in more or "S64" in more:
            moved = (wide.view(np.int64) >> shift.astype(np.int64)).view(np.uint64)
        else:
            moved = wide >> shift
        self.put(args[0], moved >> np.uint64(32) if "HI" in more else moved, a & b & s, lanes)
        return True

    def _lop3(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        rest = list(args)
        out = rest.pop(0) if re.fullmatch(r"U?P(\d|T)", rest[0]) else ""
        (a, ka), (b, kb), (c, kc) = (self.get(x) for x in rest[1:4])
        lut = int(rest[4], 16)
        v = _table(lut, a, b, c, _M32)
        # what a table does not look at need not be known, and a constant mask may leave nothing of it
        known = np.ones(32, bool)
        for bit, k in ((4, ka), (2, kb), (1, kc)):
            if any((lut >> n & 1) != (lut >> (n ^ bit) & 1) for n in range(8)):
                known = known & k
        self.put(rest[0], v, known, lanes)
        if out:
            self.put(out, v != 0, known, lanes)
        return True

    def _plop3(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        (a, ka), (b, kb), (c, kc) = (self.test(x) for x in args[2:5])
        for out, lut in zip(args[:2], args[5:7]):
            self.put(out, _table(int(lut, 16), a, b, c, True), ka & kb & kc, lanes)
        return True

    def _isetp(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        (a, ka), (b, kb), (p, kp) = self.get(args[2]), self.get(args[3]), self.test(args[4])
        x, y = (a.astype(np.int64), b.astype(np.int64)) if "U32" in more else (_signed(a), _signed(b))
        how = more[0]
        v = {"EQ": x == y, "NE": x != y, "LT": x < y, "LE": x <= y, "GT": x > y, "GE": x >= y, "T": _ALL, "F": ~_ALL}[how]
        known = ka & kb
        if "EX" in more:
            low, kl = self.test(args[5])
            v = {"EQ": (x == y) & low, "NE": (x != y) | low}.get(how, np.where(x == y, low, x < y if how[0] == "L" else x > y))
            known = known & kl
        both = {"AND": np.logical_and, "OR": np.logical_or, "XOR": np.logical_xor}[next(m for m in more if m in ("AND", "OR", "XOR"))]
        # false and unknown is false
        settled = (known & kp) | ((known & ~v | kp & ~p) if both is np.logical_and else (known & v | kp & p) if both is np.logical_or else ~_ALL)
        self.put(args[0], both(v, p), settled, lanes)
        self.put(args[1], both(~v, p), known & kp, lanes)
        return True

    def _sel(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        (a, ka), (b, kb), (p, kp) = self.get(args[1]), self.get(args[2]), self.test(args[3])
        self.put(args[0], np.where(p, a, b), np.where(p, ka, kb) & kp, lanes)
        return True

    def _vimnmx(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        (a, ka), (b, kb), (p, kp) = self.get(args[1]), self.get(args[2]), self.test(args[3])
        x, y = (a, b) if "U32" in more else (_signed(a), _signed(b))
        self.put(args[0], np.where(p, np.where(x < y, a, b), np.where(x < y, b, a)), ka & kb & kp, lanes)
        return True

    _imnmx = _vimnmx

    def _iabs(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        v, known = self.get(args[1])
        self.put(args[0], np.abs(_signed(v)).astype(np.uint64), known, lanes)
        return True

    def _prmt(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        (a, ka), (s, ks), (b, kb) = (self.get(x) for x in args[1:4])
        if more:
            return False
        both = b << np.uint64(32) | a
        out: np.ndarray = np.zeros(32, np.uint64)
        for k in range(4):
            which = s >> np.uint64(4 * k) & np.uint64(15)
            byte = both >> (which & np.uint64(7)) * np.uint64(8) & np.uint64(255)
            out |= np.where(which & np.uint64(8), np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0)), byte) << np.uint64(8 * k)
        self.put(args[0], out, ka & ks & kb, lanes)
        return True

    # what integer division is made of: the guess is corrected by exact steps
    def _i2f(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        if set(more) & {"U64", "S64", "F64", "U8", "S8", "U16", "S16"}:
            return False
        v, known = self.get(args[1])
        f = (v.astype(np.float64) if "U32" in more else _signed(v).astype(np.float64))
        made = f.astype(np.float32)
        if "RP" in more:
            made = np.where(made.astype(np.float64) < f, np.nextafter(made, np.float32(np.inf)), made)
        self.put(args[0], made.astype(np.float32).view(np.uint32), known, lanes)
        return True

    def _mufu(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        if more != ["RCP"]:
            return False
        v, known = self.get(args[1])
        self.put(args[0], (np.float32(1) / v.astype(np.uint32).view(np.float32)).astype(np.float32).view(np.uint32), known, lanes)
        return True

    def _f2i(self, more: list[str], args: list[str], lanes: np.ndarray) -> bool:
        if set(more) & {"U64", "S64", "F64"} or "TRUNC" not in more:
            return False
        v, known = self.get(args[1])
        f = np.nan_to_num(v.astype(np.uint32).view(np.float32).astype(np.float64), nan=0.0, posinf=4294967295.0, neginf=0.0)
        self.put(args[0], np.clip(f, 0, 4294967295).astype(np.uint64), known, lanes)
        return True
