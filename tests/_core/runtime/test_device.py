"""Devices by name."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import pytest

import flambeau as torch
from flambeau._core.runtime import device as devices
from flambeau._core.runtime.device import resolve

D = torch.device


@pytest.mark.parametrize(("args", "text"), [
    (("cpu",), "device(type='cpu')"), (("cpu:0",), "device(type='cpu', index=0)"),
    (("cpu", 0), "device(type='cpu', index=0)"),
    (("cuda",), "device(type='cuda')"), (("cuda", None), "device(type='cuda')"),
    (("cuda:1",), "device(type='cuda', index=1)"), (("cuda", 1), "device(type='cuda', index=1)"),
    ((1,), "device(type='cuda', index=1)"), ((D("cuda:1"),), "device(type='cuda', index=1)"),
])
def test_every_form(args: tuple[Any, ...], text: str) -> None:
    d = D(*args)
    assert repr(d) == text and d is D(*args)
    assert str(d) == (d.type if d.index is None else f"{d.type}:{d.index}")
    assert pickle.loads(pickle.dumps(d)) is d is copy.deepcopy(d)


def test_keywords() -> None:
    assert D(type="cuda", index=2) is D("cuda:2") and D(device="cuda") is D("cuda")
    with pytest.raises(TypeError, match="argument 'place'"):
        D("cuda", place=2)


def test_equality_is_identity() -> None:
    assert D("cuda:1") == D("cuda", 1) and hash(D("cuda:1")) == hash(D(1))
    assert len({D("cpu"), D("cpu:0"), D("cuda"), D("cuda:0"), D("cuda", 0)}) == 4
    assert D("cpu") != D("cpu:0") and D("cpu") != "cpu"


@pytest.mark.parametrize("text", ["", "foo", "CUDA", "cuda:", "cuda:-1", "cuda:01", "cuda:1 ", " cuda", "cpu:x",
                                  "cuda:1:2",
                                  "gpu:0", "cuda:\u0663"])
def test_bad_strings_name_the_accepted_forms(text: str) -> None:
    with pytest.raises(RuntimeError, match=r"'cpu', 'cuda' or 'cuda:<index>'"):
        D(text)


@pytest.mark.parametrize(("args", "error"), [
    ((-1,), RuntimeError), (("cuda", -1), RuntimeError), (("cuda:0", 0), RuntimeError), (("foo", 0), RuntimeError),
    ((True,), TypeError), ((1.0,), TypeError), ((None,), TypeError), (([],), TypeError), ((), TypeError),
    (("cuda", "1"), TypeError), (("cuda", True), TypeError), ((D("cuda"), 1), TypeError), (("cuda", 1, 2), TypeError),
])
def test_bad_arguments(args: tuple[Any, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        D(*args)


def test_devices_do_not_change() -> None:
    with pytest.raises(AttributeError, match="not writable"):
        D("cpu").type = "cuda"
    with pytest.raises(AttributeError, match="not writable"):
        del D("cpu").index


def test_resolve() -> None:
    assert resolve(None) is resolve("cpu:0") is resolve(D("cpu")) is D("cpu")
    with pytest.raises(RuntimeError, match="one CPU device"):
        resolve("cpu:1")
    with torch.simulate(gpus=2, memory="16MiB"):
        assert resolve("cuda") is D("cuda:0") and resolve(1) is D("cuda:1")
        with torch.cuda.device(1):
            assert resolve("cuda") is D("cuda:1")
        with pytest.raises(RuntimeError,
                           match="cuda:2 is not there.*cuda:0 to cuda:1.*simulated NVIDIA H200.*simulate"):
            resolve("cuda:2")


def test_the_default_device_as_block_and_decorator() -> None:
    with torch.simulate(gpus=2, memory="16MiB"):
        seen: list[Any] = []
        with D("cuda:1"):
            seen.append(torch.ones(2).device)
            with D("cpu"):
                seen.append(torch.ones(2).device)
            seen.append(torch.zeros(2, device="cuda:0").device)
            other = threading.Thread(target=lambda: seen.append(torch.ones(1).device))
            other.start()
            other.join()
        assert seen == [D("cuda:1"), D("cpu"), D("cuda:0"), D("cpu")]
        assert torch.ones(2).device == D("cpu")
        assert D("cuda:0")(lambda: torch.ones(1).device)() == D("cuda:0")
        with pytest.raises(ZeroDivisionError), D("cuda:1"):
            raise ZeroDivisionError
        assert torch.ones(2).device == D("cpu")


def test_a_default_device_is_asked_for_as_long_as_a_thread_has_chosen_one() -> None:
    before = devices.chosen.some
    with D("meta"):
        with D("meta"), D("cpu"):
            assert devices.chosen.some == before
        assert devices.chosen.some == before + 1 and torch.zeros(2).device.type == "meta"
    torch.set_default_device("meta")
    torch.set_default_device("meta")
    assert devices.chosen.some == before + 1
    torch.set_default_device(None)
    assert devices.chosen.some == before and torch.zeros(2).device.type == "cpu"


def test_using_a_gpu_where_there_is_none_says_what_to_do() -> None:
    with torch.simulate(gpus=0):
        assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
        for use in (lambda: torch.ones(2, device="cuda"), lambda: torch.ones(2).cuda(), torch.cuda.current_device):
            with pytest.raises(RuntimeError,
                               match=r"no CUDA GPU.*devices here are: cpu.*flambeau.simulate.*FLAMBEAU_SIM_GPUS"):
                use()
