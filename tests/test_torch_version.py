"""Versions that compare as versions do."""

from __future__ import annotations

from flambeau.torch_version import TorchVersion


def test_order_with_strings_and_tuples() -> None:
    v = TorchVersion("2.13.0+local")
    assert v > "2.9" and v > "2.9.1" and v > "1.10" and v < "2.14" and v < "10.0" and v >= "2.13" and not v < "2.13.0"
    assert v > (1, 8) and v >= (2, 13) and v < (2, 14) and v > [2, 9, 1] and v < (3,)
    assert v > "2.13.0" and v != "2.13.0" and v == "2.13.0+local" and v == "2.13+local"  # a local part is later than the release
    assert TorchVersion("2.13") == "2.13.0" and not TorchVersion("2.13") > "2.13.0"
    assert v > "2.13.0rc1" and v > "2.13.0.dev20240101" and TorchVersion("2.13.0a0") < "2.13.0b1" < TorchVersion("2.13.0")


def test_it_is_a_string_beside_what_is_no_version() -> None:
    v = TorchVersion("2.13.0+local")
    assert isinstance(v, str) and v.split("+")[0] == "2.13.0" and v.startswith("2.") and f"{v}" == "2.13.0+local"
    assert v != "parrot" and (v < "parrot") is ("2.13.0+local" < "parrot") and v != None  # noqa: E711
    assert {v: 1}["2.13.0+local"] == 1
