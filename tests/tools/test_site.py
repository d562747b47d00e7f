"""The documentation as a site: what tools/site does to its pages, and the pages in a real browser, opened from a folder as `make docs` says.

The browser's part needs mkdocs (`make docs` has it) and Chromium with chromedriver; elsewhere it is skipped.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trace.browser import BROWSER, DRIVER, Browser, window
from tools.site import hooks

ROOT = Path(__file__).resolve().parents[2]
HTML = """<h1 id="ways">Ways<a class="headerlink" href="#ways">¶</a></h1><p>Of <code>torch</code>.<code>to</code></p>
<h2 id="far">far_off</h2><table><tr><td><code>A_LONG_NAME</code></td><td>x</td></tr></table><p><code>out_side</code></p>"""


def test_sections_are_the_text_below_each_heading() -> None:
    assert hooks.sections(HTML) == [("ways", "Ways", "Of torch.to"), ("far", "far_off", "A_LONG_NAME x out_side")]


def test_no_anchor_begins_with_a_digit() -> None:
    slugs = [hooks.slug(text, "-") for text in ("4. Pinned memory, streams", "The trip of `a + b`", "to_")]
    assert slugs == ["part-4-pinned-memory-streams", "the-trip-of-a-b", "to_"]


def test_tables_scroll_in_a_frame_and_their_names_may_break_between_parts() -> None:
    html = hooks.tables(HTML)
    assert '<div class="wide"><table>' in html and "</table></div>" in html
    assert "<td><code class=whole>A_<wbr>LONG_<wbr>NAME</code></td>" in html
    assert "<code>out_side</code>" in html  # outside of tables as it was
    long = "a" * 40
    assert f"<code>{long}.<wbr>b<wbr>C</code>" in hooks.tables(f"<td><code>{long}.bC</code></td>")  # too long to be kept whole


def test_the_index_has_names_of_the_api_with_their_namespace(tmp_path: Path) -> None:
    def page(uri: str, title: str) -> Any:
        return SimpleNamespace(file=SimpleNamespace(src_uri=uri), title=title, url=uri.replace(".md", ".html"))
    hooks.on_pre_build()
    hooks.on_page_content(HTML, page("api/nn.md", "torch.nn"))
    hooks.on_page_content(HTML, page("guide/far.md", "Far"))
    hooks.on_post_build({"site_dir": str(tmp_path)})
    entries = json.loads((tmp_path / "search-index.js").read_text().removeprefix("const searchIndex = ").rstrip(";\n"))
    assert [entry[:3] for entry in entries] == [
        ["api/nn.html", "torch.nn", "Ways"], ["api/nn.html#far", "torch.nn", "torch.nn.far_off"],
        ["guide/far.html", "Far", "Ways"], ["guide/far.html#far", "Far", "far_off"]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if DRIVER is None or BROWSER is None or importlib.util.find_spec("mkdocs") is None:
        pytest.skip("needs mkdocs, and chromium with chromedriver")
    folder = tmp_path_factory.mktemp("site")
    # not strict: the pages of the API are there only after tools/api_pages.py
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--no-strict", "--site-dir", str(folder)], cwd=ROOT, check=True, timeout=300,
                   stderr=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, site: Path) -> Iterator[Browser]:
    with window(tmp_path_factory.mktemp("profile")) as found:
        yield found


PAGES = ("index.html", "guide/tensors.html", "guide/differences.html", "guide/glossary.html", "reference.html", "names.html", "speed.html", "architecture.html")


@pytest.mark.parametrize("width", [1280, 400])
def test_no_page_is_cut_off(browser: Browser, site: Path, width: int) -> None:
    for page in PAGES:
        browser.open(str(site / page))
        browser.size(width)
        # beyond the window nothing, beyond its column only what lies in a frame that scrolls
        assert browser.run("document.documentElement.scrollWidth <= window.innerWidth"), page
        assert browser.run("""[...document.querySelectorAll('[role=main] pre, [role=main] p, [role=main] h2, .bs-sidebar a')].filter(e => !e.closest('.wide')
            && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0).map(e => e.textContent.slice(0, 60))""") == [], page
        assert browser.errors() == [], page


def test_words_of_tables_are_not_broken(browser: Browser, site: Path) -> None:
    browser.open(str(site / "reference.html"))
    assert browser.run("[...document.querySelectorAll('td code.whole')].filter(c => c.getClientRects().length > 1).map(c => c.textContent)") == []
    browser.size(400)
    assert browser.run("""[...document.querySelectorAll('th')].filter(t => { const r = document.createRange(); r.selectNodeContents(t);
        return !/[\\s/-]/.test(t.textContent) && r.getClientRects().length > 1; }).map(t => t.textContent)""") == []
    assert browser.run("""[...document.querySelectorAll('table')].filter(t => t.rows[0].cells.length === 3
        && t.offsetWidth > t.parentElement.clientWidth + 1).map(t => t.rows[0].textContent)""") == []


def test_dark_and_light_are_chosen_and_kept(browser: Browser, site: Path) -> None:
    look = """new Promise(done => setTimeout(() => done([document.documentElement.dataset.bsTheme, getComputedStyle(document.body).backgroundColor,
        getComputedStyle(document.querySelector('.code .kn')).color]), 300))"""
    browser.open(str(site / "index.html"))
    browser.run("document.querySelector('[data-bs-theme-value=light]').click()")
    light = browser.run(look)
    browser.run("document.querySelector('[data-bs-theme-value=dark]').click()")
    dark = browser.run(look)
    assert (light[0], dark[0]) == ("light", "dark") and light[1] != dark[1] and light[2] != dark[2]
    browser.open(str(site / "guide" / "tensors.html"))
    assert browser.run(look) == dark
    browser.run("document.querySelector('[data-bs-theme-value=auto]').click()")
    for system in ("dark", "light"):
        browser.do("POST", "/goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params={"features": [{"name": "prefers-color-scheme", "value": system}]})
        assert browser.run(look)[0] == system
    assert browser.errors() == []


def typed(browser: Browser, text: str) -> list[list[str]]:
    """[name, page] of what the search finds, as it is typed."""
    found: list[list[str]] = browser.run("""new Promise(done => { const field = document.getElementById('mkdocs-search-query');
        field.value = TEXT; field.dispatchEvent(new Event('input')); setTimeout(() => done([...document.querySelectorAll('#mkdocs-search-results article')]
        .map(a => [a.querySelector('a').textContent, a.querySelector('a').getAttribute('href')])), 1000); })""".replace("TEXT", json.dumps(text)))
    return found


def test_the_search_needs_no_server(browser: Browser, site: Path) -> None:
    browser.open(str(site / "guide" / "tensors.html"))
    browser.do("POST", "/goog/cdp/execute", cmd="Emulation.setFocusEmulationEnabled", params={"enabled": True})
    browser.keys("s")
    assert browser.run("new Promise(done => setTimeout(() => done(document.activeElement.id), 600))") == "mkdocs-search-query"
    assert typed(browser, "qqzxjv") == []
    assert browser.run("document.getElementById('mkdocs-search-results').textContent") == "No results found"
    assert typed(browser, "flambeau_sim_queue") == [["Environment variables", "../reference.html#environment-variables"]]
    assert typed(browser, "pinned memory")[0] == ["4. Pinned memory, streams and events", "../guide/4-pinned-and-asynchronous.html"]
    browser.run("document.getElementById('mkdocs-search-query').form.requestSubmit()")
    assert browser.run("new Promise(done => setTimeout(() => done(document.querySelector('h1').textContent), 800))").startswith("4. Pinned memory")
    assert browser.errors() == []
