"""`compile`: what a function does, with its Python left out where all that it read is as it was.

The first calls of a kind are Python's.  Then one is run by a `Run`, which knows each read, and recorded. Where nothing was done that is not known,
the record is fused and kept with its guards: later calls for which all of them hold replay it.  Everything else is called as it is.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from sys import getrefcount
from threading import Lock
from time import perf_counter
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from .. import hooks
from ..autograd import inplace, tape
from ..engine.plans import maker
from ..kernels.llvm import sequence as sequences
from ..ops import reading
from ..runtime import capture
from ..runtime.versions import writes
from ..tensor import NO_FREE, Tensor
from . import trees
from .checks import checked_first, is_check
from .given import Given, countable
from .graph import declared
from .guards import SPACE, modes, watched
from .history import History, back, back_again, back_several, several_again
from .knowing import ATOMS, NOTES, lends
from .later_numbers import LATER, plain
from .passes import shortened
from .reads import Run
from .record import Ask, Launch, Refused
from .replay import HalfWay, Planned, Shown, Spot, bind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

AFTER = 3  # calls of Python's
_TRIES = 3  # runs that learned nothing, or whose record was of no use, until the function is left to Python
_RECORDS = 4  # of a function: each has memory of its own
_KINDS = 64  # of calls
_IDLE = 64  # calls on end of kinds that are left to Python, after which a function of which nothing is kept is left to it altogether
_WASTED = 64  # replays that came to a check that failed, after which a record is dropped
_MISSES = 16  # calls on end for which a record on trial does not hold
_TIMED = 8  # replays that are held against Python's calls
_NEVER = float("inf")
_MANY = 10**9
MISS: Any = object()


class Kept:
    """A record with its guards: `call(args, kwargs)` gives the result, or MISS where it may not be replayed."""

    def __init__(self, run: Run, given: Given, result: Any, free: Collection[int] = ()) -> None:
        recording = run.recording
        self._settle(run)
        inner = {id(t.store) for t in given.tensors}
        if run.guards.crossed or any(id(s.store) in inner or (s.grad is not None and id(s.grad.store) in inner) for s in run.seen.values()):
            raise Refused("an argument, or its memory, is read elsewhere too")
        if recording.others:
            raise Refused("another thread launches work meanwhile")
        found: list[Any] = []
        self.effects = run.effects.found
        everything = (result, *[e.value for e in self.effects if e.kind != "work"])
        for e in self.effects:
            e.value = e.value if e.kind == "work" else None
        tree = trees.taken(everything, found, LATER)
        self._check_tree(tree, run, everything)
        wanted = [i for i in run.effects.items if any(f" m{i.number} " in f" {_apart_names(x)} " for x in self._texts(found))]
        found += [i.copy for i in wanted]
        new, self.parts = self._results(found, given, run)
        self.items = {i.number: len(found) - len(wanted) + k for k, i in enumerate(wanted)}
        # the views that a recorded write through their base gives a new history, and those that may not be written
        self.noted = [(j, i) for j, b in enumerate(new) for ref in b.__dict__.get("_views", ()) for i, t in enumerate(new) if ref() is t and t.base is b]
        self.marks = {i: t.__dict__["_made"] for i, t in enumerate(new) if "_made" in t.__dict__}
        self.pasts = histories(run, given.tensors, new)
        run.release()
        saved: list[Any] | None = None
        if self.pasts:
            saved = list({id(s): s for _, past in self.pasts for s in past.stores}.values())
            self.places = [[next(k for k, s in enumerate(saved) if s is kept) for kept in past.stores] for _, past in self.pasts]
            for _, past in self.pasts:
                past.forget()
        recorded = {i for numbers, _ in self.pasts for i in numbers}
        _cut([t for i, t in enumerate(new) if i not in recorded], {id(s.node) for s in run.seen.values()})
        self.parts = [(*part[:3], None if part[1] in recorded else new[part[1]].node) if part[0] == "new" else part for part in self.parts]
        grads = {id(s): (s, s.node[tape.GRAD]) for s in run.seen.values() if s.node is not None and s.node[tape.GRAD] is not s.grad}
        stores = {id(g.store): g for _, g in grads.values() if g is not None}
        shown = [Shown(t.store, t.meta, t.ptr) for t in new]
        held: dict[int, int] = {}
        for t in new:
            held[id(t.store)] = held.get(id(t.store), 0) + 1
        if saved is not None:  # nodes hold them too
            held = {id(s): _MANY for s in (*saved, *[t.store for t in new])}
        self.lent = self._lent(run, given)
        if self.lent and self.pasts:
            raise Refused("it adds to gradients that it finds, beside results that require grad")
        operands = [*given.tensors, *[s.grad for s in self.lent]]
        self.plan = plan = Planned(recording, operands, tuple(trees.Leaf(i) for i in range(len(new))), shown, held, saved)
        if any(id(r.store) not in plan.fresh for r in shown):
            raise Refused("a result is a view of memory that lives on")
        if plan.foreign or plan.left - set(stores) - set(plan.fresh):
            raise Refused("it leaves memory behind")
        if any(isinstance(s, Launch) and s.device.type != "cpu" for s in plan.steps):
            raise Refused("it does work on a GPU")
        place = {id(s): k for k, s in enumerate(plan.steps)}
        plan.steps, count = checked_first(plan)
        first = min([place[id(s)] for s in plan.steps[count:] if is_check(s)], default=0)
        # gradients that Python has let go of by the first check that stays where it is: what lies in their memory is nobody's
        self.spare = {n for n in stores if n not in {id(s.store) for s in run.seen.values()}} if all(
            g is None or s.grad is None or run.cleared.get(id(s.tensor), _MANY) <= first for s, g in grads.values()) else set()
        self._check_order(plan, plan.steps)
        self.versions = [writes(t.store.version) for t in new]
        before = run.versions
        inside = {id(t.store): i for i, t in enumerate(operands)}
        # of two storages on the same memory, as `t.data` makes one, only the one that was written by says so
        plan.written = {n: (s, abs(s.version - before[n])) for s in recording.before if (n := id(s)) in before and n not in inside and s.version != before[n]}
        if self.pasts and any(x in plan.lasting and plan.lasting[x] not in plan.written for s in plan.launches() for x in s.writes):
            raise Refused("a node may keep memory that each call writes anew")
        self.moved = [(i, d) for n, i in inside.items() if (d := abs(operands[i].store.version - before[n]))]
        self.grads = [(s.node, g, None if g is None else g.store.version) for s, g in grads.values()]
        self._guard(run, plan, stores)
        steps = shortened(plan)
        self._check_order(plan, steps)
        plan.release(steps)
        self.replay = bind(plan, steps, self.late)
        if self.late and self.effects:
            raise Refused("it changes Python's objects beside work that may end half-way")
        self.tree, self.wasted = tree, 0
        self.among: list[Kept] = []  # the records of the function, once it is one of them
        self._function(run, plan, given, free)
        plan.results = []

    @staticmethod
    def _check_tree(tree: Any, run: Run, result: Any) -> None:
        def visit(x: Any) -> None:
            if type(x) is trees.Leaf or type(x) in ATOMS:
                return
            if isinstance(x, (tuple, list)):
                for part in x:
                    visit(part)
            elif type(x) is dict:
                for key, part in x.items():
                    visit(key)
                    visit(part)
            else:
                raise Refused(f"it gives a {type(x).__name__}")
        visit(tree)

        seen: set[int] = set()

        def made(x: Any) -> None:
            if type(x) in (list, dict):
                if not run.is_own(x):
                    raise Refused("it gives a container that lives on")
                if id(x) in seen:
                    raise Refused("it gives a container in two places")
                seen.add(id(x))
            if isinstance(x, (tuple, list, dict)):
                for part in x.values() if isinstance(x, dict) else x:
                    made(part)
        made(result)

    @staticmethod
    def _results(found: list[Any], given: Given, run: Run) -> tuple[list[Tensor], list[Any]]:
        """The new tensors among the results, their bases with them; and of each result where it comes from."""
        new: list[Tensor] = []
        number: dict[int, int] = {}

        def place(t: Tensor) -> int:
            if id(t) not in number:
                if type(t) is not Tensor or not t.meta.plain or not t.__dict__.keys() <= {"_views", "_made"} or run.is_old(t):
                    raise Refused(f"a result is a {type(t).__name__} that is not plain")
                if t.node is not None and not t.node[tape.SEQ]:
                    raise Refused("a result is a leaf that it made")
                number[id(t)] = len(new)
                new.append(t)
            return number[id(t)]
        parts: list[Any] = []
        for t in found:
            if type(t) in LATER:
                parts.append(("number", t.how.text))
                continue
            i = next((i for i, a in enumerate(given.tensors) if a is t), None)
            if i is not None:
                parts.append(("given", i))
            elif run.is_old(t):
                if id(t) not in run.seen:
                    raise Refused("a result is a tensor of which nothing is known")
                parts.append(("old", t))
            else:
                base = t.base
                if base is not None and (base.base is not None or base.store is not t.store or run.is_old(base)):
                    raise Refused("a result is a view of what lived before")
                parts.append(("new", place(t), None if base is None else place(base)))
        return new, parts

    @staticmethod
    def _lent(run: Run, given: Given) -> list[Any]:
        """The leaves whose gradients from before the record reads or writes: these are other tensors at each call, as arguments are."""
        touched = {id(s) for step in run.recording.steps for x in _addresses(step) if (s := run.recording.before.find(x)) is not None}
        found: list[Any] = [s for s in run.seen.values() if s.grad is not None and id(s.grad.store) in touched and id(s.grad) not in run.seen and lends(s.grad)]
        counts = Counter([*[id(t.store) for t in given.tensors], *[id(s.grad.store) for s in found]])
        return [s for s in found if counts[id(s.grad.store)] == 1]

    def _lent_tests(self, g: Any, given: Given) -> list[str]:
        """The lines that name the leaves' gradients, and see that they are as they were."""
        n = len(given.tensors)
        lines = []
        for k, s in enumerate(self.lent):
            x = f"t{n + k}"
            lines += [f"{x} = {g.name(s.node)}[{tape.GRAD}]",
                      f"if not (type({x}) is Tensor and {x}.meta is {g.name(s.grad.meta)} and {x}.node is None and {x}.base is None and {x}.store not in taken "
                      f"and {x}.store.free is not NO_FREE and id({x}.store) not in lent and (not {x}.__dict__ or {x}.__dict__.keys() <= NOTES)): return MISS"]
        if lines:
            count = n + len(self.lent)
            lines.append(f"if len({{{', '.join(f't{i}.store' for i in range(count))}}}) < {count}: return MISS")
        return lines

    def _check_order(self, plan: Planned, steps: Sequence[Any]) -> None:
        """Where a check of arguments may fail, Python does the call from its beginning: nothing may have been changed by then."""
        def lasts(x: Any) -> bool:  # what was drawn is put back
            return x.of == "a" if isinstance(x, Spot) else type(x) is int and any(
                k.ptr <= x < k.ptr + max(k.meta.nbytes, 1) for n, k in plan.kept.items() if n not in self.spare)
        changed = False
        self.late = set()
        for s in steps:
            if isinstance(s, capture.Read):
                if changed:
                    raise Refused("it checks arguments when it has changed something")
            elif isinstance(s, Launch):
                p = s.prepared
                if changed and p.program is None and not sequences.native(p.entry):  # Python carries it out, and may raise
                    if is_check(s) or not declared(p):
                        raise Refused(f"it checks arguments ({p.name}) when it has changed something")
                    self.late.add(id(s))  # it takes all values, and may only want for memory
                known = p.program is not None or declared(p)
                changed = changed or any(map(lasts, s.args[:p.outputs] if known else s.args))
            else:
                changed = changed or (plan.sources[s.number].generator is None if isinstance(s, Ask) else lasts(s.address))

    def _guard(self, run: Run, plan: Planned, stores: dict[int, Tensor]) -> None:
        """Guards of what the whole record says: gradients, and memory that is nobody's."""
        g = run.guards
        known = {id(s.store) for s in run.seen.values()}
        for s in list(run.seen.values()):
            if s.node is None or not (s.asked or run.passes):
                continue
            n = g.name(s.node)
            if s in self.lent:
                continue
            if s.grad is None:
                g.line(("grad", id(s)), f"{n}[1] is None")
            elif id(s.grad) in run.seen or id(s.grad.store) in plan.kept:
                g.tensor(s.grad)
                known.add(id(s.grad.store))
                g.line(("grad", id(s)), f"{n}[1] is {g.name(s.grad)}")
            else:
                g.line(("grad", id(s)), f"type({n}[1]) is Tensor and {n}[1].meta is {g.name(s.grad.meta)} and {n}[1].node is None")
        for number, store in plan.kept.items():
            if number not in known and number not in stores and number not in plan.written:
                # a constant that operations keep: nobody has written to it
                g.line(("constant", number), f"{g.name(store)}.version == {store.version}")
        for _, t, _ in self.grads:
            if t is not None:
                c = g.name(t)
                g.line(("left", id(t)), f"{c}.meta is {g.name(t.meta)} and {c}.store is {g.name(t.store)} and {c}.node is None and {c}.ptr == {t.ptr}")

    @staticmethod
    def _settle(run: Run) -> None:
        """Leaves out the looks at values that are no conditions; sees that what may raise among the effects is the last thing."""
        loose = {id(i.read) for i in run.effects.items if not i.fixed}
        done = run.done()
        run.recording.steps[:] = [s for s in run.recording.steps if id(s) not in loose]
        if any(e.kind == "work" and e.steps != done for e in run.effects.found):
            raise Refused("a number that it works out may raise, with work behind it")

    def _texts(self, found: list[Any]) -> list[str]:
        return [*[x.how.text for x in found if type(x) in LATER], *[e.value for e in self.effects if e.kind == "work"]]

    def _function(self, run: Run, plan: Planned, given: Given, free: Collection[int]) -> None:
        """Writes `call`."""
        g = run.guards
        self.limits: list[tuple[int, int]] = []
        # an argument that is one of these would be read elsewhere too, or be the one that it is compared with
        forbidden = {*plan.kept.values(), *[s.store for s in run.seen.values()], *g.stores()}
        space: dict[str, Any] = {**SPACE, "Tensor": Tensor, "NO_FREE": NO_FREE, "MISS": MISS, "replay": self.replay, "taken": forbidden,
                                 "rc": getrefcount, "limits": self.limits, "now": modes(), "put": trees.put, "copied": copied, "next_seq": tape.next_seq,
                                 "note": inplace.note, "NOTES": NOTES, "HalfWay": HalfWay, "wasted": self._wasted, "item": reading.item,
                                 "lent": tape.lent}
        checked = any(map(is_check, plan.steps))
        # of what a call draws before a check fails Python draws the same again
        drawn = list({id(x): x for x in [*plan.streams.values(), *[s.generator for s in plan.sources if s.generator is not None]]}.values()) if checked else []
        owned = [(g.name(n), g.name(t), g.name(t.store)) for n, t, _ in self.grads if t is not None]
        body = [" def call(args, kwargs):", "  try:", *[f"   {line}" for line in given.unpacked(g)],
                *[f"   if not ({t}): return MISS" for t in given.tests(g, free)], "   if watched() or modes() != now: return MISS",
                *[f"   {line}" for line in self._lent_tests(g, given)], *[f"   if not ({t}): return MISS" for t in g.lines()],
                *[f"   if rc({c}) > limits[{i}][0] + ({n}[1] is {c}) or rc({s}) > limits[{i}][1]: return MISS" for i, (n, c, s) in enumerate(owned)],
                "  except (KeyError, IndexError, AttributeError, ValueError, TypeError): return MISS",
                *[f"  d{i} = {g.name(x)}.kept()" for i, x in enumerate(drawn)],
                f"  try: rs{', ss' if self.pasts else ''} = replay({', '.join(f't{i}' for i in range(len(plan.operands)))})",
                "  except HalfWay as e: raise e.__cause__ from None", "  except Exception:",
                *[f"   {g.name(x)}.put_back(d{i})" for i, x in enumerate(drawn)], *(["   wasted()"] if checked else []), "   return MISS",
                *[f"  t{i}.store.version += {d}" for i, d in self.moved], *[f"  rs[{i}].store.version += {v}" for i, v in enumerate(self.versions) if v]]
        # where a replay raises, nothing is changed yet, and Python's call raises it; half-way it is raised as Python's call would half-way
        for n, t, version in self.grads:
            body.append(f"  {g.name(n)}[1] = {g.name(t)}")
            if t is not None:
                body.append(f"  {g.name(t.store)}.version = {version}")
        for k in range(len(self.pasts)):
            body += self._history(g, k, len(given.tensors))
        body += self._given_back(g)
        body.append(f" def counts(): return [{', '.join(f'(rc({c}) - ({n}[1] is {c}), rc({s}))' for n, c, s in owned)}]")
        names = ", ".join(f"c{i}" for i in range(len(g.constants)))
        made: Any = maker("\n".join(["def make(constants):", f" {names}, = constants", *body, " return call, counts"]), space)
        self.call, self._counts = made(g.constants)
        if g.crossed:
            raise Refused("an argument is read elsewhere too")
        if g.stale:
            raise Refused("it reads what it has changed in Python's objects")

    def _history(self, g: Any, which: int, count: int) -> list[str]:
        """The lines that give results their node.  count: of arguments."""
        numbers, past = self.pasts[which]
        outer = [f"t{i}" for i in range(count)] + [f"rs[{i}]" for i, t in enumerate(self.plan.results)]
        arguments = [outer[i] for i in past.used]
        versions = "".join(f"{arguments[s]}.store.version, " if type(s) is int else f"{g.name(s)}.version, " for s in past.kept)
        targets = tuple([to for _, _, to in past.exits])
        edges = f"({''.join(f'{outer[to]}.node, ' if type(to) is int else f'{g.name(to)}, ' for to in targets)})"
        if not any(type(to) is int for to in targets):
            edges = g.name(targets)
        state = (f"({g.name(past)}, ({''.join(f'{a}, ' for a in arguments)}), ({''.join(f'ss[{k}], ' for k in self.places[which])}), "
                 f"({''.join(f'({a}.ptr, {a}.store), ' for a in arguments)}), ({versions}))")
        lines = [f"  ss[{k}].version = {v}" for k, v in zip(self.places[which], past.finals, strict=True) if v]
        if len(numbers) == 1:
            f = g.name(back_again if past.reusable else back)
            return [*lines, f"  rs[{numbers[0]}].node = {tape.text(f, edges, state)}"]
        f = g.name(several_again if past.reusable else back_several)
        extra = f"{{'outputs': {len(numbers)}, 'name': {past.names[0]!r}}}"
        lines.append(f"  p = {tape.text(f, edges, state, extra)}")
        to = g.name(tape.to_output)
        for k, i in enumerate(numbers):
            extra = f"{{'name': {past.names[k]!r}}}"
            lines.append(f"  rs[{i}].node = {tape.text(to, '(p,)', str(k), extra)}")
        return lines

    def _wasted(self) -> None:
        """A replay came to a check that failed, so that Python does the call from its beginning."""
        self.wasted += 1
        if self.wasted > _WASTED and self in self.among:
            self.among.remove(self)

    def settle(self) -> None:
        """Notes how many hold the gradients that it writes anew: called when the run is gone and nobody else has seen them."""
        self.limits[:] = self._counts()

    def _given_back(self, g: Any) -> list[str]:
        """The lines that do what the function does to Python's objects, and give the result."""
        lines: list[str] = []
        names: list[str] = []
        for k, part in enumerate(self.parts):
            if part[0] == "given":
                names.append(f"t{part[1]}")
            elif part[0] == "old":
                names.append(g.name(part[1]))
            elif part[0] == "number":
                names.append(part[1])
            else:
                names.append(f"rs[{part[1]}]")
                if k != next(j for j, p in enumerate(self.parts) if p[:2] == part[:2]):
                    continue
                if part[2] is not None:
                    lines.append(f"  rs[{part[1]}].base = rs[{part[2]}]")
                if part[1] in self.marks:
                    lines.append(f"  rs[{part[1]}].__dict__['_made'] = {g.name(self.marks[part[1]])}")
                if part[3] is not None:
                    lines.append(f"  rs[{part[1]}].node = copied({g.name(part[3])})")
        lines += [f"  note(rs[{j}], rs[{i}])" for j, i in self.noted]  # in the order in which a write gives them a new history
        lines += [f"  m{number} = item(rs[{self.parts[k][1]}])" for number, k in self.items.items()]
        result, *values = self.tree
        left = iter(values)
        for e in self.effects:
            if e.kind == "work":
                lines.append(f"  {e.key} = {e.value}")
            else:
                to = f"{g.name(e.target)}[{g.key(e.key)}] = {{}}" if e.kind == "set" else f"{g.name(e.target)}.append({{}})"
                lines.append("  " + to.format(self._again(g, next(left), names)))
        return [*lines, f"  return {self._again(g, result, names)}"]

    @staticmethod
    def _again(g: Any, tree: Any, names: list[str]) -> str:
        """The text that makes a value again."""
        if type(tree) is trees.Leaf:
            return names[tree.number]
        if type(tree) in ATOMS:
            return str(g.name(tree))
        return f"put({g.name(tree)}, ({', '.join(names)},).__getitem__)" if names else f"put({g.name(tree)}, None)"


