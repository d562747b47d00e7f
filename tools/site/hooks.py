"""What mkdocs is asked to do besides: tables that scroll in a frame of their own and break between the parts of a name, an index for search.js.

mkdocs.yml names this file; mkdocs calls the functions by their names.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

WHOLE = 30  # names in tables of up to so many characters are not broken on a wide screen
_entries: list[tuple[str, str, str, str]] = []


class _Sections(HTMLParser):
    """The text of a page by its headings: (anchor, heading, text)."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, list[str], list[str]]] = []
        self.heading = self.link = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        those = dict(attrs)
        if tag in ("h1", "h2", "h3") and those.get("id"):
            self.found.append((str(those["id"]), [], []))
            self.heading = True
        elif tag == "a" and those.get("class") == "headerlink":
            self.link = True
        elif tag in ("p", "li", "td", "th", "pre", "br"):
            self.handle_data(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("h1", "h2", "h3"):
            self.heading = False
        elif tag == "a":
            self.link = False

    def handle_data(self, data: str) -> None:
        if self.found and not self.link:
            _, heading, text = self.found[-1]
            (heading if self.heading else text).append(data)


def sections(html: str) -> list[tuple[str, str, str]]:
    """(anchor, heading, text) of each heading down to the third level, in order."""
    parser = _Sections()
    parser.feed(html)
    return [(anchor, " ".join("".join(heading).split()), " ".join("".join(text).split())) for anchor, heading, text in parser.found]


def tables(html: str) -> str:
    """`html` with each table in a frame that scrolls, and with places in the code of its cells where a long name may break."""
    def code(found: re.Match[str]) -> str:
        return f'<code{" class=whole" if len(found[1]) <= WHOLE else ""}>' + re.sub(r"[_./,=:](?=\w)|[a-z](?=[A-Z])", r"\g<0><wbr>", found[1]) + "</code>"

    def cell(found: re.Match[str]) -> str:
        return re.sub(r"<code>(.*?)</code>", code, found[0], flags=re.DOTALL)

    html = re.sub(r"<t[dh][ >].*?</t[dh]>", cell, html, flags=re.DOTALL)
    return html.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")


def slug(text: str, separator: str) -> str:
    """A heading's anchor, as Markdown's own, but never with a digit first: the theme looks anchors up as CSS selectors, which may not begin with one."""
    words = re.sub(r"[^\w\s-]", "", text).strip().lower()
    return re.sub(r"^(?=\d)", f"part{separator}", re.sub(rf"[{separator}\s]+", separator, words))


def on_config(config: Any, **_: Any) -> Any:
    config["mdx_configs"]["toc"]["slugify"] = slug
    return config


def on_pre_build(**_: Any) -> None:
    _entries.clear()


def on_page_content(html: str, page: Any, **_: Any) -> str:
    name = str(page.title)
    api = page.file.src_uri.startswith("api/")  # there each heading is a name of the page's namespace
    for number, (anchor, heading, text) in enumerate(sections(html)):
        full = f"{name}.{heading}" if api and number > 0 else heading
        _entries.append((page.url + ("" if number == 0 else f"#{anchor}"), name, full, text))
    return tables(html)


def on_post_build(config: Any, **_: Any) -> None:
    Path(config["site_dir"], "search-index.js").write_text("const searchIndex = " + json.dumps(_entries, ensure_ascii=False) + ";\n", encoding="utf-8")
