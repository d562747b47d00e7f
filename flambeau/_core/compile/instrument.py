"""A function's text with a `Run` (`reads.py`) between it and all that it reads, calls and changes.

The text is found in the function's file, and compared with the function by its code, so that what is carried out is what Python would carry out.
Statements stay Python's own. Only loads of attributes and items, callees, operators, tests, what is iterated over and stores are handed to the run,
which does with them what Python does.  Calls are made by the text itself: who looks at the caller's frame finds the program's.
"""

from __future__ import annotations

import ast
import dis
import linecache
from copy import deepcopy
from functools import cache
from types import CodeType, FunctionType
from typing import Any

NAME = _RUN = "__run__"  # under which a text finds its run
# What changes names elsewhere, runs at another time, or has parts that are not written out below.
_BEYOND = (ast.ClassDef, ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await, ast.Match, ast.Delete, ast.TryStar)
_FRAMES = {"locals", "vars", "dir", "eval", "exec"}  # these see the run's own name
_OPERATORS: dict[type, str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.Pow: "pow", ast.MatMult: "matmul",
    ast.LShift: "lshift", ast.RShift: "rshift", ast.BitOr: "or_", ast.BitXor: "xor", ast.BitAnd: "and_", ast.USub: "neg", ast.UAdd: "pos",
    ast.Invert: "invert", ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.In: "in", ast.NotIn: "not in"}


class Beyond(Exception):
    """A function that is left to Python: its text is not known, or has parts that are not looked through."""


def instrumented(f: FunctionType, run: Any) -> FunctionType:
    """`f` with `run` in between. Raises Beyond."""
    code = _code(f.__code__)
    cells: dict[str, Any] = dict(zip(f.__code__.co_freevars, f.__closure__ or (), strict=True))
    cells[_RUN] = (lambda: run).__closure__[0]  # type: ignore[index]
    made = FunctionType(code, f.__globals__, f.__name__, f.__defaults__, tuple([cells[name] for name in code.co_freevars]))
    made.__kwdefaults__, made.__qualname__ = f.__kwdefaults__, f.__qualname__
    return made


def is_instrumented(code: CodeType) -> bool:
    """Whether it is code with a run in between."""
    return _RUN in code.co_freevars