def _addresses(step: Any) -> list[int]:
    """The addresses that a step of a recording is given."""
    return [x for _, x in step.addresses()] if isinstance(step, Launch) else [] if isinstance(step, Ask) else [step.address]


def _apart_names(text: str) -> str:
    """A text of Python, with its names apart."""
    return re.sub(r"\W+", " ", text)


def histories(run: Run, given: Sequence[Tensor], new: Sequence[Tensor]) -> list[tuple[list[int], History]]:
    """The histories of results that require grad, the oldest first, each with the numbers of the results that have it: a result from which another was
    computed has one of its own, at which the other's ends."""
    ends = {id(t.node) for t in given if t.node is not None}
    recorded = [i for i, t in enumerate(new) if t.node is not None and not spent(t.node, ends)]
    own = {id(new[i].node) for i in recorded}
    groups: list[tuple[list[int], set[int]]] = []
    for i in recorded:
        reach: set[int] = set()
        left = [new[i].node]
        while left:
            n = left.pop()
            if n is not None and n[0] and id(n) not in reach and not run.is_old_object(n) and (n is new[i].node or id(n) not in own):
                reach.add(id(n))
                left += n[3]
        together = [i]
        for group in [g for g in groups if g[1] & reach]:
            groups.remove(group)
            together, reach = group[0] + together, reach | group[1]
        groups.append((together, reach))
    found = []
    for numbers, _ in groups:
        outer = [*given, *[t if i in recorded and i not in numbers else _NOBODY for i, t in enumerate(new)]]
        found.append((numbers, History(run, [new[i] for i in numbers], outer)))
    found.sort(key=lambda f: -f[1].last)
    for k, (_, past) in enumerate(found):
        for _, other in found[:k]:
            if past.first > other.last and {id(to) for _, _, to in past.exits} & {id(to) for _, _, to in other.exits}:
                raise Refused("gradients of two results come in turns")
        for _, _, to in past.exits:
            if type(to) is int and to >= len(given) and not any(to - len(given) in numbers for numbers, _ in found[:k]):
                raise Refused("two results were computed from one another's history")
    return found


