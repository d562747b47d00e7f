"""What is checked of a release's files, and the workflow that makes them. The files themselves: `make dist-check`, which installs packages."""

from __future__ import annotations

import importlib.util
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("dist_check", ROOT / "tools" / "dist_check.py")
assert spec is not None and spec.loader is not None
dist_check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(dist_check)

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no checkout")


def written(folder: Path, wheel: set[str], sdist: set[str]) -> Path:
    """A folder with a wheel and an sdist of empty files."""
    with zipfile.ZipFile(folder / "x-1-py3-none-any.whl", "w") as archive:
        for name in sorted(wheel):
            archive.writestr(name, "")
    with tarfile.open(folder / "x-1.tar.gz", "w:gz") as tar:
        for name in sorted(sdist):
            tar.addfile(tarfile.TarInfo(f"x-1/{name}"))
    return folder


def test_files_that_are_missing_or_too_many_are_named(tmp_path: Path) -> None:
    whole = dist_check.wanted_in_wheel()
    sources = whole | {"pyproject.toml", "README.md", "LICENSE", "NOTICE"}
    assert len(whole) > 400 and {"flambeau/py.typed", "flambeau/trace/web/page.js", "flambeau/__init__.pyi"} <= whole
    good = tmp_path / "good"
    good.mkdir()
    assert dist_check.wrong(written(good, whole | {"x-1.dist-info/METADATA"}, sources)) == []
    bad = tmp_path / "bad"
    bad.mkdir()
    assert dist_check.wrong(written(bad, whole - {"flambeau/py.typed"} | {"tests/a.py"}, sources - {"NOTICE"})) == [
        "the wheel lacks flambeau/py.typed", "the wheel has tests/a.py, which is not in git", "the sdist lacks NOTICE"]
    (bad / "x-2-py3-none-any.whl").write_bytes(b"")
    assert "one wheel and one sdist are expected" in dist_check.wrong(bad)[0]


def test_every_file_beside_the_code_is_packaged() -> None:
    """What pyproject.toml names as data is what git has, so that a wheel is whole before one is made."""
    data: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]

    def named(path: str) -> bool:
        return any(package == "*" and Path(path).match(pattern) or path.startswith(package.replace(".", "/") + "/")
                   and Path(path[len(package) + 1:]).match(pattern) for package, patterns in data.items() for pattern in patterns)
    assert [p for p in sorted(dist_check.tracked("flambeau")) if not p.endswith(".py") and not named(p)] == []


def test_the_first_program_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess
    import sys
    done = subprocess.run([sys.executable, "-c", dist_check.PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=200,
                          env={"PATH": "", "PYTHONPATH": str(ROOT), "CHECKOUT": "nowhere", "FLAMBEAU_CACHE_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr


def test_the_workflow_of_releases() -> None:
    yaml = pytest.importorskip("yaml", reason="an environment made before pyyaml was asked for")
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    jobs: dict[str, Any] = yaml.safe_load(text)["jobs"]
    ci = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["everything"]
    assert jobs["build"]["strategy"]["matrix"]["python"] == ci["strategy"]["matrix"]["python"]
    assert "make dist-check" in [step.get("run") for step in jobs["build"]["steps"]] and jobs["publish"]["needs"] == "build"
    said = [step["run"] for name in jobs for step in jobs[name]["steps"] if "run" in step] + [step["run"] for step in ci["steps"] if "run" in step]
    assert [run for run in said if "${{" in run] == [], "a name of a tag or a branch is text: give it by env"
    recipe = re.search(r"^dist-check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    assert [word for word in ("-m build", "twine check --strict", "tools/dist_check.py") if word not in recipe[1]] == []
    assert "build/dist" in recipe[1] and "path: build/dist/*" in text
