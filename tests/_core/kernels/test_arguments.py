"""How this Python's objects lie in memory, which the builtins in machine code read; and what is done where they lie otherwise."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import sysconfig
from types import SimpleNamespace

import pytest

from flambeau._core.kernels.llvm import arguments

ordinary = pytest.mark.skipif(sys.implementation.name != "cpython" or sys.version_info >= (3, 15) or bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
                              reason="this Python's objects are not of the kind that machine code reads")


@ordinary
def test_the_layouts_are_known_on_every_python_that_is_supported() -> None:
    assert arguments.KNOWN and arguments._seen()


@ordinary
@pytest.mark.parametrize("number", [1 << 30, (1 << 60) - 1, 0x7F0012345678])
def test_numbers_of_two_digits(number: int) -> None:
    held = (ctypes.c_int64 * 2).from_address(id(number) + 16)
    assert held[0] == arguments.TWO and held[1] & 0xFFFFFFFF | held[1] >> 32 << 30 == number


@ordinary
@pytest.mark.parametrize("number", [0, 1, -1, 255, 256, 257, (1 << 30) - 1, 1 << 60, -(1 << 30), -(1 << 45), (1 << 63) - 1])
def test_other_numbers_are_not_taken_for_such(number: int) -> None:
    assert ctypes.c_int64.from_address(id(number) + 16).value != arguments.TWO


@ordinary
def test_counts_of_references_where_none_is_immortal() -> None:
    """`COUNTED` says whether None is counted: an immortal object's count stays."""
    before = sys.getrefcount(None)
    held = [None] * 1000
    assert (sys.getrefcount(None) >= before + 900) == bool(arguments.LAYOUT["COUNTED"]), held


@pytest.mark.parametrize("change", ["object_size", "implementation", "digits"])
def test_another_layout_is_not_known(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    class Other:
        def __getattr__(self, name: str) -> object:
            if change == "implementation" and name == "implementation":
                return type("implementation", (), {"name": "another"})
            if change == "digits" and name == "int_info":
                return type("info", (), {"bits_per_digit": 15, "sizeof_digit": 2})
            return getattr(sys, name)
    monkeypatch.setattr(arguments, "sys", Other())
    if change == "object_size":
        monkeypatch.setattr(arguments, "object", SimpleNamespace(__basicsize__=32), raising=False)
    assert not arguments._seen()


def test_machine_code_is_left_out_where_layouts_are_not_known(tmp_path) -> None:
    program = """if True:
        from flambeau._core.kernels.llvm import arguments
        arguments.KNOWN = False
        arguments.LAYOUT["KNOWN"] = 0
        import flambeau as torch
        x = torch.ones(3, requires_grad=True)
        (x * 2.0).sum().backward()
        print(x.grad.tolist(), x.is_leaf, torch.arange(3).tolist())
        """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False,
                          env={**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path)})
    assert done.stdout == "[2.0, 2.0, 2.0] True [0, 1, 2]\n", done.stderr


def test_a_python_without_its_lock_is_refused() -> None:
    done = subprocess.run([sys.executable, "-c", "import sys; sys._is_gil_enabled = lambda: False; import flambeau"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 1 and "ImportError" in done.stderr and "free-threaded" in done.stderr and "-X gil=1" in done.stderr
    ok = subprocess.run([sys.executable, "-c", "import sys; sys._is_gil_enabled = lambda: True; import flambeau"], capture_output=True, check=False)
    assert ok.returncode == 0