_NOBODY = object.__new__(Tensor)  # in the place of a result at which no history ends
_NOBODY.meta = _NOBODY.store = _NOBODY.base = _NOBODY.node = None  # type: ignore[assignment]
_NOBODY.ptr = 0


def spent(node: Any, ends: Collection[int] = ()) -> bool:
    """Whether a pass has been through a node and let go of what it kept, and of what all nodes behind it kept, and none of these nodes is in reach."""
    seen: set[int] = set()
    left = [node]
    while left:
        n = left.pop()
        if n is not None and id(n) in ends:
            return False
        if n is None or id(n) in seen or n[0] == 0:
            continue
        seen.add(id(n))
        if (n[4] is not None and n[2] not in tape.reusable) or (n[5] is not None and ("hooks" in n[5] or "pre" in n[5] or "post" in n[5])):
            return False
        left += n[3]
    return True


class _Spent:
    """Copies of nodes that a pass has been through: of the leaves behind them only these, by identity, are themselves."""

    def __init__(self, leaves: set[int]) -> None:
        self._leaves = leaves
        self._made: dict[int, Any] = {}

    def copy(self, node: Any) -> Any:
        order, left = [], [node]
        while left:
            n = left.pop()
            if n is not None and id(n) not in self._made:
                if n[0] == 0:
                    self._made[id(n)] = n if id(n) in self._leaves else tape.leaf()
                else:
                    self._made[id(n)] = made = copied(n)
                    order.append(made)
                    left += n[3]
        for made in order:
            made[3] = tuple([None if e is None else self._made[id(e)] for e in made[3]])
        return self._made[id(node)]


