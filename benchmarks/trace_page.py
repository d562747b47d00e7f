"""How soon the page of a large trace is there, and how smoothly it zooms and moves, in headless Chromium (which draws by the CPU here).

The times are the CPU's, of the browser's busiest thread: what it takes where nothing else runs.

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
    from tests.trace.test_page_browser import large, measured
    if BROWSER is None or DRIVER is None:
        print("trace_page: no chromium with chromedriver here")
        return 0
    with tempfile.TemporaryDirectory() as folder, window(Path(folder) / "profile") as browser:
        trace = large()
        begun = time.process_time()
        path = trace.save(os.path.join(folder, "large.html"))
        print(f"{len(trace.stages)} stages written in {time.process_time() - begun:.1f} s of CPU, {os.path.getsize(path) / 1e6:.1f} MB")
        for _ in range(3):
            opened, frame = measured(browser, path)
            print(f"open: {opened:.2f} s; zooming and moving: {1e3 * frame:.1f} ms a frame, {1 / frame:.0f} frames a second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
