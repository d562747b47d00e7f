"""Fields of operations: an operation of one file has them all, and no list by name says them elsewhere."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.engine import fields
from flambeau._core.kernels import expr as E
from flambeau._core.ops import sparse_ops, table
from flambeau._core.tensor import Tensor

PACKAGE = Path(torch.__file__).parent
# calls whose texts are declarations
DECLARES = ("op", "planned", "pointwise", "reduction", "rows", "has", "rule", "_form", "_unary", "_activation", "_exported")
# lists that are not about how an operation is carried out, and why they may stand
ALLOWED = {
    "_core/kernels": "primitives of the expression language, not operations",
    "interop/array_api": "names that the array API exports",
    "nn/functional/__init__.py": "names that the package exports, in `__all__`",
    "nn/functional/shared.py": "functions that PyTorch has in machine code, the same in torch and in nn.functional",
    "nn/init.py": "names of layers, of which gains are asked",
    "overrides.py": "PyTorch's names of functions that no class answers for",
}


def _operations() -> set[str]:
    return {name for row in table.TABLE.values() for name in (row.name, *row.aliases)}


def _lists(tree: ast.AST) -> Any:
    """(line, words) of the texts and displays of strings that no declaration is given."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if name in DECLARES:
                inside.update(id(x) for x in ast.walk(node))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)) and node.body and isinstance(node.body[0], ast.Expr):
            inside.add(id(node.body[0].value))  # what a docstring says
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value.split()
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            words = [x.value for x in node.elts if isinstance(x, ast.Constant) and isinstance(x.value, str)]
            yield node.lineno, words


def test_no_list_of_operations_by_name_is_left() -> None:
    known = _operations()
    found, needed = [], set()
    for file in sorted(PACKAGE.rglob("*.py")):
        short = str(file.relative_to(PACKAGE))
        for line, words in _lists(ast.parse(file.read_text(encoding="utf-8"))):
            names = [w for w in words if w in known]
            if len(names) >= 8 and 2 * len(names) > len(words):
                allowed = {a for a in ALLOWED if short.startswith(a)}
                needed |= allowed
                if not allowed:
                    found.append(f"{short}:{line}: {' '.join(names[:8])} ...")
    assert not found, "\n".join(found)
    assert needed == set(ALLOWED)


def test_the_search_finds_a_list() -> None:
    text = "X = frozenset('add sub mul div pow exp log sin cos tan sum mean'.split())\nY = ('add', 'sub')\n"
    known = _operations()
    assert [len([w for w in words if w in known]) for _, words in _lists(ast.parse(text)) if len(words) > 1] == [2, 12]


def test_fields_are_checked() -> None:
    with pytest.raises(TypeError, match="no field 'btach'"):
        fields.has("nothing_at_all", btach="pointwise")
    with pytest.raises(ValueError, match="batch must be one of .*got 'point'"):
        fields.has("nothing_at_all", batch="point")
    assert not any("nothing_at_all" in fields.of(f) for f in ("batch", "autocast"))


@pytest.fixture
def bump() -> Any:
    """An operation of one declaration, with its formula and its fields."""
    name = "bump_of_the_test"
    table.pointwise(name, "input", lambda x: x * E.exp(-x * x), promote="float", autocast="full", sparse="values", out_type="same", batch="pointwise")
    row = table.TABLE[name]
    yield row.function
    del table.TABLE[name]
    for field in ("autocast", "sparse", "out_type", "batch"):
        del fields.of(field)[name]


@pytest.fixture
def halves() -> Any:
    """A linear one that is no formula."""
    name = "halves_of_the_test"

    @table.op(name=name, method=False, out=True, tangent="linear", batch="trailing", autocast="lower", out_type="castable")
    def function(input: Tensor) -> Tensor:  # noqa: A002
        return input / 2
    yield table.TABLE[name].function
    del table.TABLE[name]
    for field in ("tangent", "batch", "autocast", "out_type"):
        del fields.of(field)[name]


def test_a_new_kind_of_image_needs_no_rule() -> None:
    """The rule of vmap follows from the field; no file of rules names the operation."""
    name = "halved_images_of_the_test"
    calls = []

    @table.op(name=name, method=False, batch="images 2d")
    def pool2d_of_the_test(input: Tensor) -> Tensor:  # noqa: A002
        calls.append(tuple(input.shape))
        return input[..., ::2, ::2]
    try:
        x = torch.randn(3, 2, 4, 4)
        assert torch.equal(torch.func.vmap(table.TABLE[name].function)(x), x[..., ::2, ::2])
    finally:
        del table.TABLE[name], fields.of("batch")[name]
    assert calls == [(3, 2, 4, 4)]


def test_a_new_formula_has_all_of_them(bump: Any) -> None:
    x = torch.tensor([[0.5, -1.0], [0.0, 2.0]], dtype=torch.float64)
    want = x * (-x * x).exp()
    assert torch.allclose(bump(x), want) and torch.allclose(torch.func.vmap(bump)(x), want)
    assert torch.autograd.gradcheck(bump, (x.clone().requires_grad_(),), check_forward_ad=True)
    with torch.autocast("cpu"):
        assert bump(x.to(torch.bfloat16)).dtype is torch.float32
    found = sparse_ops.run("bump_of_the_test", (x.to_sparse(),), {})
    assert torch.allclose(found.to_dense(), want)
    with pytest.raises(RuntimeError, match="Found dtype Float but expected Double"):
        bump(x, out=torch.empty(2, 2))
    assert bump(x.to("meta")).shape == x.shape


def test_a_new_function_has_all_of_them(halves: Any) -> None:
    x = torch.tensor([[2.0, 4.0], [6.0, 8.0]])
    assert (torch.func.vmap(halves)(x) == x / 2).all()
    value, tangent = torch.func.jvp(halves, (x,), (x,))
    assert (value == x / 2).all() and (tangent == x / 2).all()
    with torch.autocast("cpu"):
        assert halves(x).dtype is torch.bfloat16
    assert (halves(x, out=torch.empty(2, 2, dtype=torch.float64)) == x / 2).all()
    with pytest.raises(RuntimeError, match="can't be cast"):
        halves(x, out=torch.empty(2, 2, dtype=torch.int64))


def test_no_operation_asks_whether_the_host_reads_its_device() -> None:
    """That is a backend's: operations ask for what they need by a spec. Checks of values, which PyTorch makes on the CPU alone, ask in one place."""
    asks = [str(file.relative_to(PACKAGE)) for folder in ("_core/ops", "nn", "optim") for file in sorted((PACKAGE / folder).rglob("*.py"))
            if "dispatch.near(" in file.read_text(encoding="utf-8")]
    assert asks == ["_core/ops/checks.py"]