def _cut(results: list[Tensor], leaves: set[int]) -> None:
    """Gives results nodes that hold no tensors of the step."""
    graph = _Spent(leaves)
    for t in results:
        if t.node is not None:
            t.node = graph.copy(t.node)


def copied(node: Any) -> Any:
    """A node like it, of its own."""
    _, grad, backward, edges, saved, extra = node
    made = tape.new(backward, edges, saved, None if extra is None else dict(extra))
    made[tape.GRAD] = grad
    return made


def pays(replay: float, python: float, nodes: int = 0) -> bool:
    """Whether a record is worth keeping, by the best times of both.  nodes: how many of the tape one of its own stands for, through which a pass is a
    replay too, while Python's takes a microsecond and more for each."""
    return replay < python + 1e-6 * nodes


class _Trial:
    """A record that is held against Python's calls.  turn: whether it is tried at the next call, which is Python's otherwise; hits: how often it was; best:
    how long it took; misses: calls on end at which it did not hold."""

    __slots__ = ("kept", "turn", "hits", "best", "misses")

    def __init__(self, kept: Kept) -> None:
        self.kept, self.turn, self.hits, self.best, self.misses = kept, False, 0, _NEVER, 0


class _Kind:
    """Calls of one kind: how many there were; the records that are on trial, and how long Python took at best.  why: why nothing was kept, each time."""

    __slots__ = ("calls", "python", "trials", "why")

    def __init__(self) -> None:
        self.calls = 0
        self.python = _NEVER
        self.trials: list[_Trial] = []
        self.why: list[str] = []


