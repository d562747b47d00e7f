"""The addresses that a release's metadata has: those of the repository that makes it."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("project_urls", ROOT / "tools" / "project_urls.py")
assert spec is not None and spec.loader is not None
project_urls = importlib.util.module_from_spec(spec)
spec.loader.exec_module(project_urls)


def test_the_addresses_are_written_and_nothing_else_changes(tmp_path: Path, monkeypatch) -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    before = tomllib.loads(text)
    copy = tmp_path / "pyproject.toml"
    copy.write_text(text, "utf-8")
    monkeypatch.setattr(project_urls, "PROJECT", copy)
    for address in ("https://one.example/a/b", "https://two.example/c/d"):
        assert project_urls.main([address]) == 0
        now = tomllib.loads(copy.read_text("utf-8"))
        assert now["project"].pop("urls") == {"Source": address, "Issues": f"{address}/issues", "Changelog": f"{address}/blob/main/CHANGELOG.md"}
        before["project"].pop("urls", None)
        assert now == before
    assert project_urls.main([]) == 2


@pytest.mark.parametrize("address", ["http://one.example/a/b", "https://one.example", "https://one.example/a/b\"\nx = 1", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="expected https://HOST/OWNER/NAME"):
        project_urls.with_urls((ROOT / "pyproject.toml").read_text("utf-8"), address)


def test_the_workflow_of_releases_does_it_first() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    given, step = "REPOSITORY: ${{ github.server_url }}/${{ github.repository }}\n", 'run: python tools/project_urls.py "$REPOSITORY"\n'
    assert 0 < text.index(given) < text.index(step) < text.index("run: make dist-check") and text[:text.index(step)].rstrip().endswith(given.rstrip())
