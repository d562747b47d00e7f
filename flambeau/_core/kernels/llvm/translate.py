"""Machine code in a small part of Python's syntax: `translate(text, constants)` gives the IR of its functions.

    total: i64 = 0                                    # a variable of the module

    def flambeau_first(self: ptr, given: ptr, n: i64) -> ptr:   # other names are seen in this module only
        global total
        if n == 0 or not ptr[given]:                  # `and`, `or`, `not`, and `is None` for a null pointer
            return PyErr_Occurred()                   # functions of CPython and C are declared by `_API`
        for k in range(n):
            total += i64[given + 8 * k]               # type[address] is memory; a pointer + n is n bytes further
        return ptr[given]

Types are ptr, i1, i8, i16, i32, i64, float and double; a whole number takes that of what it meets (else i64), True and False are i1, None is a
pointer.  Whole numbers are signed, but for >>; // and % of them round towards 0; doubles are added, subtracted, multiplied and divided (/).
``type(x)`` converts: pointers and whole numbers to each other, wider with the sign (an i1 with zeros), or cut; an i64 and a double to each other;
``unsigned(x)`` is an i64, wider with zeros; ``bits(x)`` a double's 64 bits.  ``stack(type, n)`` is memory until the function returns,
``call(type, f, ...)`` calls a pointer, which a function's name is too, a text is a pointer to its bytes and a 0.  A name that begins with Py or _Py, and is
no function, is the address of CPython's object of that name.  A function whose body is ``...`` stands in another text of the module.  What ``(name := x)``
names may not be named before, but in a condition's first part.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
_TYPES = frozenset((*_BITS, "ptr", "float", "double", "void"))
_OPERATORS = {"Add": "add", "Sub": "sub", "Mult": "mul", "BitAnd": "and", "BitOr": "or", "BitXor": "xor", "LShift": "shl", "RShift": "lshr",
              "FloorDiv": "sdiv", "Mod": "srem", "Div": "div"}
_COMPARED = {"Eq": "eq", "Is": "eq", "NotEq": "ne", "IsNot": "ne", "Lt": "slt", "LtE": "sle", "Gt": "sgt", "GtE": "sge"}
_API = """
void Py_IncRef(ptr); void Py_DecRef(ptr); void PyErr_Clear(); ptr PyErr_Occurred(); i32 PyErr_ExceptionMatches(ptr); ptr PyErr_Format(ptr, ptr, ...)
void PyErr_SetString(ptr, ptr); ptr PyEval_SaveThread(); void PyEval_RestoreThread(ptr)
i32 PyType_IsSubtype(ptr, ptr); ptr PyType_GenericAlloc(ptr, i64); i32 PyContextVar_Get(ptr, ptr, ptr)
i64 PyLong_AsUnsignedLongLongMask(ptr); i64 PyLong_AsLongLong(ptr); i64 PyLong_AsUnsignedLongLong(ptr); double PyLong_AsDouble(ptr)
ptr PyLong_FromUnsignedLongLong(i64); ptr PyLong_FromLongLong(i64); ptr PyLong_FromSsize_t(i64); double PyFloat_AsDouble(ptr)
ptr PyFloat_FromDouble(double); ptr PyComplex_FromDoubles(double, double); ptr PyBool_FromLong(i64); ptr PyNumber_Add(ptr, ptr)
ptr PyNumber_Long(ptr); ptr PyNumber_Float(ptr); i64 PyDict_Size(ptr)
ptr PyObject_CallNoArgs(ptr); ptr PyObject_CallOneArg(ptr, ptr); ptr PyObject_Vectorcall(ptr, ptr, i64, ptr)
ptr PyObject_CallFunctionObjArgs(ptr, ...); ptr PyObject_CallMethodObjArgs(ptr, ptr, ...); ptr PyObject_GenericGetDict(ptr, ptr)
ptr PyObject_GetAttr(ptr, ptr); i32 PyObject_RichCompareBool(ptr, ptr, i32); i64 PyObject_Size(ptr); i32 PyObject_IsTrue(ptr)
ptr PyDict_GetItemWithError(ptr, ptr); i32 PyDict_SetItem(ptr, ptr, ptr); void PyDict_Clear(ptr); ptr PyWeakref_NewRef(ptr, ptr)
ptr PyList_New(i64); i32 PyList_Append(ptr, ptr); i64 PyList_Size(ptr); ptr PyList_GetItem(ptr, i64); i32 PyList_SetItem(ptr, i64, ptr)
ptr PyList_AsTuple(ptr); ptr PyTuple_New(i64); i32 PyTuple_SetItem(ptr, i64, ptr); i64 PyTuple_Size(ptr); ptr PyTuple_GetItem(ptr, i64)
ptr PyUnicode_InternFromString(ptr); ptr PyCapsule_New(ptr, ptr, ptr); i32 PyCapsule_IsValid(ptr, ptr); ptr PyCapsule_GetPointer(ptr, ptr)
i32 PyGILState_Ensure(); void PyGILState_Release(i32); i32 Py_IsInitialized(); ptr PyMem_RawMalloc(i64); void PyMem_RawFree(ptr); ptr PyErr_NoMemory()
i32 PyObject_GetBuffer(ptr, ptr, i32)
void PyBuffer_Release(ptr); ptr PyMemoryView_FromObject(ptr); ptr PyBytes_FromStringAndSize(ptr, i64); ptr memcpy(ptr, ptr, i64); i32 memcmp(ptr, ptr, i64)
"""
_DECLARED = {name: (result, args.replace(" ", "").split(",") if args else [])
             for result, name, args in re.findall(r"(\w+) (\w+)\(([^)]*)\)", _API)}


class Value(NamedTuple):
    """An LLVM type and what is of it; of no type: a whole number as it is written."""

    type: str
    name: str


Scope = dict[str, Value]
Edge = tuple[str, Scope]  # a block that goes on elsewhere, and what names stood for at its end


def translate(text: str, constants: Mapping[str, int] | None = None) -> str:
    """The IR.  constants: whole numbers by the names that the text has for them.  Raises SyntaxError for what is not of this language."""
    return _Module(ast.parse(text), constants or {}).text()


class _Module:
    def __init__(self, tree: ast.Module, constants: Mapping[str, int]) -> None:
        self.constants = constants
        given = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
        self.functions = [f for f in given if ast.unparse(f.body[0]) != "..."]
        self.variables = {n.target.id: _type(n.annotation) for n in tree.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
        self.signatures = {f.name: (_type(f.returns), [_type(a.annotation) for a in f.args.args]) for f in given}
        self.used: dict[str, str] = {}  # what is declared, by its name
        self.texts: dict[bytes, str] = {}

    def text(self) -> str:
        written = [_Function(self, f).text() for f in self.functions]
        variables = [f"@{name} = internal global {t} {'null' if t == 'ptr' else 0}" for name, t in self.variables.items()]
        texts = [f'{name} = internal constant [{len(data)} x i8] c"{"".join(f"{chr(92)}{b:02x}" for b in data)}"' for data, name in self.texts.items()]
        return "\n".join([*self.used.values(), *variables, *texts, *written, ""])

    def signature(self, name: str) -> tuple[str, list[str]] | None:
        """What a function gives and takes, declared if it is not of this module."""
        if name in self.signatures:
            return self.signatures[name]
        found = _DECLARED.get(name)
        if found is not None:
            self.used[name] = f"declare {found[0]} @{name}({', '.join(found[1])})"
        return found

    def object(self, name: str) -> Value:
        self.used[name] = f"@{name} = external global i64"
        return Value("ptr", "@" + name)

    def string(self, value: str) -> Value:
        return Value("ptr", self.texts.setdefault(value.encode() + b"\0", f"@.text.{len(self.texts)}"))


class _Loop(NamedTuple):
    following: str
    past: str
    continued: list[Edge]
    broken: list[Edge]


class _Function:
    def __init__(self, module: _Module, tree: ast.FunctionDef) -> None:
        self.module, self.tree = module, tree
        self.result, kinds = module.signatures[tree.name]
        self.scope: Scope = {a.arg: Value(t, "%" + a.arg) for a, t in zip(tree.args.args, kinds, strict=True)}
        self.globals = {name for n in ast.walk(tree) if isinstance(n, ast.Global) for name in n.names}
        self.lines: list[str] = []
        self.count = 0
        self.current, self.open = "entry", True  # the block being written, and whether it has no end yet
        self.loops: list[_Loop] = []
        self.later = 0  # how many parts of conditions may have been left out before what is being written

    def text(self) -> str:
        given = ", ".join(f"{v.type} {v.name}" for v in self.scope.values())
        self.body(self.tree.body)
        if self.open:
            self.end("ret void" if self.result == "void" else "unreachable")
        hidden = "" if self.tree.name.startswith("flambeau_") else "internal "
        return "\n".join([f"define {hidden}{self.result} @{self.tree.name}({given}) #0 {{", "entry:", *self.lines, "}"])

    # ------------------------------------------------------------------------------------------------------------------ blocks
    def fresh(self, what: str) -> str:
        self.count += 1
        return f"{what}.{self.count}"

    def op(self, text: str) -> str:
        name = "%" + self.fresh("v")
        self.lines.append(f"  {name} = {text}")
        return name

    def end(self, text: str) -> None:
        self.lines.append("  " + text)
        self.open = False

    def begin(self, label: str) -> None:
        self.lines.append(label + ":")
        self.current, self.open = label, True

    def leave(self, label: str, edges: list[Edge]) -> None:
        """Goes on elsewhere, if the block has no end yet."""
        if self.open:
            edges.append((self.current, self.scope))
            self.end(f"br label %{label}")

    def join(self, label: str, edges: Sequence[Edge]) -> None:
        """Begins the block that all these lead to: names that all know stand for what each had."""
        if not edges:
            return
        self.begin(label)
        first = edges[0][1]
        self.scope = {n: self.either([(at, s[n]) for at, s in edges]) for n in first if all(n in s for _, s in edges)}

    def either(self, ways: Sequence[tuple[str, Value]]) -> Value:
        value = ways[0][1]
        if all(v == value for _, v in ways):
            return value
        kind = next((v.type for _, v in ways if v.type), "i64")
        if any(v.type not in (kind, "") for _, v in ways):
            return Value("void", "a name of two types")  # which nobody may ask for
        return Value(kind, self.op(f"phi {kind} " + ", ".join(f"[ {v.name}, %{at} ]" for at, v in ways)))

    # -------------------------------------------------------------------------------------------------------------- statements
    def body(self, nodes: Sequence[ast.stmt]) -> None:
        for node in nodes:
            if not self.open:
                self.wrong(node, "nothing comes here")
            getattr(self, "do_" + type(node).__name__, self.wrong)(node)

    def wrong(self, node: ast.AST, why: str = "") -> NoReturn:
        raise SyntaxError(f"{self.tree.name}, line {getattr(node, 'lineno', '?')}: {why or 'a ' + type(node).__name__} in {ast.unparse(node)!r}")

    def do_Pass(self, node: ast.stmt) -> None:
        pass

    do_Global = do_Pass  # see `globals`

    def do_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.value(node.value)

    def do_Return(self, node: ast.Return) -> None:
        self.end("ret void" if node.value is None else f"ret {self.result} {self.typed(self.value(node.value), self.result, node)}")

    def do_Assign(self, node: ast.Assign) -> None:
        self.put(node.targets[0], self.value(node.value))

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        self.put(node.target, self.two(node, self.value(node.target), self.value(node.value)))

    def put(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Subscript):
            kind, at = _type(target.value), self.value(target.slice)
            self.lines.append(f"  store {kind} {self.typed(value, kind, target)}, ptr {at.name}, align 1")
        elif not isinstance(target, ast.Name):
            self.wrong(target)
        elif target.id in self.globals:
            kind = self.module.variables[target.id]
            self.lines.append(f"  store {kind} {self.typed(value, kind, target)}, ptr @{target.id}")
        else:
            self.scope = {**self.scope, target.id: value if value.type else Value("i64", value.name)}

    def do_If(self, node: ast.If) -> None:
        yes, no, on = self.fresh("yes"), self.fresh("no"), self.fresh("on")
        scopes = self.condition(node.test, yes, no)
        edges: list[Edge] = []
        for label, scope, nodes in zip((yes, no), scopes, (node.body, node.orelse), strict=True):
            self.begin(label)
            self.scope = scope
            self.body(nodes)
            self.leave(on, edges)
        self.join(on, edges)

    def do_While(self, node: ast.While) -> None:
        self.loop(node, node.body, node.test)

    def do_For(self, node: ast.For) -> None:
        """``for name in range(...)``."""
        if not isinstance(node.iter, ast.Call) or not isinstance(node.target, ast.Name):
            self.wrong(node)
        limits = [self.typed(self.value(a), "i64", a) for a in node.iter.args]
        self.put(node.target, Value("i64", limits[0] if len(limits) > 1 else "0"))
        self.loop(node, node.body, Value("i64", limits[-1]), node.target.id)

    def loop(self, node: ast.AST, nodes: Sequence[ast.stmt], test: ast.expr | Value, counter: str = "") -> None:
        again, inside, following, out, past = (self.fresh(n) for n in ("again", "inside", "following", "out", "past"))
        written = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        carried = [n for n in self.scope if n in written]
        before = self.current, self.scope
        self.end(f"br label %{again}")
        self.begin(again)
        at = len(self.lines)
        self.lines += [""] * len(carried)
        self.scope = {**self.scope, **{n: Value(self.scope[n].type, "%" + self.fresh(n)) for n in carried}}
        heads = [self.scope[n] for n in carried]
        if isinstance(test, Value):
            self.end(f"br i1 {self.op(f'icmp slt i64 {self.scope[counter].name}, {test.name}')}, label %{inside}, label %{out}")
            scopes = self.scope, self.scope
        else:
            scopes = self.condition(test, inside, out)
        this = _Loop(following, past, [], [])
        self.begin(inside)
        self.scope = scopes[0]
        self.loops.append(this)
        self.body(nodes)
        self.loops.pop()
        self.leave(following, this.continued)
        ways: list[Edge] = [before]
        if this.continued:
            self.join(following, this.continued)
            if counter:
                self.scope = {**self.scope, counter: Value("i64", self.op(f"add i64 {self.scope[counter].name}, 1"))}
            self.leave(again, ways)
        for k, (name, head) in enumerate(zip(carried, heads, strict=True)):
            self.lines[at + k] = f"  {head.name} = phi {head.type} " + ", ".join(f"[ {s[name].name}, %{block} ]" for block, s in ways)
        self.begin(out)
        self.scope = scopes[1]
        self.leave(past, this.broken)
        self.join(past, this.broken)

    def do_Break(self, node: ast.Break) -> None:
        self.leave(self.loops[-1].past, self.loops[-1].broken)

    def do_Continue(self, node: ast.Continue) -> None:
        self.leave(self.loops[-1].following, self.loops[-1].continued)

    # -------------------------------------------------------------------------------------------------------------- conditions
    def condition(self, node: ast.expr, yes: str, no: str) -> tuple[Scope, Scope]:
        """Goes to one label or the other; what names stand for at each."""
        if isinstance(node, ast.BoolOp):
            both = isinstance(node.op, ast.And)
            early: Scope | None = None  # at the label that is left for before the last part
            for part in node.values[:-1]:
                on = self.fresh("part")
                goes, not_ = self.condition(part, *((on, no) if both else (yes, on)))
                self.begin(on)
                self.scope, left = (goes, not_) if both else (not_, goes)
                early = left if early is None else early
                self.later += 1
            goes, not_ = self.condition(node.values[-1], yes, no)
            self.later -= len(node.values) - 1
            assert early is not None
            return (goes, early) if both else (early, not_)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            not_, goes = self.condition(node.operand, no, yes)
            return goes, not_
        self.end(f"br i1 {self.truth(self.value(node), node)}, label %{yes}, label %{no}")
        return self.scope, self.scope

    def truth(self, v: Value, node: ast.AST) -> str:
        if v.type == "i1":
            return v.name
        if not v.type:
            return str(int(v.name != "0"))
        return self.op(f"icmp ne {v.type} {v.name}, {'null' if v.type == 'ptr' else 0}") if v.type == "ptr" or v.type in _BITS else self.wrong(node)

    # ------------------------------------------------------------------------------------------------------------------ values
    def value(self, node: ast.expr) -> Value:
        found: Value = getattr(self, "of_" + type(node).__name__, self.wrong)(node)
        return found

    def typed(self, v: Value, kind: str, node: ast.AST) -> str:
        if v.type not in (kind, "") or (not v.type and kind not in _BITS):
            self.wrong(node, f"{v.type or 'a number'} where {kind} is wanted")
        return v.name

    def of_Constant(self, node: ast.Constant) -> Value:
        v: Any = node.value
        if isinstance(v, str):
            return self.module.string(v)
        if isinstance(v, float):
            return Value("double", repr(v))
        return Value("ptr", "null") if v is None else Value("i1", str(int(v))) if isinstance(v, bool) else Value("", str(v))

    def of_Name(self, node: ast.Name) -> Value:
        name, module = node.id, self.module
        if name in self.scope:
            return self.scope[name]
        if name in module.variables:
            return Value(module.variables[name], self.op(f"load {module.variables[name]}, ptr @{name}"))
        if name in module.constants:
            return Value("", str(module.constants[name]))
        if name in module.signatures:
            return Value("ptr", "@" + name)
        return module.object(name) if re.match("_?Py", name) else self.wrong(node, "an unknown name")

    def of_NamedExpr(self, node: ast.NamedExpr) -> Value:
        if self.later and node.target.id in self.scope:
            self.wrong(node, "a name that was named before")
        self.put(node.target, self.value(node.value))
        return self.scope[node.target.id]

    def of_Subscript(self, node: ast.Subscript) -> Value:
        at = self.value(node.slice)
        return Value(_type(node.value), self.op(f"load {_type(node.value)}, ptr {self.typed(at, 'ptr', node)}, align 1"))

    def of_BinOp(self, node: ast.BinOp) -> Value:
        return self.two(node, self.value(node.left), self.value(node.right))

    def two(self, node: ast.BinOp | ast.AugAssign, a: Value, b: Value) -> Value:
        op = _OPERATORS.get(type(node.op).__name__) or self.wrong(node)
        if a.type == "ptr" and op == "add":
            return Value("ptr", self.op(f"getelementptr i8, ptr {a.name}, i64 {self.typed(b, 'i64', node)}"))
        if not a.type and not b.type:
            counted = {"add": int.__add__, "sub": int.__sub__, "mul": int.__mul__, "shl": int.__lshift__, "or": int.__or__}[op]
            return Value("", str(counted(int(a.name), int(b.name))))
        kind = a.type or b.type
        if kind == "double" and op in ("add", "sub", "mul", "div"):
            op = "f" + op
        elif op == "div":
            self.wrong(node)
        return Value(kind, self.op(f"{op} {kind} {self.typed(a, kind, node)}, {self.typed(b, kind, node)}"))

    def of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return Value("i1", self.op(f"xor i1 {self.truth(self.value(node.operand), node)}, true"))
        v = self.value(node.operand)
        if not isinstance(node.op, ast.USub) or (v.type and v.type != "double"):
            self.wrong(node)
        return Value(v.type, "-" + v.name)

    def of_Compare(self, node: ast.Compare) -> Value:
        a, b = self.value(node.left), self.value(node.comparators[0])
        kind, how = a.type or b.type or "i64", _COMPARED.get(type(node.ops[0]).__name__) or self.wrong(node)
        with_ = f"fcmp o{how.removeprefix('s')}" if kind == "double" else f"icmp {how}"
        return Value("i1", self.op(f"{with_} {kind} {self.typed(a, kind, node)}, {self.typed(b, kind, node)}"))

    def of_BoolOp(self, node: ast.BoolOp) -> Value:
        return self.of_IfExp(ast.IfExp(node, ast.Constant(True), ast.Constant(False)))

    def of_IfExp(self, node: ast.IfExp) -> Value:
        yes, no, on = self.fresh("yes"), self.fresh("no"), self.fresh("on")
        scopes, known = self.condition(node.test, yes, no), self.scope
        ways: list[tuple[str, Value]] = []
        for label, scope, part in zip((yes, no), scopes, (node.body, node.orelse), strict=True):
            self.begin(label)
            self.scope = scope
            value = self.value(part)
            ways.append((self.current, value))
            self.end(f"br label %{on}")
        self.begin(on)
        self.scope = {n: v for n, v in known.items() if all(n in s and s[n] == v for s in scopes)}
        return self.either(ways)

    def of_Call(self, node: ast.Call) -> Value:
        if not isinstance(node.func, ast.Name):
            self.wrong(node)
        name, given = node.func.id, node.args
        if name == "stack":
            return Value("ptr", self.op(f"alloca {_type(given[0])}, i64 {self.typed(self.value(given[1]), 'i64', node)}, align 16"))
        if name == "call":
            kind, f, values = _type(given[0]), self.value(given[1]), [self.value(a) for a in given[2:]]
            return self.called(kind, f.name, ", ".join(f"{v.type or 'i64'} {v.name}" for v in values))
        if name in _TYPES or name in ("unsigned", "bits"):
            return self.converted(name, self.value(given[0]), node)
        signature = self.module.signature(name) or self.wrong(node, "an unknown function")
        result, kinds = signature
        values = [self.value(a) for a in given]
        if "..." in kinds:
            return self.called(f"{result} ({', '.join(kinds)})", f"@{name}", ", ".join(f"{v.type or 'i64'} {v.name}" for v in values))
        if len(values) != len(kinds):
            self.wrong(node, f"{len(kinds)} arguments are wanted")
        return self.called(result, f"@{name}", ", ".join(f"{k} {self.typed(v, k, node)}" for k, v in zip(kinds, values, strict=True)))

    def called(self, kind: str, function: str, given: str) -> Value:
        text = f"call {kind} {function}({given})"
        if kind == "void":
            self.lines.append("  " + text)
            return Value("void", "nothing")
        return Value(kind.split(" ")[0], self.op(text))

    def converted(self, to: str, v: Value, node: ast.AST) -> Value:
        if to == "bits":
            return Value("i64", self.op(f"bitcast double {self.typed(v, 'double', node)} to i64"))
        zeros, to = to == "unsigned" or v.type == "i1", "i64" if to == "unsigned" else to
        if v.type == to or (not v.type and to not in ("float", "double")):
            return Value(to, "null" if to == "ptr" and v.name == "0" else v.name)
        if "ptr" in (to, v.type):
            how = "inttoptr" if to == "ptr" else "ptrtoint"
        elif to in ("float", "double"):
            how = {"float": "fpext", "double": "fptrunc", "i64": "sitofp"}.get(v.type) or self.wrong(node)
        elif v.type == "double":
            how = "fptosi"
        else:
            how = "trunc" if _BITS[to] < _BITS.get(v.type, 0) else "zext" if zeros else "sext"
        return Value(to, self.op(f"{how} {v.type} {v.name} to {to}"))


def _type(node: ast.expr | None) -> str:
    if isinstance(node, ast.Name) and node.id in _TYPES:
        return node.id
    raise SyntaxError(f"not a type: {'nothing' if node is None else ast.unparse(node)}")
