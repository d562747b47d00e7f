"""Tensors of data: what data are in keys, when the plan carries a call out, and what is left to Python."""

from __future__ import annotations

import array
import gc
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau._core.engine import data
from flambeau._core.runtime import capture


@pytest.fixture(autouse=True)
def machine_code() -> None:
    """There is machine code once something was launched."""
    torch.ones(2) + 1
    if data._native()["data_layout"] is data.layout:
        pytest.skip("kernels by the interpreter: nothing is read from an object's head")


def layout(x: Any) -> Any:
    return data._native()["data_layout"](x)


def test_heads_of_arrays_tell_layouts_apart() -> None:
    a = np.zeros((3, 4), np.float32)
    frozen = a.copy()
    frozen.flags.writeable = False
    assert layout(a) == layout(a.copy())
    others = [layout(x) for x in (a, a.T, a[::2], a[:, :2], a.astype(np.float64), a.astype(">f4"), a.reshape(4, 3), a.reshape(-1), frozen,
                                  np.zeros((), np.float32))]
    assert len(set(others)) == len(others)
    for x in (None, "1", 1j, np.float32(1), a.view(np.recarray), memoryview(a), bytearray(3), object(), {1: 2}):
        with pytest.raises(TypeError, match="in no key"):
            layout(x)


def test_numbers_in_lists_are_their_sizes_and_the_class_of_the_first() -> None:
    assert layout(2.5) == (float,) and layout(2) == (int,) and layout(True) == (bool,)
    assert layout([[1, 2, 3], [4, 5, 6]]) == layout(((1, 0, 0), "any")) == (int, 2, 3) != layout([[1.0, 2, 3], [4, 5, 6]])
    itself: list[Any] = []
    itself.append(itself)
    for x in ([], [[]], [[], [1]], itself, [None], [torch.ones(1)], [np.float64(1)], ["1"]):
        with pytest.raises(TypeError):
            layout(x)
    x = torch.ones(2)
    assert layout(x) is x.meta and layout(torch.nn.Parameter(x)) is x.meta


def test_buffers_that_may_be_written_are_their_size() -> None:
    size = data._native()["buffer_size"]
    assert size(bytearray(12)) == size(memoryview(bytearray(12))) == size(array.array("f", [1, 2, 3])) == size(np.zeros(3, np.float32)) == 12
    for x in (bytes(3), memoryview(bytearray(8))[::2], 3, None):
        with pytest.raises(TypeError):
            size(x)


MAKERS = {"tensor": torch.tensor, "as_tensor": torch.as_tensor, "asarray": torch.asarray, "new_tensor": torch.ones(1).new_tensor}


@pytest.mark.parametrize("name", MAKERS)
def test_what_the_first_number_does_not_tell_is_found_when_it_is_read(name: str) -> None:
    make = MAKERS[name]
    d = torch.float32 if name == "new_tensor" else None
    for _ in range(3):
        assert make([1.5, 2]).tolist() == [1.5, 2] and make([2, 1.5]).tolist() == [2, 1.5] and make([2, 1]).dtype is (d or torch.int64)
        assert make([True, False]).dtype is (d or torch.bool) and make([True, 2]).tolist() == [1, 2] and make([1, True]).dtype is (d or torch.int64)
        assert make([2.0, 1 << 70]).tolist() == [2, 2.0 ** 70] and make(((1, 2), [3, 4])).shape == (2, 2)
        assert make([1, torch.tensor(2)]).tolist() == [1, 2] and make([1.0, np.float64(2.5)]).tolist() == [1, 2.5]
        assert make([]).shape == (0,) and make([[], []]).shape == (2, 0) and make(2.5).shape == ()
        for uneven in ([[1, 2], [3]], [[1, 2], 3], [1, [2]], [[1, 2], [3, 4, 5]]):
            with pytest.raises((ValueError, TypeError)):
                make(uneven)
        with pytest.raises((TypeError, RuntimeError)):
            make([1, "2"])
        with pytest.raises((TypeError, RuntimeError, ValueError)):
            make([1, None])


