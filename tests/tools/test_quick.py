"""`make quick` finds the tests that a change touches, the closest first, and stops when its minute is over."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def quick() -> ModuleType:
    spec = importlib.util.spec_from_file_location("quick", ROOT / "tools" / "quick.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small house: views is used by shapes, tests import some of it at the top, in a function or through a helper."""
    files = {
        "flambeau/__init__.py": "from flambeau.ops import views",
        "flambeau/ops/__init__.py": "",
        "flambeau/ops/views.py": "",
        "flambeau/ops/shapes.py": "def late():\n    from . import views",
        "flambeau/ops/alone.py": "",
        "flambeau/ops/moments.py": "def spread(x):\n    return x\n\ndef _own(x):\n    return x",
        "flambeau/nn/__init__.py": "",
        "flambeau/nn/module.py": "",
        "flambeau/nn/page.css": "",
        "flambeau/demo/show.py": "",
        "flambeau/_faces/mps.py": "",
        "tools/order.py": "",
        "tests/conftest.py": "",
        "tests/test_nn.py": "",
        "tests/helper.py": "from flambeau.ops.views import view",
        "tests/parity/test_views_parity.py": "from flambeau.ops import views",
        "tests/ops/test_views.py": "import flambeau",
        "tests/ops/test_views_strided.py": "import flambeau",
        "tests/ops/views/test_more.py": "",
        "tests/ops/test_shapes.py": "import flambeau.nn.module",
        "tests/ops/test_late.py": "def test_a():\n    from flambeau.ops.views import view",
        "tests/ops/test_other.py": "# views are named here, and not imported",
        "tests/nn/test_page.py": "",
        "tests/nn/test_far.py": "x.spread()",
        "tests/ops/test_folds.py": "x.spread()\nx.spread()",
        "tests/ops/test_least.py": "x.spread() or x.widespread() or x._own() or spread",
        "tests/demo/test_demo.py": "",
        "tests/test_mps.py": "",
        "tests/demo/test_faces.py": "from flambeau import mps",
        "tests/io/test_helped.py": "from tests.helper import view",
        "tests/tools/test_order.py": "import importlib\nimportlib.import_module('order')",
        "tests/tools/test_uses_order.py": "importlib.util.spec_from_file_location('order', 'tools/order.py')",
        "tests/test_docs_examples.py": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return tmp_path


OWN_OF_VIEWS = ["tests/ops/test_views.py", "tests/ops/test_views_strided.py", "tests/ops/views/test_more.py"]


@pytest.mark.parametrize(
    ("paths", "ranks"),
    [
        (["flambeau/ops/views.py"], [[], OWN_OF_VIEWS, ["tests/ops/test_late.py", "tests/io/test_helped.py"], ["tests/ops/test_shapes.py"]]),
        (["flambeau/ops/shapes.py"], [[], ["tests/ops/test_shapes.py"], [], []]),
        (["flambeau/ops/alone.py"], [[], [], [], []]),
        (["flambeau/ops/moments.py"], [[], ["tests/ops/test_folds.py", "tests/ops/test_least.py"], [], []]),
        (["flambeau/nn/module.py"], [[], ["tests/test_nn.py"], ["tests/ops/test_shapes.py"], []]),
        (["flambeau/nn/__init__.py"], [[], ["tests/test_nn.py"], [], []]),
        (["flambeau/nn/page.css"], [[], ["tests/nn/test_far.py", "tests/nn/test_page.py"], [], []]),
        (["flambeau/demo/show.py"], [[], ["tests/demo/test_demo.py"], [], []]),
        (["flambeau/_faces/mps.py"], [[], ["tests/test_mps.py"], ["tests/demo/test_faces.py"], []]),
        (["tests/helper.py"], [[], [], ["tests/io/test_helped.py"], []]),
        (["tests/ops/test_late.py", "tests/parity/test_views_parity.py"], [["tests/ops/test_late.py"], [], [], []]),
        (["tests/ops/test_views.py", "flambeau/ops/views.py"],
         [["tests/ops/test_views.py"], OWN_OF_VIEWS[1:], ["tests/ops/test_late.py", "tests/io/test_helped.py"], ["tests/ops/test_shapes.py"]]),
        (["tools/order.py"], [[], ["tests/tools/test_order.py"], ["tests/tools/test_uses_order.py"], []]),
        (["docs/guide/index.md", "README.md"], [[], ["tests/test_docs_examples.py"], [], []]),
        (["tests/ops/test_gone.py", "flambeau/ops/gone.py", "LICENSE"], [[], [], [], []]),
    ],
    ids=lambda value: " ".join(value) if value and isinstance(value[0], str) else "",
)
def test_what_a_change_touches(quick: ModuleType, tree: Path, paths: list[str], ranks: list[list[str]]) -> None:
    assert quick.closest(paths, tree) == ranks


def test_a_conftest_touches_all_below_it(quick: ModuleType, tree: Path) -> None:
    own = quick.closest(["tests/conftest.py"], tree)[1]
    assert len(own) == 18 and not [t for t in own if "parity" in t or "helper" in t]


def test_a_removed_module_touches_the_tests_that_still_import_it(quick: ModuleType, tree: Path) -> None:
    (tree / "flambeau/ops/views.py").unlink()
    (tree / "tests/ops/test_late.py").write_text("import flambeau.ops.views")
    ranks = quick.closest(["flambeau/ops/views.py"], tree)
    assert "tests/ops/test_late.py" in ranks[2] and "tests/ops/test_views.py" in ranks[1]


def test_nothing_and_too_much_fall_back_to_the_fixed_selection(quick: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "SMOKE", ("ops/test_other.py", "test_nn.py"))
    fixed = ["tests/ops/test_other.py", "tests/test_nn.py"]
    files, why = quick.chosen([], tree)
    assert files == fixed and "fixed selection" in why
    assert quick.chosen(["LICENSE"], tree)[0] == fixed
    monkeypatch.setattr(quick, "MOST", 4)
    files, why = quick.chosen(["flambeau/ops/views.py", "tests/ops/test_shapes.py"], tree)
    assert files == ["tests/ops/test_shapes.py", *fixed] and why.startswith("6 test files, too many")
    files, why = quick.chosen(["flambeau/nn/module.py", "flambeau/ops/shapes.py"], tree)
    assert files == ["tests/test_nn.py", "tests/ops/test_shapes.py"] and why == "2 test files"
    monkeypatch.setattr(quick, "MOST", 5)
    files, why = quick.chosen(["flambeau/ops/views.py"], tree)
    assert len(files) == 5 and "tests/ops/test_shapes.py" not in files and "1 farther ones are left" in why


def test_the_fixed_selection_is_there(quick: ModuleType) -> None:
    assert len(set(quick.smoke())) == len(quick.SMOKE)
    for end, found in zip(quick.SMOKE, quick.smoke(), strict=True):
        assert found.endswith(end) and (ROOT / found).is_file()
        assert len(list((ROOT / "tests").glob(f"**/{end}"))) == 1, end


def test_every_page_and_setting_has_readers_that_exist(quick: ModuleType) -> None:
    for path, read in quick.READ_BY.items():
        assert (ROOT / path).exists(), path
        assert [t for t in read if not (ROOT / t).is_file()] == [], path


def test_what_changed_is_asked_of_git(quick: ModuleType, tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).write_text(name)
    (tmp_path / ".gitignore").write_text("ignored\n")
    git("add", ".")
    git("commit", "-qm", "first")
    assert quick.changed(None, tmp_path) == []
    git("checkout", "-qb", "work")
    (tmp_path / "a").write_text("committed on the branch")
    git("commit", "-qam", "second")
    (tmp_path / "b").write_text("not committed")
    (tmp_path / "c").unlink()
    (tmp_path / "new").write_text("")
    (tmp_path / "ignored").write_text("")
    assert quick.changed(None, tmp_path) == ["a", "b", "c", "new"]
    assert quick.changed("HEAD", tmp_path) == ["b", "c", "new"]
    with pytest.raises(SystemExit, match="no revision nowhere"):
        quick.changed("nowhere", tmp_path)


def test_the_tests_stop_when_the_time_is_over(quick: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(until: float, status: int, failed: int) -> tuple[object, int]:
        monkeypatch.setenv(quick.UNTIL, str(until))
        session = SimpleNamespace(shouldstop=False, testsfailed=failed, exitstatus=status)
        quick.pytest_runtest_teardown(SimpleNamespace(session=session))
        quick.pytest_sessionfinish(session, status)
        return session.shouldstop, session.exitstatus

    later, now = time.time() + 1000, time.time() - 1
    assert ended(later, 0, 0) == (False, 0)
    assert ended(later, quick.INTERRUPTED, 0) == (False, quick.INTERRUPTED)  # the user stopped it
    assert ended(now, quick.INTERRUPTED, 0) == ("the time is over", 0)
    assert ended(now, quick.INTERRUPTED, 1) == ("the time is over", 1)
    assert ended(now, 1, 1) == ("the time is over", 1)


def test_it_runs_the_tests_of_a_list_and_says_what_failed(quick: ModuleType, tmp_path: Path) -> None:
    test = tmp_path / "test_two.py"
    test.write_text("import time\n\ndef test_good():\n    time.sleep(0.01)\n\ndef test_bad():\n    assert False\n")
    rooted = [f"--rootdir={tmp_path}", "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider"]
    later = time.time() + 1000
    assert quick.run_tests([str(test)], 1, later, rooted) == 1
    assert quick.run_tests([f"{test}::test_good"], 1, later, rooted) == 0
    assert quick.run_tests([str(test)], 1, 0, rooted) == 0  # over after the first


def test_ruff_is_asked_of_what_is_there_and_the_order_of_what_may_change_it(quick: ModuleType) -> None:
    asked = dict(quick.checks(["tools/quick.py", "tools/gone.py", "README.md"]))
    assert list(asked) == ["ruff"] and asked["ruff"][0] == sys.executable and asked["ruff"][-1] == "tools/quick.py" and "tools/gone.py" not in asked["ruff"]
    assert list(quick.checks(["README.md"])) == []
    assert [what for what, _ in quick.checks(["flambeau/_core/tensor.py"])] == ["ruff", "import order"]
