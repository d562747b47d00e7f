"""A training shown as it goes, in a terminal or a notebook: epochs in a table, the loss as a chart, throughput and the time that is left."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from . import text
from .chart import lines as chart_lines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from .record import Trace

_SHARES = ("accuracy", "precision", "recall", "f1")
_REFRESH = 8  # times a second


class Progress:
    """Shows a training live in the terminal or the notebook; where the output is neither, a line for each epoch.

    epochs: how many there will be.  batches: how many in each, when known.  title: what is trained.  trace: its page gets
    the table and the chart.  console: a rich console, by default the standard output.

    As a ``with`` block::

        with flambeau.Progress(epochs=10, batches=len(loader)) as progress:
            for epoch in progress:
                for x, y in loader:
                    ...
                    progress.advance(samples=len(x))
                progress.log(loss=mean_loss, accuracy=accuracy)

    `rows` are the epochs so far, as dictionaries: epoch, the metrics, seconds, and samples (or batches) a second.
    """

    def __init__(self, epochs: int, batches: int | None = None, title: str = "", trace: Trace | None = None,
                 console: Console | None = None) -> None:
        if epochs < 1:
            raise ValueError(f"Progress: epochs must be at least 1, got {epochs}")
        self.epochs, self.batches, self.title = epochs, batches, title
        self.rows: list[dict[str, float]] = []
        self._console = console
        self._live: Any = None
        self._picture: Any = None
        self._samples = self._done = 0
        self._began = self._started = time.perf_counter()
        if trace is not None:
            trace.training.append(self)

    # ---------------------------------------------------------------------------------------------------------- block
    def __enter__(self) -> Progress:
        from rich.console import Console

        from .notebook import Picture, kernel_display

        display = kernel_display() if self._console is None else None
        self._began = self._started = time.perf_counter()
        if display is not None:
            self._picture = Picture(self, display)
            return self
        self._console = console = self._console or Console(highlight=False)
        if console.is_terminal and not console.is_dumb_terminal:
            from rich.live import Live
            self._live = Live(console=console, refresh_per_second=_REFRESH, get_renderable=self.render)
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._picture is not None:
            self._picture.refresh(always=True)
            self._picture = None

    def __iter__(self) -> Iterator[int]:
        """The numbers of the epochs, from 1."""
        return iter(range(len(self.rows) + 1, self.epochs + 1))

    # --------------------------------------------------------------------------------------------------------- telling
    def advance(self, samples: int = 0) -> None:
        """A batch is done; `samples` is how many examples it had."""
        self._done += 1
        self._samples += samples
        if self._picture is not None:
            self._picture.refresh()

    def track(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Gives the batches of an iterable and advances after each, counting the examples of its first tensor."""
        for batch in batches:
            yield batch
            first = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
            shape: Any = getattr(first, "shape", ())
            self.advance(int(shape[0]) if len(shape) else 0)

    def log(self, **metrics: Any) -> None:
        """An epoch is done; its metrics are numbers or tensors of one element.  Raises ValueError when there are more epochs
        than were announced."""
        if len(self.rows) >= self.epochs:
            raise ValueError(f"Progress: {self.epochs} epochs were announced, and this is one more")
        now = time.perf_counter()
        seconds = now - self._began
        row: dict[str, float] = {"epoch": len(self.rows) + 1, **{k: float(v) for k, v in metrics.items()}, "seconds": seconds}
        if self._samples:
            row["samples/s"] = self._samples / max(seconds, 1e-9)
        elif self._done:
            row["batches/s"] = self._done / max(seconds, 1e-9)
        self.rows.append(row)
        self._began, self._samples, self._done = now, 0, 0
        if self._picture is not None:
            self._picture.refresh(always=True)
        elif self._live is None and self._console is not None:
            self._console.print(self.line(), markup=False, soft_wrap=True)

    # --------------------------------------------------------------------------------------------------------- showing
    @property
    def done(self) -> float:
        """How many epochs are done, and how much of this one where `batches` is known."""
        return len(self.rows) + (min(self._done / self.batches, 1.0) if self.batches else 0.0)

    def told(self) -> str:
        """Where it stands: epoch, batch, the time that is left."""
        left = self.remaining
        told = f"epoch {min(len(self.rows) + 1, self.epochs)}/{self.epochs}"
        if self.batches and len(self.rows) < self.epochs:
            told += f", batch {self._done}/{self.batches}"
        if left and len(self.rows) < self.epochs:
            told += f", {clock(left)} left"
        return told

    @property
    def remaining(self) -> float | None:
        """Seconds that are left, by the pace so far; None before there is any."""
        passed, done = time.perf_counter() - self._started, self.done
        return None if not done else max(0.0, (self.epochs - done) * passed / done)

    @property
    def seconds(self) -> float:
        """How long the epochs took together."""
        return sum(row["seconds"] for row in self.rows)

    def line(self) -> str:
        """The last epoch on one line."""
        row = self.rows[-1]
        parts = [f"epoch {len(self.rows)}/{self.epochs}"]
        parts += [f"{name} {cell(name, value)}" for name, value in row.items() if name not in ("epoch", "seconds") and "/s" not in name]
        parts += [f"{cell(name, value)} {name}" for name, value in row.items() if "/s" in name]
        parts.append(text.seconds(row["seconds"]))
        left = self.remaining
        if left and len(self.rows) < self.epochs:
            parts.append(f"{clock(left)} left")
        return "  ".join(parts)

    def columns(self) -> list[str]:
        """The headings of the table, in the order they came."""
        return list(dict.fromkeys(name for row in self.rows for name in row)) or ["epoch"]

    def series(self) -> dict[str, list[float]]:
        """What the chart shows: each metric by epoch."""
        names = [n for n in self.columns() if n not in ("epoch", "seconds") and "/s" not in n]
        return {n: [row[n] for row in self.rows if n in row] for n in names}

    def table(self, most: int = 0, width: int = 0) -> Table:
        """The epochs as a rich table, the last `most` of them (0: all); in a `width` that is too small for all columns the
        pace is left out, then the seconds."""
        from rich.table import Table
        from rich.text import Text

        rows = self.rows[-most:] if most else self.rows
        names, gap = self.columns(), 2
        cells = {n: [cell(n, row[n]) if n in row else "" for row in rows] for n in names}
        wide = {n: max(len(n), *map(len, cells[n])) if rows else len(n) for n in names}
        if width:
            for less in (None, "batches/s", "samples/s", "seconds"):
                names = [n for n in names if n != less]
                gap = 2 if sum(wide[n] + 4 for n in names) <= width else 1
                if sum(wide[n] + 2 * gap for n in names) <= width:
                    break
        title = Text(self.title, "table.title") if self.title else None
        made = Table(box=None, padding=(0, gap), header_style="bold", title=title, title_justify="left")
        for name in names:
            made.add_column(Text(name), justify="right", no_wrap=True)
        for k in range(len(rows)):
            made.add_row(*[cells[n][k] for n in names])
        return made

    def render(self) -> RenderableType:
        """What the live display shows now."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        assert self._console is not None
        width, height = self._console.size
        fancy = (self._console.encoding or "").lower().startswith("utf")
        parts: list[RenderableType] = []
        if self.rows:
            parts.append(self.table(max(3, min(len(self.rows), height - 14)), width))
        loss = self.series().get("loss", [])
        if len(loss) > 1:
            parts += [Text(row, style="cyan") for row in chart_lines(loss, min(width - 2, 64), 6, "loss", fancy)]
        told = self.told()
        beside = width - len(told) - 3
        bar = ProgressBar(total=self.epochs, completed=self.done, width=min(40, beside if beside >= 10 else width))
        line = Table.grid(padding=(0, 1))
        if beside >= 10:
            line.add_row(bar, Text(told))
        else:
            line.add_row(bar)
            line.add_row(Text(told))
        parts.append(line)
        return Group(*parts)

    def _repr_html_(self) -> str:
        """In a notebook: a bar, the table and the charts."""
        from .notebook import html
        return html(self)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes a page with the table and the chart alone; gives its path."""
        from .record import Trace
        page = Trace(self.title or "Training")
        page.training.append(self)
        return page.save(path)


def cell(name: str, value: float) -> str:
    """One number of the table."""
    if name == "epoch":
        return f"{value:.0f}"
    if name == "seconds":
        return f"{value:.2f}"
    if "/s" in name:
        return f"{value:,.0f}"
    if any(s in name.lower() for s in _SHARES) and 0.0 <= value <= 1.0:
        return f"{value:.2%}"
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.4g}"


def clock(seconds: float) -> str:
    """A length of time for people: 8 s, 1:23, 2:03:10."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
