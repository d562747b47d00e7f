"""A trace as one page: no network, no other file.

Tables and charts are plain HTML and SVG, made here; `page.js` draws the lanes from the data in the page and answers the
pointer; `page.css` has both the light and the dark look.
"""

from __future__ import annotations

import json
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

from . import text
from .chart_svg import chart
from .show import finding_parts, remarks

if TYPE_CHECKING:
    from .model import ModelTrace
    from .progress import Progress
    from .record import Trace
    from .stages import Stage, Work

MOST = 4000  # stages on a page; a browser gets slow with more
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(trace: Trace) -> str:
    """The HTML text."""
    title = trace.title or "Flambeau trace"
    parts = [_header(trace, title)]
    if trace.stages:
        parts.append(_lanes())
    if trace.findings:
        parts.append(_findings(trace.findings))
    parts += [_training(p) for p in trace.training]
    parts += [_model(m) for m in trace.models]
    if trace.stages:
        parts.append(_stages(trace))
    style, script = (resources.files(__package__).joinpath(n).read_text("utf-8") for n in ("page.css", "page.js"))
    data = json.dumps(_data(trace), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    body = "\n".join(parts)
    return (f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">\n'
            f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
            f'<div id="tip" role="tooltip" hidden></div>\n<script type="application/json" id="data">{data}</script>\n'
            f"<script>\n{script}</script>\n</body>\n</html>\n")


# ---------------------------------------------------------------------------------------------------------------- data
def _data(trace: Trace) -> dict[str, Any]:
    """What the script draws from: lanes, and stages with their work, times in microseconds."""
    stages = trace.stages[:MOST]
    keys = {("cpu", 0)}
    for s in stages:
        keys.add(s.lane)
        for w in s.works:
            keys.add(w.lane)
            if w.crosses and w.target != "cpu" and not any(k[0] == w.target for k in keys):
                keys.add((w.target, 0))
    order = sorted(keys, key=lambda k: (k[0] != "cpu", k))
    streams: dict[str, int] = {}
    for device, _ in order:
        streams[device] = streams.get(device, 0) + 1
    names = [("" if streams[d] == 1 else f"stream {n}" if n else "default stream") for d, n in order]
    lanes = [{"device": d, "stream": name, "label": f"{d} {name}".strip(), "note": trace.devices.get(d, ""), "gpu": d != "cpu"}
             for (d, _), name in zip(order, names, strict=True)]
    at = {key: i for i, key in enumerate(order)}
    return {"lanes": lanes, "stages": [_stage(s, at) for s in stages]}


def _lane_of(device: str, at: dict[tuple[str, int], int]) -> int:
    return next(i for (d, _), i in at.items() if d == device)


def _stage(s: Stage, at: dict[tuple[str, int], int]) -> dict[str, Any]:
    moved = s.transfer
    source = at.get(s.lane, 0)
    target = source if moved is None else at.get(moved.lane, 0) if moved.target == moved.lane[0] else _lane_of(moved.target, at)
    shown = s.samples[0] if s.samples else None
    grid = text.matrix(shown, 4, 34) if shown is not None else None
    said = s.error or s.result or (text.values(shown, 3) if shown is not None else "")
    return {
        "i": s.index, "call": s.call, "lane": source, "to": target, "device": s.device, "in": text.shapes(s.inputs),
        "out": text.shapes(s.outputs) or text.shapes(s.inputs), "type": text.types(s), "values": said, "grid": grid or [],
        "more": text.values(shown, 8) if shown is not None and not grid else "", "bytes": text.size(s.nbytes) if s.nbytes else "",
        "moved": text.size(s.moved) if s.moved else "", "time": text.seconds(s.seconds, s.predicted),
        "how": "predicted" if s.predicted else "measured", "line": text.place(s.line), "groups": list(s.groups), "bad": bool(s.error),
        "start": _micros(s.start), "end": _micros(s.end), "works": [_work(w, at) for w in s.works if w.start is not None],
    }


def _work(w: Work, at: dict[tuple[str, int], int]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": w.name, "kind": w.kind, "lane": at[w.lane], "start": _micros(w.start or 0.0),
                             "end": _micros(w.end if w.end is not None else w.start or 0.0), "bytes": text.size(w.nbytes),
                             "time": text.seconds(w.seconds, w.predicted)}
    if w.crosses:
        found |= {"from": at[w.lane] if w.source == w.lane[0] else _lane_of(w.source, at),
                  "to": at[w.lane] if w.target == w.lane[0] else _lane_of(w.target, at),
                  "path": f"{w.direction}, {w.path}", "waits": w.blocking}
    return found


def _micros(seconds: float) -> float:
    return round(seconds * 1e6, 3)


# ------------------------------------------------------------------------------------------------------------ sections
def _header(trace: Trace, title: str) -> str:
    said = remarks(trace) if trace.stages else []
    used = {w.lane[0] for s in trace.stages for w in s.works} | {s.device for s in trace.stages if " " not in s.device}
    chips = "".join(f"<li><b>{escape(d)}</b> {escape(n)}</li>" for d, n in trace.devices.items() if d in used)
    return (f'<header><h1>{escape(title)}</h1><button id="look" type="button" aria-label="dark or light">'
            f'dark / light</button>{"".join(f"<p>{escape(_pretty(r))}</p>" for r in said)}<ul class="chips">{chips}</ul></header>')


def _lanes() -> str:
    return ('<section id="lanes"><h2>Lanes</h2><div class="bar"><span class="switch" role="group" aria-label="scale">'
            '<button type="button" data-view="steps">steps</button><button type="button" data-view="time">time</button></span>'
            '<span class="zoom" role="group" aria-label="zoom"><button type="button" data-zoom="0.5">−</button>'
            '<button type="button" data-zoom="2">+</button></span>'
            '<span class="key"><i class="compute"></i>work <i class="transfer"></i>transfer <i class="host"></i>host</span></div>'
            '<div class="frame"><div class="names"></div><div class="scroll" tabindex="0"></div></div>'
            "<noscript>The lanes are drawn by a script; the table below says the same.</noscript></section>")


def _findings(findings: list[Any]) -> str:
    items = []
    for finding in findings:
        f = finding_parts(finding)
        where = f'<code>{escape(text.place(f["line"]))}</code>' if f["line"] else ""
        kind = f'<b>{escape(f["kind"])}</b> ' if f["kind"] else ""
        cure = f'<p>{escape(f["cure"])}</p>' if f["cure"] else ""
        items.append(f'<li>{kind}{where}<div>{escape(f["text"])}</div>{cure}</li>')
    return f'<section id="findings"><h2>Findings</h2><ul>{"".join(items)}</ul></section>'


def _table(columns: list[str], rows: list[tuple[list[str], str]], right: frozenset[str] = frozenset()) -> str:
    """Rows are (cells as HTML, attributes of the row)."""
    kinds = ["num" if c in right else "" for c in columns]
    head = "".join(f'<th class="{k}">{escape(_pretty(c))}</th>' for c, k in zip(columns, kinds, strict=True))
    body = "".join(f"<tr{attributes}>" + "".join(f'<td class="{k}">{c}</td>' for c, k in zip(cells, kinds, strict=True)) + "</tr>"
                   for cells, attributes in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _training(p: Progress) -> str:
    from .progress import cell
    columns = p.columns()
    rows = [([escape(cell(c, row[c])) if c in row else "" for c in columns], "") for row in p.rows]
    charts = "".join(chart(name, values) for name, values in p.series().items())
    return (f'<section class="training"><h2>{escape(p.title or "Training")}</h2><div class="charts">{charts}</div>'
            f"{_table(columns, rows, frozenset(columns))}</section>")


def _model(m: ModelTrace) -> str:
    rows = []
    for layer in m.layers:
        name = layer.name.rpartition(".")[2]
        title = f'<span style="padding-left:{layer.depth * 1.1:.1f}em">{escape(name + ": " if name else "")}<b>{escape(layer.type)}</b></span>'
        rows.append(([title, escape(layer.device), escape(_pretty(f"{text.shapes(layer.inputs)} -> {text.shapes(layer.outputs)}")),
                      f"{layer.parameters:,}" if layer.parameters else "",
                      escape(_pretty(text.values(layer.sample))) if layer.sample is not None and layer.leaf else "",
                      escape(_pretty(layer.time))], "" if layer.leaf else ' class="group"'))
    columns = ["layer", "device", "in -> out", "parameters", "values", "time"]
    said = "".join(f"<p>{escape(r)}</p>" for r in m.remarks())
    return f'<section class="model"><h2>{escape(m.title)}</h2>{said}{_table(columns, rows, frozenset(("parameters", "time")))}</section>'


def _stages(trace: Trace) -> str:
    rows: list[tuple[list[str], str]] = []
    last = ""
    columns = ["", "operation", "device", "in -> out", "type", "values", "bytes", "time", "line"]
    for s in trace.stages[:MOST]:
        outermost = s.groups[0] if s.groups else ""
        if outermost and outermost != last:
            rows.append((["", f"<b>{escape(outermost)}</b>", *[""] * (len(columns) - 2)], ' class="group"'))
        last = outermost
        ins, outs = text.shapes(s.inputs), text.shapes(s.outputs)
        shown = s.samples[0] if s.samples else None
        grid = text.matrix(shown, 6, 60) if shown is not None else None
        values = s.error or s.result or ("\n".join(grid) if grid else text.values(shown, 5) if shown is not None else "")
        cells = [str(s.index), s.call, s.device, f"{ins} -> {outs}" if ins and outs else outs or ins, text.types(s), values,
                 text.size(s.nbytes) if s.nbytes else "", text.seconds(s.seconds, s.predicted), text.place(s.line)]
        marked = [escape(_pretty(c)) for c in cells]
        marked[1] = f"<b>{marked[1]}</b>" + (f"<small>{escape(' / '.join(s.groups[1:]))}</small>" if s.groups[1:] else "")
        marked[5] = f"<pre>{marked[5]}</pre>"
        kind = "bad" if s.error else "transfer" if s.moved else ""
        rows.append((marked, f' id="stage-{s.index}" data-stage="{s.index}" class="{kind}"'))
    left = len(trace.stages) - MOST
    note = f"<p>{left} more stages are not shown.</p>" if left > 0 else ""
    return f'<section id="stages"><h2>Stages</h2>{_table(columns, rows, frozenset(("", "bytes", "time")))}{note}</section>'


def _pretty(value: str) -> str:
    return text.glyphs(value)
