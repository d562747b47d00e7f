"""How long a statement takes (torch.utils.benchmark)."""

from __future__ import annotations

import math
import statistics
import textwrap
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_UNITS = (("s", 1.0, "seconds"), ("ms", 1e-3, "milliseconds"), ("us", 1e-6, "microseconds"), ("ns", 1e-9, "nanoseconds"))


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which a time of `t` seconds reads best, and its length in seconds."""
    return next(((name, length) for name, length, _ in _UNITS if t >= length), _UNITS[-1][:2])


@dataclass(frozen=True)
class TaskSpec:
    """What was measured: the statement and the names given to it."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, else the statement; with the other names after it."""
        return ", ".join(filter(None, (self.label or self.stmt.strip().split("\n")[0], self.sub_label, self.description, self.env)))


class Measurement:
    """Times of one statement: `raw_times` are seconds of `number_per_run` runs each."""

    def __init__(self, number_per_run: int, raw_times: list[float], task_spec: TaskSpec, metadata: dict[Any, Any] | None = None) -> None:
        self.number_per_run, self.raw_times, self.task_spec, self.metadata = number_per_run, raw_times, task_spec, metadata

    def __getattr__(self, name: str) -> Any:
        if name in TaskSpec.__dataclass_fields__ or name == "title":  # those of what was measured
            return getattr(self.task_spec, name)
        raise AttributeError(f"'Measurement' object has no attribute {name!r}")

    @property
    def times(self) -> list[float]:
        """Seconds of one run, per sample."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def mean(self) -> float:
        """Their mean."""
        return statistics.fmean(self.times)

    @property
    def median(self) -> float:
        """Their median."""
        return statistics.median(self.times)

    @property
    def iqr(self) -> float:
        """The distance of their quartiles."""
        if len(self.raw_times) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return high - low

    @property
    def significant_figures(self) -> int:
        """How many digits of the median the samples bear out: its standard error, from the quartiles as if the times were normal, ends them."""
        if len(self.raw_times) < 2 or not self.median:
            return 2
        error = self.iqr / 1.349 * math.sqrt(math.pi / 2 / len(self.raw_times))
        return max(1, min(4, math.floor(-math.log10(error / self.median)))) if error else 4

    @property
    def has_warnings(self) -> bool:
        """Whether the quartiles are more than a tenth of the median apart."""
        return self.iqr > 0.1 * self.median

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One for each statement and its names, with the times of all of them, per run."""
        grouped: dict[TaskSpec, list[float]] = {}
        for one in measurements:
            grouped.setdefault(one.task_spec, []).extend(one.times)
        return [Measurement(1, times, spec) for spec, times in grouped.items()]

    def __repr__(self) -> str:
        unit, scale = select_unit(self.median)
        spread = f", IQR {self.iqr / scale:.2f} {unit}" if len(self.raw_times) > 1 else ""
        return f"<{self.title}: median {self.median / scale:.2f} {unit}{spread}, {len(self.raw_times)} samples of {self.number_per_run} runs>"


