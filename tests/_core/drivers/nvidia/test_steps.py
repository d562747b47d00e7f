"""What training steps launch on an NVIDIA GPU: on the fake libcuda."""

from __future__ import annotations

from .running import each_case, on_fake, run

test_case = each_case("cases_steps.py", ("eager", "random"))


@on_fake
def test_a_launch_that_fails() -> None:
    assert run("eager", 1, "end_a_launch_fails", file="cases_steps.py")["end_a_launch_fails"] == ""
