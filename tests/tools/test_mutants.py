"""What is changed, and what is left alone."""

from __future__ import annotations

from pathlib import Path

from tools import mutants

ROOT = Path(__file__).resolve().parents[2]

SOURCE = '''
def f(x: int = 1, /) -> list[int | None]:
    """1 + 1"""
    y = (x) + 2 if not x < 3 and x is not None else True
    return [y >> 1, f"{x + 1}"]
'''


def test_each_operator_and_constant_once() -> None:
    raw = SOURCE.encode()
    made = {mutants.changed(raw, m)[1] for m in mutants.mutants(SOURCE)}
    assert made == {
        "def f(x: int = 2, /) -> list[int | None]:",
        "y = (x) - 2 if not x < 3 and x is not None else True", "y = (x) + 3 if not x < 3 and x is not None else True",
        "y = (x) + 2 if x < 3 and x is not None else True", "y = (x) + 2 if not x <= 3 and x is not None else True",
        "y = (x) + 2 if not x < 4 and x is not None else True", "y = (x) + 2 if not x < 3 or x is not None else True",
        "y = (x) + 2 if not x < 3 and x is None else True", "y = (x) + 2 if not x < 3 and x is not None else False",
        'return [y << 1, f"{x + 1}"]', 'return [y >> 2, f"{x + 1}"]'}


def test_a_module_and_its_mirrored_tests() -> None:
    assert mutants.modules(ROOT)["flambeau/_core/layout.py"] == "tests/_core/test_layout.py"


def test_every_change_of_a_module_can_be_read() -> None:
    source = (ROOT / "flambeau" / "_core" / "layout.py").read_text()
    found = mutants.mutants(source)
    assert len(found) > 50 and len({(m.start, m.end, m.text) for m in found}) == len(found)
