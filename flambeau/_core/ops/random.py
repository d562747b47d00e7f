"""Random tensors: factories, what fills in place, dropout, permutations and choices.  `draws` has the distributions."""

from __future__ import annotations

import ctypes
import inspect
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes
from ..autograd import inplace, tape
from ..autograd.mode import _grad
from ..dtypes import float64
from ..engine.fields import has
from ..errors import warn
from ..runtime import generators
from ..runtime.device import resolve
from ..tensor import Meta, Tensor, alias, empty, meta, new
from ..unknowns import index
from . import draws, launch, outputs, thread_draws
from .checks import may_write, of_kinds, scalar_tensor, values_hold
from .copies import strides_for
from .creation import _finish, _options, _shape, counts
from .draws import as_new, draw, filled, generator_of
from .ranges import _rounded
from .table import op

if TYPE_CHECKING:
    from collections.abc import Callable


def _get_state(self: generators.Generator) -> Tensor:
    """The state as a uint8 CPU tensor: of the CPU's, PyTorch's 5056 bytes."""
    from .creation import from_bytes
    raw = self.state_bytes()
    return from_bytes(raw, (len(raw),), dtypes.uint8, "cpu")


def _set_state(self: generators.Generator, state: Tensor) -> generators.Generator:
    """Restores what `get_state` gave, here or in PyTorch."""
    if not isinstance(state, Tensor) or state.meta.dtype is not dtypes.uint8 or state.meta.device.type != "cpu":
        what = f"{state.meta.dtype} on {state.meta.device}" if isinstance(state, Tensor) else type(state).__name__
        raise TypeError(f"expected a torch.ByteTensor on the CPU as a generator's state, but got {what}")
    self.set_state_bytes(ctypes.string_at(state.ptr, state.meta.numel) if state.meta.contiguous else bytes(state.tolist()))
    return self


generators.Generator.get_state = _get_state
generators.Generator.set_state = _set_state


_TEXTS = {"rand": "check_uniform_bounds", "randn": "normal_kernel_cpu"}  # as PyTorch's refusals name them


# ------------------------------------------------------------------------------------------------------------- factories
def _sized(name: str, fill: Callable[[Tensor, Any], Tensor]) -> Any:
    def make(*size: Any, generator: Any = None, out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False, pin_memory: bool = False, names: Any = None) -> Tensor:
        if out is not None:
            t = outputs.to_fill(name, out, _shape(name, size))
        else:
            d, dev = _options(dtype, device)
            t = empty(_shape(name, size), d, dev)
        of_kinds(_TEXTS[name], t, "fc")
        fill(t, generator)
        return _finish(t if out is not None else as_new(t), requires_grad, pin_memory)
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"A tensor of a size with {'uniform numbers in [0, 1)' if name == 'rand' else 'standard normal numbers'}."
    op(method=False)(make)

    def like(input: Tensor, *, generator: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,  # noqa: A002
             requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None) -> Tensor:
        m = input.meta
        t = empty(m.shape, dtype or m.dtype, m.device if device is None else resolve(device),
                  strides_for(m.shape, m.strides, memory_format))
        of_kinds(_TEXTS[name], t, "fc")
        return _finish(as_new(fill(t, generator)), requires_grad, pin_memory)
    like.__name__ = like.__qualname__ = name + "_like"
    like.__doc__ = f"`{name}` with the shape, type and device of `input`."
    op(method=False)(like)
    return make


def _fill_uniform(t: Tensor, generator: Any, low: float = 0.0, high: float = 1.0) -> Tensor:
    if t.meta.dtype.is_complex:
        return _complex(t, lambda part: _fill_uniform(part, generator, low, high))
    return draw(t, draws.UNIFORM, (low, high), generator)


def _fill_normal(t: Tensor, generator: Any, mean: float = 0.0, std: float = 1.0) -> Tensor:
    if t.meta.dtype.is_complex:
        # a complex normal number has the variance split between its parts
        return _complex(t, lambda part: _fill_normal(part, generator, mean, std / math.sqrt(2.0)))
    return draw(t, draws.NORMAL, (mean, std), generator)


