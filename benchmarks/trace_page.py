"""How soon the page of a large trace is there, and how smoothly it zooms and moves, in headless Chromium (which draws by the CPU here).

    python benchmarks/trace_page.py          100,000 stages on two GPUs; needs chromium and chromedriver
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

def main() -> int:
    from tests.trace.browser import BROWSER, DRIVER, window
    from tests.trace.test_page_browser import FRAMES, large
    if BROWSER is None or DRIVER is None:
        print("trace_page: no chromium with chromedriver here")
        return 0
    with tempfile.TemporaryDirectory() as folder, window(Path(folder) / "profile") as browser:
        trace = large()
        begun = time.perf_counter()
        path = trace.save(os.path.join(folder, "large.html"))
        print(f"{len(trace.stages)} stages written in {time.perf_counter() - begun:.1f} s, {os.path.getsize(path) / 1e6:.1f} MB")
        browser.open(path, "#time")
        # from the navigation to the first frame that is drawn: a frame is asked for when the script has run
        opened = browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))")
        browser.open(path, "#time")
        loaded = browser.run("performance.getEntriesByType('navigation')[0].domComplete")
        print(f"open: {loaded / 1e3:.2f} s to a page that is complete (asked for at {opened / 1e3:.2f} s)")
        took = sorted(browser.run(FRAMES))
        print(f"zooming and moving: {1e3 / (sum(took) / len(took)):.0f} frames a second in the mean, the slowest of {len(took)} frames {took[-1]:.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
