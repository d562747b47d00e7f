"""What a ledger's rows say: each finding names its line and a cure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import consoles

if TYPE_CHECKING:
    from .ledger import Ledger

FEW, SMALL, LARGE = 20, 16 << 10, 1 << 18  # copies that are many; bytes that are few; bytes worth pinning


class Finding:
    """One thing to mend: `kind`, the `line` ("file:line"), the `text` of what happens there, and the `cure`; `nbytes`
    and `count` say how much of it there is.

    kinds: "ping-pong", "sent again", "hoist", "small copies", "hidden synchronisation", "pin", "not worth the way".
    """

    __slots__ = ("kind", "line", "text", "cure", "nbytes", "count")

    def __init__(self, kind: str, line: str, text: str, cure: str, nbytes: int = 0, count: int = 0) -> None:
        self.kind, self.line, self.text, self.cure, self.nbytes, self.count = kind, line, text, cure, nbytes, count

    def __repr__(self) -> str:
        return f"{self.line}: {self.kind}: {self.text} Cure: {self.cure}"

    def data(self) -> dict[str, Any]:
        """The finding as plain values."""
        return {n: getattr(self, n) for n in self.__slots__}


def as_html(ledger: Ledger, title: str) -> str:
    """The table and the findings, for a notebook."""
    from html import escape
    rows = [(r["line"], r["direction"], f"{r['source']} to {r['target']}", r["path"], str(r["count"]), size(r["nbytes"])) for r in ledger.table()]
    told = ["".join(f'<td style="text-align:left">{escape(c)}</td>' for c in row) for row in rows]
    heads = "".join(f'<th style="text-align:left">{h}</th>' for h in ("line", "direction", "way", "path", "copies", "bytes"))
    table = f"<table><tr>{heads}</tr>{''.join(f'<tr>{t}</tr>' for t in told)}</table>" if rows else "<p>Nothing moved between devices.</p>"
    found = [f"<li><b>{escape(f.kind)}</b> {escape(f.line)}: {escape(f.text)} {escape(f.cure)}</li>" for f in ledger.findings()]
    return f'<div class="flambeau-transfers"><b>{escape(title)}</b>{table}{"<ul>" + "".join(found) + "</ul>" if found else ""}</div>'


def size(nbytes: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if abs(nbytes) < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} GiB"


def found(ledger: Ledger) -> list[Finding]:
    """The findings of a ledger, whose lock is held."""
    out: list[Finding] = []
    for (line, came, where), (times, nbytes) in ledger.returns.copy().items():
        out.append(Finding("ping-pong", line, f"{size(nbytes)} go back to where they came from, unchanged, {_times(times)}: they were sent to "
                           f"{where} at {came}.", "keep the tensor you had, or move it once.", times * nbytes, times))
    for (line, where), (times, nbytes, pieces) in ledger.repeats.copy().items():
        rows = [r for r in list(ledger.rows.values()) if r.line == line and r.target == where]
        count = sum(r.count for r in rows)
        one = size(nbytes / times)
        if count <= times:  # another line sent it first
            said = f"{one} that {where} was already sent are sent again, unchanged, {_times(times)}." if pieces == 1 else (
                f"{size(nbytes)} in {times} copies are sent to {where} again, unchanged.")
            out.append(Finding("sent again", line, said, "keep the first copy and use it.", nbytes, times))
        elif pieces <= 1:
            out.append(Finding("hoist", line, f"the same unchanged {one} are sent to {where} {_times(times + 1)} from this line.",
                               "move the copy out of the loop.", nbytes, times))
        else:
            out.append(Finding("hoist", line, f"{times} of {count} copies to {where} from this line send what was sent before and is unchanged: "
                               f"{size(nbytes)}.", "send it once, before the loop, and use that copy or parts of it.", nbytes, times))
    for (line, where, reason), times in ledger.waits.items():
        if times >= 2:
            out.append(Finding("hidden synchronisation", line, f"{_reason(reason)} waits for {where} {_times(times)}.",
                               "gather values on the device and read them once, after the loop.", 0, times))
    for row in list(ledger.rows.values()):
        mean = row.nbytes / row.count
        if row.direction in ("h2d", "d2h") and row.count >= FEW and mean <= SMALL:
            out.append(Finding("small copies", row.line, f"{row.count} copies of {size(mean)} each, {row.source} to {row.target}.",
                               "put the pieces into one tensor (stack, cat) and move that.", row.nbytes, row.count))
        if row.direction == "h2d" and row.path in ("pageable", "staged") and row.count >= 2 and mean >= LARGE:
            out.append(Finding("pin", row.line, f"{size(row.nbytes)} of pageable memory in {row.count} copies, for which the host waits.",
                               "pin the source (pin_memory(), DataLoader(pin_memory=True)) and pass non_blocking=True.", row.nbytes, row.count))
    for (line, where), (visits, there, here) in ledger.small.copy().items():
        n = int(visits)
        out.append(Finding("not worth the way", line, f"what {where} computes with this before the result comes back would take the CPU about "
                           f"{here / n * 1e6:.0f} us; the way there and back takes about {there / n * 1e6:.0f} us (predicted), {_times(n)}.",
                           "compute it on the CPU, or move more at once.", 0, n))
    weight = {"ping-pong": 0, "hoist": 1, "sent again": 2, "pin": 3, "small copies": 4, "hidden synchronisation": 5, "not worth the way": 6}
    return sorted(out, key=lambda f: (weight[f.kind], -f.nbytes, -f.count, f.line))


def _times(n: int) -> str:
    return "once" if n == 1 else "twice" if n == 2 else f"{n} times"


def _reason(reason: str) -> str:
    return {"bool": "the truth of a device tensor", "print": "printing a device tensor", "numpy": ".numpy()", "item": ".item()",
            "tolist": ".tolist()", "nonzero": "nonzero (its result's size)"}.get(reason, reason)


def short(line: str, width: int = 40) -> str:
    """A line's file and number, cut at the front."""
    return line if len(line) <= width else "…" + line[-(width - 1):]


def show(ledger: Ledger, title: str, console: Any = None) -> None:
    """Prints a ledger with rich."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
    out = console or Console()

    def plain(value: str, style: str = "") -> Text:
        return consoles.text(out, value, style)
    rows = ledger.table()
    if not rows:
        out.print(plain(f"{title}: nothing was moved"))
        return
    table = Table(title=plain(title, "table.title"), title_justify="left")
    wide = out.width >= 100
    table.add_column("line", overflow="fold", ratio=1)
    for name in ("way", "path", *(("copies",) if wide else ()), "bytes", "time", *(("waited",) if wide else ())):
        table.add_column(name, justify="left" if name in ("way", "path") else "right", no_wrap=True)
    for r in rows:
        cells = [short(r["line"], max(24, out.width - 60)), f"{r['source']} → {r['target']}", r["path"]]
        cells += [str(r["count"])] if wide else []
        cells += [size(r["nbytes"]), f"{r['seconds'] * 1e3:.2f} ms"]
        cells += [f"{r['blocking']}×"] if wide else []
        table.add_row(*map(plain, cells))
    total, count = sum(r["nbytes"] for r in rows), sum(r["count"] for r in rows)
    out.print(table)
    out.print(f"{count} copies, {size(total)}; times are the host's in these calls")
    for f in ledger.findings():
        out.print(Text.assemble(plain(f.kind, "bold"), plain(f" at {f.line}\n  {f.text}\n  "), plain("Cure:", "green"), plain(f" {f.cure}")))
