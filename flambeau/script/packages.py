"""What `importlib.metadata` is told of PyTorch's packages while their names mean Flambeau.

Many libraries decide by the version of an installed package, not by an import. The finder of `importer` answers for "torch" before any
folder is looked at, in the way of the language's own specification of finders
(https://docs.python.org/3/library/importlib.metadata.html#implementing-custom-providers), and the same for backports that ask
`sys.meta_path`.
"""

from __future__ import annotations

import re
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from os import PathLike

# the versions of the API: what a library made for that version finds here
VERSIONS = {"torch": "2.13.0+flambeau", "torchvision": "0.28.0+flambeau"}
_SUMMARIES = {"torch": "PyTorch's names, by Flambeau", "torchvision": "torchvision's names, as many as Flambeau has"}


class Package(metadata.Distribution):
    """The distribution of a name that means Flambeau."""

    def __init__(self, name: str) -> None:
        self._texts = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSIONS[name]}\nSummary: {_SUMMARIES[name]}\n",
                       "top_level.txt": name + "\n", "RECORD": f"{name}/__init__.py,,\n", "INSTALLER": "flambeau\n"}

    def read_text(self, filename: str) -> str | None:
        """One of the files of the package's metadata; None for one it has not."""
        return self._texts.get(str(filename))

    def locate_file(self, path: str | PathLike[str]) -> Any:
        """Where a file of the package lies: in Flambeau's folder."""
        import pathlib

        import flambeau
        folder = pathlib.Path(str(flambeau.__file__)).parent
        return folder.joinpath(*pathlib.PurePath(path).parts[1:])


def found(name: str | None, tops: Iterable[str]) -> Iterator[Package]:
    """The packages among `tops` that a search for `name` gives; all of them where no name is asked for."""
    wanted = None if name is None else re.sub(r"[-_.]+", "-", name).lower()
    return (Package(top) for top in tops if wanted in (None, top))
