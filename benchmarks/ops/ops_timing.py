"""How a line of `make bench-ops` is timed: both libraries in one process, in turn, by the processor's time."""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ops_lines import Line, find
from ops_values import SMALL, VALUES, Case, Values

BLOCK_SECONDS = 0.0006  # of calls without a look at the clock
BLOCKS, MEDIANS = 5, 5  # a median is of so many blocks; the least of so many medians counts
DEVICE_BLOCK = 0.003  # that of a GPU, which ends with a wait for it
WARM = 5  # calls before each block
LONG, SLOW = 0.001, 0.02  # seconds a call beyond which fewer, or few, are made
Block = Callable[[int], float]


class Work(NamedTuple):
    """A line of one library, ready to be timed: `block(n)` makes n calls and gives their seconds."""

    block: Block
    restore: Callable[[], None]


class Gradient(NamedTuple):
    """What a line's backward differentiates: the values, and where in the result the outputs lie."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Failed(Exception):
    """A side could not make the call; the message says how."""


def compiled(line: Line) -> tuple[Any, bool]:
    """The line's code, and whether it is an expression: a statement's result is the value that it writes into."""
    try:
        return compile(line.text, line.name, "eval"), True
    except SyntaxError:
        return compile(line.text, line.name, "exec"), False


def used(line: Line) -> list[str]:
    return sorted({n for n in (*compiled(line)[0].co_names,) if n in VALUES})


def written(line: Line) -> list[str]:
    """The values that the line writes into."""
    return [n for n in used(line) if n == "o" or n.startswith("o_")]


def into(line: Line) -> Line:
    """The same call with `out=`."""
    return line._replace(text=f"{line.text.strip()[:-1]}, out=out)")


def source(line: Line, gradient: Gradient | None) -> str:
    """The function that makes n calls. Names are its parameters: looking them up costs what a local variable costs."""
    _, expression = compiled(line)
    body = []
    if gradient is None:
        body.append(line.text)
    else:
        body += [f"{n} = from_{n}.clone()" for n in written(line)]  # as a leaf that is differentiated may not be written into
        body.append(f"result = {line.text}" if expression else f"{line.text}; result = {written(line)[0]}")
        if gradient.outputs == ("",):
            body.append("result.backward(ones[0])")
        else:
            body.append(f"backward([{', '.join('result' + at for at in gradient.outputs)}], ones)")
        body += [f"{'from_' if n in written(line) else ''}{n}.grad = None" for n in gradient.inputs]
    names = [f"from_{n}" if gradient and n in written(line) else n for n in used(line)]
    inner = "\n        ".join(body)
    return (f"def block(count, clock, repeat, call, backward, ones, out{''.join(', ' + n for n in names)}):\n    started = clock()\n"
            f"    for _ in repeat(None, count):\n        {inner}\n    return clock() - started\n")


def _outputs(tensor: type, result: Any, at: str = "") -> list[tuple[str, Any]]:
    """The tensors of a result that have a gradient, with where they lie in it."""
    if isinstance(result, tensor):
        return [(at, result)] if result.requires_grad else []  # type: ignore[attr-defined]
    if isinstance(result, (tuple, list)):
        return [found for i, part in enumerate(result) for found in _outputs(tensor, part, f"{at}[{i}]")]
    return []


def _call(lib: Any, line: Line, values: Values, inputs: tuple[str, ...]) -> Any:
    """The line once, its result; inputs: the values that want a gradient."""
    code, expression = compiled(line)
    for name in inputs:
        values[name].requires_grad_()
    scope: dict[str, Any] = {n: values[n].clone() if inputs and n in written(line) else values[n] for n in used(line)}
    scope["call"] = find(lib, line.path) if line.path else None
    result = eval(code, scope)
    return result if expression else scope[written(line)[0]]


def gradient_of(lib: Any, line: Line, case: Case = SMALL) -> Gradient | None:
    """What can be differentiated: all real and complex values at once, or else the first of them; None where there is nothing."""
    lib.set_grad_enabled(True)
    values = Values(lib, case)
    reals = tuple(n for n in used(line) if isinstance(values[n], lib.Tensor) and (values[n].is_floating_point() or values[n].is_complex())
                  and n not in NEVER)
    for inputs in dict.fromkeys((reals, *((n,) for n in reals[:3]))):
        values = Values(lib, case)
        try:
            found = _outputs(lib.Tensor, _call(lib, line, values, inputs)) if inputs else []
            if found:
                lib.autograd.backward([t for _, t in found], [lib.ones_like(t) for _, t in found])
                return Gradient(inputs, tuple(at for at, _ in found))
        except Exception:  # no gradient of all of them, or no such call: the forward says which
            continue
    return None


NEVER = frozenset(("mean3", "var3", "sparse", "sparse_c", "csr", "lu", "ldl"))  # buffers, and what other functions made


def prepare(lib: Any, line: Line, gradient: Gradient | None, case: Case = SMALL, with_out: bool = False) -> Work:
    """The line made ready for one library, called a few times; with_out: into tensors that lie as its result. Raises Failed."""
    lib.set_grad_enabled(gradient is not None)
    values = Values(lib, case)
    try:
        ones, out = [], None
        if with_out:
            made = _call(lib, line, values, ())
            out = lib.empty_like(made) if isinstance(made, lib.Tensor) else tuple([lib.empty_like(x) for x in made])
            line = into(line)
        if gradient is not None:
            found = dict(_outputs(lib.Tensor, _call(lib, line, values, gradient.inputs)))
            ones = [lib.ones_like(found[at]).detach() for at in gradient.outputs]
        scope: dict[str, Any] = {}
        exec(source(line, gradient), scope)
        given = [values[n] for n in used(line)]
        kept = [(values[n], values[n].clone()) for n in written(line)] if gradient is None else []
        call = find(lib, line.path) if line.path else None
        clock = _when_done(lib) if case.device != "cpu" else time.process_time if case.threads == 1 else time.perf_counter

        def block(count: int) -> float:
            seconds: float = scope["block"](count, clock, itertools.repeat, call, lib.autograd.backward, ones, out, *given)
            return seconds

        def restore() -> None:
            for tensor, numbers in kept:
                if tensor.shape == numbers.shape:
                    tensor.copy_(numbers)

        for _ in range(3):
            block(1)
            restore()
    except KeyError as error:
        raise Failed(f"no gradient of its result{error.args[0]}") from error
    except Exception as error:
        text = str(error).strip().splitlines()
        raise Failed(f"{type(error).__name__}: {text[0][:160] if text else ''}") from error
    return Work(block, restore)


def _when_done(lib: Any) -> Callable[[], float]:
    """The clock, once the GPU has done all it was given."""
    def clock() -> float:
        lib.cuda.synchronize()
        return time.perf_counter()
    return clock


def on_device(line: Line, lib: Any, case: Case) -> bool:
    """Whether it has a value on the case's device."""
    values = Values(lib, case)
    return any(isinstance(values[n], lib.Tensor) for n in used(line))