class Timer:
    """Times a statement given as text, with GPUs waited for.

    stmt, setup: Python text.  globals: the names they see.  num_threads: threads of the library while it runs.
    The other arguments name the measurement.
    """

    def __init__(self, stmt: str = "pass", setup: str = "pass", global_setup: str = "", timer: Any = None, globals: dict[str, Any] | None = None,  # noqa: A002
                 label: str | None = None, sub_label: str | None = None, description: str | None = None, env: str | None = None,
                 num_threads: int = 1, language: str = "python") -> None:
        if language.lower() not in ("python", "py"):
            raise NotImplementedError(f"Timer: language is 'python', got {language!r}")
        self._space = dict(globals or {})
        self._setup, self._stmt = (compile(textwrap.dedent(text), "<timer>", "exec", dont_inherit=True) for text in (setup, stmt))
        self._clock = timer or time.perf_counter
        self.num_threads = num_threads
        self.task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)

    def _run(self, number: int) -> float:
        from .. import cuda
        wait: Any = cuda.synchronize if cuda.is_initialized() else (lambda: None)
        wait()
        stmt, space = self._stmt, self._space
        started = self._clock()
        for _ in range(number):
            exec(stmt, space)
        wait()
        return float(self._clock() - started)

    def _measure(self, samples: Any) -> list[float]:
        from .._core.ops.queries import get_num_threads, set_num_threads
        before = get_num_threads()
        set_num_threads(self.num_threads)
        try:
            exec(self._setup, self._space)
            made: list[float] = samples()
            return made
        finally:
            set_num_threads(before)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """One sample of `number` runs."""
        def sample() -> list[float]:
            self._run(max(number // 100, 2))
            return [self._run(number)]
        return Measurement(number, self._measure(sample), self.task_spec)

    def blocked_autorange(self, callback: Any = None, min_run_time: float = 0.2) -> Measurement:
        """Samples of as many runs as the clock needs to see them, for at least min_run_time seconds in all."""
        number = 1

        def samples() -> list[float]:
            nonlocal number
            while self._run(number) < min(0.001, min_run_time / 10):
                number *= 10
            taken: list[float] = []
            while sum(taken) < min_run_time:
                taken.append(self._run(number))
                if callback is not None:
                    callback(number, taken[-1])
            return taken
        times = self._measure(samples)
        return Measurement(number, times, self.task_spec)

    def adaptive_autorange(self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0, callback: Any = None) -> Measurement:
        """`blocked_autorange`, longer and longer until the quartiles are within `threshold` of the median, or the time is up."""
        wanted = min_run_time
        while True:
            found = self.blocked_autorange(callback, wanted)
            if found.iqr <= threshold * found.median or wanted * 2 > max_run_time:
                return found
            wanted *= 2


class Compare:
    """Measurements as tables: one for each label, a column for each description, a row for each sub-label, by threads.

    The times of one place are merged to their median.  `colorize` marks, by column, what is within a tenth of the fastest (green) and what takes more than
    twice as long (red).
    """

    def __init__(self, results: list[Measurement]) -> None:
        self._results: list[Measurement] = []
        self._by_row = self._colour = self._trim = self._warn = False
        self.extend_results(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Adds measurements.  Raises ValueError for anything else."""
        for one in results:
            if not isinstance(one, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(one)} instead.")  # noqa: TRY004 (PyTorch's type)
            self._results.append(one)

    def trim_significant_figures(self) -> None:
        """Shows as many digits as the samples bear out."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Marks fast and slow ones, within a column or within a row."""
        self._colour, self._by_row = True, rowwise

    def highlight_warnings(self) -> None:
        """Marks with (!) what scatters by more than a tenth."""
        self._warn = True

    def print(self) -> None:
        """Prints the tables."""
        print(str(self))

    def __str__(self) -> str:
        merged = Measurement.merge(self._results)
        labels = dict.fromkeys(one.task_spec.label or one.task_spec.stmt.strip() for one in merged)
        return "\n".join(self._table(label, [m for m in merged if (m.task_spec.label or m.task_spec.stmt.strip()) == label]) for label in labels)

    def _table(self, label: str, found: list[Measurement]) -> str:
        unit, scale = select_unit(min(m.median for m in found))
        columns = list(dict.fromkeys(m.task_spec.description or "" for m in found))
        rows = list(dict.fromkeys((m.task_spec.num_threads, m.task_spec.env or "", m.task_spec.sub_label or m.task_spec.stmt.strip()) for m in found))
        cells = {((m.task_spec.num_threads, m.task_spec.env or "", m.task_spec.sub_label or m.task_spec.stmt.strip()), m.task_spec.description or ""): m
                 for m in found}
        texts = {place: self._text(m, scale) for place, m in cells.items()}
        first = max(len(self._row(row)) for row in rows)
        widths = [max([len(c), *(len(texts.get((row, c), "")) for row in rows)]) for c in columns]
        header = " " * first + "".join(f"  |  {c:^{w}}" for c, w in zip(columns, widths, strict=True))
        lines = [f"[{f' {label} ':-^{len(header) - 2}}]", header.rstrip()]
        threads = None
        for row in rows:
            if row[0] != threads:
                threads = row[0]
                lines.append(f"{threads} threads: ".ljust(len(header), "-"))
            line = self._row(row).ljust(first)
            for c, w in zip(columns, widths, strict=True):
                text = f"{texts.get((row, c), ''):>{w}}"
                rivals = [m.median for (r, k), m in cells.items() if (r == row if self._by_row else k == c and r[:2] == row[:2])]
                line += "  |  " + (self._coloured(text, cells[row, c].median, min(rivals)) if self._colour and (row, c) in cells else text)
            lines.append(line.rstrip())
        told = next(name for short, _, name in _UNITS if short == unit)
        return "\n".join([*lines, "", f"Times are in {told} ({unit}).", *(["(!) Measurement has high variance."] if self._warn else []), ""])

    @staticmethod
    def _row(row: tuple[int, str, str]) -> str:
        return "  ".join(filter(None, ("     ", f"({row[1]})" if row[1] else "", row[2])))

    def _text(self, m: Measurement, scale: float) -> str:
        value = m.median / scale
        text = f"{value:.1f}"
        if self._trim and value:
            digits = m.significant_figures - 1 - math.floor(math.log10(value))
            text = f"{round(value, digits):.{max(digits, 0)}f}"
        return text + (" (!)" if self._warn and m.has_warnings else "")

    @staticmethod
    def _coloured(text: str, value: float, best: float) -> str:
        code = 32 if value <= 1.1 * best else 31 if value > 2 * best else None
        return text if code is None else f"\033[{code}m{text}\033[0m"


__all__ = ["Compare", "Measurement", "TaskSpec", "Timer", "select_unit"]
