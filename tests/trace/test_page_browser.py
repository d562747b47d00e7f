"""The page in a real browser: lanes, arrows, notes at the pointer, findings, both looks, two widths.

Chromium is driven by chromedriver's own protocol; without them these tests are skipped.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch

from .browser import BROWSER, DOWN, DRIVER, ENTER, RIGHT, Browser, window

pytestmark = pytest.mark.skipif(DRIVER is None or BROWSER is None, reason="no chromium with chromedriver on this machine")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with window(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The smallest example, with a finding."""
    with torch.simulate(gpus=1, model="H200"):
        with torch.trace("Add ten") as t:
            x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
            y = x.to("cuda:0")
            z = y + 10
            z.cpu()
        t.findings.append({"kind": "sent again", "text": "sent <twice>", "line": f"{__file__}:1", "cure": "Send it once & keep it."})
        return t.save(tmp_path_factory.mktemp("page") / "trace.html")


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A training step on two GPUs and two streams, with epochs and layers."""
    with torch.simulate(gpus=2, model="A100"):
        with torch.trace("A step") as t:
            model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to("cuda:0")
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            x = torch.randn(6, 8, device="cuda:0")
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            with torch.cuda.stream(torch.cuda.Stream()):
                x.to("cuda:1")
            loss.item()
        progress = torch.Progress(3, title="Three epochs", trace=t)
        for loss_ in (2.0, 1.0, 0.5):
            progress.log(loss=loss_, accuracy=1 - loss_ / 4)
        t.models.append(torch.trace_model(model, x))
        return t.save(tmp_path_factory.mktemp("page") / "step.html")


def test_lanes_boxes_and_arrows_of_the_smallest_example(browser: Browser, page: str) -> None:
    browser.open(page)
    assert browser.run("[...document.querySelectorAll('.names div')].map(d => d.dataset.lane)") == ["cpu", "cuda:0"]
    boxes = browser.run("[...document.querySelectorAll('svg g[data-stage]')].map(g => g.getAttribute('class'))")
    assert boxes == ["host", "transfer", "compute", "transfer"]
    words = browser.run("[...document.querySelectorAll('svg g[data-stage]')].map(g => [...g.querySelectorAll('text')].map(t => t.textContent))")
    assert words[0][:5] == ["1  tensor", "(3, 3) float32", "[[1, 2, 3],", " [4, 5, 6],", " [7, 8, 9]]"]
    assert words[2][0] == "3  add(10)" and words[2][2:5] == ["[[11, 12, 13],", " [14, 15, 16],", " [17, 18, 19]]"]
    assert [w[-1] for w in words[1:]] == ["~8 µs", "~2 µs, 72 B", "~8 µs"]
    # an arrow for each transfer, from the box whose bytes it carries: one down into the GPU's lane, one back up
    assert browser.run("[...document.querySelectorAll('path.arrow')].map(p => [+p.dataset.from, +p.dataset.transfer])") == [[1, 2], [3, 4]]
    assert browser.run("[...document.querySelectorAll('path.edge')].map(p => [+p.dataset.from, +p.dataset.to])") == [[2, 3]]
    ends = browser.run("""[...document.querySelectorAll('path.arrow')].map(p => { const n = p.getTotalLength(),
        a = p.getPointAtLength(0), b = p.getPointAtLength(n); return [+p.dataset.transfer, a.y < b.y]; })""")
    assert ends == [[2, True], [4, False]]
    assert browser.errors() == []


def test_boxes_stand_in_their_lanes(browser: Browser, page: str) -> None:
    browser.open(page)
    inside = browser.run("""[...document.querySelectorAll('svg g[data-stage] .box')].map(b => { const r = b.getBoundingClientRect(),
        y = (r.top + r.bottom) / 2; return [...document.querySelectorAll('.band')].findIndex(l => {
            const q = l.getBoundingClientRect(); return q.top <= y && y <= q.bottom; }); })""")
    assert inside == [0, 1, 1, 0]


def test_the_pointer_shows_values_and_the_source_line(browser: Browser, page: str) -> None:
    browser.open(page)
    assert browser.run("document.getElementById('tip').hidden") is True
    browser.hover("svg g[data-stage='3'] .box")
    assert browser.run("document.getElementById('tip').hidden") is False
    said = browser.run("document.getElementById('tip').innerText")
    for part in ("add(10)", "cuda:0", "(3, 3) → (3, 3)", "float32", "[[11, 12, 13],", "predicted", "test_page_browser.py:"):
        assert part in said
    assert browser.run("document.querySelector('tr[data-stage=\"3\"]').classList.contains('on')") is True
    browser.hover("svg g[data-stage='2'] .box")
    assert "h2d, pageable; the host waits" in browser.run("document.getElementById('tip').innerText")
    browser.hover("h1")
    assert browser.run("document.getElementById('tip').hidden") is True


def test_one_tab_stop_and_arrow_keys_inside(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.do("POST", "/goog/cdp/execute", cmd="Emulation.setFocusEmulationEnabled", params={"enabled": True})
    assert browser.run("document.querySelectorAll('svg [tabindex=\"0\"]').length") == 1
    browser.run("document.querySelector('svg [tabindex=\"0\"]').focus()")
    browser.keys(RIGHT, RIGHT, RIGHT)
    assert browser.run("document.getElementById('tip').hidden") is False
    assert browser.run("document.activeElement.getAttribute('aria-label')").startswith("4: cpu, cuda:0 → cpu, (3, 3)")
    assert browser.run("document.querySelectorAll('svg [tabindex=\"0\"]').length") == 1


def test_findings_are_listed_as_text(browser: Browser, page: str) -> None:
    browser.open(page)
    found = browser.run("[...document.querySelectorAll('#findings li')].map(l => l.innerText)")
    assert len(found) == 2
    assert "not worth the way" in found[0] and "test_page_browser.py:" in found[0]  # the ledger's own
    assert found[1].split("\n")[0].endswith("test_page_browser.py:1")
    assert "sent <twice>" in found[1] and "Send it once & keep it." in found[1]


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("view", ["#steps", "#time"])
def test_nothing_sticks_out_at_any_width(browser: Browser, page: str, training: str, width: int, view: str) -> None:
    for path in (page, training):
        browser.open(path, view)
        browser.size(width)
        browser.do("POST", "/refresh")
        assert browser.run("innerWidth") == width
        assert browser.run("document.documentElement.scrollWidth") <= width
        hidden = browser.run("""[...document.querySelectorAll('.names div')].filter(d => d.scrollHeight > d.clientHeight + 1 ||
            d.scrollWidth > d.clientWidth + 1).map(d => d.innerText)""")
        assert hidden == []
        assert browser.errors() == []


def test_time_has_a_lane_for_each_stream_and_zooms(browser: Browser, training: str) -> None:
    browser.open(training, "#time")
    lanes = browser.run("[...document.querySelectorAll('.names div')].map(d => d.dataset.lane)")
    assert lanes == ["cpu", "cuda:0 default stream", "cuda:0 stream 1", "cuda:1"]
    browser.run("document.querySelector('[data-zoom=\"0\"]').click()")
    whole = browser.run("flambeau.lines.view.to - flambeau.lines.view.from")
    assert whole == pytest.approx(columns_of(training)["span"], rel=1e-6)
    browser.run("flambeau.lines.paint()")
    works = columns_of(training)["works"]
    assert browser.run("flambeau.lines.arrows") == sum(f >= 0 and f != t for f, t in zip(works["from"], works["to"], strict=True)) >= 6
    browser.run("document.querySelector('[data-zoom=\"2\"]').click()")
    assert browser.run("flambeau.lines.view.to - flambeau.lines.view.from") == pytest.approx(whole / 2, rel=1e-6)
    browser.run("document.querySelector('.scroll canvas').focus()")
    browser.keys("w", "d", "d")
    view = browser.run("[flambeau.lines.view.from, flambeau.lines.view.to]")
    assert view[1] - view[0] == pytest.approx(whole / 2 / 1.4, rel=1e-6) and view[0] > whole / 4
    browser.keys("s", "a")
    assert browser.run("flambeau.lines.view.from") < view[0]
    assert browser.errors() == []


def test_time_is_walked_by_keys_and_the_pointer_finds_work(browser: Browser, training: str) -> None:
    browser.open(training, "#time")
    browser.do("POST", "/goog/cdp/execute", cmd="Emulation.setFocusEmulationEnabled", params={"enabled": True})
    assert browser.run("document.querySelectorAll('.scroll [tabindex=\"0\"]').length") == 1
    browser.run("document.querySelector('.scroll canvas').focus()")
    browser.keys(RIGHT)
    said = [browser.run("document.querySelector('.unseen').textContent")]
    for key in (RIGHT, DOWN, RIGHT):
        browser.keys(key)
        said.append(browser.run("document.querySelector('.unseen').textContent"))
    assert len(set(said)) == 4 and "cuda:0" in said[3]
    assert browser.run("document.getElementById('tip').hidden") is False
    browser.keys(ENTER)
    row = browser.run("document.querySelector('tr.on') && document.querySelector('tr.on').dataset.stage")
    assert row == said[3].split(":")[0]
    assert browser.errors() == []


def test_the_most_memory_is_told_beside_its_curve_and_over_no_arrow(browser: Browser, training: str) -> None:
    for width in (1280, 400):
        browser.open(training, "#time")
        browser.size(width)
        browser.do("POST", "/refresh")
        told = browser.run("[...document.querySelectorAll('.names div')].map(d => [d.dataset.lane, (d.querySelector('.most') || {}).innerText || ''])")
        most = {lane.split()[0]: re.sub(r"\s+", " ", text).strip() for lane, text in told if text}
        assert set(most) == {"cpu", "cuda:0", "cuda:1"} and all(re.search(r"at most [\d.]+ (B|KiB)$", text) for text in most.values())
        # inside its lane, above the lower edge, below the name, and nothing of it is cut off
        assert browser.run("""[...document.querySelectorAll('.names .most')].every(e => { const r = e.getBoundingClientRect(),
            d = e.parentElement.getBoundingClientRect(), b = e.parentElement.querySelector('b').getBoundingClientRect(), range = document.createRange();
            range.selectNodeContents(e); const t = range.getBoundingClientRect();
            return r.bottom <= d.bottom + 1 && r.top >= b.bottom - 1 && t.right <= d.right && t.bottom <= d.bottom + 1; })""")


def test_search_narrows_lanes_and_table(browser: Browser, training: str) -> None:
    browser.open(training, "#steps")
    count = len(columns_of(training)["stages"]["i"])
    assert browser.run("document.getElementById('counted').textContent") == f"{count} stages"
    browser.run("(() => { const i = document.querySelector('.search input'); i.value = 'linear'; i.dispatchEvent(new Event('input')); })()")
    found = browser.run("document.getElementById('counted').textContent")
    assert found.endswith(f" of {count} stages") and 2 <= int(found.split()[0]) < count
    assert browser.run("document.querySelectorAll('svg g.faint').length") == count - int(found.split()[0])


def test_the_table_is_folded_by_line_sorts_and_opens(browser: Browser, training: str) -> None:
    browser.open(training)
    browser.run("document.querySelector('[data-fold=\"1\"]').click()")
    stages = columns_of(training)["stages"]
    lines = set(stages["line"])
    assert browser.run("document.querySelectorAll('#stages tr.line').length") == len(lines)
    browser.run("[...document.querySelectorAll('#stages th button')].find(b => b.textContent == 'stages').click()")
    counts = browser.run("[...document.querySelectorAll('#stages tr.line')].map(r => +r.cells[1].textContent)")
    assert counts == sorted(counts, reverse=True) and sum(counts) == len(stages["i"])
    browser.run("document.querySelector('#stages tr.line button').click()")
    assert browser.run("document.querySelectorAll('#stages tr.inside tr[data-stage]').length") == counts[0]
    browser.run("document.querySelector('[data-fold=\"\"]').click()")
    assert browser.run("document.querySelectorAll('#stages tr[data-stage]').length") == len(stages["i"])


def test_the_answer_stands_first_and_leads_to_the_lines(browser: Browser, training: str) -> None:
    browser.open(training)
    order = browser.run("[...document.querySelectorAll('section')].map(s => s.id || s.className)")
    assert order[0] == "answer" and order.index("answer") < order.index("lanes")
    devices = browser.run("[...document.querySelectorAll('#answer .device')].map(d => d.innerText)")
    assert [d.split()[0] for d in devices] == ["cpu", "cuda:0", "cuda:1"]
    assert "waiting" in devices[0] and "test_page_browser.py:" in devices[0] and "working" in devices[1] and "idle" in devices[1]
    assert all("at most" in d for d in devices)
    browser.run("document.querySelector('#answer button.go[data-line]').click()")
    line = browser.run("document.querySelector('.search input').value")
    assert "test_page_browser.py:" in line
    stages = columns_of(training)
    of_line = sum(stages["words"][w] == line for w in stages["stages"]["line"])
    assert browser.run("document.getElementById('counted').textContent") == f"{of_line} of {len(stages['stages']['i'])} stages"


def test_a_large_trace_makes_no_element_for_each_event(browser: Browser, tmp_path: Path) -> None:
    t = large()
    browser.open(t.save(tmp_path / "large.html"))
    assert browser.run("document.querySelectorAll('*').length") < 1000
    assert browser.run("flambeau.data.stages.i.length") == 100_000
    # what is in view is drawn: some of each lane has its colour
    assert browser.run("""(() => { const c = document.querySelector('.scroll canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data,
        seen = new Set(); for (let i = 0; i < d.length; i += 4) seen.add(d[i] + ',' + d[i + 1] + ',' + d[i + 2]); return seen.size; })()""") > 3
    browser.run("document.querySelector('#answer button.go[data-line]').click()")
    assert browser.run("document.getElementById('counted').textContent") == "2000 of 100000 stages"
    assert browser.errors() == []


def test_a_large_trace_opens_in_two_seconds_and_moves_at_thirty_frames(browser: Browser, tmp_path: Path) -> None:
    """The figures of `benchmarks/trace_page.py`, by what the busiest thread of the browser works, since others may be at work on this machine."""
    path = large().save(tmp_path / "large.html")
    opened, frame = measured(browser, path)
    assert opened < 2 and frame < 1 / 30, (opened, frame)
    assert browser.run("flambeau.data.works.from.filter(f => f >= 0).length") == 20_000 and browser.errors() == []


def test_any_number_of_groups_is_drawn(browser: Browser, tmp_path: Path) -> None:
    """More than a function of JavaScript takes arguments (some 120,000 in Chromium)."""
    from flambeau.trace.stages import Group
    with torch.simulate(gpus=1), torch.trace("Many steps") as t:
        torch.ones(3, device="cuda") + 1
    first = t.stages[0].start
    for k in range(200_000):
        t.groups.append(Group("step", 0, first + k * 1e-7))
        t.groups[-1].end = t.groups[-1].start + 1e-7
    browser.open(t.save(tmp_path / "groups.html"), "#time")
    assert browser.errors() == [] and browser.run("flambeau.data.groups.length") == 200_000
    assert browser.run("document.querySelector('.scroll canvas').width") > 500
    assert browser.run("document.getElementById('counted').textContent") == "2 stages"


def test_a_line_of_the_answer_leads_to_its_boxes(browser: Browser, tmp_path: Path) -> None:
    with torch.trace("Far") as t:
        x = torch.ones(4)
        for _ in range(30):
            x = x + 1
        x.mul(3)  # the 32nd
        for _ in range(700):
            x = x + 1
        x.sub(5)  # beyond those that `steps` shows
    browser.open(t.save(tmp_path / "far.html"), "#steps")
    inside = """(name => { const k = flambeau.data.words.indexOf(name), n = flambeau.data.stages.call.indexOf(k),
        g = document.querySelector(`svg g[data-stage='${flambeau.data.stages.i[n]}']`); if (!g) return null;
        const b = g.getBoundingClientRect(), r = document.querySelector('.scroll').getBoundingClientRect(); return b.left >= r.left && b.left < r.right; })"""
    assert browser.run(f"{inside}('mul(3)')") is False

    def find(text: str) -> None:
        browser.run(f"(() => {{ const i = document.querySelector('.search input'); i.value = '{text}'; i.dispatchEvent(new Event('input')); }})()")
    line = next(s.line or "" for s in t.stages if s.name == "mul").rpartition("/")[2]
    find(line)
    assert browser.run("document.getElementById('counted').textContent") == "1 of 733 stages"
    assert browser.run(f"{inside}('mul(3)')") is True
    find("add")  # some of those are in view: nothing moves
    assert browser.run(f"{inside}('mul(3)')") is True
    find("sub(5)")
    assert browser.run("document.documentElement.dataset.view") == "time" and browser.run("flambeau.lines !== null")
    browser.run("document.querySelector('.scroll canvas').focus()")
    browser.keys(RIGHT)  # keys go to what is found alone
    assert browser.run("document.querySelector('.unseen').textContent").startswith("733: sub(5)")
    browser.keys(RIGHT)
    assert browser.run("document.querySelector('.unseen').textContent").startswith("733: sub(5)") and browser.errors() == []


def measured(browser: Browser, path: str) -> tuple[float, float]:
    """Seconds from asking for a page until it is drawn, and for a frame while it zooms and moves."""
    browser.do("POST", "/url", url="about:blank")
    browser.size(1280)
    before = browser.work()
    browser.do("POST", "/url", url=Path(path).as_uri() + "#time")
    browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    opened = browser.busiest(before)[1]
    before = browser.work()
    frames = len(browser.run(FRAMES))
    return opened, browser.busiest(before)[1] / frames


def large() -> Any:
    """A trace of 100,000 stages of 50 lines on two GPUs: kernels, copies from one to the other, waits, epochs with steps, and memory in use."""
    from flambeau.trace import Stage, Work
    from flambeau.trace.stages import Group
    t = torch.trace("Large")
    for k in range(100_000):
        gpu, now = k // 5 % 2, k * 1e-5
        s = Stage("add", "add", f"{__file__}:{k % 50 + 1}", 0, (), now)
        s.index, s.end, s.host, s.outputs = k + 1, now + 4e-6, 4e-6, [((4,), "float32", f"cuda:{gpu}")]
        if k % 5 == 0:
            w = Work("copy", "copy d2d", (f"cuda:{1 - gpu}", 0), 48)
            w.direction, w.path, w.source, w.target = "d2d", "peer", f"cuda:{1 - gpu}", f"cuda:{gpu}"
        else:
            w = Work("kernel", "add", (f"cuda:{gpu}", 0), 48)
        w.start, w.end, w.predicted = now + 3e-6, now + 9e-6, True
        s.works.append(w)
        if k % 20 == 7:
            s.waits.append((f"cuda:{gpu}", now + 4e-6, now + 9e-6))
        if k:
            s.sources = (t.stages[-1],)
        t.stages.append(s)
        t.sources.levels.setdefault(f"cuda:{gpu}", []).append((s.end, 1000 + k % 37 * 100, 0))
        for name, length in (("epoch", 10_000), ("step", 10)):
            if k % length == 0:
                t.groups.append(Group(name, 0, now))
                t.groups[-1].end = now + length * 1e-5
    return t


FRAMES = """new Promise(done => { const took = []; let n = 0, last = performance.now();
    const canvas = document.querySelector('.scroll canvas'), r = canvas.getBoundingClientRect();
    const one = now => { took.push(now - last); last = now; if (n++ === 90) { done(took.slice(1)); return; }
        canvas.dispatchEvent(new WheelEvent('wheel', { deltaY: n < 30 ? -60 : n < 60 ? 60 : 0, deltaX: n < 60 ? 0 : 90, clientX: r.left + r.width / 3,
            clientY: r.top + 40, cancelable: true, bubbles: true }));
        requestAnimationFrame(one); };
    requestAnimationFrame(one); })"""


def columns_of(path: str) -> Any:
    text = Path(path).read_text("utf-8")
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert data is not None
    return json.loads(data.group(1))


def test_training_and_layers_are_on_the_page(browser: Browser, training: str) -> None:
    browser.open(training)
    assert browser.run("document.querySelectorAll('.training .chart circle').length") == 6
    assert browser.run("document.querySelector('.training .chart circle title').textContent") == "epoch 1: loss 2"
    assert browser.run("document.querySelectorAll('.training tbody tr').length") == 3
    layers = browser.run("[...document.querySelectorAll('.model tbody tr')].map(r => r.cells[0].innerText.trim())")
    assert layers == ["Sequential", "0: Linear", "1: ReLU", "2: Linear"]


def test_both_looks_can_be_read(browser: Browser, page: str) -> None:
    seen = set()
    for scheme in ("light", "dark"):
        browser.do("POST", "/goog/cdp/execute", cmd="Emulation.setEmulatedMedia",
                   params={"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        browser.open(page)
        for clicks in range(2):
            paper, ink = browser.run("""(() => { const light = (c) => { const m = c.match(/[\\d.]+/g).map(x => { x /= 255;
                return x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; }); return 0.2126 * m[0] + 0.7152 * m[1] + 0.0722 * m[2]; };
                const s = getComputedStyle(document.body); return [light(s.backgroundColor), light(s.color)]; })()""")
            high, low = max(paper, ink), min(paper, ink)
            assert (high + 0.05) / (low + 0.05) > 7
            seen.add((scheme, clicks, paper > ink))
            browser.run("document.getElementById('look').click()")
    assert seen == {("light", 0, True), ("light", 1, False), ("dark", 0, False), ("dark", 1, True)}
    browser.do("POST", "/goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params={"features": []})


@pytest.mark.parametrize("view", ["#steps", "#time"])
def test_printed_it_is_light_whole_and_without_buttons(browser: Browser, training: str, view: str) -> None:
    def media(name: str, scheme: str) -> None:
        browser.do("POST", "/goog/cdp/execute", cmd="Emulation.setEmulatedMedia",
                   params={"media": name, "features": [{"name": "prefers-color-scheme", "value": scheme}]})
    media("", "dark")
    browser.open(training, view)
    try:
        browser.run("dispatchEvent(new Event('beforeprint'))")
        media("print", "dark")
        browser.size(718)  # A4 within usual margins
        assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert browser.run("document.documentElement.dataset.look") == "light"
        seen = "(e => e.offsetWidth > 0)"
        assert browser.run(f"['.bar', '#look', '.keys', '.overview'].filter(s => [...document.querySelectorAll(s)].some({seen}))") == []
        assert browser.run("""[...document.querySelectorAll('table, canvas, svg')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)
            .map(e => e.tagName + ' ' + e.className)""") == []
        assert browser.run("[...document.querySelectorAll('.training td')].every(e => e.offsetWidth > 0)")
        # every cell is as wide as its words, and numbers stay on one line
        assert browser.run("""[...document.querySelectorAll('th, td')].filter(e => { const range = document.createRange(); range.selectNodeContents(e);
            const tops = [...range.getClientRects()].map(r => r.top);
            return e.scrollWidth > e.clientWidth + 1 || e.className === 'num' && Math.max(...tops) - Math.min(...tops) > 8; }).map(e => e.innerText)""") == []
        if view == "#steps":  # rows as wide as the paper, which have each stage once
            assert browser.run("[...document.querySelectorAll('.frame:not(.paper)')].some(e => e.offsetWidth)") is False
            drawn = browser.run("[...document.querySelectorAll('.frame.paper g[data-stage]')].map(g => +g.dataset.stage)")
            assert drawn == columns_of(training)["stages"]["i"][:24]
        pages = browser.do("POST", "/print", background=True)
        assert base64.b64decode(pages)[:5] == b"%PDF-"
        browser.run("dispatchEvent(new Event('afterprint'))")
        assert browser.run("document.querySelectorAll('.paper').length") == 0
        assert browser.run("document.documentElement.dataset.look") is None and browser.errors() == []
    finally:
        media("", "light")
        browser.do("POST", "/goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params={"features": []})


def test_the_page_asks_for_nothing(browser: Browser, training: str) -> None:
    browser.open(training)
    assert browser.run("performance.getEntriesByType('resource').map(r => r.name)") == []
    picture = browser.do("GET", "/screenshot")
    assert base64.b64decode(picture)[:4] == b"\x89PNG"
