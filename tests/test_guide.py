"""The guide as a whole: each page is in the site's list, links lead somewhere, words of the glossary are in order and used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = sorted(DOCS.glob("guide/*.md"))


def test_each_page_is_in_the_lists() -> None:
    site = (DOCS.parent / "mkdocs.yml").read_text("utf-8")
    start = (DOCS / "guide" / "README.md").read_text("utf-8")
    for page in PAGES:
        assert f": guide/{page.name}\n" in site, page.name
        assert page.name == "README.md" or f"]({page.name})" in start, page.name
    assert ": reference.md\n" in site


@pytest.mark.parametrize("page", [*PAGES, DOCS / "reference.md", DOCS / "index.md", DOCS / "examples.md"], ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        if "://" not in target and not target.startswith("api/"):  # written by make docs, whose site is built with --strict
            assert (page.parent / target).exists(), target


def test_the_words_of_the_glossary() -> None:
    words = re.findall(r"^\*\*(.+?)\*\*: ", (DOCS / "guide" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    assert words == sorted(words, key=str.lower) and len(words) > 20
    assert {"Staged copy", "Pageable memory", "Pinned memory", "Peer", "Hidden synchronisation"} <= set(words)
    told = [p for p in PAGES if p.name != "glossary.md"] + sorted((DOCS.parent / "flambeau").rglob("*.py"))  # errors and docstrings say them too
    elsewhere = "\n".join(p.read_text("utf-8").lower() for p in told)
    unused = [w for w in words if not re.search(rf"\b{w.split()[0].lower().rstrip('s')[:9]}", elsewhere)]
    assert unused == []


@pytest.mark.parametrize("page", [*PAGES, DOCS / "index.md", DOCS.parent / "README.md"], ids=lambda p: p.name)
def test_sentences_are_short(page: Path) -> None:
    text = re.sub(r"```.*?```|^ {4}.*?$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    prose = " ".join(line for line in text.splitlines() if line and line[0] not in "|#")
    cells = [cell for line in text.splitlines() if line.startswith("|") for cell in line.split("|")]
    long = [s for part in (prose, *cells) for s in re.split(r"(?<=[.:;?])\s+", part) if len(s.split()) > 30]
    assert long == []


def test_the_site_needs_nothing_else_and_fails_for_broken_links() -> None:
    text = (DOCS.parent / "mkdocs.yml").read_text("utf-8")
    for line in ("strict: true", "    not_found: warn", "    anchors: warn", "  color_mode: auto", "  user_color_mode_toggle: true", "extra_css: [site.css]",
                 "plugins: []", "hooks: [tools/site/hooks.py]", "  custom_dir: tools/site/theme", "use_directory_urls: false",
                 "  highlightjs: false", "  - codehilite:", "  - Home: index.md"):
        assert f"\n{line}\n" in text, line
    assert "exclude_docs" not in text  # a page links to a workflow's file
    assert "\t$(BIN)/mkdocs build\n" in (DOCS.parent / "Makefile").read_text("utf-8")  # with --quiet, broken links are neither told nor an error
    theme = DOCS.parent / "tools" / "site" / "theme"
    for sheet in (DOCS / "site.css", theme / "code-light.css", theme / "code-dark.css"):
        text = sheet.read_text("utf-8")
        assert "@import" not in text and "url(" not in text, sheet
        assert sheet.name == "site.css" or "\n.code .k {" in text, sheet
    assert "http" not in (theme / "main.html").read_text("utf-8") + (theme / "search.js").read_text("utf-8")


def test_making_the_site_tries_examples_and_variables() -> None:
    recipe = re.search(r"^docs:.*\n((?:\t.*\n)+)", (DOCS.parent / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    for part in ("tools/reference.py --check", "tests/test_docs_examples.py", "tests/test_guide.py", "tests/test_examples.py", "tests/test_notebooks.py",
                 "mkdocs build", "tests/tools/test_site.py"):
        assert part in recipe[1], part
