"""Files from the network, when a program asks for them by name (torch.hub)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import tempfile
from typing import Any
from urllib.parse import urlparse

_folder: str | None = None
HASH_REGEX = _HASH = re.compile(r"-([a-f0-9]*)\.")


def _get_torch_home() -> str:
    """The folder of caches: TORCH_HOME, else XDG_CACHE_HOME/torch (~/.cache)."""
    cache = os.environ.get("XDG_CACHE_HOME", os.path.join("~", ".cache"))
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """Where downloads are kept: what `set_dir` chose, else TORCH_HOME/hub, else XDG_CACHE_HOME/torch/hub (~/.cache)."""
    return _folder if _folder is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Chooses the folder."""
    global _folder
    _folder = os.path.expanduser(d)


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Fetches a URL into a file, which appears only when it is whole and, with `hash_prefix`, its SHA-256 begins so.

    Raises RuntimeError for another hash, urllib.error.URLError when it cannot be fetched; nothing is left behind then.
    """
    from urllib.request import Request, urlopen
    dst = os.path.expanduser(dst)
    digest = hashlib.sha256()
    handle, name = tempfile.mkstemp(dir=os.path.dirname(dst) or ".", prefix=os.path.basename(dst) + ".")
    try:
        with os.fdopen(handle, "wb") as file, urlopen(Request(url, headers={"User-Agent": "flambeau"})) as source:
            size = int(source.headers.get("Content-Length") or 0)
            _copy(source, file, digest, size, progress)
            file.flush()
            os.fsync(file.fileno())
        if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")')
        os.replace(name, dst)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(name)
        raise


def _copy(source: Any, file: Any, digest: Any, size: int, progress: bool) -> None:
    def blocks() -> Any:
        while block := source.read(1 << 17):
            yield block

    if not progress or not sys.stderr.isatty():
        for block in blocks():
            file.write(block)
            digest.update(block)
        return
    from rich.progress import Progress
    with Progress() as bar:
        task = bar.add_task("download", total=size or None)
        for block in blocks():
            file.write(block)
            digest.update(block)
            bar.update(task, advance=len(block))


def load_state_dict_from_url(url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True,
                             check_hash: bool = False, file_name: str | None = None, weights_only: bool = True) -> dict[str, Any]:
    """The state dict in a file of the network, fetched once into `model_dir` (default: get_dir()/checkpoints).

    check_hash: the file's name ends in "-<first digits of its SHA-256>.ext", and they are checked.
    """
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        found = _HASH.search(name) if check_hash else None
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        download_url_to_file(url, path, found.group(1) if found else None, progress)
    from .io import load as read
    loaded: dict[str, Any] = read(path, map_location=map_location, weights_only=weights_only)
    return loaded


def _refused(what: str) -> NotImplementedError:
    return NotImplementedError(f"hub.{what}: code from the network is not fetched and run here; clone the repository and pass its folder"
                               + (" with source='local'" if what == "load" else ""))


def _local(folder: str, what: str) -> Any:
    """The module hubconf.py of a folder.  Raises FileNotFoundError where there is none, NotImplementedError for a repository's name."""
    import importlib.util
    path = os.path.join(folder, "hubconf.py")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    if spec is None or spec.loader is None or not os.path.exists(path):
        if what != "load" and not os.path.isdir(folder):
            raise _refused(what)
        raise FileNotFoundError(f"hub.{what}: there is no {path}")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.fspath(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(os.fspath(folder))
    return module


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", trust_repo: Any = "check", force_reload: bool = False,
         verbose: bool = True, skip_validation: bool = False, **kwargs: Any) -> Any:
    """`model(*args, **kwargs)` of the file hubconf.py in a folder, with source="local".

    Raises NotImplementedError for source="github": no code is fetched from the network and run.
    """
    if source != "local":
        raise _refused("load")
    module = _local(repo_or_dir, "load")
    if not callable(getattr(module, model, None)):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return getattr(module, model)(*args, **kwargs)


def list(github: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = None, verbose: bool = True) -> Any:  # noqa: A001
    """The models that the file hubconf.py of a folder offers.  Raises NotImplementedError for a repository on the network."""
    return [n for n, f in vars(_local(github, "list")).items() if callable(f) and not n.startswith("_")]


def help(github: str, model: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = None) -> Any:  # noqa: A001
    """The docstring of a model in the file hubconf.py of a folder.  Raises NotImplementedError for a repository on the network."""
    return getattr(_local(github, "help"), model).__doc__


__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]


class tqdm:  # noqa: N801 (the name programs import)
    """A bar of progress in a terminal, silent elsewhere; for programs that take `tqdm` from here.  The package of that name has more."""

    def __init__(self, iterable: Any = None, total: float | None = None, disable: bool | None = False, desc: str | None = None, **options: Any) -> None:
        self.iterable, self.n = iterable, 0.0
        self.total = len(iterable) if total is None and hasattr(iterable, "__len__") else total
        self._bar: Any = None
        if not disable and sys.stderr.isatty():
            from rich.progress import Progress
            self._bar = Progress()
            self._task = self._bar.add_task(desc or "", total=self.total)
            self._bar.start()

    def update(self, n: float = 1) -> None:
        """So much more is done."""
        self.n += n
        if self._bar is not None:
            self._bar.update(self._task, completed=self.n)

    def set_description(self, desc: str | None = None, refresh: bool = True) -> None:
        """What is said before the bar."""
        if self._bar is not None:
            self._bar.update(self._task, description=desc or "")

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar.stop()

    def __iter__(self) -> Any:
        with self:
            for x in self.iterable:
                yield x
                self.update()

    def __enter__(self) -> tqdm:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
