"""Reading pickles without running anything: an interpreter of the opcodes that data needs, which imports nothing.

What a pickle may call is a table in `io.safe`, beside what the program allowed.  Memory and time stay in proportion to the
pickle: lengths are compared with the bytes that are left before they are used, containers that a pickle copies again and
again are counted, and keys are kept small, since hashing one walks through all of it.

Opcodes: https://docs.python.org/3/library/pickletools.html
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

from .._core.errors import FileFormatError
from . import safe
from .rebuild import brief

if TYPE_CHECKING:
    from collections.abc import Callable

_MAPPINGS = (dict, OrderedDict, Counter, defaultdict)
_KEY_PARTS = 256
_KEYS_OF_ONE_HASH = 32
_I4, _U2, _U4, _U8, _F8 = (struct.Struct(f) for f in ("<i", "<H", "<I", "<Q", ">d"))
_ABSENT: Any = object()


class Unpickler:
    """Interprets one pickle.

    data: the pickle.  persistent: a function that gives the storage of a persistent id.  allowed: what the program allowed,
    by (module, name) in their one spelling (`names.canonical`).
    """

    operations: list[Callable[[Any], None] | None]

    def __init__(self, data: bytes, persistent: Callable[[Any], Any], allowed: dict[tuple[str, str], Any], start: int = 0) -> None:
        self.data, self.at = data, start
        self.persistent, self.allowed = persistent, allowed
        self.allowed_ids = {id(v) for v in allowed.values()}
        self.memo: dict[int, Any] = {}
        self.hashes: dict[int, list[Any]] = {}  # of the keys that are tuples
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.budget = 16 * (len(data) - start) + (1 << 20)

    # -- what operations need ----------------------------------------------------------------------------------------

    def fail(self, what: str) -> FileFormatError:
        return FileFormatError(f"load: the file is corrupt: {what} (byte {self.at} of its pickle)")

    def spend(self, count: int) -> None:
        """Counts elements that are copied, each of which the pickle holds once at most in an honest file."""
        self.budget -= count
        if self.budget < 0:
            raise self.fail("it copies the same containers again and again")

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise self.fail(f"{count} bytes are announced where {len(self.data) - self.at} are left")
        piece = self.data[self.at:end]
        self.at = end
        return piece

    def number(self, form: struct.Struct) -> Any:
        return form.unpack(self.take(form.size))[0]

    def line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + 1024)
        if end < 0:
            raise self.fail("a name has no end")
        text = self.data[self.at:end]
        self.at = end + 1
        return self.text(text)

    def text(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise self.fail("a text is not in UTF-8") from None

    def pop(self) -> Any:
        if not self.stack:
            raise self.fail("its stack is empty")
        return self.stack.pop()

    def top(self) -> Any:
        if not self.stack:
            raise self.fail("its stack is empty")
        return self.stack[-1]

    def since_mark(self) -> list[Any]:
        if not self.marks:
            raise self.fail("a mark is missing")
        items, self.stack = self.stack, self.marks.pop()
        return items

    def key(self, value: Any) -> Any:
        """A value that may be a key or in a set: of a type whose hash runs no code, and small."""
        kind = type(value)
        if kind is str or kind is bytes or kind is bool or kind is float or value is None or kind in safe.KEYS:
            return value
        if kind is int:
            if value.bit_length() > 64:  # numbers of one hash are far apart
                raise self.fail("a key is an integer of more than 64 bits")
            return value
        if isinstance(value, tuple) and kind in safe.TUPLES or kind is frozenset:
            parts, todo = 0, [value]
            while todo:
                for part in todo.pop():
                    parts += 1
                    if parts > _KEY_PARTS:
                        raise self.fail("a key has too many parts")
                    if type(part) in safe.TUPLES or type(part) is frozenset:
                        todo.append(part)
                    else:
                        self.key(part)
            # unlike a text's, the hash of a tuple is no secret: who wants can make many of one hash, and each look-up compares them all
            alike = self.hashes.setdefault(hash(value), [])
            if value not in alike:
                alike.append(value)
                if len(alike) > _KEYS_OF_ONE_HASH:
                    raise self.fail("many keys have one hash")
            return value
        if id(kind) in self.allowed_ids or id(value) in self.allowed_ids or kind is safe.PARAMETER or kind is safe.TENSOR:
            return value
        raise self.fail(f"{brief(value)} is a key")

    # -- the interpreter ---------------------------------------------------------------------------------------------

    def load(self) -> Any:
        """The object.  Raises FileFormatError for anything but data and what was allowed."""
        data, operations = self.data, self.operations
        size = len(data)
        while self.at < size:
            code = data[self.at]
            self.at += 1
            if code == 46:  # STOP
                found = self.pop()
                if self.stack or self.marks:
                    raise self.fail("it ends with more than one object")
                return found
            operation = operations[code]
            if operation is None:
                raise self.fail(f"opcode {code:#x} has no place in a file of data")
            operation(self)
        raise self.fail("it has no end")

    def proto(self) -> None:
        version = self.take(1)[0]
        if version > 5:
            raise self.fail(f"its protocol is {version}")

    def frame(self) -> None:
        self.take(8)

    def mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def drop(self) -> None:
        self.pop()

    def pop_mark(self) -> None:
        self.since_mark()

    def long1(self) -> None:
        self.stack.append(int.from_bytes(self.take(self.take(1)[0]), "little", signed=True))

    def long4(self) -> None:
        count = self.number(_I4)
        if count < 0:
            raise self.fail("a number has a negative length")
        self.stack.append(int.from_bytes(self.take(count), "little", signed=True))

    def string(self, count: int) -> None:
        self.stack.append(self.text(self.take(count)))

    def old_string(self, count: int) -> None:
        """A string of Python 2, of which PyTorch's files hold ASCII names."""
        raw = self.take(count)
        if not raw.isascii():
            raise self.fail("a text of Python 2 is not in ASCII")
        self.stack.append(raw.decode())

    def bytearray8(self) -> None:
        self.stack.append(bytearray(self.take(self.number(_U8))))

    def tuples(self, count: int) -> None:
        if len(self.stack) < count:
            raise self.fail("its stack is empty")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def marked_dict(self) -> None:
        items = self.since_mark()
        made: dict[Any, Any] = {}
        self.stack.append(made)
        self.put(made, items)

    def marked(self, kind: Any) -> None:
        made = kind(self.since_mark())
        self.stack.append(made)

    def marked_frozenset(self) -> None:
        made = frozenset([self.key(v) for v in self.since_mark()])
        self.stack.append(made)

    def append(self) -> None:
        item = self.pop()
        if type(self.top()) is not list:
            raise self.fail(f"{brief(self.top())} is appended to")
        self.stack[-1].append(item)

    def appends(self) -> None:
        items = self.since_mark()
        if type(self.top()) is not list:
            raise self.fail(f"{brief(self.top())} is appended to")
        self.stack[-1].extend(items)

    def setitem(self) -> None:
        value, key = self.pop(), self.pop()
        self.put(self.top(), [key, value])

    def setitems(self) -> None:
        items = self.since_mark()
        self.put(self.top(), items)

    def put(self, target: Any, items: list[Any]) -> None:
        if type(target) not in _MAPPINGS:
            raise self.fail(f"items are put into {brief(target)}")
        if len(items) % 2:
            raise self.fail("a key has no value")
        for i in range(0, len(items), 2):
            target[self.key(items[i])] = items[i + 1]

    def additems(self) -> None:
        items = self.since_mark()
        if type(self.top()) is not set:
            raise self.fail(f"items are added to {brief(self.top())}")
        self.stack[-1].update(self.key(v) for v in items)

    def get(self, index: int) -> None:
        found = self.memo.get(index, _ABSENT)
        if found is _ABSENT:
            raise self.fail(f"object {index} is used before it is made")
        self.stack.append(found)

    def keep(self, index: int) -> None:
        self.memo[index] = self.top()

    def globe(self) -> None:
        module = self.line()
        self.named(module, self.line())

    def stack_global(self) -> None:
        name, module = self.pop(), self.pop()
        if type(name) is not str or type(module) is not str:
            raise self.fail("a global has no name")
        self.named(module, name)

    def named(self, module: str, name: str) -> None:
        self.stack.append(safe.lookup(module, name, self.allowed))

    def persid(self) -> None:
        self.stack.append(self.persistent(self.pop()))

    # -- objects -----------------------------------------------------------------------------------------------------

    def may_call(self, function: Any) -> bool:
        return id(function) in self.allowed_ids

    def call(self, function: Any, args: Any) -> Any:
        """The result of a function of the table, or of one that the program allowed."""
        if type(args) is not tuple:
            raise self.fail("a function is called with no tuple of arguments")
        known = safe.CALLS.get(id(function))
        if known is None and not self.may_call(function):
            raise safe.unsafe(f"it calls {getattr(function, '__name__', None) or brief(function)}, which is not allowed")
        return self._run(function, args) if known is None else self._run(known, (self, *args))

    def _run(self, function: Any, args: tuple[Any, ...]) -> Any:
        try:
            return function(*args)
        except FileFormatError:
            raise
        except (TypeError, ValueError, OverflowError, AttributeError, LookupError, RecursionError, ArithmeticError, RuntimeError) as error:
            name = getattr(function, "__name__", "an object")
            raise self.fail(f"{name} cannot be made ({str(error):.200})") from error

    def reduce(self) -> None:
        args = self.pop()
        self.stack.append(self.call(self.pop(), args))

    def newobj(self) -> None:
        args = self.pop()
        self._new(self.pop(), args, {})

    def newobj_ex(self) -> None:
        options, args = self.pop(), self.pop()
        self._new(self.pop(), args, options)

    def _new(self, kind: Any, args: Any, options: Any) -> None:
        if type(args) is not tuple or type(options) is not dict or not all(type(k) is str for k in options):
            raise self.fail("an object is made with no tuple of arguments")
        if isinstance(kind, type) and self.may_call(kind):
            self.stack.append(self._run(lambda: kind.__new__(kind, *args, **options), ()))
        elif options:
            raise self.fail("an object is made with named arguments")
        else:
            self.stack.append(self.call(kind, args))

    def build(self) -> None:
        state = self.pop()
        found = self.top()
        builder = safe.BUILDS.get(type(found))
        if builder is not None:
            self._run(builder, (self, found, state))
        elif self.may_call(type(found)):
            self._run(safe.set_state, (self, found, state))
        else:
            raise safe.unsafe(f"it gives {brief(found)} a state, which is not allowed")


