"""Learning: an operation that gives no plan gets one by being watched.

A call that has been made a few times with the same layouts and constants is captured on copies of its operands (`runtime.capture`),
written down as a script (`scripts`) and from then on replayed (`replays`); with it, when an operand requires grad, its backward pass. A
replay is compared, bit by bit, with what was captured before it is used, on memory filled with something else. What depends on more
than layouts and constants (many values that Python looks at, memory that is somebody else's) is never replayed. Of large operands calls
that do nothing to memory, such as views, are learned as soon, on memory that nobody touches; others once they were made so often that copies
of the operands are worth it, where the Python between launches is a good part of the call.

On a GPU the host only asks for work, and values are no part of it: calls are captured dry, so that nothing is launched, twice, with operands at
other addresses, and learned where both asked for the same.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..autograd import tape
from ..autograd.mode import no_grad
from ..runtime import caches, capture
from ..runtime import device as devices
from ..tensor import Tensor
from . import fronts, general, learned_gradients, replays, traced
from .plans import Plan, Unbound
from .scripts import SHIFT, Fresh, FreshOnGpu, Many, Places, Same, bare, copied, placed
from .trials import agree, attempted, budget, captured, compare, constant, script_of, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .operation import Operation

    Values = tuple[Any, ...]

AFTER = 3  # calls of the same layouts and constants that go the ordinary way first
AFTER_ON_GPU = 32  # the same there, where a call is captured twice and planned anew: 5 to 10 ms, of which each call then saves 5 to 50 us
_DOUBLES = 256  # plans learned, at which twice as many calls are asked for: learning takes 1 to 2 ms, which calls that seldom come do not give back
_MOST_BYTES = 1 << 18  # of an operand whose values are learned from as soon as of any
_MOST_COPIED = 1 << 25  # of all operands together whose values are learned from at all
_EACH = 1 << 16  # bytes of them that ask for one call more, as copies and comparisons take time
_MOST_SECONDS = 0.003  # that such a call may take: beside more the Python between its launches does not matter
_MOST_RECORDED = 1 << 16  # of an operand of a recorded call: of larger ones gradients are put together in ways of their own
_MOST_BARE = 1 << 36  # of an operand at all
_MOST_ROOM = 1 << 26  # of all operands together, for calls on a GPU: as much is allocated twice, for a moment; beside more work the host's does not count
_MOST_PLANS = 1 << 12  # of all operations: a program whose calls never repeat must not fill the memory with them
_HOPELESS = 12  # calls that could not be learned, of an operation of which none could, until it is left alone
_UNFIT = 16  # replays that did not fit, after which there are no more
_NEVER = -(1 << 30)  # calls, of what is not learned (a count below 0 is of calls until values of large operands are learned from)
on = True
learned: list[str] = []  # the operations of all plans that were learned since devices changed
caches.on_forget(learned.clear)


class Call:
    """One kind of call: an operation with layouts and constants.

    values: the arguments of one such call without its operands.  passed: the places among them of what may hold tensors.  pattern: of
    each of those, see `replays.unpack`.  bare: its operands are so large that it may do nothing to memory.  large: they are, and yet it may.
    """

    __slots__ = ("operation", "values", "passed", "pattern", "device", "taped", "unfit", "recorded", "bare", "large")

    def __init__(self, operation: Operation, values: Values, passed: Sequence[int]) -> None:
        self.bare = self.large = False
        self.operation, self.passed = operation, tuple(passed)
        self.pattern = tuple([_pattern(values[i]) for i in passed])
        kept = [list(v) if type(v) is list else v for v in values]  # the program may change its list
        for i, places in zip(self.passed, self.pattern, strict=True):
            kept[i] = None if places is None else type(kept[i])(None if k in places else x for k, x in enumerate(kept[i])) if places else kept[i]
        self.values = tuple(kept)
        self.taped: dict[int, Any] = {}
        self.device = devices.CPU
        self.unfit = self.recorded = 0

    def operands(self, given: Sequence[Any]) -> list[Tensor]:
        """The tensors among what a replay is called with."""
        found: list[Tensor] = []
        for v, places in zip(given, self.pattern, strict=True):
            found += [v] if places is None else [v[k] for k in places]
        return found

    def filled(self, given: Sequence[Any]) -> Values:
        """The arguments of a call, from what a replay is called with."""
        values = list(self.values)
        for i, v in zip(self.passed, given, strict=True):
            values[i] = v
        return tuple(values)

    def with_operands(self, operands: Sequence[Tensor]) -> Values:
        """The arguments of a call with other tensors."""
        values, rest = list(self.values), iter(operands)
        for i, places in zip(self.passed, self.pattern, strict=True):
            if places is None:
                values[i] = next(rest)
            elif places:
                values[i] = type(values[i])(next(rest) if k in places else x for k, x in enumerate(values[i]))
        return tuple(values)

    def given(self, operands: Sequence[Tensor]) -> list[Any]:
        """What a replay of this call is called with."""
        values = self.with_operands(operands)
        return [values[i] for i in self.passed]

    def carry_out(self, operands: Sequence[Tensor]) -> Any:
        """The call by the operation's body."""
        return self.operation.as_they_are(self.with_operands(operands))

    def rest(self, *given: Any) -> Any:
        """A call that the replay leaves to the body, for one argument or another."""
        self.unfit += 1
        values = self.filled(given)
        if self.unfit > _UNFIT:
            self.operation.unlearn(values)
        return self.operation.as_they_are(values)

    # ----------------------------------------------------------------------------------------------------------- calls
    def learn(self, operands: Sequence[Tensor]) -> Callable[..., Any]:
        """The replay of calls that are not recorded. Raises Unrepeatable where there is none."""
        if self.device.type == "cuda":
            return self._learn_dry(operands)
        laid_out = bare if self.bare else copied
        fresh, copies = Fresh(), [laid_out(t) for t in operands]
        with no_grad():
            started = time.thread_time()
            taken, made = captured(self.carry_out, copies, 0, self.bare)
        # the first time what is launched may have to be planned
        if self.large and (time.thread_time() - started > 10 * _MOST_SECONDS or sum(t.meta.nbytes for t in tensors_of(made, copies)) > _MOST_COPIED):
            raise capture.Unrepeatable("work on much memory")
        places = Places(copies, fresh, foreign=taken.foreign)
        script = script_of(places, taken, made, copies)
        told = any(s.expected is not None for s in script.steps)  # by values that were worked out, and are conditions
        if not script.results() and not script.written and not told and (self.operation.name.endswith("_") or not _same(script.result)):
            raise capture.Unrepeatable("it gives no new tensor")
        taped = self.taped if any(t.meta.dtype.kind in "fc8" for t in operands) else None
        if any(t.node is not None for t in tensors_of(made, copies)):
            raise capture.Unrepeatable("a result that is a leaf")
        # elsewhere in their storages: what looks at a storage from its beginning gives something else
        again, others = ([laid_out(t, SHIFT) for t in operands] for _ in range(2))
        with no_grad():
            started = time.thread_time()
            # the call made once more: whatever else went into it would differ
            taken, made = captured(self.carry_out, others, 1, self.bare)
            if self.large and time.thread_time() - started > _MOST_SECONDS:
                raise capture.Unrepeatable("work on much memory")
            fakes = capture.draws(taken.steps)
            tried = replays.forward(script, self.pattern, self.device, self.rest, self.plain, None, None, poison=fakes or True)(*self.given(again))
        compare(made, tried, self.bare)
        for a, b in zip(others, again, strict=True):
            compare(a, b, self.bare)
        if not self.bare:
            script = constant(script, made, others)
        return replays.forward(script, self.pattern, self.device, self.rest, self.plain, taped, self.first, apart=self.operation.planned)

    def _learn_dry(self, operands: Sequence[Tensor]) -> Callable[..., Any]:
        """`learn` on a GPU."""
        if sum(t.meta.nbytes for t in operands) > _MOST_ROOM:
            raise capture.Unrepeatable("work on much memory")
        scripts: list[Any] = []
        copies = [[placed(t.meta) for t in operands] for _ in range(2)]  # both live, so that no address is given out twice
        for here in copies:
            fresh = FreshOnGpu(self.device)
            with no_grad():
                taken, made = captured(self.carry_out, here, 0, dry=self.device)
            script = script_of(Places(here, fresh, foreign=taken.foreign, dev=self.device), taken, made, here)
            if any(t.node is not None for t in tensors_of(made, here)):
                raise capture.Unrepeatable("a result that is a leaf")
            scripts.append(script)
            del made  # before the next begins, which is to find its memory free
        script = scripts[0]
        if not script.results() and not script.written and not _same(script.result):
            raise capture.Unrepeatable("it gives no new tensor")
        agree(*scripts)
        taped = self.taped if any(t.meta.dtype.kind in "fc8" for t in operands) else None
        return replays.forward(script, self.pattern, self.device, self.rest, self.plain, taped, self.first, apart=self.operation.planned)

    def first(self, kind: int, *given: Any) -> Any:
        """A recorded call of a kind of which there has been none."""
        if not on or caches.observed() or tape.anomaly.on or capture.now.watched:
            return self.plain(*given)
        if self.device.type != "cpu" and not budget.left():
            return self.plain(*given)
        operands, renewed = self.operands(given), caches.renewed
        large = self.device.type == "cpu" and (self.bare or self.large or any(t.meta.nbytes > _MOST_RECORDED for t in operands))
        found = None if large else attempted(self.operation.name + " (recorded)", self.device, lambda: learned_gradients.learn_recorded(self, operands, kind))
        run = self.plain if found is None else found
        if renewed == caches.renewed:
            self.taped[kind] = run
            learned.append(self.operation.name)
        return run(*given)

    def differentiated(self) -> None:
        """A backward pass of such a call was recorded, for which the call had to be made again. Where that is usual, the body's own graph does better."""
        self.recorded += 1
        if self.recorded > _UNFIT:
            self.taped.update(dict.fromkeys(self.taped, self.plain))

    def plain(self, *given: Any) -> Any:
        """A call by the body."""
        return self.operation.as_they_are(self.filled(given))


