"""A trace as one page: no network, no other file.

What it says in short, findings, tables and charts of a training are plain HTML and SVG, made here.  The lanes and the table of stages are drawn
by the scripts in `web/` from the columns of the trace (`columns`): a canvas for time, so that a hundred thousand events cost no more than what
is in view.  `web/style.css` has both the light and the dark look.
"""

from __future__ import annotations

import json
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

from . import answer, text
from .chart_svg import chart
from .columns import columns
from .show import finding_parts, remarks

if TYPE_CHECKING:
    from .model import ModelTrace
    from .progress import Progress
    from .record import Trace

MOST_COSTS = 6  # lines and operations that are named at the top
SCRIPTS = ("data.js", "tip.js", "steps.js", "timeline.js", "table.js", "page.js")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def framed(trace: Trace) -> str:
    """The page within another one, such as a notebook's."""
    return f'<iframe title="{escape(trace.title or "Flambeau trace")}" srcdoc="{escape(page(trace))}" style="width:100%;height:640px;border:0"></iframe>'


def page(trace: Trace) -> str:
    """The HTML text."""
    title = trace.title or "Flambeau trace"
    parts = [_header(trace, title)]
    if trace.stages:
        parts.append(_answer(trace))
    if trace.findings:
        parts.append(_findings(trace.findings))
    if trace.stages:
        parts.append(lanes(trace.predicted))
    parts += [_training(p) for p in trace.training]
    parts += [_model(m) for m in trace.models]
    if trace.stages:
        parts.append(stages())
    return document(title, parts, columns(trace))


def document(title: str, parts: list[str], data: dict[str, Any]) -> str:
    """The HTML text of a page of `parts`, whose lanes and stages are drawn from columns."""
    web = resources.files(__package__).joinpath("web")
    style, *scripts = (web.joinpath(n).read_text("utf-8") for n in ("style.css", *SCRIPTS))
    script = '"use strict";\n(() => {\n' + "\n".join(scripts) + "})();\n"
    told = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    title, body = text.encodable(title), text.encodable("\n".join(parts))
    return (f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">\n'
            f"<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
            f'<div id="tip" role="tooltip" hidden></div>\n<script type="application/json" id="data">{told}</script>\n'
            f"<script>\n{script}</script>\n</body>\n</html>\n")


# ------------------------------------------------------------------------------------------------------------ sections
def _header(trace: Trace, title: str) -> str:
    said = remarks(trace) if trace.stages else []
    used = {w.lane[0] for s in trace.stages for w in s.works} | {s.device for s in trace.stages if " " not in s.device}
    chips = "".join(f"<li><b>{escape(d)}</b> {escape(n)}</li>" for d, n in trace.devices.items() if d in used)
    return (f'<header><h1>{escape(title)}</h1><button id="look" type="button" aria-label="dark or light">'
            f'dark / light</button>{"".join(f"<p>{escape(pretty(r))}</p>" for r in said)}<ul class="chips">{chips}</ul></header>')


def lanes(predicted: bool) -> str:
    """The section of lanes, without what scripts draw."""
    guess = ' <i class="guess"></i>predicted' if predicted else ""
    return ('<section id="lanes"><h2>Lanes</h2><div class="bar"><span class="switch" role="group" aria-label="scale">'
            '<button type="button" data-view="steps">steps</button><button type="button" data-view="time">time</button></span>'
            '<span class="zoom" role="group" aria-label="zoom"><button type="button" data-zoom="0.5" aria-label="less">−</button>'
            '<button type="button" data-zoom="2" aria-label="more">+</button><button type="button" data-zoom="0">all</button></span>'
            '<label class="search">find <input type="search" placeholder="name, line or device"></label>'
            '<span class="key"><i class="compute"></i>work <i class="transfer"></i>transfer <i class="host"></i>host <i class="wait"></i>waiting'
            f'{guess}</span></div>'
            '<canvas class="overview" height="34" aria-hidden="true"></canvas>'
            '<div class="frame"><div class="names"></div><div class="scroll"></div></div>'
            '<div class="keys">Wheel or W and S: zoom. Drag, A and D: move. Arrow keys: from one event to the next. Enter: to the table.</div>'
            "<noscript>The lanes are drawn by a script.</noscript></section>")


def _share(parts: list[tuple[str, float]], whole: float, predicted: bool) -> str:
    """A bar of coloured parts, each told by word too."""
    drawn = "".join(f'<i class="{kind}" style="width:{100 * value / whole:.2f}%"></i>' for kind, value in parts if value > 0 and whole > 0)
    names = {"compute": "working", "host": "working", "transfer": "moving", "wait": "waiting", "idle": "idle"}
    said = ", ".join(f"{names[kind]} {pretty(text.seconds(value, predicted))} ({100 * value / whole if whole else 0:.0f} %)"
                     for kind, value in parts if value > 0 or kind == "idle")
    return f'<div class="share">{drawn}</div><p>{escape(said)}</p>'


def line_link(line: str) -> str:
    """A link to what a line did."""
    if not line:
        return "inside Flambeau, or before the trace"
    shown = escape(text.place(line))
    return f'<button type="button" class="go" data-line="{shown}"><code>{shown}</code></button>'


