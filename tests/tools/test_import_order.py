"""The check of the layers finds what it must, and lets through what it must."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("import_order", ROOT / "tools" / "import_order.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def package(folder: Path, **files: str) -> Path:
    root = folder / "flambeau"
    for name, text in {"__init__": "", "_core__dtypes": "", "_core__runtime__door": "", "_core__ops__table": "", **files}.items():
        path = root / (name.replace("__", "/") if name != "__init__" else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".py").write_text(text)
    return root


@pytest.mark.parametrize(
    "line",
    [
        "import flambeau._core.ops.table",
        "from flambeau._core.ops import table",
        "from flambeau._core.ops.table import row",
        "from flambeau._core import ops",
        "from ..ops import table",
        "from .. import ops",
        "def late():\n    from flambeau._core.ops import table",
        "import importlib\nimportlib.import_module('flambeau._core.ops.table')",
        "import flambeau",
        "from flambeau import Tensor",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import flambeau._core.ops",
    ],
)
def test_an_import_from_above_is_an_offence(check: ModuleType, tmp_path: Path, line: str) -> None:
    found = check.offences(package(tmp_path, _core__runtime__queue=line))
    assert len(found) == 1, found
    assert found[0].startswith("flambeau/_core/runtime/queue.py:") and "above" in found[0]


@pytest.mark.parametrize(
    "line",
    [
        "from flambeau._core.dtypes import float32",
        "from flambeau._core import dtypes",
        "from . import dispatch",
        "from flambeau._core.runtime.dispatch import bind",
        "import numpy",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from flambeau._core.ops import table",
        "import typing\nif typing.TYPE_CHECKING:\n    import flambeau",
    ],
)
def test_what_lies_below_or_never_runs_is_allowed(check: ModuleType, tmp_path: Path, line: str) -> None:
    assert check.offences(package(tmp_path, _core__runtime__queue=line)) == []


def test_a_module_without_a_layer_is_an_offence(check: ModuleType, tmp_path: Path) -> None:
    found = check.offences(package(tmp_path, misc="x = 1"))
    assert found == ["flambeau/misc.py: misc has no layer: give it one in tools/import_order.py"]


def test_exit_status_and_summary(check: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([str(package(tmp_path / "good"))]) == 0
    assert "the layers hold" in capsys.readouterr().out
    assert check.main([str(package(tmp_path / "bad", _core__dtypes="import flambeau._core.ops"))]) == 1
    assert "1 offences" in capsys.readouterr().out


def test_files_that_import_one_another_are_a_circle_lazy_imports_counted(check: ModuleType, tmp_path: Path) -> None:
    root = package(tmp_path, ops__a="from . import b", ops__b="from .c import late", ops__c="def late():\n    from flambeau.ops import a, d",
                   ops__d="from .e import x", ops__e="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import d",
                   runtime__one="from .two import x", runtime__two="from . import one")
    assert check.circles(check.graph(root)) == [["ops.a", "ops.b", "ops.c"], ["runtime.one", "runtime.two"]]


def test_a_folder_is_in_a_circle_only_by_its_own_file(check: ModuleType, tmp_path: Path) -> None:
    for text, expected in (("", []), ("from . import name_of_the_folder", [["ops", "ops.a", "ops.b"]])):
        root = package(tmp_path / str(len(expected)), ops__a="from . import b", ops__b=text)
        (root / "ops" / "__init__.py").write_text("from . import a")
        assert check.graph(root)["ops.a"] == {"ops.b"}
        assert check.circles(check.graph(root)) == expected


def test_a_circle_above_the_ceiling_fails(check: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(package(tmp_path, _core__ops__a="from . import b", _core__ops__b="from . import a"))
    monkeypatch.setattr(check, "CEILING", 1)
    assert check.main([root]) == 1
    assert "_core.ops.a _core.ops.b" in capsys.readouterr().out
    monkeypatch.setattr(check, "CEILING", 2)
    assert check.main([root]) == 0


def test_the_package_itself_holds(check: ModuleType) -> None:
    assert check.offences(ROOT / "flambeau") == []
    assert len(check.circles(check.graph(ROOT / "flambeau"))[0]) <= check.CEILING


def test_every_exception_to_the_order_has_a_reason(check: ModuleType) -> None:
    for importer, imported, reason in check.ALLOWED:
        assert check.place(importer) and check.place(imported) and len(reason) > 20
