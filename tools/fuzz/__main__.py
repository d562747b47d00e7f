"""Runs the instruments that lie beside the checkout and holds what they find against tools/fuzz/known.

    python -m tools.fuzz                                  programs, numerics and guard, over the recorded cases
    python -m tools.fuzz --only programs --seeds 30000:32000 [--seconds 120]
    python -m tools.fuzz --only programs,guard --against DIR  only what another checkout says otherwise on the same seeds
    python -m tools.fuzz --only models --seeds 0:500          training programs, on the CPU and a simulated GPU; no instrument is needed
    python -m tools.fuzz --only guard --fresh 2000        new calls on each device: does any end or hang its process?
    python -m tools.fuzz --only programs,models --fresh 9999 --seconds 60   new programs; fails for what chance does not explain
    python -m tools.fuzz --only bits --against DIR            results to the bit and errors to the word
    python -m tools.fuzz --write [--only ...]             renews the files of what is known

It fails for what is not known, and prints the shortest program that shows it.  New is not always wrong: rare classes wait in seeds that nobody
ran.  `--against` a checkout from before a change tells the two apart.  PyTorch is needed for programs and numerics.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from . import bits, guard, models, numerics, programs

ROOT = Path(__file__).resolve().parents[2]
PARTS = {"programs": programs.check, "numerics": numerics.check, "guard": guard.check, "bits": bits.check, "models": models.check}
RECORDED = "programs,numerics,guard,models"


def main() -> int:
    p = argparse.ArgumentParser(prog="fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default=RECORDED, help="parts, with commas: programs, numerics, guard, models; bits with --against")
    p.add_argument("--seeds", default="", metavar="FIRST:LAST", help="of programs, models and guard; none: the recorded ones")
    p.add_argument("--seconds", type=float, default=0, metavar="N", help="at most so long, of programs, of models and of each device of guard")
    p.add_argument("--fresh", type=int, default=0, metavar="N", help="N calls of each device of guard, N programs of programs and models, by seeds "
                   "that are drawn and printed; of guard crashes and hangs alone count")
    p.add_argument("--against", type=Path, metavar="DIR", help="another checkout; programs and guard")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where programs run; cuda is simulated, and needs --against")
    p.add_argument("--write", action="store_true", help="renew what is known")
    a = p.parse_args()
    if a.against and {"numerics", "models"}.intersection(a.only.split(",")):
        p.error("--against: say --only programs,guard")
    if a.fresh and not {"guard", "programs", "models"}.issuperset(a.only.split(",")):
        p.error("--fresh: say --only with some of guard, programs, models")
    if "bits" in a.only and not a.against:
        p.error("--only bits: say --against, as it compares two checkouts")
    if a.device == "cuda" and not a.against:
        p.error("--device cuda: say --against, as nothing is recorded for it")
    instruments = Path(os.environ.get("INSTRUMENTS") or ROOT.parent / "shared" / "instruments").resolve()
    parts = a.only.split(",")
    if not instruments.is_dir():
        print("fuzz: only models, because the instruments of the other parts do not lie beside the checkout (shared/instruments)")
        parts = [part for part in parts if part == "models"]
    os.environ.pop("OPENBLAS_CORETYPE", None)  # some environments set it to an older CPU
    (ROOT / "build" / "fuzz").mkdir(parents=True, exist_ok=True)
    failed = [part for part in parts if not PARTS[part](ROOT, instruments, a)]
    if failed:
        print("fuzz: not known:", ", ".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
