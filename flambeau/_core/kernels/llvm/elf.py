"""A loader for the object files our compiler makes on Linux x86-64: cached kernels run without importing LLVM.

It lays the sections into fresh pages (code, then constants and data), applies the relocations position-independent code
has, and reaches outside functions through a table of addresses.  Anything it does not know raises `Unsupported`; the
caller then lets LLVM's own linker do it.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PAGE = mmap.PAGESIZE
_ALLOC, _EXEC, _NOBITS, _SYMTAB, _RELA = 2, 4, 8, 2, 4
_R64, _PC32, _PLT32, _GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX, _PC64 = 1, 2, 4, 9, 41, 42, 24


class Unsupported(Exception):
    """The object has something this loader does not do."""


def load(data: bytes, resolve: Callable[[str], int]) -> tuple[dict[str, int], mmap.mmap]:
    """Addresses of the global functions of an object file, and the memory that holds them (keep it).

    resolve: gives the address of an outside function or variable by name.
    """
    if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", data, 18)[0] != 62:
        raise Unsupported("not an ELF object for x86-64")
    table, = struct.unpack_from("<Q", data, 40)
    size, count, _ = struct.unpack_from("<HHH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + k * size) for k in range(count)]
    symbols = _symbols(data, sections)
    outside = sorted({n for n, where, _, _ in symbols if where == 0 and n})

    # code first, then the stubs through which it calls outside, then everything else from the next page on
    places: dict[int, int] = {}
    end = _place(sections, places, 0, code=True)
    stubs = end
    end = -(-(end + 16 * len(outside)) // _PAGE) * _PAGE
    code_end = end
    end = _place(sections, places, end, code=False)
    slots = -(-end // 8) * 8
    end = slots + 8 * len(outside)

    memory = mmap.mmap(-1, end, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for k, at in places.items():
        if sections[k][1] != _NOBITS:
            memory[at:at + sections[k][5]] = data[sections[k][4]:sections[k][4] + sections[k][5]]
    stub_of, slot_of = {}, {}
    for k, name in enumerate(outside):
        stub_of[name], slot_of[name] = stubs + 16 * k, slots + 8 * k
        struct.pack_into("<Q", memory, slot_of[name], resolve(name))
        # jmp *slot(%rip)
        memory[stub_of[name]:stub_of[name] + 6] = b"\xff\x25" + struct.pack("<i", slot_of[name] - stub_of[name] - 6)

    for s in sections:
        if s[1] != _RELA or s[7] not in places:
            continue
        for r in range(s[4], s[4] + s[5], 24):
            offset, info, addend = struct.unpack_from("<QQq", data, r)
            name, where, value, _ = symbols[info >> 32]
            kind, at = info & 0xFFFFFFFF, places[s[7]] + offset
            if kind in (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX):
                if where:
                    raise Unsupported("a table entry for a symbol of the object itself")
                struct.pack_into("<i", memory, at, slot_of[name] + addend - at)
                continue
            if where == 0:
                target = stub_of[name] + addend
            elif where in places:
                target = places[where] + value + addend
            else:
                raise Unsupported(f"a reference into section {where}")
            if kind in (_PC32, _PLT32):
                struct.pack_into("<i", memory, at, target - at)
            elif kind == _PC64:
                struct.pack_into("<q", memory, at, target - at)
            elif kind == _R64 and where:
                struct.pack_into("<Q", memory, at, base + target)
            else:
                raise Unsupported(f"relocation type {kind}")
    if code_end:
        _make_executable(base, code_end)
    found = {n: base + places[where] + value for n, where, value, binding in symbols
             if where in places and binding == 1}
    return found, memory


def _symbols(data: bytes, sections: list[tuple[int, ...]]) -> list[tuple[str, int, int, int]]:
    """(name, section, value, binding) of every symbol."""
    table = next((s for s in sections if s[1] == _SYMTAB), None)
    if table is None:
        return []
    strings = sections[table[6]][4]
    found = []
    for at in range(table[4], table[4] + table[5], 24):
        name, info, _, where, value, _ = struct.unpack_from("<IBBHQQ", data, at)
        start = strings + name
        found.append((data[start:data.index(b"\0", start)].decode(), where, value, info >> 4))
    return found


def _place(sections: list[tuple[int, ...]], places: dict[int, int], at: int, code: bool) -> int:
    for k, s in enumerate(sections):
        if s[2] & _ALLOC and s[5] and bool(s[2] & _EXEC) is code:
            at = -(-at // max(s[8], 1)) * max(s[8], 1)
            places[k] = at
            at += s[5]
    return at


def _make_executable(base: int, size: int) -> None:
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if protect(base, size, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        raise Unsupported(f"mprotect: error {ctypes.get_errno()}")
