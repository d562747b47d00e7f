"""A plugin for pytest (`-p tests.autograd.forward_checked`) by which every `gradcheck` checks forward-mode derivatives too, and every `gradgradcheck` tangents
through the backward pass: the suite's own gradient checks, whatever they are of, then test both ways of differentiating."""

from __future__ import annotations

import functools
from typing import Any

import flambeau.autograd
from flambeau.autograd import gradcheck as module  # noqa: F401 (so that the functions below are found under these names)


def _more(function: Any, **given: Any) -> Any:
    @functools.wraps(function)
    def check(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **{**given, **kwargs})
        except NotImplementedError:  # sparse tensors, functions without `jvp`
            return function(*args, **kwargs)
    return check


flambeau.autograd.gradcheck = _more(flambeau.autograd.gradcheck, check_forward_ad=True)
flambeau.autograd.gradgradcheck = _more(flambeau.autograd.gradgradcheck, check_fwd_over_rev=True)
