"""Random training programs under PyTorch, and under Flambeau on the CPU and on a simulated GPU, in one process: models_generator.py makes them.

    python -m tools.fuzz.models_process --seeds FIRST:LAST --out FILE [--seconds N]
    python -m tools.fuzz.models_process --show SEED

After each line what it made is compared, and after a step all parameters, gradients, buffers and states.  The first difference of a program on a
device is its class.  The GPU's work waits until somebody asks, so that a missing wait shows as a wrong value.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import flambeau

from .classes import Class, error_words, value_words
from .models_generator import Program, gen, used

LONGEST = 60  # seconds of processor time that one program may take
PRECISION = {"float64": 2e-6, "float32": 5e-4, "bfloat16": 8e-2, "float16": 4e-3}  # of training steps: small gradients are divided by themselves
Shown = list[tuple[str, str, Any]]  # name, type (of an element, or of a Python object), values


def values(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "int64":
        return rng.integers(0, max(seed, 1), shape)
    return rng.normal(size=shape).round(3)


def environment(T: Any, device: str, program: Program, shaken: tuple[int, float] = (0, 0.0)) -> dict[str, Any]:
    """What the lines name.  shaken: a seed, and by how much inputs and parameters change, beside their size."""
    env: dict[str, Any] = {"T": T, "D": device}
    shake = np.random.default_rng(shaken[0])
    for name, (kind, shape, seed) in program[0].items():
        a = values(kind, shape, seed)
        if a.dtype.kind == "f":
            a = a * (1 + shaken[1] * shake.uniform(-1, 1, a.shape))
        env[name] = T.tensor(a.tolist(), dtype=getattr(T, kind), device=device).reshape(shape)

    def fill(layer: Any, n: int) -> Any:
        """The layer with parameters that do not depend on how the library draws its first ones."""
        rng = np.random.default_rng(n)
        with T.no_grad():
            for p in layer.parameters():
                a = rng.normal(size=tuple(p.shape)) / 2 + (p.dim() < 2) * 0.3
                a = a * (1 + shaken[1] * shake.uniform(-1, 1, a.shape))
                p.copy_(T.tensor(a.tolist(), dtype=p.dtype, device=device).reshape(p.shape))
        return layer

    def under(text: str) -> Any:
        with T.autocast(device, dtype=T.bfloat16):
            return eval(text, env)

    env["fill"], env["under"] = fill, under
    return env


def shown(name: str, x: Any) -> Shown:
    if hasattr(x, "detach"):
        t = x.detach().cpu()
        kind = str(x.dtype).partition(".")[2]
        if kind in ("bfloat16", "float16"):
            t = t.float()
        return [(name, kind, np.array(t.numpy())), (name + ".requires_grad", "bool", bool(x.requires_grad))]
    if isinstance(x, (tuple, list)):
        return [part for i, e in enumerate(x) for part in shown(f"{name}[{i}]", e)]
    if hasattr(x, "state_dict") and hasattr(x, "forward"):
        return [(name, "repr", repr(x)), *[part for k, v in x.state_dict().items() for part in shown(f"{name}.{k}", v)]]
    if isinstance(x, (bool, int, float, str)):
        return [(name, type(x).__name__, x)]
    return []


def state(env: dict[str, Any]) -> Shown:
    """Parameters and gradients, buffers, and what the optimizer keeps."""
    out: Shown = []
    for i, p in enumerate(env.get("ps", [])):
        out += [*shown(f"ps[{i}]", p), *(shown(f"ps[{i}].grad", p.grad) if p.grad is not None else [(f"ps[{i}].grad", "NoneType", None)])]
    for name, layer in env.items():
        if hasattr(layer, "buffers") and hasattr(layer, "forward"):
            out += [part for k, b in layer.named_buffers() for part in shown(f"{name}.{k}", b)]
    o = env.get("o")
    if o is not None:
        kept = o.state_dict()
        for i, entry in sorted(kept["state"].items()):
            out += [part for k, v in sorted(entry.items()) if v is not None for part in shown(f"o[{i}].{k}", v if getattr(v, "ndim", 0) else float(v))]
        out += [(f"o.{k}", "number", float(v)) for k, v in sorted(kept["param_groups"][0].items()) if isinstance(v, (int, float)) and v is not None]
    x = env.get("x0")
    if x is not None and x.requires_grad and x.is_leaf and x.grad is not None:
        out += shown("x0.grad", x.grad)
    return out


def run(T: Any, device: str, program: Program, shaken: tuple[int, float] = (0, 0.0)) -> list[Shown | Exception]:
    """What each line shows, or what it raised, which ends the program."""
    env = environment(T, device, program, shaken)
    out: list[Shown | Exception] = []
    for line in program[1]:
        try:
            if line.startswith("!"):
                exec(line[1:], env)
                if T is flambeau and device != "cpu":
                    T.cuda.synchronize()
                out.append(state(env))
            else:
                exec(line, env)
                name = line.partition(" = ")[0]
                out.append(shown(name, env[name]))
        except Exception as e:
            out.append(e)
            break
    return out


def difference(theirs: Shown | Exception, ours: Shown | Exception, least: float) -> tuple[str, str, str] | None:
    """Kind, words and text of what differs after a line.  least: the relative precision of the least precise type that was computed in."""
    if isinstance(theirs, Exception) or isinstance(ours, Exception):
        if type(theirs).__name__ == type(ours).__name__ or isinstance(theirs, Exception) and isinstance(ours, type(theirs)):
            return None
        e = ours if isinstance(ours, Exception) else theirs
        kind = "torch-error" if e is theirs else "flambeau-error" if not isinstance(theirs, Exception) else "error-type"
        return kind, error_words(type(e).__name__, str(e)), f"{type(e).__name__}: {e}"[:300]
    if [n for n, _, _ in theirs] != [n for n, _, _ in ours]:
        odd = sorted({n for n, _, _ in theirs} ^ {n for n, _, _ in ours})
        return "names", "", f"names {odd[:5]}"
    sizes = [np.abs(a[np.isfinite(a)]).max(initial=0.0) for name, _, a in theirs if ".grad" in name and isinstance(a, np.ndarray) and a.dtype.kind == "f"]
    largest = max(sizes, default=0.0)  # beside it a gradient that is nothing but rounding is nothing
    for (name, kind, a), (_, other, b) in zip(theirs, ours, strict=True):
        if kind != other:
            return "dtype", f"{kind} / {other}", f"{name}: {kind} / {other}"
        if not isinstance(a, np.ndarray):
            if a != b and not (isinstance(a, float) and abs(a - b) <= 1e-4 * abs(a) + 1e-7):
                return kind, "", f"{name}: {a!r} / {b!r}"[:300]
            continue
        if a.shape != b.shape:
            return "shape", "", f"{name}: shape {a.shape} / {b.shape}"
        text = unequal(a, b, kind, max(PRECISION.get(kind, 0.0), least, 1e-3 * name.startswith("o[")), largest if ".grad" in name else 0.0)
        if text:
            return "grad-value" if ".grad" in name else "value", value_words(text), f"{name}: {text}"
    return None


def unequal(a: np.ndarray, b: np.ndarray, kind: str, precision: float, size: float) -> str:
    if a.dtype.kind != "f":
        fine = np.asarray(a == b)
    else:
        with np.errstate(all="ignore"):
            a, b = a.astype(np.float64), b.astype(np.float64)
            finite = np.abs(a[np.isfinite(a)])
            fine = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= precision * (np.abs(a) + max(0.1 * finite.max(initial=size), 1e-3)))
    if fine.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~fine)[0])
    return f"value at {at}: {a[at]} / {b[at]} ({kind})"


SHAKEN = {"float64": 2.0 ** -47, "float32": 2.0 ** -18, "bfloat16": 2.0 ** -8}  # some units in the last place
_SHAKES = 4
_NOISE = 16  # times what PyTorch differs from itself


def is_noise(program: Program, theirs: list[Shown | Exception], ours: list[Shown | Exception], n: int, kind: str) -> bool:
    """Whether PyTorch differs about as much from itself after line n, when the last places of inputs and parameters change: a step that diverges,
    a quotient of what is nothing but rounding, a choice at a kink.  A fault changes results where such a change does not."""
    a, b = theirs[n], ours[n]
    assert not isinstance(a, Exception) and not isinstance(b, Exception)
    most = [0.0] * len(a)
    for seed in range(_SHAKES):
        again = run(torch, "cpu", program, (seed, SHAKEN[kind]))
        c = again[n] if n < len(again) else None
        if not isinstance(c, list) or [name for name, _, _ in c] != [name for name, _, _ in a]:
            return True  # what it raises depends on last places too
        most = [max(m, _apart(x, z)) for m, (_, _, x), (_, _, z) in zip(most, a, c, strict=True)]
    rest = [p if _apart(p[2], q[2]) <= _NOISE * m else q for m, p, q in zip(most, a, b, strict=True)]
    return difference(a, rest, PRECISION["bfloat16"] if kind == "bfloat16" else 0.0) is None


def _apart(a: Any, b: Any) -> float:
    """The greatest difference of two values; infinite where one is no number and the other is."""
    x, y = np.asarray(a), np.asarray(b)
    if x.dtype.kind not in "fiub" or x.shape != y.shape or x.dtype.kind != y.dtype.kind:
        return 0.0 if np.array_equal(x, y) else float("inf")
    x, y = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        gap = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
    return float(np.where(np.isnan(gap), np.inf, gap).max(initial=0.0))


def differences(program: Program) -> list[tuple[Class, int, str]]:
    theirs = run(torch, "cpu", program)
    found = []
    narrow = any("under(" in line for line in program[1])
    computed = "bfloat16" if narrow else "float32" if any("float32" in line for line in [*program[1], *(k for k, _, _ in program[0].values())]) else "float64"
    for device in ("cpu",) if narrow else ("cpu", "cuda"):  # autocast's lists are other ones on a GPU
        ours = run(flambeau, device, program)
        for n, (a, b) in enumerate(zip(theirs, ours, strict=False)):
            d = difference(a, b, PRECISION["bfloat16"] if narrow else 0.0)
            if d is not None:
                if "value" in d[0] and is_noise(program, theirs, ours, n, computed):
                    d = "noise", "", d[2]
                found.append(((f"{device} {d[0]}", used(program[1][n]), d[1]), n, d[2]))
                break
            if isinstance(a, Exception):
                break
    return found


def as_text(program: Program, n: int, text: str) -> str:
    given = ", ".join(f"{name} {kind}{list(shape)}" for name, (kind, shape, _) in program[0].items())
    return f"{given} :: {'; '.join(line.removeprefix('!') for line in program[1][:n + 1])} -> {text}"


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--seeds", default="0:1")
    p.add_argument("--seconds", type=float, default=1e9)
    p.add_argument("--out", type=Path)
    p.add_argument("--show", type=int, help="a program and what differs in it")
    a = p.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    flambeau.simulate(gpus=1, memory="1GiB", queue="lazy")
    if a.show is not None:
        program = gen(a.show)
        print(*program[0].items(), *program[1], *differences(program), sep="\n")
        return
    first, last = map(int, a.seeds.split(":"))
    now = Path(f"{a.out}.now")
    ends = time.monotonic() + a.seconds
    with a.out.open("a") as log, contextlib.suppress(KeyboardInterrupt):
        for seed in range(first, last):
            if time.monotonic() > ends:
                break
            now.write_text(str(seed))
            signal.setitimer(signal.ITIMER_PROF, LONGEST)  # its signal ends the process
            program = gen(seed)
            found = differences(program)
            log.write(json.dumps({"seed": seed, "lines": len(program[1]), "found": [[list(c), as_text(program, n, t)] for c, n, t in found]}) + "\n")
            log.flush()
    now.write_text("done")


if __name__ == "__main__":
    main()
