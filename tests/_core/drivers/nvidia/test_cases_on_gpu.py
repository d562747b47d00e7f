"""What is run on the fake libraries in processes of its own (`cases*.py`), on a GPU: NVIDIA's libraries give what NumPy and the CPU give.

What only a fake library can tell (how often it was called) is taken as right.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from .running import HERE, named

FILES = tuple(sorted({p.stem for p in HERE.glob("cases*.py")} - {"cases_driver"}))  # that one's are about the fake's memory
# their subject is the fake libraries' behaviour, or memory of the fake's size
OF_THE_FAKE = {"cases": ("case_memory",), "cases_libraries": ("case_precision_switches",), "cases_activations": ("case_which_gradients", "case_modules_change"),
               "cases_cudnn": ("case_choice", "case_benchmark", "case_little_room", "case_failures", "case_what_is_there", "case_layouts",
                               "case_more_room_than_was_asked_for", "case_what_was_tried_is_kept"),
               "cases_cudnn_attention": ("case_refusals", "case_failures", "case_versions", "case_plans_are_kept", "case_what_is_there")}
SEVERAL = {"cases": ("case_copies",), "cases_libraries": ("case_plans_of_transforms",)}  # GPUs


class Untold:
    """A count that nobody kept: whatever is said of it holds."""

    def __eq__(self, other: object) -> bool:
        return True

    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: object) -> Untold:
        return self

    __radd__ = __sub__ = __rsub__ = __add__

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self


class Unruled:
    """A rule for the fake, where there is none."""

    def __init__(self, *rules: object) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Switches that a case may leave behind; TF32, which the fake libraries do not know, is off for convolutions."""
    import flambeau as torch
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before
    torch.backends.cudnn.benchmark = torch.backends.cudnn.deterministic = False
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(False)


@pytest.mark.gpu
@pytest.mark.parametrize("file, case", [(f, c) for f in FILES for c in named(f + ".py") if c not in OF_THE_FAKE.get(f, ())])
def test_case(file: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import flambeau as torch
    if case in SEVERAL.get(file, ()) and torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU here")
    monkeypatch.syspath_prepend(str(HERE))
    module = sys.modules.get(file) or importlib.import_module(file)
    for name, stand_in in (("fake", lambda name: Untold()), ("ran", lambda *which: Untold() if which else [Untold()] * 16), ("told", Unruled),
                           ("fake_dnn", Untold())):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, stand_in)
    if file == "cases_activations":
        monkeypatch.setattr(module, "allowed", type("allowed", (module.allowed,), {"counts": property(lambda self: Untold(), lambda self, counts: None)}))
    if file == "cases_cudnn_attention":  # its operands are small
        from flambeau._core.drivers.nvidia import cudnn_attention
        monkeypatch.setattr(cudnn_attention, "LEAST", 0)
        monkeypatch.setattr(cudnn_attention, "LEAST_ROWS", 0)
    if file == "cases_learned":
        from flambeau._core.engine import learning
        monkeypatch.setattr(learning, "AFTER_ON_GPU", learning.AFTER)
        monkeypatch.setattr(learning.budget, "share", 1e9)
    if file == "cases":  # it asks for what a card of the fake's name is
        name = torch.cuda.get_device_name(0)
        if case == "case_creation" and name != "Fake H200":
            p = torch.cuda.get_device_properties(0)
            assert (p.major, p.minor) >= (8, 0) and not p.simulated and p.name == name
            assert torch.zeros(0, 3, device="cuda").sum().item() == 0.0
            return
    try:
        getattr(module, case)()
    except AssertionError as error:
        if str(error) != "the failure was not told":  # one that the fake was to make
            raise
