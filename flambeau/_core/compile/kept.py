"""A record of a step that was run, with its guards: the function that does the step again."""

from __future__ import annotations

import re
from collections import Counter
from sys import getrefcount
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

from ..autograd import inplace, tape
from ..engine.plans import maker
from ..kernels.llvm import sequence as sequences
from ..ops import reading
from ..runtime import capture, dispatch, gpus
from ..runtime.versions import writes
from ..tensor import NO_FREE, Tensor
from . import trees
from .behind import copied, cut, histories
from .checks import checked_first, is_check, looked_before
from .given import Given
from .graph import declared
from .guards import SPACE, modes
from .history import back, back_again, back_several, several_again
from .knowing import ATOMS, NOTES, lends
from .later_numbers import LATER
from .passes import shortened
from .reads import Run
from .record import Ask, Launch, Refused
from .replay import HalfWay, Planned, Shown, Spot, bind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_WASTED = 64  # replays that came to a check that failed, after which a record is dropped
_MANY = 10**9
MISS: Any = object()


class Kept:
    """A record with its guards: `call(args, kwargs)` gives the result, or MISS where it may not be replayed."""

    def __init__(self, run: Run, given: Given, result: Any, free: Collection[int] = ()) -> None:
        recording = run.recording
        run.effects.end(run.done())
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
        for i in run.effects.items:
            if i not in wanted:  # nobody has it from here on
                i.copy = None
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
        cut([t for i, t in enumerate(new) if i not in recorded], {id(s.node) for s in run.seen.values()})
        self.parts = [(*part[:3], None if part[1] in recorded else new[part[1]].node) if part[0] == "new" else part for part in self.parts]
        grads = {id(s): (s, s.node[tape.GRAD]) for s in run.seen.values() if s.node is not None and s.node[tape.GRAD] is not s.grad}
        stores = {id(g.store): g for _, g in grads.values() if g is not None}
        shown = [Shown(t.store, t.meta, t.ptr) for t in new]
        if max(Counter(id(g) for _, g in grads.values() if g is not None).values(), default=1) > 1:
            raise Refused("two leaves have one gradient")  # who else holds it could not be told
        if any(id(t.store) in stores for t in new):
            raise Refused("a result lies in a gradient's memory")
        if any(t.meta.device.type == "cpu" and gpus.is_pinned(t.store.ptr) for t in new):
            raise Refused("a result lies in pinned memory")
        if any(s.store is not t.store for s, t in zip(shown, new, strict=True)):
            raise Refused("a result lies in another tensor's memory, with a version of its own")
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
        place = {id(s): k for k, s in enumerate(plan.steps)}
        plan.steps, count = checked_first(plan)
        first = min([place[id(s)] for s in plan.steps[count:] if is_check(s)], default=0)
        # gradients that Python has let go of by the first check that stays where it is: what lies in their memory is nobody's
        self.spare = {n for n in stores if n not in {id(s.store) for s in run.seen.values()}} if all(
            g is None or s.grad is None or run.cleared.get(id(s.tensor), _MANY) <= first for s, g in grads.values()) else set()
        looked_before(plan, next(self._changes(plan, plan.steps), len(plan.steps)))
        self._check_order(plan, plan.steps)
        self.versions = [(i, writes(t.store.version)) for i, t in {id(t.store): (i, t) for i, t in enumerate(new)}.values()]
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
        if self.late and self.effects and plan.device.type == "cpu":  # a GPU's errors come at any moment after their cause
            raise Refused("it changes Python's objects beside work that may end half-way")
        self.tree, self.wasted = tree, 0
        self.of: Any = None  # a weak reference to the function that it is a record of, once it is
        self._function(run, plan, given, free)
        plan.results = []

    @staticmethod
    def _check_tree(tree: Any, run: Run, result: Any) -> None:
        left = [tree]  # no functions that call themselves: one would keep the run alive until there is a collection
        while left:
            x = left.pop()
            if isinstance(x, (tuple, list)):
                left += x
            elif type(x) is dict:
                left += [*x, *x.values()]
            elif type(x) is not trees.Leaf and type(x) not in ATOMS:
                raise Refused(f"it gives a {type(x).__name__}")
        seen: set[int] = set()
        left = [result]
        while left:
            x = left.pop()
            if type(x) in (list, dict):
                if not run.is_own(x):
                    raise Refused("it gives a container that lives on")
                if id(x) in seen:
                    raise Refused("it gives a container in two places")
                seen.add(id(x))
            if isinstance(x, (tuple, list, dict)):
                left += x.values() if isinstance(x, dict) else x

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
                      f"and {x}.store.free is not NO_FREE and {x}.store.version >= 0 and id({x}.store) not in lent "
                      f"and (not {x}.__dict__ or {x}.__dict__.keys() <= NOTES)): return MISS"]
        if lines:
            count = n + len(self.lent)
            lines.append(f"if len({{{', '.join(f't{i}.store' for i in range(count))}}}) < {count}: return MISS")
        return lines

    def _lasts(self, plan: Planned, x: Any) -> bool:
        """Whether what a step writes there lives on; what was drawn is put back."""
        return x.of == "a" if isinstance(x, Spot) else type(x) is int and any(
            k.ptr <= x < k.ptr + max(k.meta.nbytes, 1) for n, k in plan.kept.items() if n not in self.spare)

    def _changes(self, plan: Planned, steps: Sequence[Any]) -> Iterator[int]:
        """The places of the steps that change what lives on."""
        for k, s in enumerate(steps):
            if isinstance(s, Launch):
                known = s.prepared.program is not None or declared(s.prepared)
                changes = any(self._lasts(plan, x) for x in (s.args[:s.prepared.outputs] if known else s.args))
            elif isinstance(s, Ask):
                changes = plan.sources[s.number].generator is None
            else:
                changes = not isinstance(s, capture.Read) and self._lasts(plan, s.address)
            if changes:
                yield k

    def _check_order(self, plan: Planned, steps: Sequence[Any]) -> None:
        """Where a check of arguments may fail, Python does the call from its beginning: nothing may have been changed by then."""
        first = next(self._changes(plan, steps), len(steps))
        self.late = set()
        for k, s in enumerate(steps):
            changed = k > first
            if isinstance(s, capture.Read):
                if changed:
                    raise Refused("it checks arguments when it has changed something")
            elif isinstance(s, Launch):
                p = s.prepared
                if changed and p.program is None and not sequences.native(p.entry):  # Python carries it out, and may raise
                    if is_check(s) or (s.device.type == "cpu" and not declared(p)):
                        raise Refused(f"it checks arguments ({p.name}) when it has changed something")
                    self.late.add(id(s))  # it takes all values, and may only want for memory

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
        if plan.device.type == "cuda":
            g.line(("stream",), f"{g.name(gpus.current_stream)}({g.name(plan.device)})._handle is {g.name(plan.stream._handle)}")
        if any(isinstance(s, capture.Read) and s.device is not None for s in plan.steps) or any(i.read.device is not None for i in run.effects.items):
            # one that is forbidden raises where the text takes it, before what comes behind
            g.line(("looks",), f"not {g.name(dispatch.copies_shown)}()")
        if gpus.started():  # "cuda" may have been named without any work there
            g.line(("device",), f"{g.name(gpus.current_index)}() == {gpus.current_index()}")
        for _, t, _ in self.grads:
            if t is not None:
                c = g.name(t)
                g.line(("left", id(t)), f"{c}.meta is {g.name(t.meta)} and {c}.store is {g.name(t.store)} and {c}.node is None and {c}.ptr == {t.ptr}"
                       f" and (not {c}.__dict__ or {c}.__dict__.keys() <= NOTES)")
                if t.meta.device.type == "cuda":  # no other stream is at work there
                    g.line(("lent", id(t)), f"{t.store.ptr} not in {g.name(gpus.gpu(t.meta.device).pool.used_by)}")

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
                                 "note": inplace.note, "NOTES": NOTES, "HalfWay": HalfWay, "wasted": WeakMethod(self._wasted), "item": reading.item,
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
                *[f"   {g.name(x)}.put_back(d{i})" for i, x in enumerate(drawn)], *(["   wasted()()"] if checked else []), "   return MISS",
                *[f"  t{i}.store.version += {d}" for i, d in self.moved], *[f"  rs[{i}].store.version += {v}" for i, v in self.versions if v]]
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
        g.constants = []  # who keeps the run alive is not to be counted among those who hold a gradient
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
        of = self.of and self.of()
        if self.wasted > _WASTED and of is not None and self in of.records:
            of.records.remove(self)

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
                to = f"{g.name(e.target)}[{g.key(e.key)}] = {{}}" if e.kind == "set" else f"{g.name(e.target)}.append({{}})" if e.kind == "append" else (
                    f"d = {{}}; {g.name(e.target)}.clear(); {g.name(e.target)}.update(d)")
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
