"""What the first training on a machine costs: seconds of its own CPU and of the clock, with no kernel kept, and once they are all kept.

    python benchmarks/first_models.py [--rounds 3] [--other FOLDER]

other: another checkout of Flambeau, whose turns alternate with this one's.  Each turn has a folder for kernels of its own, and what is made beside and
behind the program is ended with the turn, so that turns do not disturb each other.  The best of the rounds is shown.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

MODELS = ("mlp", "cnn", "transformer")
PROGRAM = '''
import json, sys, time
import flambeau as torch
from flambeau import nn
from flambeau._core.kernels.llvm import compile as compiler
from flambeau.nn import functional as F
since, cpu = time.perf_counter(), time.process_time()
torch.manual_seed(0)

def mlp():
    yield nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
    x, y = torch.randn(512, 20), torch.randint(0, 10, (512,))
    yield from torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=64, shuffle=True)

def cnn():
    yield nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                        nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, 10))
    for _ in range(4):
        yield torch.randn(16, 1, 28, 28), torch.randint(0, 10, (16,))

class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(100, 32), nn.Parameter(torch.zeros(1, 16, 32))
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu"), 2)
        self.head = nn.Linear(32, 100)

    def forward(self, x):
        return self.head(self.body(self.words(x) + self.places, mask=nn.Transformer.generate_square_subsequent_mask(16))).flatten(0, 1)

def transformer():
    yield Language()
    for _ in range(3):
        x = torch.randint(0, 100, (4, 17))
        yield x[:, :-1], x[:, 1:].flatten()

model, *batches = globals()[sys.argv[1]]()
optimizer = torch.optim.AdamW(model.parameters())
for x, y in batches:
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
model.eval()
with torch.no_grad():
    (model(x).argmax(1) == y).float().mean().item()
print(json.dumps({"cpu": time.process_time() - cpu, "wall": time.perf_counter() - since, "kernels": compiler.compiled}))
'''


def run(root: Path, model: str, folder: str, **env: str) -> dict[str, float]:
    """One process; its own CPU, the clock, kernels made."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "OPENBLAS_CORETYPE")}
    surroundings = {**kept, "PYTHONPATH": str(root), "FLAMBEAU_CACHE_DIR": folder, **env}
    done = subprocess.run([sys.executable, "-c", PROGRAM, model], env=surroundings, capture_output=True, text=True, check=True, cwd="/")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def end(folder: str) -> None:
    """Ends the processes that make kernels in this folder."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"FLAMBEAU_CACHE_DIR={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGTERM)
        except OSError:
            pass


def turn(root: Path, model: str) -> list[dict[str, float]]:
    """The first program, and one with all kernels kept."""
    folder = tempfile.mkdtemp()
    try:
        first = run(root, model, folder, FLAMBEAU_WARM="1")
        end(folder)
        for _ in range(2):
            kept = run(root, model, folder, FLAMBEAU_WARM="0")
        return [first, kept]
    finally:
        end(folder)
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--other", type=Path)
    asked = parser.parse_args()
    roots = [asked.other.resolve(), Path(__file__).resolve().parent.parent] if asked.other else [Path(__file__).resolve().parent.parent]
    turns: dict[tuple[str, Path], list[list[dict[str, float]]]] = {}
    for _ in range(asked.rounds):
        for model in MODELS:
            for root in roots:
                turns.setdefault((model, root), []).append(turn(root, model))
    print(f"{'model':12} {'kernels':>7} {'first: CPU':>11} {'wall':>6} {'kept: CPU':>10} {'wall':>6} {'for kernels: CPU':>17}")
    for (model, root), rounds in turns.items():
        best = [[min(r[k][what] for r in rounds) for what in ("cpu", "wall")] for k in (0, 1)]
        print(f"{model:12} {rounds[-1][0]['kernels']:7} {best[0][0]:11.2f} {best[0][1]:6.2f} {best[1][0]:10.2f} {best[1][1]:6.2f} "
              f"{best[0][0] - best[1][0]:17.2f}  {root}")


if __name__ == "__main__":
    main()