def _complex(t: Tensor, fill: Callable[[Tensor], Tensor]) -> Tensor:
    """Fills the two parts of a complex tensor in one draw, as a real tensor with a last axis of 2."""
    m = t.meta
    fill(alias(t, meta((*m.shape, 2), (*[2 * s for s in m.strides], 1), m.dtype.to_real(), m.device), t.ptr))
    return t


rand, randn = _sized("rand", _fill_uniform), _sized("randn", _fill_normal)


def _integer(name: str, param: str, v: Any) -> int:
    """A bound of a range. Raises TypeError for what is no integer, ValueError for one of more than 64 bits."""
    try:
        v = index(v)
    except TypeError:
        raise TypeError(f"{name}(): argument '{param}' must be int, not {type(v).__name__}") from None
    if not -1 << 63 <= v < 1 << 63:
        raise ValueError(f"{name}(): argument '{param}' must fit into 64 bits, got {v}: Overflow when unpacking long long")
    return v  # type: ignore[no-any-return]


def _exact(d: dtypes.dtype) -> int:
    """The number up to which all integers have a value of their own in a floating type."""
    return round(2 / dtypes.finfo(d).eps)


def _inward(low: int, high: int, d: dtypes.dtype) -> tuple[int, int]:
    """The range whose ends, rounded to a floating type, lie within [low, high)."""
    def near(x: int) -> int:
        return int(_rounded(x, d) if d.itemsize == 2 else np.float32(x) if d.itemsize == 4 else float(x))

    def step(x: int) -> int:
        return 1 << max(abs(x).bit_length() - _exact(d).bit_length() + 1, 0)
    first, last = near(low + 1), near(high - 1)
    return first + step(low + 1) if first < low else low, last - step(high - 1) if high <= last < 1 << 63 else high


def _fill_integers(t: Tensor, low: int, high: int, generator: Any, full: bool = False) -> Tensor:
    d = t.meta.dtype
    if d.is_complex:
        raise (NotImplementedError if full else RuntimeError)(f"random_ draws integers, booleans and real floating numbers, not {dtypes.title(d)}")
    least, most = (0, 1) if d.kind == "b" else (dtypes.iinfo(d).min, dtypes.iinfo(d).max) if d.kind in "ui" else (dtypes.finfo(d).min, dtypes.finfo(d).max)
    for name, bound in (("from", low), ("to - 1", high - 1)):
        if not least <= bound <= most:
            raise RuntimeError(f"{name} is out of bounds for {d}: {bound}, but its elements are {least} to {most}")
        if d.kind == "f" and abs(bound) > _exact(d) and not full:
            warn(f"{name} is out of bounds [-{_exact(d)}, {_exact(d)}], between which {d} holds every integer: {bound}")
    if d.kind == "f" and not full:
        low, high = _inward(low, high, d)
    span = high - low
    of = (draws.ALL_INTEGERS, draws.ALL_WIDE_INTEGERS, draws.ALL_WIDEST_INTEGERS) if full else (
        draws.INTEGERS, draws.WIDE_INTEGERS, draws.WIDEST_INTEGERS)
    return draw(t, of[(span > 1 << 32) + (span >= 1 << 62)], (low, span if span < 1 << 63 else span - (1 << 64)), generator)


