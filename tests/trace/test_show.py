"""The table of stages at several widths, with and without Unicode."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

import flambeau as torch
from flambeau.trace import Trace, show, text


def printed(trace: Any, width: int, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    trace.print(Console(file=out, width=width, highlight=False))
    return raw.getvalue().decode(encoding).splitlines()


@pytest.fixture
def smallest() -> Any:
    with torch.simulate(gpus=1, model="H200"):
        with torch.trace() as t:
            x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
            y = x.to("cuda:0")
            z = y + 10
            z.cpu()
        t.stages[0].host = 12.5e-6  # the only time that is measured
        t.findings.clear()
        yield t


EIGHTY = """\
   operation     device        in → out         values          bytes     time
1  tensor        cpu           (3, 3)           [[1, 2, 3],      36 B  12.5 µs
                               f32               [4, 5, 6],
                                                 [7, 8, 9]]
2  to('cuda:0')  cpu → cuda:0  (3, 3) → (3, 3)  [[1, 2, 3],      36 B    ~8 µs
                               f32               [4, 5, 6],
                                                 [7, 8, 9]]
3  add(10)       cuda:0        (3, 3) → (3, 3)  [[11, 12, 13],   72 B    ~2 µs
                               f32               [14, 15, 16],
                                                 [17, 18, 19]]
4  cpu           cuda:0 → cpu  (3, 3) → (3, 3)  [[11, 12, 13],   36 B    ~8 µs
                               f32               [14, 15, 16],
                                                 [17, 18, 19]]
4 stages; 2 transfers between devices moved 72 B.
Times with ~ are predicted for NVIDIA H200: no such GPU was used; the others are
measured on this machine's CPU."""

SIXTY = """\
   operation     in → out         values             time
1  tensor        (3, 3)           [[1, 2, 3],     12.5 µs
   cpu           f32               [4, 5, 6],        36 B
                                   [7, 8, 9]]
2  to('cuda:0')  (3, 3) → (3, 3)  [[1, 2, 3],       ~8 µs
   cpu → cuda:0  f32               [4, 5, 6],        36 B
                                   [7, 8, 9]]
3  add(10)       (3, 3) → (3, 3)  [[11, 12, 13],    ~2 µs
   cuda:0        f32               [14, 15, 16],     72 B
                                   [17, 18, 19]]
4  cpu           (3, 3) → (3, 3)  [[11, 12, 13],    ~8 µs
   cuda:0 → cpu  f32               [14, 15, 16],     36 B
                                   [17, 18, 19]]
4 stages; 2 transfers between devices moved 72 B.
Times with ~ are predicted for NVIDIA H200: no such GPU was
used; the others are measured on this machine's CPU."""


def test_one_is_no_plural_and_nothing_is_told() -> None:
    with torch.simulate(gpus=1):
        with torch.trace() as t:
            x = torch.ones(9)
        assert show.remarks(t)[0] == "1 stage; nothing moved between devices."
        with torch.trace() as t:
            x.to("cuda")
        assert show.remarks(t)[0] == "1 stage; 1 transfer between devices moved 36 B."


def test_the_smallest_example_reads_like_a_textbook(smallest: Trace) -> None:
    assert "\n".join(line.rstrip() for line in printed(smallest, 80)).replace("\u00a0", " ") == EIGHTY
    assert "\n".join(line.rstrip() for line in printed(smallest, 60)).replace("\u00a0", " ") == SIXTY


def test_a_wide_terminal_has_types_and_lines(smallest: Trace) -> None:
    lines = printed(smallest, 120)
    assert lines[0].split() == ["operation", "device", "shape", "in", "→", "out", "dtype", "values", "bytes", "time", "line"]
    assert re.search(r"add\(10\) +cuda:0 +\(3, 3\) → \(3, 3\) +float32 +\[\[11, 12, 13\], +72 B +~2.µs +\S*test_show\.py:\d+", "\n".join(lines))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_every_line_fits_and_ascii_stays_ascii(width: int, encoding: str) -> None:
    with torch.simulate(gpus=2), torch.trace() as t:
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
                                    torch.nn.Linear(8 * 36, 4)).to("cuda:0")
        model(torch.randn(2, 3, 8, 8, device="cuda:0")).to("cuda:1").sum().backward()
        torch.randn(3, 3, dtype=torch.complex64) * 1e-9
    lines = printed(t, width, encoding)
    assert max(map(len, lines)) <= width
    text_ = "\n".join(lines)
    for part in ("conv2d", "randn", "backward", "Sequential"):
        assert part in text_
    assert len(lines) > len(t.stages)


def test_errors_limits_and_findings_are_told() -> None:
    with torch.trace(limit=3) as t:
        torch.ones(2)
        with pytest.raises(RuntimeError):
            torch.ones(2) + torch.ones(3)
        torch.ones(2)
    t.findings += ["a remark", {"kind": "hoist", "text": "sent 3 times.", "line": "train.py:7", "cure": "move it out of the loop."}]
    lines = "\n".join(printed(t, 100))
    assert "RuntimeError" in lines or t.stages[-1].error == ""
    assert "more stages were not kept" in lines and "a remark" in lines
    assert "hoist, train.py:7: sent 3 times. Move it out of the loop." in lines


def test_of_an_error_its_first_line_is_shown() -> None:
    with torch.simulate(gpus=1), torch.trace() as t:
        with pytest.raises(RuntimeError, match="To mend it"):
            torch.ones(2) + torch.ones(2, device="cuda")
    lines = "\n".join(printed(t, 200))
    assert "RuntimeError: Expected all tensors" in re.sub(r"\s+", " ", lines) and "To mend" not in lines and "To mend it" in t.stages[-1].error


def test_an_empty_trace_says_so() -> None:
    with torch.trace() as t:
        pass
    assert printed(t, 80)[1].startswith("0 stages")
    assert repr(t) == "<flambeau.trace: 0 stages on no device>"


@pytest.mark.parametrize("seconds,said", [(0, "0 us"), (2e-6, "2 us"), (12.34e-6, "12.3 us"), (999.4e-6, "999 us"), (1e-3, "1 ms"),
                                          (0.0456, "45.6 ms"), (0.9996, "1 s"), (3.14159, "3.14 s"), (250.0, "250 s"), (None, "not timed")])
def test_times(seconds: float | None, said: str) -> None:
    assert text.seconds(seconds) == said


@pytest.mark.parametrize("nbytes,said", [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (1 << 20, "1 MiB"),
                                         (1000 << 10, "1000 KiB"), (5 << 30, "5 GiB"), (3 << 50, "3072 TiB")])
def test_sizes(nbytes: int, said: str) -> None:
    assert text.size(nbytes) == said


def test_numbers_and_shapes() -> None:
    assert [text.number(v) for v in (1.0, -0.5, 1 / 3, 1e20, float("inf"), True, 7, 1 + 2j, 0.5 - 1j)] == [
        "1", "-0.5", "0.3333", "1e+20", "inf", "True", "7", "1+2i", "0.5-1i"]
    assert [text.shape(s) for s in ((), (3,), (2, 3))] == ["scalar", "(3,)", "(2, 3)"]
    described = [((2, 3), "float32", "cpu"), ((2, 3), "float32", "cpu"), ((), "int64", "cpu")]
    assert text.shapes(described) == "(2, 3) x2, scalar"
    assert text.glyphs("(2, 3) x2 -> (3,), 5 us, used in ...") == "(2, 3) ×2 → (3,), 5\u00a0µs, used in …"
    assert show.finding_text("plain") == "plain"