class Survey(Unpickler):
    """Reads a pickle for the names in it alone: `refused` are those that `load` would refuse, in their order."""

    def __init__(self, data: bytes, allowed: dict[tuple[str, str], Any], start: int = 0) -> None:
        super().__init__(data, lambda pid: None, allowed, start)
        self.refused: list[str] = []

    def named(self, module: str, name: str) -> None:
        try:
            safe.lookup(module, name, self.allowed)
        except safe.UnsafeFileError:
            if f"{module}.{name}" not in self.refused:
                self.refused.append(f"{module}.{name}")
        self.stack.append(None)

    def call(self, function: Any, args: Any) -> Any:
        return None

    def _new(self, kind: Any, args: Any, options: Any) -> None:
        self.stack.append(None)

    def build(self) -> None:
        self.pop()

    def key(self, value: Any) -> Any:
        return None

    def put(self, target: Any, items: list[Any]) -> None:
        pass

    def appends(self) -> None:
        self.since_mark()

    def append(self) -> None:
        self.pop()

    def additems(self) -> None:
        self.since_mark()


def _table(u: Any) -> list[Callable[[Any], None] | None]:
    """A class's operations by opcode; None for opcodes that data has no use for."""
    rows: dict[bytes, Callable[[Any], None]] = {
        b"\x80": u.proto, b"\x95": u.frame, b"(": u.mark, b"0": u.drop, b"1": u.pop_mark,
        b"N": lambda self: self.stack.append(None), b"\x88": lambda self: self.stack.append(True), b"\x89": lambda self: self.stack.append(False),
        b"J": lambda self: self.stack.append(self.number(_I4)), b"K": lambda self: self.stack.append(self.take(1)[0]),
        b"M": lambda self: self.stack.append(self.number(_U2)), b"\x8a": u.long1, b"\x8b": u.long4, b"G": lambda self: self.stack.append(self.number(_F8)),
        b"X": lambda self: self.string(self.number(_U4)), b"\x8c": lambda self: self.string(self.take(1)[0]),
        b"\x8d": lambda self: self.string(self.number(_U8)), b"U": lambda self: self.old_string(self.take(1)[0]),
        b"B": lambda self: self.stack.append(self.take(self.number(_U4))), b"C": lambda self: self.stack.append(self.take(self.take(1)[0])),
        b"\x8e": lambda self: self.stack.append(self.take(self.number(_U8))), b"\x96": u.bytearray8,
        b")": lambda self: self.stack.append(()), b"]": lambda self: self.stack.append([]), b"}": lambda self: self.stack.append({}),
        b"\x8f": lambda self: self.stack.append(set()),
        b"t": lambda self: self.marked(tuple), b"l": lambda self: self.marked(list),
        b"d": u.marked_dict, b"\x91": u.marked_frozenset,
        b"\x85": lambda self: self.tuples(1), b"\x86": lambda self: self.tuples(2), b"\x87": lambda self: self.tuples(3),
        b"a": u.append, b"e": u.appends, b"s": u.setitem, b"u": u.setitems, b"\x90": u.additems,
        b"h": lambda self: self.get(self.take(1)[0]), b"j": lambda self: self.get(self.number(_U4)),
        b"q": lambda self: self.keep(self.take(1)[0]), b"r": lambda self: self.keep(self.number(_U4)), b"\x94": lambda self: self.keep(len(self.memo)),
        b"c": u.globe, b"\x93": u.stack_global, b"Q": u.persid, b"R": u.reduce, b"\x81": u.newobj, b"\x92": u.newobj_ex, b"b": u.build,
    }
    table: list[Callable[[Any], None] | None] = [None] * 256
    for code, operation in rows.items():
        table[code[0]] = operation
    return table


Unpickler.operations, Survey.operations = _table(Unpickler), _table(Survey)