def entered(work: Work) -> list[str]:
    """The Python functions that one call enters, as file:name: what it costs on any machine."""
    found: list[str] = []

    def look(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            found.append(f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}")

    sys.setprofile(look)
    try:
        work.block(1)
    finally:
        sys.setprofile(None)
    work.restore()
    return [name for name in found if not name.startswith(("<string>:block", __file__))]


def timed(work: Work, count: int) -> float:
    """Seconds of so many calls, after a few that bring back what the other library's turn drove out of the caches."""
    work.block(min(count, WARM))
    seconds = work.block(count)
    work.restore()
    return seconds


def repeats(work: Work, block: float = BLOCK_SECONDS) -> int:
    """How many calls fill a block; the quickest of three blocks says so, as one may meet a busy machine."""
    count = 1
    while True:
        seconds = min(timed(work, count) for _ in range(3))
        if seconds >= block:
            return count
        count *= 2 if seconds < block / 4 else max(1, round(block / seconds)) + 1


def measure(works: list[Work], case: Case = SMALL) -> list[float]:
    """Seconds a call of each: the least of a few medians of short blocks, in which the works take turns."""
    counts = [repeats(w, BLOCK_SECONDS if case.device == "cpu" else DEVICE_BLOCK) for w in works]
    least = [float("inf")] * len(works)
    longest = max(timed(w, 1) for w in works)
    for _ in range(1 if longest > SLOW or case.device != "cpu" else 2 if longest > LONG else MEDIANS):
        samples: list[list[float]] = [[] for _ in works]
        for _ in range(3 if longest > LONG else BLOCKS):
            for work, count, column in zip(works, counts, samples, strict=True):
                column.append(timed(work, count) / count)
        least = [min(a, statistics.median(b)) for a, b in zip(least, samples, strict=True)]
    return least