def test_a_call_of_a_known_layout_is_one_builtin() -> None:
    a = np.arange(6.0).reshape(2, 3)
    for call, name in ((lambda: torch.tensor([[1.0, 2.0, 7.0]]), "tensor"), (lambda: torch.as_tensor([[1, 2, 7, 7]]), "as_tensor"),
                       (lambda: torch.from_numpy(a), "from_numpy"), (lambda: torch.asarray(a), "asarray"),
                       (lambda: torch.frombuffer(bytearray(28), dtype=torch.float32), "frombuffer")):
        call()
        plans = getattr(torch, name).__operation__.env["plans"]
        assert any(run.__name__ == "flambeau_call" for run in plans.values()), name


def test_a_program_that_launches_nothing_has_machine_code_too() -> None:
    code = """if 1:
        import flambeau as torch
        for _ in range(3):
            made = torch.as_tensor([[1.0, 2.0]])
        plans = torch.as_tensor.__operation__.env["plans"]
        assert [run.__name__ for run in plans.values()] == ["flambeau_call"], plans
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_copies_and_tensors_on_memory_of_others() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    before = sys.getrefcount(a)
    for part in (a, a.T, a[:, 1:], a[::-1], a.astype(np.int16), a.astype(">f4"), a > 2, a.astype(np.complex64)):
        frozen = part.copy()
        frozen.flags.writeable = False
        for x in (part, frozen):
            for d in (None, torch.float64, torch.int32, torch.bool):
                if x.dtype.kind == "c" and d is not None:
                    continue
                made = [torch.tensor(x, dtype=d) for _ in range(2)]
                assert all(m.tolist() == (part if d is None else part.astype(str(d)[6:])).tolist() and m.is_contiguous() for m in made)
                assert all(m.data_ptr() != x.ctypes.data for m in made) and (d is not None or x.dtype.byteorder == ">" or made[0].numpy().dtype == x.dtype)
    shared = [f(a) for f in (torch.from_numpy, torch.as_tensor, torch.asarray) for _ in range(2)]
    shared += [torch.asarray(a, requires_grad=True) for _ in range(2)]
    assert all(t.data_ptr() == a.ctypes.data for t in shared) and shared[-1].requires_grad
    assert torch.as_tensor(a, dtype=torch.float64).data_ptr() != a.ctypes.data == torch.as_tensor(a, dtype=torch.float32).data_ptr()
    assert torch.asarray(a, copy=True).data_ptr() != a.ctypes.data == torch.asarray(a, copy=False).data_ptr()
    x = torch.ones(2)
    assert all(torch.as_tensor(x) is x and torch.asarray(x) is x and torch.as_tensor(x, dtype=torch.int64).tolist() == [1, 1] for _ in range(2))
    del shared, part, x
    gc.collect()
    assert sys.getrefcount(a) <= before + 1  # the last of those copied


def test_types_and_devices_of_the_moment() -> None:
    for _ in range(2):
        assert torch.tensor([1.0]).dtype is torch.float32
        with torch.device("meta"):
            assert torch.tensor([1.0]).device.type == "meta" == torch.as_tensor([1.0]).device.type and torch.from_numpy(np.zeros(1)).device.type == "cpu"
        torch.set_default_dtype(torch.float64)
        try:
            assert torch.tensor([1.0]).dtype is torch.float64 and torch.tensor([1.0], dtype=torch.float32).dtype is torch.float32
        finally:
            torch.set_default_dtype(torch.float32)
        assert torch.tensor([1.0], dtype=float).dtype is torch.float64 and torch.tensor([1], dtype=torch.bfloat16).dtype is torch.bfloat16


def test_a_capture_is_told_what_was_written_and_whose_memory_became_a_tensors() -> None:
    a, raw = np.ones(3, np.float32), bytearray(12)

    def work() -> list[Any]:
        return [torch.tensor([1.0, 2.0, 3.0]), torch.from_numpy(a), torch.frombuffer(raw, dtype=torch.float32), torch.tensor(a)]
    work()
    work()
    with capture.Capture() as seen:
        made = work()
    assert [type(s) for s in seen.steps] == [capture.Write, capture.Write] and seen.steps[0].address == made[0].data_ptr()
    assert [start for start, _, _ in seen.foreign] == [made[1].data_ptr(), made[2].data_ptr()]
    assert [t.tolist() for t in work()] == [t.tolist() for t in made]