def _answer(trace: Trace) -> str:
    """What the trace says in short."""
    whole = answer.extent(trace)
    most = {p.device: p for p in answer.peaks(trace)}
    devices = []
    for b in answer.busy(trace):
        kind = "host" if b.device == "cpu" else "compute"
        said = [_share([(kind, b.working), ("transfer", b.moving), ("wait", b.waiting), ("idle", b.idle)], whole, b.predicted)]
        said += [f"<p>waits {escape(pretty(text.seconds(t, b.predicted)))}{' for ' + escape(d) if d else ''} at {line_link(line)}</p>"
                 for t, line, d in b.waits]
        if b.device in most:
            p = most[b.device]
            named = [(n, line) for n, _, line in p.holders if line][:3]
            held = ", ".join(f"{text.size(n)} of {line_link(line)}" for n, line in named)
            left = p.nbytes - sum(n for n, _ in named)
            rest = f"; {text.size(left)} of others, or from before" if held and left > 0 else ""
            kind = "in tensors that were seen" if b.device == "cpu" else "of memory in use"
            said.append(f"<p>at most <b>{text.size(p.nbytes)}</b> {kind}{': ' + held if held else ''}{rest}</p>")
        devices.append(f'<div class="device"><b>{escape(b.device)}</b>{"".join(said)}</div>')
    parts = [f'<div class="devices">{"".join(devices)}</div>']
    tables = []
    for name, rows in (("line", answer.costs(trace, lambda s: s.line or "")), ("operation", answer.costs(trace, lambda s: s.name))):
        cells = []
        for c in rows[:MOST_COSTS]:
            first = line_link(c.name) if name == "line" else f'<button type="button" class="go" data-find="{escape(c.name)}">{escape(c.name)}</button>'
            cells.append(([first, str(c.calls), escape(pretty(text.seconds(c.seconds, c.predicted))), f"{100 * c.share:.0f} %",
                           escape(pretty(text.seconds(c.waited, c.predicted))) if c.waited else "", text.size(c.moved) if c.moved else ""], ""))
        heads = [f"costliest {name}s" + (f", of {len(rows)}" if len(rows) > MOST_COSTS else ""), "calls", "time", "share", "waited", "moved"]
        tables.append(table(heads, cells, frozenset(heads[1:])))
    parts.append(f'<div class="devices tables">{"".join(tables)}</div>')
    if trace.making > 1e-3:
        parts.append(f"<p>First calls were prepared for {escape(pretty(text.seconds(trace.making, False)))}, which no line's cost holds: kernels were "
                     "made or loaded. What was made is kept, and the next run loads it.</p>")
    return f'<section id="answer"><h2>In short</h2>{"".join(parts)}</section>'


def _findings(findings: list[Any]) -> str:
    items = []
    for finding in findings:
        f = finding_parts(finding)
        where = line_link(f["line"]) if f["line"] else ""
        kind = f'<b>{escape(f["kind"])}</b> ' if f["kind"] else ""
        cure = f'<p>{escape(f["cure"])}</p>' if f["cure"] else ""
        items.append(f'<li>{kind}{where}<div>{escape(f["text"])}</div>{cure}</li>')
    return f'<section id="findings"><h2>Findings</h2><ul>{"".join(items)}</ul></section>'


def table(columns: list[str], rows: list[tuple[list[str], str]], right: frozenset[str] = frozenset()) -> str:
    """Rows are (cells as HTML, attributes of the row)."""
    kinds = ["num" if c in right else "" for c in columns]
    head = "".join(f'<th class="{k}">{escape(pretty(c))}</th>' for c, k in zip(columns, kinds, strict=True))
    body = "".join(f"<tr{attributes}>" + "".join(f'<td class="{k}">{c}</td>' for c, k in zip(cells, kinds, strict=True)) + "</tr>"
                   for cells, attributes in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _training(p: Progress) -> str:
    from .progress import cell
    columns = p.columns()
    rows = [([escape(cell(c, row[c])) if c in row else "" for c in columns], "") for row in p.rows]
    charts = "".join(chart(name, values) for name, values in p.series().items())
    return (f'<section class="training"><h2>{escape(p.title or "Training")}</h2><div class="charts">{charts}</div>'
            f"{table(columns, rows, frozenset(columns))}</section>")


def _model(m: ModelTrace) -> str:
    rows = []
    for layer in m.layers:
        name = layer.name.rpartition(".")[2]
        title = f'<span style="padding-left:{layer.depth * 1.1:.1f}em">{escape(name + ": " if name else "")}<b>{escape(layer.type)}</b></span>'
        rows.append(([title, escape(layer.device), escape(pretty(f"{text.shapes(layer.inputs)} -> {text.shapes(layer.outputs)}")),
                      f"{layer.parameters:,}" if layer.parameters else "",
                      escape(pretty(text.values(layer.sample))) if layer.sample is not None and layer.leaf else "",
                      escape(pretty(layer.time))], "" if layer.leaf else ' class="group"'))
    columns = ["layer", "device", "in -> out", "parameters", "values", "time"]
    said = "".join(f"<p>{escape(r)}</p>" for r in m.remarks())
    return f'<section class="model"><h2>{escape(m.title)}</h2>{said}{table(columns, rows, frozenset(("parameters", "time")))}</section>'


def stages() -> str:
    """The section of stages, without what scripts draw."""
    return ('<section id="stages"><h2>Stages</h2><div class="bar"><span class="switch" role="group" aria-label="table">'
            '<button type="button" data-fold="1">by line</button><button type="button" data-fold="">one by one</button></span>'
            '<span id="counted"></span></div><div class="wide"></div><noscript>The table is made by a script.</noscript></section>')


def pretty(value: str) -> str:
    return text.glyphs(value)
