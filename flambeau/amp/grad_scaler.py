"""`GradScaler`: a loss made large enough that float16 gradients do not vanish (torch.amp.grad_scaler).

Micikevicius et al., "Mixed Precision Training" (2018).  The scale grows while gradients are finite and is cut when some
are not; a step with infinite or NaN gradients is left out.
"""

from __future__ import annotations

from collections import defaultdict
from enum import Enum
from typing import Any

from .._core import ops
from .._core.dtypes import float32
from .._core.errors import warn
from .._core.ops import foreach
from .._core.tensor import Tensor
from ..autograd import no_grad

_ops: Any = ops


class OptState(Enum):
    """Where an optimizer is between two updates."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _refresh_per_optimizer_state() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """Multiplies losses by a scale, divides gradients by it before a step, and adapts it.

    device: where the losses are.  init_scale: the first scale.  growth_factor: what it is multiplied by after
    growth_interval steps in a row with finite gradients; backoff_factor: after one without.  enabled=False: every
    method does the plain thing.
    """

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:
        self._device = device
        self._enabled = enabled
        if device == "cuda" and enabled:
            from .. import cuda
            if not cuda.is_available():
                warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.")
                self._enabled = False
        if self._enabled:
            if growth_factor <= 1.0:
                raise AssertionError("The growth factor must be > 1.0.")
            if backoff_factor >= 1.0:
                raise AssertionError("The backoff factor must be < 1.0.")
        self._scale = float(init_scale)
        self._scales: dict[Any, Tensor] = {}  # the same on GPUs, where graphs read it: written in place
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval, self._growth_tracker = growth_interval, 0
        self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(_refresh_per_optimizer_state)

    def scale(self, outputs: Any) -> Any:
        """A loss, or a nest of them in lists and tuples, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            # in float32, which holds the scale; the product promotes nothing narrower
            scale = self._scale if outputs.meta.device.type != "cuda" else self._on_gpu(outputs.meta.device)
            return outputs * scale if outputs.meta.dtype.itemsize >= 4 else outputs.float() * scale
        if isinstance(outputs, (list, tuple)):
            return type(outputs)([self.scale(x) for x in outputs])
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _on_gpu(self, device: Any) -> Tensor:
        """The scale as a 0-dim float32 tensor of this GPU."""
        found = self._scales.get(device)
        if found is None:
            found = self._scales[device] = _ops.full((), self._scale, dtype=float32, device=device)
        return found

    def _set(self, scale: float) -> None:
        """Another scale, on GPUs too."""
        if scale != self._scale:
            self._scale = scale
            for t in self._scales.values():
                t.fill_(scale)

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of an optimizer's parameters by the scale, in place, and looks whether they are finite.

        Raises RuntimeError when done twice between updates, or after `step`.
        """
        if not self._enabled:
            return
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, 1.0 / self._scale, None, False)
        state["stage"] = OptState.UNSCALED

    def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> dict[Any, Tensor]:
        """Multiplies the gradients by `inv_scale`, in place; gives per device a 0-dim truth: whether one is not finite.

        What scalers of libraries call and replace, by PyTorch's name; `found_inf` is taken and not needed.
        """
        found: dict[Any, Tensor] = {}
        inverse = float(inv_scale)
        alike: dict[Any, list[Tensor]] = {}
        with no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    g = p.grad
                    if g is None:
                        continue
                    if not allow_fp16 and g.meta.dtype.name == "float16":
                        raise ValueError("Attempting to unscale FP16 gradients.")
                    alike.setdefault((g.meta.device, g.meta.dtype), []).append(g)
            for (device, _), gs in alike.items():
                told = foreach.unscale(gs, inverse)
                for bad in self._each(gs, inverse) if told is None else [told]:
                    old = found.get(device)
                    found[device] = bad if old is None else old | bad
        return found

    @staticmethod
    def _each(gs: list[Tensor], inverse: float) -> Any:
        """Divides each gradient, and gives for each whether it is not finite."""
        for g in gs:
            g.mul_(inverse)
            yield ~_ops.isfinite(g).all()

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(...)`, unless a gradient is not finite; unscales first when `unscale_` was not called."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        if not state["found_inf_per_device"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = self._maybe_opt_step(optimizer, state, *args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def _maybe_opt_step(self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The step, where every gradient is finite."""
        found = optimizer_state["found_inf_per_device"] = {device: bool(x) for device, x in optimizer_state["found_inf_per_device"].items()}
        return None if any(found.values()) else optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Sets the scale for the next step: `new_scale`, or by what the last gradients were."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._set(float(new_scale))
        else:
            found = [x for state in self._per_optimizer_states.values() for x in state["found_inf_per_device"].values()]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            if any(bool(x) for x in found):
                self._set(self._scale * self._backoff_factor)
                self._growth_tracker = 0
            else:
                self._growth_tracker += 1
                if self._growth_tracker == self._growth_interval:
                    grown = self._scale * self._growth_factor
                    self._set(grown if grown < 3.4e38 else self._scale)
                    self._growth_tracker = 0
        self._per_optimizer_states.clear()

    def get_scale(self) -> float:
        """The scale; 1 when disabled."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs; empty when disabled."""
        if not self._enabled:
            return {}
        return {"scale": self._scale, "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
                "growth_interval": self._growth_interval, "_growth_tracker": self._growth_tracker}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict` gave.  Raises RuntimeError for an empty one."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.")
        self._set(float(state_dict["scale"]))
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval, self._growth_tracker = state_dict["growth_interval"], state_dict["_growth_tracker"]


__all__ = ["GradScaler", "OptState"]
