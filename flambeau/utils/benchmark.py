"""How long a statement takes (torch.utils.benchmark)."""

from __future__ import annotations

import statistics
import textwrap
import time
from typing import Any


class Measurement:
    """Times of one statement: `raw_times` are seconds of `number_per_run` runs each."""

    def __init__(self, number_per_run: int, raw_times: list[float], label: str) -> None:
        self.number_per_run, self.raw_times, self.label = number_per_run, raw_times, label

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

    def __repr__(self) -> str:
        scale, unit = next(((s, u) for s, u in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if self.median >= s), (1e-9, "ns"))
        spread = f", IQR {self.iqr / scale:.2f} {unit}" if len(self.raw_times) > 1 else ""
        return f"<{self.label}: median {self.median / scale:.2f} {unit}{spread}, {len(self.raw_times)} samples of {self.number_per_run} runs>"


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
        self._setup, self._stmt = (compile(textwrap.dedent(text), "<timer>", "exec") for text in (setup, stmt))
        self._clock = timer or time.perf_counter
        self.num_threads = num_threads
        self.label = ", ".join(filter(None, (label or stmt.strip().split("\n")[0], sub_label, description, env)))

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
        return Measurement(number, self._measure(sample), self.label)

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
        return Measurement(number, times, self.label)

    def adaptive_autorange(self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0, callback: Any = None) -> Measurement:
        """`blocked_autorange`, longer and longer until the quartiles are within `threshold` of the median, or the time is up."""
        wanted = min_run_time
        while True:
            found = self.blocked_autorange(callback, wanted)
            if found.iqr <= threshold * found.median or wanted * 2 > max_run_time:
                return found
            wanted *= 2


__all__ = ["Measurement", "Timer"]