@cache
def global_names(code: CodeType) -> tuple[str, ...]:
    """The globals and builtins that a function loads, those of functions inside it among them."""
    found = dict.fromkeys(i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found.update(dict.fromkeys(global_names(inner)))
    return tuple(found)


@cache
def global_stores(code: CodeType) -> frozenset[str]:
    """The globals that a function binds, those of functions inside it among them."""
    return frozenset(i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")).union(
        *[global_stores(inner) for inner in code.co_consts if isinstance(inner, CodeType)])


@cache
def nonlocal_stores(code: CodeType) -> frozenset[str]:
    """The names of functions around it that a function binds, those of functions inside it among them."""
    own = {i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_DEREF", "DELETE_DEREF")}
    return frozenset(own.union(*[nonlocal_stores(inner) for inner in code.co_consts if isinstance(inner, CodeType)]).intersection(code.co_freevars))


@cache
def _code(code: CodeType) -> CodeType:
    seen = _FRAMES.intersection(global_names(code))
    if seen:
        raise Beyond(f"it calls {', '.join(sorted(seen))}")
    node = _Between(global_stores(code)).visit(_node(code))
    if isinstance(node, ast.Lambda):
        node.args.defaults, node.args.kw_defaults = [], [None for _ in node.args.kw_defaults]
        node = ast.Return(node)
    else:  # what is evaluated where it is defined has been
        node.decorator_list, node.returns, node.args.defaults, node.args.kw_defaults = [], None, [], [None for _ in node.args.kw_defaults]
        node.name = f"{_RUN}def"  # its own may be that of a global which it loads
    names = [_RUN, *code.co_freevars]
    around = ast.parse(f"def outer({', '.join(names)}): pass")
    holder: Any = around.body[0]
    holder.body = [node]
    made = compile(ast.fix_missing_locations(around), code.co_filename, "exec", 0, True)
    outer = next(c for c in made.co_consts if isinstance(c, CodeType))
    found = [c for c in outer.co_consts if isinstance(c, CodeType) and c.co_name == getattr(node, "name", code.co_name)]
    if len(found) != 1 or not set(found[0].co_freevars) <= set(names) or found[0].co_varnames[:code.co_argcount] != code.co_varnames[:code.co_argcount]:
        raise Beyond("its names are bound in a way of their own")
    return found[0].replace(co_name=code.co_name, co_qualname=code.co_qualname)


def _node(code: CodeType) -> Any:
    """The text of a code object, as a tree of its own."""
    nodes, codes = _file(code.co_filename)
    key = code.co_name, code.co_firstlineno
    if len(nodes.get(key, ())) != 1 or codes.get(key) != [code]:
        raise Beyond("its text is not known")
    found = deepcopy(nodes[key][0])
    for n in ast.walk(found):
        if isinstance(n, _BEYOND):
            raise Beyond(f"it has a {type(n).__name__}")
        for name in (getattr(n, "attr", None), getattr(n, "id", None), getattr(n, "arg", None), getattr(n, "name", None)):
            if isinstance(name, str) and name.startswith("__") and (not name.endswith("__") or name == _RUN):
                raise Beyond("it has a private name")
        if n is not found and isinstance(n, ast.FunctionDef) and n.decorator_list:
            raise Beyond("it decorates a function inside")
    return found


@cache
def _file(name: str) -> tuple[dict[Any, list[Any]], dict[Any, list[CodeType]]]:
    """The functions of a file, as trees and as code, by name and first line."""
    nodes: dict[Any, list[Any]] = {}
    codes: dict[Any, list[CodeType]] = {}
    text = "".join(linecache.getlines(name))
    try:
        tree = ast.parse(text)
        left = [compile(text, name, "exec", 0, True)]
    except (SyntaxError, ValueError):
        return nodes, codes
    for n in ast.walk(tree):
        if isinstance(n, ast.FunctionDef):
            nodes.setdefault((n.name, min([n.lineno, *[d.lineno for d in n.decorator_list]])), []).append(n)
        elif isinstance(n, ast.Lambda):
            nodes.setdefault(("<lambda>", n.lineno), []).append(n)
    while left:
        for c in left.pop().co_consts:
            if isinstance(c, CodeType):
                codes.setdefault((c.co_name, c.co_firstlineno), []).append(c)
                left.append(c)
    return nodes, codes


def _run(name: str, *args: Any) -> Any:
    """A call of the run's method."""
    return ast.Call(ast.Attribute(ast.Name(_RUN, ast.Load()), name, ast.Load()), list(args), [])


_NONE = ast.arguments([], [], None, [], [], None, [])


def _plain(target: Any) -> bool:
    """Whether only names are bound."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return all(map(_plain, target.elts))
    return isinstance(target, ast.Name) or (isinstance(target, ast.Starred) and _plain(target.value))


class _Between(ast.NodeTransformer):
    """Puts the run in between."""

    names = 0  # of its own

    def __init__(self, bound: frozenset[str]) -> None:
        self.bound = bound  # globals that the text binds somewhere
        self.declared: list[set[str]] = [set()]  # those of them that each function around declares

    def visit_Global(self, n: Any) -> Any:
        self.declared[-1].update(n.names)
        return n

    def _other_name(self, name: Any) -> None:
        if name in self.bound:
            raise Beyond("it binds a global among other names")

    def visit_ExceptHandler(self, n: Any) -> Any:
        self._other_name(n.name)
        return self.generic_visit(n)

    def visit_arg(self, n: Any) -> Any:
        self._other_name(n.arg)
        return self.generic_visit(n)

    def visit_alias(self, n: Any) -> Any:
        self._other_name(n.asname or n.name)
        return n

    def _is_global(self, name: Any) -> bool:
        return isinstance(name, ast.Name) and name.id in self.declared[-1]

    def visit(self, node: Any) -> Any:
        made = super().visit(node)
        for n in made if isinstance(made, list) else [made]:
            if n is not None and n is not node and not hasattr(n, "lineno") and hasattr(node, "lineno"):
                ast.copy_location(n, node)
                for part in ast.walk(n):
                    if not hasattr(part, "lineno"):
                        ast.copy_location(part, node)
        return made

    # loads -------------------------------------------------------------------------------------------------------------
    def visit_Name(self, n: Any) -> Any:
        if n.id in self.bound and not self._is_global(n):
            raise Beyond("it has a name that is a global elsewhere in it")
        if self._is_global(n):
            if not isinstance(n.ctx, ast.Load):
                raise Beyond("it binds a global among other names")
            return _run("global_", ast.Constant(n.id))
        return _run("loaded", n) if isinstance(n.ctx, ast.Load) else n

    def visit_Attribute(self, n: Any) -> Any:
        self.generic_visit(n)
        return _run("attribute", n.value, ast.Constant(n.attr))

    def visit_Subscript(self, n: Any) -> Any:
        self.generic_visit(n)
        return _run("item", n.value, n.slice)

    def visit_Slice(self, n: Any) -> Any:
        self.generic_visit(n)
        return _run("slice", *[ast.Constant(None) if x is None else x for x in (n.lower, n.upper, n.step)])

    def visit_Call(self, n: Any) -> Any:
        n.func = _run("callee", self.visit(n.func))
        n.args = [ast.Starred(_run("iterable", self.visit(a.value)), ast.Load()) if isinstance(a, ast.Starred) else self.visit(a) for a in n.args]
        for k in n.keywords:
            k.value = self.visit(k.value) if k.arg else _run("mapping", self.visit(k.value))
        return n

    def visit_BinOp(self, n: Any) -> Any:
        self.generic_visit(n)
        return _run("binary", ast.Constant(_OPERATORS[type(n.op)]), n.left, n.right)

    def visit_UnaryOp(self, n: Any) -> Any:
        self.generic_visit(n)
        if isinstance(n.op, ast.Not):
            return ast.UnaryOp(n.op, _run("tested", n.operand))
        return n if isinstance(n.operand, ast.Constant) else _run("unary", ast.Constant(_OPERATORS[type(n.op)]), n.operand)

    def visit_Compare(self, n: Any) -> Any:
        self.generic_visit(n)
        if len(n.ops) == 1 and isinstance(n.ops[0], (ast.Is, ast.IsNot)) and any(
                isinstance(x, ast.Constant) and x.value in (None, True, False, ...) for x in (n.left, *n.comparators)):
            return n
        names = [_OPERATORS.get(type(op), type(op).__name__) for op in n.ops]
        if len(n.ops) == 1:
            return _run("compare", ast.Constant(names[0]), n.left, n.comparators[0])
        if any(isinstance(part, (ast.NamedExpr, ast.Yield, ast.YieldFrom)) for x in n.comparators for part in ast.walk(x)):
            raise Beyond("it binds names, or yields, in a chain of comparisons")
        # each is worked out once, and only as far as the chain holds
        return _run("chain", n.left, *[part for name, x in zip(names, n.comparators, strict=True) for part in (ast.Constant(name), ast.Lambda(_NONE, x))])

    def visit_BoolOp(self, n: Any) -> Any:
        self.generic_visit(n)
        # the last one's truth is asked by who tests the whole
        n.values = [*[_run("tested", v) for v in n.values[:-1]], n.values[-1]]
        return n

    def visit_FormattedValue(self, n: Any) -> Any:
        self.generic_visit(n)
        n.value = _run("formatted", n.value)
        return n

    def visit_YieldFrom(self, n: Any) -> Any:
        self.generic_visit(n)
        n.value = _run("iterable", n.value)
        return n

    def visit_Starred(self, n: Any) -> Any:
        self.generic_visit(n)
        return n if isinstance(n.ctx, ast.Store) else ast.Starred(_run("iterable", n.value), n.ctx)

    # displays ----------------------------------------------------------------------------------------------------------
    def visit_List(self, n: Any) -> Any:
        self.generic_visit(n)
        return n if isinstance(getattr(n, "ctx", None), ast.Store) else _run("fresh", n)

    visit_Set: Any = visit_List
    visit_ListComp: Any = visit_List
    visit_SetComp: Any = visit_List
    visit_DictComp: Any = visit_List
    visit_GeneratorExp: Any = visit_List

    def visit_Dict(self, n: Any) -> Any:
        self.generic_visit(n)
        n.values = [v if k is not None else _run("mapping", v) for k, v in zip(n.keys, n.values, strict=True)]
        return _run("fresh", n)

    def visit_comprehension(self, n: Any) -> Any:
        if not _plain(n.target):
            raise Beyond("it binds more than names")
        self.generic_visit(n)
        n.iter, n.ifs = _run("iterable", n.iter, ast.Constant(not isinstance(n.target, ast.Name))), [_run("tested", x) for x in n.ifs]
        return n

    # statements --------------------------------------------------------------------------------------------------------
    def visit_If(self, n: Any) -> Any:
        self.generic_visit(n)
        n.test = _run("tested", n.test)
        return n

    visit_IfExp: Any = visit_If
    visit_While: Any = visit_If
    visit_Assert: Any = visit_If

    def visit_For(self, n: Any) -> Any:
        if not _plain(n.target):
            raise Beyond("it binds more than names")
        self.generic_visit(n)
        n.iter = _run("iterable", n.iter, ast.Constant(not isinstance(n.target, ast.Name)))
        return n

    def visit_With(self, n: Any) -> Any:
        if any(i.optional_vars is not None and not isinstance(i.optional_vars, ast.Name) for i in n.items):
            raise Beyond("it binds more than names")
        self.generic_visit(n)
        for i in n.items:
            i.context_expr = _run("context", i.context_expr)
        return n

    def visit_FunctionDef(self, n: Any) -> Any:
        if n.name in self.bound:
            raise Beyond("it defines a global function")
        self.declared.append(set())
        try:
            return self._function(n)
        finally:
            self.declared.pop()

    def _function(self, n: Any) -> Any:
        for a in ast.walk(n.args):
            if isinstance(a, ast.arg):
                a.annotation = None
        n.returns = None
        self.generic_visit(n)
        if n.args.kwarg is not None:  # made by the call
            n.body.insert(0, ast.Expr(_run("fresh", ast.Name(n.args.kwarg.arg, ast.Load()))))
        return n

    def visit_AnnAssign(self, n: Any) -> Any:
        if n.value is None:
            if not isinstance(n.target, ast.Name):
                raise Beyond("it annotates an attribute")
            return ast.Pass()
        return self.visit(ast.copy_location(ast.Assign([n.target], n.value), n))

    def visit_Assign(self, n: Any) -> Any:
        if all(map(_plain, n.targets)) and not any(self._is_global(x) for t in n.targets for x in ast.walk(t)):
            several = [t for t in n.targets if not isinstance(t, ast.Name)]
            n.value = self.visit(n.value)
            if several:
                n.value = _run("parts", n.value)
            return n
        if len(n.targets) > 1:  # one after another, from the left
            value = self._name()
            first = ast.Assign([ast.Name(value, ast.Store())], n.value)
            rest = [ast.Assign([t], ast.Name(value, ast.Load())) for t in n.targets]
        elif isinstance(n.targets[0], (ast.Tuple, ast.List)):
            parts = n.targets[0].elts
            if any(isinstance(t, ast.Starred) for t in parts):
                raise Beyond("it binds more than names")
            names = [self._name() for _ in parts]
            first = ast.Assign([ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())], n.value)
            rest = [ast.Assign([t], ast.Name(name, ast.Load())) for t, name in zip(parts, names, strict=True)]
        elif isinstance(n.targets[0], ast.Name):
            return ast.Expr(_run("store_global", ast.Constant(n.targets[0].id), self.visit(n.value)))
        else:
            kind, o, key = self._place(n.targets[0])
            return ast.Expr(_run("store", kind, self.visit(n.value), o, key))
        made: list[Any] = []
        for x in (first, *rest):
            done = self.visit_Assign(x)
            made += done if isinstance(done, list) else [done]
        names = [x.id for x in ast.walk(ast.Module([first], [])) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]
        return [*made, ast.Assign([ast.Name(name, ast.Store()) for name in names], ast.Constant(None))]  # which keeps nothing alive

    def _name(self) -> str:
        """A name that no text has."""
        self.names += 1
        return f"{_RUN}{self.names}"

    def visit_ImportFrom(self, n: Any) -> Any:
        self.generic_visit(n)
        if any(a.name == "*" for a in n.names):
            raise Beyond("it imports all that there is")
        where = ast.Name("__package__", ast.Load()) if n.level else ast.Constant("")
        return [n, *[ast.Expr(_run("imported", ast.Constant("." * n.level + (n.module or "")), where, ast.Constant(a.name),
                                   ast.Name(a.asname or a.name, ast.Load()))) for a in n.names]]

    def visit_Import(self, n: Any) -> Any:
        self.generic_visit(n)
        if any("." in a.name for a in n.names):
            raise Beyond("it imports an inner module")
        return [n, *[ast.Expr(_run("imported", ast.Constant(a.name), ast.Constant(""), ast.Constant(None), ast.Name(a.asname or a.name, ast.Load())))
                     for a in n.names]]

    def visit_AugAssign(self, n: Any) -> Any:
        value, op = self.visit(n.value), ast.Constant("i" + _OPERATORS[type(n.op)].rstrip("_"))
        if self._is_global(n.target):
            return ast.Expr(_run("store_global", ast.Constant(n.target.id), _run("binary", op, _run("moved_global", ast.Constant(n.target.id)), value)))
        if isinstance(n.target, ast.Name):
            return ast.Assign([n.target], _run("binary", op, ast.Name(n.target.id, ast.Load()), value))
        return ast.Expr(_run("augment", _run("place", *self._place(n.target)), op, value))

    def _place(self, target: Any) -> tuple[Any, Any, Any]:
        """Whether it is an attribute or an item, of what, and which."""
        if isinstance(target, ast.Attribute):
            return ast.Constant("attribute"), self.visit(target.value), ast.Constant(target.attr)
        if isinstance(target, ast.Subscript):
            return ast.Constant("item"), self.visit(target.value), self.visit(target.slice)
        raise Beyond("it binds more than names")