@op(method=False, draws_alone=True)
def randint(low: Any = None, high: Any = None, size: Any = None, *, generator: Any = None, out: Tensor | None = None, dtype: Any = None,
            layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """Integers of [low, high) (low is 0 when one bound is given), int64 by default."""
    if size is None and not isinstance(high, int):
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if low is None:
        low = 0
    if high is None or size is None:
        raise TypeError("randint() received an invalid combination of arguments: expected (int high, tuple size) or (int low, int "
                        "high, tuple size)")
    low, high = _integer("randint", "low", low), _integer("randint", "high", high)
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    d, dev = _options(dtype or (out.meta.dtype if out is not None else dtypes.int64), device)
    t = outputs.to_fill("randint", out, _shape("randint", (size,))) if out is not None else empty(_shape("randint", (size,)), d, dev)
    _fill_integers(t, low, high, generator)
    return _finish(t if out is not None else as_new(t), requires_grad, pin_memory)


@op(method=False, batch="draws each", draws_alone=True)
def randint_like(input: Tensor, low: int | None = None, high: int | None = None, *, generator: Any = None, dtype: Any = None, layout: Any = None,  # noqa: A002
                 device: Any = None, requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None) -> Tensor:
    """`randint` with the shape, type and device of `input`."""
    low, high = (0, low) if high is None else (low or 0, high)
    if low is None or high is None:
        raise TypeError("randint_like() received an invalid combination of arguments: expected (Tensor input, int high) or (Tensor input, int low, int high)")
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    m = input.meta
    t = empty(m.shape, dtype or m.dtype, m.device if device is None else resolve(device), strides_for(m.shape, m.strides, memory_format))
    return _finish(as_new(_fill_integers(t, int(low), int(high), generator)), requires_grad, pin_memory)


@op(method=False, batch="draws", draws_alone=True, out_type="castable")
def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Any = None, out: Tensor | None = None, dtype: Any = None,
           layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """Normal numbers; mean and std are numbers (with a size) or tensors (which are broadcast)."""
    if isinstance(std, (int, float)) and std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        like = mean if isinstance(mean, Tensor) else std
        if isinstance(std, Tensor) and std.meta.numel and std.meta.device.type == "cpu" and bool((std < 0).any()):
            raise RuntimeError("normal expects all elements of std >= 0.0")
        shape = tuple((mean + std).meta.shape) if isinstance(mean, Tensor) and isinstance(std, Tensor) else tuple(like.meta.shape)
        z = empty(shape, like.meta.dtype, like.meta.device)
        # PyTorch's steps, each of which rounds
        if not isinstance(std, Tensor):
            result = _fill_normal(z, generator, 0.0, std) + mean
        elif not isinstance(mean, Tensor):
            from .creation import full_like
            result = _fill_normal(z, generator) * std + full_like(z, mean)
        else:
            result = _fill_normal(z, generator) * std + mean
        if out is not None:
            result = outputs.write("normal", out, result, (mean, std))
        return result  # type: ignore[no-any-return]
    if out is not None:
        t = outputs.to_fill("normal", out, _shape("normal", (size,)))
    else:
        t = empty(_shape("normal", (size,)), *_options(dtype, device))
    of_kinds(_TEXTS["randn"], t, "fc")
    _fill_normal(t, generator, mean, std)
    return _finish(t if out is not None else as_new(t), requires_grad, pin_memory)


# -------------------------------------------------------------------------------------------------------------- in place
def _inplace(self: Tensor, name: str, fill: Callable[[Tensor], Tensor]) -> Tensor:
    recorded = _grad.get() and inplace.check(self, (self,))
    may_write(self)
    fill(self)
    if recorded:
        def nothing(node: Any, g: Tensor) -> Any:
            from .creation import zeros_like
            return (zeros_like(g),)
        inplace.rebase(self, tape.node(nothing, (self.node,), None, name))
    return self


def _preserved(m: Meta) -> Meta:
    """The meta of a new tensor laid out like one of this meta."""
    return meta(m.shape, strides_for(m.shape, m.strides, None), m.dtype, m.device)


@op(name="uniform_", spaces=(), batch="draws each")
def uniform_(self: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Any = None, **kwargs: Any) -> Tensor:
    """Uniform numbers of [from, to)."""
    low = kwargs.pop("from", from_)
    of_kinds(_TEXTS["rand"], self, "fc")
    if low > to:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={to}")
    most = dtypes.finfo(self.meta.dtype).max
    for what, bound in (("from", low), ("to", to)):
        if not -most <= bound <= most:
            raise RuntimeError(f"{what} is out of bounds for {self.meta.dtype}")
    if to - low > most:
        raise RuntimeError(f"uniform_ expects to-from <= std::numeric_limits<{dtypes.title(self.meta.dtype)}>::max(), but found to={to} and from={low} "
                           "which result in to-from to exceed the limit")
    return _inplace(self, "UniformBackward0", lambda t: _fill_uniform(t, generator, low, to))


@op(name="normal_", spaces=(), batch="draws each")
def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Normal numbers."""
    of_kinds(_TEXTS["randn"], self, "fc")
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    return _inplace(self, "NormalBackward0", lambda t: _fill_normal(t, generator, mean, std))


@op(name="random_", spaces=(), batch="draws")
def random_(self: Tensor, from_: int | None = None, to: Any = ..., *, generator: Any = None, **kwargs: Any) -> Tensor:
    """Integers of [from, to), or of [0, to), or of all the type can hold exactly.

    `random_(from, None)` goes up to the largest that it holds so, or to 2**63 - 1 where `from` is -2**63.
    Raises RuntimeError for an empty range and for bounds beyond the type, TypeError for bounds that are no integers, ValueError for those of
    more than 64 bits, NotImplementedError for complex tensors.
    """
    low, alone = kwargs.pop("from", from_), to is ...
    if kwargs:
        raise TypeError(f"random_() got an unexpected keyword argument '{next(iter(kwargs))}'")
    d = self.meta.dtype
    low, to = [None if v is None or v is ... else _integer("random_", n, v) for n, v in (("from", low), ("to", to))]
    if alone and low is not None:  # the one number is where the range ends
        low, to = 0, low
    full = to is None and low is None
    if to is None:
        most = 1 if d.kind == "b" else dtypes.iinfo(d).max if d.kind in "ui" else (1 << 63) - 1 if low == -1 << 63 else _exact(d)
        to = min(most, (1 << 63) - 1) + 1
    low = 0 if low is None else low
    if low >= to:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={to}")
    return _inplace(self, "RandomBackward0", lambda t: _fill_integers(t, low, to, generator, full))


def _distribution(name: str, what: draws.Distribution, defaults: dict[str, float], check: Callable[..., str | None]) -> None:
    names = list(defaults)

    def method(self: Tensor, *args: float, generator: Any = None, **kwargs: float) -> Tensor:
        got = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        if set(got) - set(names):
            raise TypeError(f"{name}() got an unexpected keyword argument '{(set(got) - set(names)).pop()}'")
        values = tuple(got[n] for n in names)
        problem = check(*values)
        if problem:
            raise RuntimeError(f"{name} {problem}")
        if name in _CONTINUOUS and self.meta.dtype.kind != "f":
            raise RuntimeError(f"{_CONTINUOUS[name]} distribution is a continuous probability distribution. dtype must be a floating point but you "
                               f"specified {dtypes.title(self.meta.dtype)}")
        of_kinds(name + "cpu", self, "fui" if name == "geometric_" else "f")
        return _inplace(self, name[:-1].capitalize() + "Backward0", lambda t: draw(t, what, values, generator))
    method.__name__ = method.__qualname__ = name
    method.__signature__ = inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)] + [  # type: ignore[attr-defined]
        inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=d) for n, d in defaults.items()] + [
        inspect.Parameter("generator", inspect.Parameter.KEYWORD_ONLY, default=None)])
    method.__doc__ = f"Fills with numbers of the {name[:-1].replace('_', '-')} distribution ({', '.join(names)})."
    op(name=name, spaces=())(method)


_CONTINUOUS = {"exponential_": "Exponential", "cauchy_": "Cauchy"}
_distribution("exponential_", draws.EXPONENTIAL, {"lambd": 1.0}, lambda v: f"expects lambda > 0.0, but found lambda={v}" if v <= 0 else None)
_distribution("cauchy_", draws.CAUCHY, {"median": 0.0, "sigma": 1.0}, lambda m, s: f"expects sigma > 0.0, but found sigma={s}" if s <= 0 else None)
_distribution("log_normal_", draws.LOG_NORMAL, {"mean": 1.0, "std": 2.0}, lambda m, s: f"expects std > 0.0, but found std={s}" if s <= 0 else None)
_distribution("geometric_", draws.GEOMETRIC, {"p": 0.5}, lambda p: f"expects p to be in (0, 1), but got p={p}" if not 0 < p < 1 else None)


def _check_chances(p: Tensor) -> None:
    """Raises RuntimeError for probabilities outside [0, 1].  On a GPU the host would have to wait for them: there they count as
    the nearest of 0 and 1."""
    values_hold(p, lambda p: (p >= 0) & (p <= 1),
                RuntimeError("bernoulli: Expected p_in >= 0 && p_in <= 1 to be true, but some probability lies outside [0, 1] or is NaN"))


def _bernoulli_inplace(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    of_kinds("bernoulli_tensor_cpu_self_" if isinstance(p, Tensor) else "bernoulli_scalar_cpu_", self, "fuib")
    if isinstance(p, Tensor):
        of_kinds("bernoulli_tensor_cpu_p_", p, "f")
        _check_chances(p)
        return _inplace(self, "BernoulliBackward0", lambda t: draw(t, draws.BERNOULLI_EACH, (), generator, (p,)))
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return _inplace(self, "BernoulliBackward0", lambda t: draw(t, draws.BERNOULLI, (p,), generator))


@op(inplace=_bernoulli_inplace, out=True, batch="draws each", draws_alone=True, out_type="any")
def bernoulli(input: Tensor, p: float | None = None, *, generator: Any = None) -> Tensor:  # noqa: A002
    """1 with the probability each element of `input` gives (or with probability p), else 0."""
    t = empty(input.meta.shape, input.meta.dtype, input.meta.device)
    if p is not None:
        return as_new(_bernoulli_inplace(t, p, generator=generator))
    of_kinds("bernoulli_tensor_cpu_self_" if input.meta.dtype.is_complex else "bernoulli_tensor_cpu_p_", input, "f")
    _check_chances(input)
    made = filled(t, draws.BERNOULLI_EACH, (), generator, (input,))
    return tape.record(made, _no_slope, (input,), None, "BernoulliBackward0")


@tape.keeps_nothing
def _no_slope(node: Any, g: Tensor) -> Any:
    return (g.new_zeros(g.meta.shape),)


# --------------------------------------------------------------------------------------------------------------- dropout
@op(spaces=("torch", "nn.functional"), method=False, batch="draws each", draws_alone=True)
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:  # noqa: A002
    """Zeroes elements with probability p and scales the others by 1 / (1 - p), in training; else gives input.

    Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    if input.meta.dtype.kind in "bui" and p != 1 and input.meta.numel:
        raise RuntimeError(f"dropout(): result type Float can't be cast to the desired output type {dtypes.title(input.meta.dtype)}")
    if p == 1:
        none = scalar_tensor(False, input)
        return input.mul_(none) if inplace else input * none
    of_kinds("bernoulli_scalar_cpu_", input, "fuib")
    mask = filled(new(_preserved(input.meta)), draws.DROPOUT, (p,))
    return input.mul_(mask) if inplace else input * mask


def slopes(x: Tensor, lower: float, upper: float) -> Tensor:
    """For each element 1, or, where it is 0 or less, a number of [lower, upper)."""
    of_kinds("rrelu_with_noise_out_cpu", x, "f")
    t = empty(x.meta.shape, x.meta.dtype, x.meta.device)
    if generator_of(t.meta.device, None).counts:
        drawn: Tensor = _fill_uniform(t, None, lower, upper).masked_fill_(x > 0, 1.0)
        return drawn
    return filled(t, draws.SLOPES, (lower, upper), None, (x,))


@op(method=False, name="dropout_", batch="draws each")
def dropout_(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:  # noqa: A002
    """`dropout`, in place."""
    return dropout(input, p, training, True)


@op(method=False, batch="draws")
def native_dropout(input: Tensor, p: float, train: bool | None = True) -> tuple[Tensor, Tensor]:  # noqa: A002
    """The dropped-out input and the mask of what was kept."""
    if train is False or p == 0:
        from .creation import ones_like
        return input * 1, ones_like(input, dtype=dtypes.bool_)
    if p < 1 and generator_of(input.meta.device, None).by_threads:
        scaled = filled(new(_preserved(input.meta)), draws.DROPOUT, (p,))
        return input * scaled, scaled != 0
    mask = filled(empty(input.meta.shape, dtypes.bool_, input.meta.device), draws.BERNOULLI, (1.0 - p,))
    return input * mask * (1.0 / (1.0 - p) if p < 1 else 0.0), mask


# --------------------------------------------------------------------------------------------------- permutations, choices
@op(method=False, draws_alone=True, out_type="any")
def randperm(n: int, *, generator: Any = None, out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """The integers of [0, n) in random order: of a stream that counts, that of n random 64-bit keys."""
    try:
        n = index(n)  # of a tensor of one integer too
    except TypeError:
        raise TypeError(f"randperm(): argument 'n' (position 1) must be int, not {type(n).__name__}") from None
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got {n}")
    d, dev = _options(dtype or (out.meta.dtype if out is not None else dtypes.int64), device)
    counts("randperm", d, True)
    if n > (_exact(d) + 1 if d.kind == "f" else dtypes.iinfo(d).max + 1):
        raise RuntimeError(f"n={n} is too large for the type {d}")
    g = generator_of(dev, generator)
    if g.by_threads:
        result = _shuffled(n, dev, g) if n else empty((0,), dtypes.int64, dev)
    elif g.counts:
        from .sorting import argsort
        result = argsort(_fill_integers(empty((n,), dtypes.int64, dev), 0, (1 << 63) - 1, g))
    else:
        result = empty((n,), dtypes.int64, dev)
        if n:
            draws.in_order(result, "permutation", (), g)
    from .casts import to_dtype
    made = to_dtype(result, d)
    if out is not None:
        made = outputs.write("randperm", out, made)
    return _finish(made, requires_grad, pin_memory)


def _shuffled(n: int, dev: Any, g: generators.Generator) -> Tensor:
    """[0, n) in the order of n random keys, as PyTorch shuffles on GPUs: keys of so few bits that they are sorted fast, and all different with a
    probability of nine in ten.  Of each two equal ones a word of its own says whether they change places.  (Three equal ones, of which there are
    some in one of a hundred n shuffles, stay in order but for the first two.)"""
    from .ranges import arange
    from .sorting import sort
    bits = min(64, math.ceil(math.log2(n - (6 * n * n + 1) / (math.log(0.9) * 12))))
    d, top = (dtypes.int32, 31) if bits <= 32 else (dtypes.int64, 63)
    keys = _fill_integers(empty((n,), d, dev), -(1 << top), (1 << top) - 1, g).to(dtypes.int64)
    if bits < top + 1:
        keys = keys & ((1 << bits) - 1)
    keys, order = sort(keys, stable=True)
    equal = keys[1:] == keys[:-1]
    word = thread_draws.first_words(n, dev, g)
    first = equal.clone()
    first[1:] &= ~equal[:-1]
    swaps = (first & (word[:-1] % 2 == 0)).to(dtypes.int64)
    at = arange(n, device=dev)
    at[:-1] += swaps
    at[1:] -= swaps
    found: Tensor = order[at]
    return found


@op(out=True, batch="draws", draws_alone=True)
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Tensor:  # noqa: A002
    """Indices drawn with the (unnormalised) probabilities in each row of `input`, (n,) or (m, n): int64 (num_samples,) or
    (m, num_samples).  Without replacement the order is that of the draws."""
    shape = input.meta.shape
    if len(shape) not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if input.meta.dtype.kind != "f":
        raise RuntimeError("multinomial only supports floating-point dtypes for input, got: " + dtypes.title(input.meta.dtype))
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    x = input.detach().double()
    _check_probabilities(x, None if replacement else num_samples)
    if generator_of(x.meta.device, generator).by_threads:
        x = input.detach()
    if replacement and num_samples > 1:  # one draw is a race of exponential numbers too, as in PyTorch
        total = x.cumsum(-1)
        u = rand(*shape[:-1], num_samples, generator=generator, dtype=float64, device=x.meta.device) * total[..., -1:].double()
        from .searching import searchsorted
        found: Tensor = searchsorted(total, u, right=True)
        return found.clamp_(max=shape[-1] - 1)
    race = draw(empty(shape, x.meta.dtype, x.meta.device), draws.EXPONENTIAL, (1.0,), generator)
    order: Tensor = (x / race).topk(num_samples, -1)[1]
    return order


_WRONG = ("probability tensor contains either `inf`, `nan` or element < 0", "invalid multinomial distribution (sum of probabilities <= 0)",
          "invalid multinomial distribution (with replacement=False, not enough non-negative category to sample)")


def _check_probabilities(x: Tensor, different: int | None) -> None:
    """Raises RuntimeError for what cannot be drawn from; different: how many draws must differ.  A GPU is asked once."""
    wrong = {_WRONG[0]: ((x < 0) | ~x.isfinite()).any()}
    if x.meta.numel:
        wrong[_WRONG[1]] = (x.sum(-1) <= 0).any()
    if different is not None:
        wrong[_WRONG[2]] = ((x > 0).sum(-1) < different).any()
    from .concat import stack
    from .reading import values
    for what, found in zip(wrong, values(stack([*wrong.values()]), "multinomial"), strict=True):
        if found:
            raise RuntimeError(what)


def sampled(name: str, by_counter: Callable[[Any, list[Any]], Any]) -> Callable[[Tensor, list[Tensor], Any], Tensor]:
    """A distribution drawn by rejection, which fills a tensor for its operands: of a stream by the kind `name` of `kernels.drawing`; of one that
    counts by NumPy's generator (`by_counter`), seeded from its position."""
    from ..kernels.interpret import load, memory, store

    def run(out: Tensor, inputs: list[Tensor], generator: Any) -> Tensor:
        from .copies import contiguous
        g = generator_of(out.meta.device, generator)
        if not g.counts:
            if out.meta.numel:
                draws.in_order(out, name, (), g, inputs)
            return out
        inputs = [contiguous(x) for x in inputs]
        seed, offset = g.take(out.meta.numel)
        metas = [x.meta for x in inputs]

        def entry(to: int, *addresses: int) -> None:
            rng = np.random.Generator(np.random.Philox(key=seed, counter=offset))
            values = [load(memory(a, tuple(m.shape), m.strides, m.dtype), m.dtype) for a, m in zip(addresses, metas, strict=True)]
            store(memory(to, tuple(out.meta.shape), out.meta.strides, out.meta.dtype), by_counter(rng, values), out.meta.dtype)
        if out.meta.numel:
            launch.routine(name, entry, (out,), inputs)
        return out
    return run


_MOST_DRAWN = 9.2e18  # beyond which NumPy's generators refuse a rate or a count: then their mean stands for the number, as a double has no nearer


def _poissons(rng: Any, rates: Any) -> Any:
    huge = rates > _MOST_DRAWN
    return np.where(huge, rates, rng.poisson(np.where(huge, 0, rates)))


def _binomials(rng: Any, counts: Any, probs: Any) -> Any:
    """By NumPy's generator, which refuses all where one is out of its range, as a stream has them: between 0 and all, and NaN of NaN."""
    counts, probs = np.maximum(counts, 0), np.clip(probs, 0, 1)  # NaN stays
    known, huge = ~np.isnan(counts + probs), counts > _MOST_DRAWN
    drawn = rng.binomial(np.where(known & ~huge, counts, 0).astype(np.int64), np.where(known, probs, 0))
    return np.where(known, np.where(huge, np.nan_to_num(counts) * probs, drawn), np.nan)


_poisson = sampled("poisson", lambda rng, v: _poissons(rng, v[0]))
_binomial = sampled("binomial", lambda rng, v: _binomials(rng, *v))


@op(method=False, batch="draws each", draws_alone=True)
def poisson(input: Tensor, generator: Any = None) -> Tensor:  # noqa: A002
    """Poisson numbers with the rates in `input`, in its type.  Raises RuntimeError for a rate below 0, and for one that is NaN, NotImplementedError
    for a type that is not floating."""
    of_kinds("poisson_cpu", input, "f")
    values_hold(input, lambda rate: rate >= 0, RuntimeError("invalid Poisson rate, expected rate to be non-negative"))
    made = _poisson(empty(input.meta.shape, input.meta.dtype, input.meta.device), [input.detach()], generator)
    return tape.record(made, _no_slope, (input,), None, "PoissonBackward0")


@op(method=False, batch="draws", draws_alone=True)
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """Binomial numbers of `count` trials with probability `prob`.  Raises ValueError for a type that is not floating."""
    for name, t in (("count", count), ("prob", prob)):
        if t.meta.dtype.kind != "f":
            raise ValueError(f"binomial only supports floating-point dtypes for {name}, got: {dtypes.title(t.meta.dtype)}")
    made: Tensor = _binomial(empty((count + prob).meta.shape, prob.meta.dtype, prob.meta.device), [count.detach(), prob.detach()], generator)
    tape.record_underived((made,), (count, prob), "binomial")
    return made

has("bernoulli_", batch="draws")
has("cauchy_ exponential_ geometric_ log_normal_ rand_like randn_like", batch="draws each")
has("rand rand_like randn randn_like", draws_alone=True)
has("dropout", sparse="composite")
