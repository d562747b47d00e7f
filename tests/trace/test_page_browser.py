"""The page in a real browser: lanes, arrows, notes at the pointer, findings, both looks, two widths.

Chromium is driven by chromedriver's own protocol; without them these tests are skipped.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch

DRIVER = shutil.which("chromedriver")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
pytestmark = pytest.mark.skipif(DRIVER is None or BROWSER is None, reason="no chromium with chromedriver on this machine")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One window."""

    def __init__(self, base: str, profile: Path) -> None:
        self.base = base
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", f"--user-data-dir={profile}"]
        wish = {"goog:chromeOptions": {"args": flags, "binary": BROWSER}, "goog:loggingPrefs": {"browser": "ALL"}}
        self.session = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": wish}})["sessionId"]

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def do(self, method: str, path: str, **body: Any) -> Any:
        return self.ask(method, f"/session/{self.session}{path}", body)

    def open(self, path: str, fragment: str = "") -> None:
        self.do("POST", "/url", url="about:blank")
        self.size(1280)
        self.do("POST", "/url", url=Path(path).as_uri() + fragment)

    def size(self, width: int) -> None:
        self.do("POST", "/goog/cdp/execute", cmd="Emulation.setDeviceMetricsOverride",
                params={"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})

    def run(self, script: str) -> Any:
        return self.do("POST", "/execute/sync", script="return " + script, args=[])

    def hover(self, selector: str) -> None:
        element = self.do("POST", "/element", using="css selector", value=selector)
        move = {"type": "pointerMove", "duration": 0, "origin": {ELEMENT: element[ELEMENT]}, "x": 0, "y": 0}
        self.do("POST", "/actions", actions=[{"type": "pointer", "id": "mouse", "actions": [move]}])

    def errors(self) -> list[str]:
        return [e["message"] for e in self.do("POST", "/se/log", type="browser") if e["level"] == "SEVERE"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert DRIVER is not None
    server = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        port = next(m.group(1) for line in server.stdout if (m := re.search(r"started successfully on port (\d+)", line)))
        found = Browser(f"http://127.0.0.1:{port}", tmp_path_factory.mktemp("profile"))
        yield found
        found.ask("DELETE", f"/session/{found.session}")
    finally:
        server.terminate()
        server.wait(20)


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
    # an arrow for each transfer: one down into the GPU's lane, one back up
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


def test_the_keyboard_reaches_each_box(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.do("POST", "/goog/cdp/execute", cmd="Emulation.setFocusEmulationEnabled", params={"enabled": True})
    browser.run("document.querySelector(\"svg g[data-stage='4']\").focus()")
    assert browser.run("document.getElementById('tip').hidden") is False
    assert browser.run("document.activeElement.getAttribute('aria-label')").startswith("4: cpu, cuda:0 → cpu, (3, 3)")


def test_findings_are_listed_as_text(browser: Browser, page: str) -> None:
    browser.open(page)
    found = browser.run("[...document.querySelectorAll('#findings li')].map(l => l.innerText)")
    assert len(found) == 2
    assert "not worth the way" in found[0] and "test_page_browser.py:" in found[0]  # the ledger's own
    assert found[1].split("\n")[0].endswith("test_page_browser.py:1")
    assert "sent <twice>" in found[1] and "Send it once & keep it." in found[1]


@pytest.mark.parametrize("width", [1280, 420])
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


def test_time_keeps_order_and_zoom_widens(browser: Browser, training: str) -> None:
    browser.open(training, "#time")
    lanes = browser.run("[...document.querySelectorAll('.names div')].map(d => d.dataset.lane)")
    assert lanes == ["cpu", "cuda:0 default stream", "cuda:0 stream 1", "cuda:1"]
    before = browser.run("document.querySelector('.scroll svg').clientWidth")
    browser.run("document.querySelector('[data-zoom=\"2\"]').click()")
    assert browser.run("document.querySelector('.scroll svg').clientWidth") == 2 * before
    count = browser.run("document.querySelectorAll('path.arrow').length")
    assert count == len([s for s in stages_of(training) for w in s["works"] if "to" in w]) >= 6
    assert browser.errors() == []


def stages_of(path: str) -> Any:
    text = Path(path).read_text("utf-8")
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert data is not None
    return json.loads(data.group(1))["stages"]


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


def test_the_page_asks_for_nothing(browser: Browser, training: str) -> None:
    browser.open(training)
    assert browser.run("performance.getEntriesByType('resource').map(r => r.name)") == []
    picture = browser.do("GET", "/screenshot")
    assert base64.b64decode(picture)[:4] == b"\x89PNG"
