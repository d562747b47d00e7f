"""The table of stages in a terminal of any width."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import text

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.table import Table

    from .record import Trace
    from .stages import Stage

WIDE, MIDDLE, NARROW = 116, 78, 52


def show(trace: Trace, console: Console | None = None) -> None:
    """Prints a trace; `console` is a rich console, by default the standard output."""
    from rich.console import Console

    console = console or Console(highlight=False)
    fancy = (console.encoding or "").lower().startswith("utf")
    console.print(table(trace, console.width, fancy))
    for line in remarks(trace):
        console.print(line, style="dim", markup=False)
    for finding in trace.findings:
        console.print(finding_text(finding), style="yellow", markup=False)


def remarks(trace: Trace) -> list[str]:
    """What is to be known about the figures: a line of totals, and which times are predicted."""
    copies, n = trace.transfers(), len(trace.stages)
    moved = f"{len(copies)} transfer{'s' * (len(copies) != 1)} between devices moved {text.size(sum(w.nbytes for w in copies))}"
    lines = [f"{n} stage{'s' * (n != 1)}; {moved if copies else 'nothing moved between devices'}."]
    if trace.dropped:
        lines.append(f"{trace.dropped} more stages were not kept: flambeau.trace(limit=...) keeps more.")
    used = {w.lane[0] for s in trace.stages for w in s.works}
    measured = any(not s.predicted and s.seconds is not None for s in trace.stages)
    said = text.sentence(trace.devices, used, trace.predicted, measured)
    return [*lines, said] if said else lines


def finding_text(finding: Any) -> str:
    """A finding on one line."""
    f = finding_parts(finding)
    head = ", ".join(filter(None, (f["kind"], text.place(f["line"]))))
    return " ".join(filter(None, (f"{head}:" if head else "", f["text"], f["cure"])))


def finding_parts(finding: Any) -> dict[str, str]:
    """Kind, text, line and cure of a finding, whether it is a text, a mapping or an object."""
    if isinstance(finding, str):
        return {"kind": "", "text": finding, "line": "", "cure": ""}
    get = finding.get if isinstance(finding, dict) else lambda k, d="": getattr(finding, k, d)
    said = {k: str(get(k, "") or "") for k in ("kind", "text", "line", "cure")}
    said["text"] = said["text"] or str(get("title", "") or finding)
    said["cure"] = said["cure"][:1].upper() + said["cure"][1:]
    return said


def table(trace: Trace, width: int, fancy: bool = True) -> Table:
    """The stages as a rich table for a terminal `width` characters wide."""
    from rich.table import Table

    made = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    made.add_column("", justify="right", style="dim", no_wrap=True)
    columns: tuple[str, ...]
    row: Callable[[Stage], tuple[str, ...]]
    if width >= WIDE:
        columns, row = ("operation", "device", "shape in -> out", "dtype", "values", "bytes", "time", "line"), _wide
    elif width >= MIDDLE:
        columns, row = ("operation", "device", "in -> out", "values", "bytes", "time"), _middle
    elif width >= NARROW:
        columns, row = ("operation", "in -> out", "values", "time"), _narrow
    else:
        columns, row = ("operation", "values", "time"), _tight
    for name in columns:
        right = name in ("bytes", "time")
        made.add_column(_glyphs(name, fancy), justify="right" if right else "left", no_wrap=right, overflow="fold",
                        min_width=12 if name == "operation" else None)
    last: tuple[str, ...] = ()
    for stage in trace.stages:
        if stage.groups != last:
            shared = next((i for i, (a, b) in enumerate(zip(stage.groups, last, strict=False)) if a != b),
                          min(len(stage.groups), len(last)))
            for depth, name in list(enumerate(stage.groups))[shared:]:
                made.add_row("", _cell("  " * depth + name, "bold cyan"), *[""] * (len(columns) - 1))
            last = stage.groups
        cells = [_glyphs(c, fancy) for c in row(stage)]
        made.add_row(str(stage.index), *[_cell(c, _style(stage, i)) for i, c in enumerate(cells)])
    return made


def _cell(value: str, style: str) -> Any:
    from rich.text import Text

    return Text(value, style=style)


def _style(stage: Stage, column: int) -> str:
    if stage.error:
        return "red"
    return "bold magenta" if column == 0 and stage.moved else "bold" if column == 0 else ""


def _glyphs(value: str, fancy: bool) -> str:
    return text.glyphs(value) if fancy else value


def _in_out(stage: Stage) -> str:
    ins, outs = text.shapes(stage.inputs), text.shapes(stage.outputs)
    return f"{ins} -> {outs}" if ins and outs else outs or ins


def _values(stage: Stage, most: int, width: int) -> str:
    if stage.error:
        return stage.error.partition("\n")[0]  # its cure is told where it is raised, and on the page
    if stage.result:
        return stage.result
    for sample in stage.samples[:1]:
        lines = text.matrix(sample, most, width)
        return "\n".join(lines) if lines else text.values(sample, 4 if width > 20 else 2)
    return ""


def _bytes(stage: Stage) -> str:
    return text.size(stage.nbytes) if stage.nbytes else ""


def _time(stage: Stage) -> str:
    return text.seconds(stage.seconds, stage.predicted)


def _wide(s: Stage) -> tuple[str, ...]:
    return s.call, s.device, _in_out(s), text.types(s), _values(s, 6, 40), _bytes(s), _time(s), text.place(s.line)


def _middle(s: Stage) -> tuple[str, ...]:
    return s.call, s.device, "\n".join(filter(None, (_in_out(s), text.types(s, True)))), _values(s, 4, 24), _bytes(s), _time(s)


def _narrow(s: Stage) -> tuple[str, ...]:
    return (f"{s.call}\n{s.device}", "\n".join(filter(None, (_in_out(s), text.types(s, True)))), _values(s, 4, 18),
            f"{_time(s)}\n{_bytes(s)}")


def _tight(s: Stage) -> tuple[str, ...]:
    return f"{s.call}\n{s.device}", "\n".join(filter(None, (_in_out(s), text.types(s, True), _values(s, 4, 16)))), _time(s)
