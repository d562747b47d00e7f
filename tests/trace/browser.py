"""A window of headless Chromium, driven by chromedriver's own protocol."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DRIVER = shutil.which("chromedriver")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
RIGHT, DOWN, ENTER = "\ue014", "\ue015", "\ue007"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One window."""

    def __init__(self, base: str, profile: Path, driver: int) -> None:
        self.base, self.driver = base, driver
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

    def keys(self, *those: str) -> None:
        pressed = [{"type": kind, "value": key} for key in those for kind in ("keyDown", "keyUp")]
        self.do("POST", "/actions", actions=[{"type": "key", "id": "keys", "actions": pressed}])

    def work(self) -> dict[str, float]:
        """The seconds that each thread of the browser has had a CPU for, so far: the same whatever else the machine does."""
        parents = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        ours = {self.driver}
        while more := {p for p, parent in parents.items() if parent in ours} - ours:
            ours |= more
        found = {}
        for pid in ours:
            for thread in Path(f"/proc/{pid}/task").glob("*"):
                with contextlib.suppress(OSError):
                    found[f"{(thread / 'comm').read_text().strip()} {thread.name}"] = int((thread / "schedstat").read_text().split()[0]) / 1e9
        return found

    def busiest(self, before: dict[str, float]) -> tuple[str, float]:
        """The thread that has worked most since `work` said `before`, and for how many seconds: as long as that it takes where nothing else runs."""
        return max(((name, t - before.get(name, 0.0)) for name, t in self.work().items()), key=lambda one: one[1])

    def errors(self) -> list[str]:
        return [e["message"] for e in self.do("POST", "/se/log", type="browser") if e["level"] == "SEVERE"]


@contextmanager
def window(profile: Path) -> Iterator[Browser]:
    """A browser for a `with` block; `profile` is an empty folder for it."""
    assert DRIVER is not None
    server = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        port = next(m.group(1) for line in server.stdout if (m := re.search(r"started successfully on port (\d+)", line)))
        found = Browser(f"http://127.0.0.1:{port}", profile, server.pid)
        yield found
        found.ask("DELETE", f"/session/{found.session}")
    finally:
        server.terminate()
        server.wait(20)