# --------------------------------------------------------------------------------------------------------------- attempts
def _pattern(v: Any) -> replays.Pattern:
    """What of a call's argument is an operand: see `replays.unpack`."""
    if isinstance(v, Tensor):
        return None
    return tuple([k for k, x in enumerate(v) if isinstance(x, Tensor)]) if type(v) in (tuple, list) else ()


class Learner:
    """What an operation has learned: counts calls, learns, and gives up where nothing can be learned."""

    __slots__ = ("operation", "key", "passed", "env", "hopeless", "learned", "device")

    def __init__(self, operation: Operation, signature: Any, env: dict[str, Any]) -> None:
        names = signature.names()
        self.operation, self.env = operation, env
        if operation.planned:
            self.key, self.passed = operation._key, operation.places
        else:
            self.key = fronts.key_of(signature)
            self.passed = tuple([names.index(n) if n in names else len(names) for n in fronts.operand_kinds(signature)])
        self.device = names.index("device") if "device" in names else None
        self.hopeless = 0
        self.learned = False
        caches.cache(env, "seen")

    def note(self, values: Values) -> None:
        """A call that was made without a learned plan."""
        renewed, epoch, default = caches.renewed, caches.epoch, dtypes._default.dtype
        plans, seen = self.env["plans"], self.env["seen"]
        if len(learned) >= _MOST_PLANS or not self._may() or epoch != caches.epoch:  # those are the plain world's
            return
        after, there = AFTER, False
        for i in self.passed:
            first = values[i][0] if type(values[i]) in (tuple, list) and values[i] else values[i]
            if isinstance(first, Tensor):
                if first.meta.device.type != "cpu":
                    if not _learns(first.meta.device):
                        return
                    after, there = AFTER_ON_GPU, True
                break
        try:
            key = self.key(values)
            if key is None or (self.operation.planned and not all(x is None or isinstance(x, Tensor) for x in [values[i] for i in self.passed])):
                return  # numbers that are not in the key
            count = seen.get(key, 0) + 1
        except (AttributeError, TypeError, RuntimeError, ValueError):
            self._fail()
            return
        if count == 1 and not there and not capture.now.watched:  # a shape that is new
            operation = self.operation
            least = operation.usual.least_of_key if operation.planned else general.SMALL
            traced.try_kind(operation, values, self.passed, key, least, self.env)
        if count < 0 or 0 < count < after << len(learned) // _DOUBLES:
            caches.put(renewed, default, self.env, "seen", key, count)
            return
        if there and not budget.left():
            return  # at a later call
        if key in plans:  # the call changed its operands' layouts, by which it would be found
            caches.put(renewed, default, self.env, "seen", key, _NEVER)
            return
        run = attempt(self.operation, values, self.passed, count == 0) if self._here(values) else None
        if renewed != caches.renewed or default is not dtypes._default.dtype:
            return
        if run is None:
            sizes = [t.meta.nbytes for t in self._operands(values)] if count else []
            later = on and max(sizes, default=0) > _MOST_BYTES and sum(sizes) <= _MOST_COPIED and self._here(values)
            caches.put(renewed, default, self.env, "seen", key, -(sum(sizes) // _EACH) if later else _NEVER)
            if not later:
                self._fail()
            return
        self.hopeless, self.learned = 0, True
        learned.append(self.operation.name)
        if self.operation.planned:
            self.operation.replayed.add(run)
        caches.put(renewed, default, self.env, "plans", key, run)

    def keep(self, values: Values, plan: Any, letters: str, since: int) -> None:
        """Keeps a plan that the body gave, from the epoch `since` on, for calls like this one.  What launches something is learned in time where it is
        small, since it is faster then."""
        key, plans = self.key(values), self.env["plans"]
        bind = partial(plan.bind, letters)
        if type(plan) is Plan and self._worth(values):
            bind = partial(self._counted, key, Call(self.operation, values, self.passed), bind)
        caches.keep_since(since, plans, key, Unbound(bind, (plans, key, since)))
        self.learned = True

    def _operands(self, values: Values) -> list[Tensor]:
        return [t for i in self.passed for t in (values[i] if type(values[i]) in (tuple, list) else (values[i],)) if isinstance(t, Tensor)]

    def _worth(self, values: Values) -> bool:
        """Whether a call with these operands could be learned."""
        tensors = self._operands(values)
        return on and bool(tensors) and all(t.meta.device.type == "cpu" and t.meta.nbytes <= _MOST_BYTES for t in tensors)

    def _counted(self, key: Any, call: Call, bind: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        """Carries out calls by the plan that `bind` gives until there were enough to learn them."""
        run, count = bind(), 1

        def carry_out(*given: Any) -> Any:
            nonlocal count
            made = run(*given)
            count += 1
            renewed, epoch, default = caches.renewed, caches.epoch, dtypes._default.dtype
            if count < AFTER << len(learned) // _DOUBLES or len(learned) >= _MOST_PLANS or not self._may() or epoch != caches.epoch:
                return made
            found = attempt(self.operation, call.filled(given), self.passed)
            if default is dtypes._default.dtype:
                caches.put(renewed, default, self.env, "plans", key, run if found is None else found)
                if found is not None:
                    learned.append(self.operation.name)
            return made
        return carry_out

    def _may(self) -> bool:
        """Whether nothing is in the way of learning now."""
        watched = capture.now.watched
        return on and not (caches.world or capture.active or tape.anomaly.on) and (
            not watched or (isinstance(watched, tuple) and not self.operation.planned))

    def _here(self, values: Values) -> bool:
        """Whether a call's `device` is the CPU, if it has such an argument."""
        given = None if self.device is None else values[self.device]
        try:
            return (devices._thread.default if given is None else devices.resolve(given)).type == "cpu"
        except (RuntimeError, TypeError, ValueError):
            return False

    def forget(self, values: Values) -> None:
        """Calls like this one are no longer replayed."""
        key = self.key(values)
        self.env["plans"].pop(key, None)
        caches.keep_since(caches.epoch, self.env["seen"], key, _NEVER)

    def _fail(self) -> None:
        self.hopeless += 1
        if self.hopeless > _HOPELESS and not self.learned:
            self.operation.give_up()


_ptr: Any = Tensor.__dict__["ptr"].__get__


def attempt(operation: Operation, values: Values, passed: Sequence[int], copied: bool = False) -> Callable[..., Any] | None:
    """The replay of calls like this one, or None. copied: large operands are copied, so that something may be done to memory."""
    call = Call(operation, values, passed)
    operands = call.operands([values[i] for i in passed])
    most = max([t.meta.nbytes for t in operands], default=0)
    call.device = operands[0].meta.device if operands else devices.CPU
    if most > _MOST_BARE or not _learns(call.device) or any(t.meta.device is not call.device or not t.meta.plain for t in operands):
        return None
    call.large = copied
    call.bare = most > _MOST_BYTES and not copied
    try:
        for t in operands:
            _ptr(t)
    except AttributeError:  # an asynchronous copy is still filling it
        return None
    return attempted(operation.name, call.device, lambda: call.learn(operands))


_real: dict[Any, bool] = {}  # GPUs: whether they are no simulated ones
caches.on_forget(_real.clear)


def _learns(dev: Any) -> bool:
    """Whether calls on a device are learned: not on simulated GPUs, whose clock and whose orders of work are a call's own."""
    found = _real.get(dev)
    if found is None:
        if dev.type != "cuda":
            return bool(dev.type == "cpu")
        from ..runtime import gpus
        found = _real[dev] = not gpus.gpu(dev).driver.simulated
    return found


def _same(x: Any) -> bool:
    """Whether a result is or holds operands and nothing else."""
    return isinstance(x, Same) or (isinstance(x, Many) and all(map(_same, x.parts)))
