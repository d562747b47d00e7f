"""Writes the project's addresses into pyproject.toml: the workflow of releases knows where it runs, and nobody else does.

    python tools/project_urls.py https://HOST/OWNER/NAME

The package's page then links to the source, the issues and the changelog there.  Doing it again replaces them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
_TABLE = re.compile(r"\n\[project\.urls\]\n(?:[^\[\n].*\n|\n)*")


def with_urls(text: str, address: str) -> str:
    """The text of pyproject.toml with the addresses of a repository at `address`.

    Raises ValueError where that is not an https address of OWNER/NAME.
    """
    if not re.fullmatch(r"https://[\w.:-]+/[\w.-]+/[\w.-]+", address):
        raise ValueError(f"with_urls: address is {address!r}; expected https://HOST/OWNER/NAME")
    urls = {"Source": address, "Issues": f"{address}/issues", "Changelog": f"{address}/blob/main/CHANGELOG.md"}
    table = "\n[project.urls]\n" + "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    head, found, rest = _TABLE.sub("\n", text).partition("\n[project.optional-dependencies]")
    if not found:
        raise ValueError("with_urls: text has no [project.optional-dependencies], before which the addresses stand")
    return head.rstrip("\n") + "\n" + table + found + rest


def main(arguments: list[str]) -> int:
    """Changes the file."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    PROJECT.write_text(with_urls(PROJECT.read_text(encoding="utf-8"), arguments[0]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