class Compiled:
    """What `compile` knows of a function.

    records: what is replayed, each of which says whether it may.  on: whether anything is still looked for.
    """

    def __init__(self, f: Callable[..., Any]) -> None:
        self.f = f
        self.records: list[Kept] = []
        self.kinds: dict[Any, _Kind] = {}
        self.on = True
        self._idle = 0  # calls on end of kinds that are left to Python
        self._lock = Lock()
        self._seen: dict[int, set[Any]] = {}  # numbers among the arguments, by their places, few of each
        self._free: set[int] = set()  # the places where there were many
        self._moved: set[Any] = set()  # places where the function changes Python's objects

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call for which no record holds."""
        given = Given(args, kwargs)
        for place, x in enumerate(given.values):
            if place not in self._free and countable(x):
                seen = self._seen.setdefault(place, set())
                seen.add(x)
                if len(seen) > _RECORDS:
                    self._free.add(place)
        try:
            kind = self.kinds.get(key := given.key(self._free))
        except TypeError:
            return self.f(*args, **kwargs)
        if kind is None:
            kind = _Kind()
            if len(self.kinds) < _KINDS:
                self.kinds[key] = kind
        if len(kind.why) >= _TRIES or len(self.records) >= _RECORDS or len(self.kinds) >= _KINDS:
            self._idle += 1
            if not self.records and self._idle >= _IDLE:
                self.on = False
            return self.f(*args, **kwargs)
        self._idle = 0
        if watched() or not given.fit:
            return self.f(*args, **kwargs)
        kind.calls += 1
        if kind.calls <= AFTER:
            return self.f(*args, **kwargs)
        if not self._lock.acquire(False):
            return self.f(*args, **kwargs)
        try:
            made = self._tried(kind, args, kwargs)
            if made is not MISS:
                return made
            return self._captured(kind, given, args, kwargs)
        finally:
            self._lock.release()

    def _tried(self, kind: _Kind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call while records are on trial: each second one is Python's, and the faster of the two is kept."""
        turns = [t for t in kind.trials if t.turn]
        for t in turns:
            since = perf_counter()
            made = t.kept.call(args, kwargs)
            if made is MISS:
                t.misses += 1
                if t.misses > _MISSES:
                    kind.trials.remove(t)
                    self._failed(kind, "what it reads is another at each call")
                continue
            t.best = min(t.best, perf_counter() - since)
            t.hits, t.misses, t.turn = t.hits + 1, 0, False
            if t.hits >= _TIMED:
                kind.trials.remove(t)
                if pays(t.best, kind.python, sum(len(past.nodes) - 1 for _, past in t.kept.pasts)):
                    self.records.append(t.kept)
                    t.kept.among = self.records
                else:
                    self._failed(kind, "Python is as fast", _TRIES)
            return made
        if len(turns) < len(kind.trials) or len(kind.trials) + len(self.records) >= _RECORDS:
            for t in kind.trials:
                t.turn = True
            since = perf_counter()
            made = self.f(*args, **kwargs)
            kind.python = min(kind.python, perf_counter() - since)
            return made
        return MISS

    def _run(self, run: Run, given: Given, free: Collection[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        f = run.callee(self.f)
        if not run.off:
            args, kwargs = given.numbered(run.effects, free)
        return f(*args, **kwargs)

    def _failed(self, kind: _Kind, why: str, times: int = 1) -> None:
        kind.why += [why] * times

    def _captured(self, kind: _Kind, given: Given, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(kind.why) >= _TRIES:
            return self.f(*args, **kwargs)
        free = frozenset(self._free)
        run = Run(given.tensors, given.containers, self._moved)
        with run:
            result = self._run(run, given, free, args, kwargs)
        self._moved |= run.effects.moved
        kept = None
        if not run.off:
            try:
                kept = Kept(run, given, result, free)
            except (Refused, Exception) as error:  # whatever it is: the result is there, and only the record is lost
                run.taint(str(error) or type(error).__name__)
        why = run.why
        del run
        if kept is None:
            self._failed(kind, str(why))
        else:
            kept.settle()
            kind.trials.append(_Trial(kept))
        return plain(result)


_MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
_BACKENDS = ("inductor", "eager", "aot_eager", "cudagraphs", "onnxrt", "openxla", "tvm")


def compile(model: Any = None, *, fullgraph: bool = False, dynamic: Any = None, backend: Any = None, mode: str | None = None,  # noqa: A001
            options: Any = None, name: str | None = None, disable: bool = False, recompile_limit: int | None = None,
            isolate_recompiles: bool = False, shapes_spec: Any = None) -> Any:
    """A function that gives, changes, raises and prints what `model` does, always.  Where all that a call reads is known, and is as it was at an earlier
    call with tensors of the same layouts, Python is left out, and the launches are fused as by `flambeau.capture`; where not, Python's code runs as it
    is.  Of a Module it gives another (an ``OptimizedModule``), whose calls are those of the Module, compiled.  Also a decorator, with or without options.

    fullgraph, dynamic, mode, options: accepted; every shape is served.  backend: a name of PyTorch's, or a function, which is not called; with "eager",
    or with `disable`, `model` is given back.
    Raises AssertionError for what cannot be called, RuntimeError for an unknown mode or backend, and for both a mode and options.
    """
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    if backend is not None and not callable(backend) and backend not in _BACKENDS:
        raise RuntimeError(f"Invalid backend: {backend!r}, known are {', '.join(_BACKENDS)}, and functions")
    if model is None:
        return lambda m: compile(m, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable)
    if not callable(model):
        raise AssertionError(f"A callable function is expected, but {type(model)} is provided.")
    if disable or backend == "eager" or callable(backend):
        return model
    return compiled(model) if type(model) in (FunctionType, MethodType) else hooks.optimized(model)


def compiled(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function that does what a function or method does, with Python left out where it may be."""
    if "__compiled__" in getattr(f, "__dict__", {}):
        return f
    state = Compiled(f)
    records, slow = state.records, state.call

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        for kept in records:
            made = kept.call(args, kwargs)
            if made is not MISS:
                return made
        return slow(args, kwargs) if state.on else f(*args, **kwargs)
    call.__compiled__ = state  # type: ignore[attr-defined]
    return call
