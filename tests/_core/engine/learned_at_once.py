"""A plugin of pytest (`make test-learned`), and a switch for other programs (`install()`): every call that can be learned is learned before it is
made, and replayed.

Programs learn a call after it has been made a few times, tests mostly make it once. With this the tests of operations, gradients and modules
run on learned plans wherever there can be one.  Beside `tests._core.runtime.guard_pages` replays run in memory between pages that nobody may touch.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

from flambeau._core.engine import fronts, learning
from flambeau._core.engine.operation import Operation

if TYPE_CHECKING:
    import pytest

# they look at the graph that a body records, or at launches that it makes, with operands so small that calls are learned
BODIES = {"test_products_of_the_cpu": "the layer before is in the body's graph", "test_heads_are_written_where_they_belong": "pieces of gradients are"
          " put together in the bodies' graphs", "test_gradients_that_nobody_asked_for_are_not_computed": "a learned pass is one plan for all gradients",
          "test_leaves_borrow_parts_of_the_same_memory": "a learned pass writes its gradients, and lends no views"}


def anew(operation: Operation, values: tuple[Any, ...]) -> Any:
    """A call without a learned plan."""
    learner = operation.learner
    if learner is not None:
        learner.note(values)
        try:
            run = operation.env["plans"].get(learner.key(values))
        except Exception:  # what is no key: the call says what is wrong with it
            run = None
        if run is not None:
            return run(*[values[i] for i in learner.passed])
    args, kwargs = operation._signature().whole(values)
    plain: Any = FunctionType(operation.plain or operation.direct.__code__, operation.env, operation.name, operation.direct.__defaults__)
    plain.__kwdefaults__ = operation.direct.__kwdefaults__
    return plain(*args, **kwargs)


def _learning(s: fronts.Signature, values: str, then: Any) -> list[str]:
    return ["    try:",
            f"        plan = plans[{fronts._learned_keys(s)}]",
            "    except (KeyError, AttributeError, TypeError, ValueError, RuntimeError):",
            "        pass",
            "    else:",
            f"        return plan({', '.join(fronts.operand_kinds(s))})",
            f"    return anew({values})"]


_start = Operation._start


def _started(operation: Operation) -> None:
    operation.env["anew"] = lambda values: anew(operation, values)
    _start(operation)


def soon() -> None:
    """Calls are learned when they have been made once, however many there are and whatever could not be learned."""
    learning.AFTER = learning.AFTER_ON_GPU = 1
    learning._DOUBLES = learning._MOST_PLANS = learning._HOPELESS = 1 << 30
    learning.budget.share = 1e9


def install() -> None:
    """From now on, for operations that were not called yet."""
    soon()
    Operation._start = _started  # type: ignore[method-assign]
    fronts._learning = _learning  # type: ignore[assignment]


def pytest_configure() -> None:
    install()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    import pytest
    for item in items:
        why = BODIES.get(item.name.partition("[")[0])
        if why is not None:
            item.add_marker(pytest.mark.skip(reason=f"learned at once: {why}"))
