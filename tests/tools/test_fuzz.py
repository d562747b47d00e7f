"""Classes of differences: their names, the file of known ones, the comparison; and the seams that the instruments need."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from tools.fuzz import bits, classes, guard, models_generator, numerics, programs, repeated
from tools.fuzz.classes import Class, Entry, Family, Known

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("line", "name"), [
    ("T.add(v[0], v[1], alpha=2)", "add"), ("v[3].index_add(0, T.tensor([1, 0]), v[2])", "index_add"), ("T.topk(v[1], 2, -1)[0]", "topk"),
    ("T.nn.functional.relu6(v[0])", "relu6"), ("v[0][..., T.tensor([1])]", "index"), ("v[0][1:, None].copy_(v[1])", "copy_"), ("v[2].mT", "mT"),
    ("!v[1][T.tensor([0]), :] = v[0]", "set"), ("v[0] // v[1]", "operator //"), ("3 << v[1]", "operator <<"), ("v[0] == v[1]", "operator eq"),
    ("v[4]", "value"), ("!(v[-1].abs() if v[-1].is_complex() else v[-1]).sum().backward()", "backward"), ("len(v[0])", "len"), ("v[0] +", "?")])
def test_operation(line: str, name: str) -> None:
    assert classes.operation(line) == name


@pytest.mark.parametrize(("text", "words"), [
    ('"glu_cpu" not implemented for \'Bool\'', "# not implemented for #"),
    ("expected dtype c10::complex<float> for `end` but got dtype torch.float16", "expected dtype # for # but got dtype #"),
    ("index 3 is out of bounds for dimension 1 with size 1", "index # is out of bounds for dimension # with size #"),
    ("shape [2, 3] at 0x7f12ab34, not (1, -1)\nmore", "shape # at #, not #")])
def test_words_leave_out_what_depends_on_the_case(text: str, words: str) -> None:
    assert classes.plain_words(text) == words


def test_words_are_cut_between_words() -> None:
    words = classes.plain_words("a message of very many words " * 5)
    assert len(words) <= 70 and words.endswith(("a", "message", "of", "very", "many", "words"))


@pytest.mark.parametrize(("kind", "text", "words"), [
    ("value", "value at (0, 1): nan / 0.5 (float32)", "float: nan / number"),
    ("value-after", "v[2] value at (): 3 / -1 (int64)", "int: number / number"),
    ("grad-value", "v[0].grad value at (0,): inf / nan (bfloat16)", "bfloat: inf / nan"),
    ("float", "float 1.0 / inf", "number: number / inf"),
    ("dtype", "dtype int64 / float32", "int / float"),
    ("dtype", "dtype uint8 / int64", "uint8 / int64"),
    ("flambeau-error", "AttributeError: 'Tensor' object has no attribute 'p'", "AttributeError: Tensor has no attribute #"),
    ("requires_grad-after", "v[12] requires_grad True / False", "True / False"),
    ("kind", "kind T?/T ('T?', 'x') / ('T', 'float32')", "T?/T"),
    ("torch-error", "IndexError: index 3 is out of range", "IndexError: index # is out of range"),
    ("shape", "shape (2,) / ()", "")])
def test_class_of(kind: str, text: str, words: str) -> None:
    assert classes.class_of(kind, "T.sum(v[0])", text) == (kind, "sum", words)


TIES: Class = ("value", "kthvalue", "int: number / number")
TYPES: Class = ("torch-error", "glu", "NotImplementedError: # not implemented for #")
NEW: Class = ("crash", "", "SIGSEGV")


def known() -> Known:
    return Known({"seeds": "0:10", "programs": 10}, [Family("no kernel", "torch-error", "NotImplementedError: # not")], {TIES: Entry(4, 'a "b" \\ c', "ties")})


def test_a_new_class_is_found_and_a_family_covers_many() -> None:
    assert classes.compare(Counter({TIES: 2, TYPES: 9, NEW: 1}), known()).new == [NEW]
    assert classes.compare(Counter({TIES: 2, TYPES: 9}), known()).new == []
    assert classes.compare(Counter({("flambeau-error", *TYPES[1:]): 1}), known()).new == [("flambeau-error", *TYPES[1:])]


def test_what_pytorch_leaves_undefined_counts_apart(tmp_path: Path) -> None:
    kept = tmp_path / "known.toml"
    families = [Family("its order", "value-after-raising", ".*", undefined=True), Family("no kernel", "torch-error", "NotImplementedError")]
    classes.write(kept, Known({}, families), "")
    again = classes.read(kept)
    assert [f.undefined for f in classes.renewed(again, Counter(), {}, {}).families] == [True, False]
    assert not again.comparable(("value-after-raising", "set", "int: number / number"))
    assert again.comparable(TYPES) and again.comparable(TIES)


def test_a_known_class_that_shows_far_more_often_is_told() -> None:
    counts = Counter({TIES: 14})
    assert classes.compare(counts, known(), share=1.0).risen == [(TIES, 4, 14)]
    assert classes.compare(counts, known(), share=0.0).risen == []  # other cases ran
    assert classes.compare(Counter({TIES: 8}), known(), share=1.0).risen == []


def test_the_file_keeps_reasons_and_is_the_same_when_written_again(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    now = classes.renewed(known(), Counter({TIES: 5, NEW: 1, TYPES: 3}), {NEW: "line\nbreak é"}, {"seeds": "0:20"})
    assert now.families[0].count == 3 and now.classes[TIES].reason == "ties" and now.classes[TIES].count == 5 and TYPES not in now.classes
    classes.write(path, now, "Head\n\nof the file.")
    first = path.read_bytes()
    again = classes.read(path)
    assert again == now
    classes.write(path, again, "Head\n\nof the file.")
    assert path.read_bytes() == first
    assert classes.read(tmp_path / "none.toml") == Known()


def test_share_of_the_recorded_programs() -> None:
    assert programs.share(known(), {seed: [] for seed in range(5)}) == 0.5
    assert programs.share(known(), {3: [], 12: []}) == 0
    assert programs.share(Known(), {3: []}) == 0


def test_how_a_process_ended() -> None:
    assert programs.ended(-11, "")[:1] + programs.ended(-11, "")[2:] == ("crash", "SIGSEGV")
    assert programs.ended(-27, "")[0] == "hang"
    assert programs.ended(1, "Traceback\nMemoryError: 12 bytes")[0] == "exit"


GUARDED = """3 T.sum args=['<torch.float32 (2,)>'] kw={ }
   -> <torch.float32 ()>
4 F.pad args=['x'] kw={ }
   !! TypeError pad(): bad
5 T.sort args=['1'] kw={ }
   !! OverflowError Python int too large to convert to C long 77
6 T.cumsum args=['1'] kw={ }
SLOW>30s 6 T.cumsum args=['1'] kw={ }
DEVERR RuntimeError illegal address 6 T.cumsum args=['1'] kw={ }
7 T.cov args=['1'] kw={ }
DIFF hostile: 0: 8: by the body 1 / as a replay 2
   -> <torch.float32 ()>
"""


def test_outcomes_of_guarded_calls() -> None:
    found = list(guard.outcomes(GUARDED))
    assert [(kind, name, words) for kind, name, words, _ in found] == [
        ("odd", "T.sort", "OverflowError: Python # too large to convert to C #"), ("hang", "T.cumsum", ""), ("device", "T.cumsum", "RuntimeError"),
        ("differs", "T.cov", "hostile: #: #: by the body # / as a replay #")]
    assert found[0][3].startswith("5 T.sort args=") and sorted(guard.told(GUARDED)) == [3, 4, 5, 6, 7]
    assert guard.told(GUARDED)[4] == ("4 F.pad args=['x'] kw={ }", "!! TypeError pad(): bad") and guard.told(GUARDED)[6][1] == ""
    assert guard.split("DONE {}")[0] == -1 and guard.split("17 T.add args=[] kw={}")[:2] == (17, "T.add")


def test_a_call_made_again_is_held_against_the_body(capsys: pytest.CaptureFixture[str]) -> None:
    """By a function that says whether learned plans are looked for; the operands stay as they were."""
    swept: list[int] = []
    again = repeated.Repeated(fb, lambda: swept.append(1))
    x, w = fb.arange(6.0).reshape(2, 3), fb.ones(3, requires_grad=True)
    assert again.call(fb.nn.functional.layer_norm, [x, (3,), w], {}).requires_grad
    assert again.call(fb.Tensor.add_, [x.t(), 1], {})._version == 1
    with pytest.raises(IndexError):
        again.call(fb.sort, [x, 7], {})
    again.call(fb.empty_like, [x], {})
    assert capsys.readouterr().out == "" and len(swept) == 4 and x.tolist() == [[1, 2, 3], [4, 5, 6]]

    def wrong(t: fb.Tensor) -> fb.Tensor:
        return t + 1 if again.now.watched else t + (2 if t[0, 0] != t[0, 0] or t[0, 0] == 0 else 1)
    again.call(wrong, [x], {})
    assert capsys.readouterr().out.splitlines()[0].startswith("DIFF hostile: 0: 8: by the body")

    def forgetful(t: fb.Tensor) -> fb.Tensor:
        return t.mul_(2) if again.now.watched else t * 2
    again.call(forgetful, [x], {})
    assert capsys.readouterr().out.startswith("DIFF the same: 0: by the body ('operand', 0")


def test_copies_of_operands_lie_to_one_another_as_these_do() -> None:
    again = repeated.Repeated(fb, lambda: None)
    whole = fb.arange(12, dtype=fb.int16)
    given = [whole[2:8].reshape(2, 3).t(), {"out": whole[4:6]}, "word"]
    for shift, values in ((0, ""), (3, "other"), (5, "hostile")):
        a, named, word = again.copied(given, {}, shift, values)
        b = named["out"]
        assert a.stride() == (1, 3) and a.storage_offset() == 2 + shift and b.storage_offset() == 4 + shift and a.store is b.store is not whole.store
        assert word == "word" and a[2, 0] == b[0]
        want = {"": 4, "other": 3, "hostile": 3}[values]
        assert b[0].item() == want, values
    leaf = again.copied([fb.ones(2, requires_grad=True)], {}, 0, "")[0]
    assert leaf.requires_grad and leaf.is_leaf


NUMERICS = """fn  range  torch maxulp p99.9 #specialmismatch | flambeau
exp                      wide   (0.5, 0.5, 0, [], -0.1) | (0.9, 0.6, 0, [], -71.7)
digamma                  small  (5.5, 2.7, 0, [], 0.06) | (2.5e+07, inf, 186, [nan, -1e-40], -1.4e-08) <<ULP
erfinv                   mid    (5.5, 2.7, 0, [], 0.06) | ERR RuntimeError no <<ERR
sum1e7 rel err 7.8e-08 dim0 of (1e5,100) 0.0108 half sum 1.0 dot 2e-05
sum1e7 rel err 1.2e-07 dim0 of (1e5,100) 0.0062 half sum 49984.0 dot 2.6e-06
same int mean RuntimeError
DIFF std big ('288.81', '288.82')
"""


def test_numerics_are_read_written_and_compared(tmp_path: Path) -> None:
    now = numerics.parse(NUMERICS)
    assert now.functions == {"exp wide": (0.9, 0.6, 0), "digamma small": (2.5e7, float("inf"), 186)} and now.refused == ["erfinv mid"]
    assert now.long == {"sum1e7 rel err": 1.2e-07, "dim0 of (1e5,100)": 0.0062, "half sum": 49984.0, "dot": 2.6e-06}
    assert now.answers == {"std big": "('288.81', '288.82')"}
    numerics.write(tmp_path / "n.toml", now, {"std big": "rounding"})
    kept, reasons = numerics.read(tmp_path / "n.toml")
    assert kept == now and reasons == {"std big": "rounding"} and numerics.worse(now, kept) == []
    more = "DIFF pow ('1', '2')\nsinc mid (1, 1, 0, [], 1) | (1.0, 1.0, 0, [], 1)\n"
    worse = numerics.parse(NUMERICS.replace("(0.9, 0.6", "(1.9, 0.6").replace("2.6e-06", "2.6e-02") + more)
    assert [line.partition(":")[0] for line in numerics.worse(worse, kept)] == ["exp wide", "sinc mid", "dot", "pow"]
    assert numerics.worse(numerics.parse(NUMERICS.replace("288.82", "288.83")), kept) == ["std big: ('288.81', '288.83')"]  # our answer changed
    assert numerics.worse(numerics.parse(NUMERICS.replace("288.81", "288.80")), kept) == []  # PyTorch's did, on another machine
    assert numerics.worse(numerics.Report(), kept) == ["digamma small: no longer reported", "exp wide: no longer reported"]


class Instrument:
    """As much of the instrument as `bits` asks for."""

    def __init__(self, scale: float = 1.0) -> None:
        self.flambeau, self.scale = fb, scale

    def mk(self, library: Any, given: tuple[str, Any, bool]) -> Any:
        return (fb.tensor(given[1], dtype=getattr(fb, given[0])) * self.scale).requires_grad_(given[2])

    def comp(self, line: str) -> Any:
        return compile(line.removeprefix("!"), "program", "exec" if line.startswith("!") else "eval")

    def isT(self, x: Any) -> bool:
        return isinstance(x, fb.Tensor)

    def summ(self, x: Any) -> Any:
        if self.isT(x):
            return "T", str(x.dtype), tuple(x.shape), x.stride(), x.storage_offset(), x.detach().numpy(), x.requires_grad, x.is_leaf
        return ("L", x) if isinstance(x, tuple) else ("P", repr(x))


def test_bits_of_a_program() -> None:
    program = ([("float32", [[1.0, 2.0], [3.0, 4.0]], True)],
               ["v[0] * 2", "v[1][:, :1]", "v[0].add(T.ones(3))", "T.max(v[0], 0)", "!v[1][0, 0] = 5.0", "!v[-1].sum().backward()", "v[9]"])
    said = bits.line_by_line(Instrument(), program)
    assert said[0].startswith("torch.float32[2, 2] strides [2, 1] at 0 bits") and said[0].endswith("grad True leaf False")
    assert "[2, 1] strides [2, '-']" in said[1] and said[2].startswith("RuntimeError: The size of tensor a (2)") and said[3].count("bits") == 2
    assert all(line.startswith(" then ") for line in said[4:6]) and said[4] != said[5] and said[6].startswith("IndexError")
    assert said == bits.line_by_line(Instrument(), program)
    other = bits.line_by_line(Instrument(1.0 + 2.0 ** -23), program)
    assert other[0] != said[0] and other[2] == said[2] and other[5] != said[5]


def test_files_of_known_classes_can_be_read() -> None:
    folder = ROOT / "tools" / "fuzz" / "known"
    for path in (folder / "programs.toml", folder / "guard.toml"):
        found = classes.read(path)
        assert found.about and all(f.reason and f.kind for f in found.families), path
        assert all(found.family(c) is None for c in found.classes), path
    assert numerics.read(folder / "numerics.toml")[0].functions


@pytest.mark.parametrize("learned", [False, True])
def test_the_guard_stands_behind_the_tensors_of_this_tree(learned: bool) -> None:
    """A read beyond a tensor's last byte ends the process: the allocator with guard pages is in use, whatever was prepared before it came."""
    reach = ("import sys, ctypes; import flambeau as T; (T.ones(8) + 1).sum().item(); "
             "from tools.fuzz.guard_process import connect; connect(LEARNED); import guard; x = T.ones(8) + 1; assert x.sum().item() == 16.0; "
             "y = T.ones(3, 5).contiguous().cumsum(0); living = (guard._lists or [guard._cpu])[0].living; "
             "assert all(t.data_ptr() in living for t in (x, y)); print('so far', flush=True); "
             "ctypes.string_at(x.data_ptr(), 33)")
    done = subprocess.run([sys.executable, "-c", reach.replace("LEARNED", str(learned))], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "so far\n" and done.returncode < 0, done.stderr


# ------------------------------------------------------------------------------------------------------- fresh seeds
ODD: Class = ("value", "add", "float: number / number")


def recorded() -> Known:
    """What 5,000 programs showed."""
    about = {"seeds": "0:5000", "programs": 5000, "differ": 100}
    return Known(about, [Family("no kernel", "torch-error", "NotImplementedError: # not", count=10)], {TIES: Entry(8, "a", "ties")})


def fresh(programs_run: int, **often: tuple[Class, int]) -> programs.Found:
    """So many programs; each of the classes in as many of its own."""
    found: programs.Found = {seed: [] for seed in range(programs_run)}
    at = iter(found)
    for c, n in often.values():
        for _ in range(n):
            found[next(at)] = [(c, "v[0] ... -> 1.0 / 2.0")]
    return found


def test_fresh_seeds_fail_for_what_chance_does_not_explain(capsys: pytest.CaptureFixture[str]) -> None:
    told = programs.told_of_fresh
    assert told("programs", recorded(), fresh(1000, a=(ODD, 4), b=(TIES, 5), c=(TYPES, 6)), "0:1000")
    out = capsys.readouterr().out
    assert "1000 programs (seeds from 0:1000), 15 differ, 15 where both could give the same, 4 in a class that is not known" in out
    assert "rare: value | add" in out and "new" not in out
    assert not told("programs", recorded(), fresh(1000, a=(ODD, 6)), "0:1000")
    assert "new: value | add | float: number / number: 6 programs, seed 0" in capsys.readouterr().out
    assert not told("programs", recorded(), fresh(1000, a=(TIES, 14)), "0:1000")  # known, and far too often
    assert "more often: recorded 8 of 5000: value | kthvalue" in capsys.readouterr().out
    assert not told("programs", recorded(), fresh(1000, a=(TYPES, 16)), "0:1000")
    assert "more often: no kernel: 16 programs, seed 0, recorded 10 of 5000" in capsys.readouterr().out
    many = {str(k): (("value", f"op{k}", ""), 1) for k in range(60)}  # none of them often
    assert not told("programs", recorded(), fresh(1000, **many), "0:1000")
    assert "more programs differ: 60 of 1000, recorded 100 of 5000" in capsys.readouterr().out
    assert not told("programs", recorded(), fresh(10, a=(NEW, 1)), "0:10")  # what ends its process, always
    assert told("programs", recorded(), {}, "0:0") and programs.drawn(10) != programs.drawn(10)


def test_chance_is_the_tail_of_a_binomial_distribution() -> None:
    assert classes.chance(3, 0, 0.5) == 0.125 and classes.chance(0, 5, 0.1) == pytest.approx(1) and classes.chance(1, 1, 0.5) == 0.75
    rng, part, hits = np.random.default_rng(0), 1 / 6, 0
    draws = rng.binomial(20, part, 200_000)  # 20 cases, each of them new with this chance
    hits = int((draws >= 6).sum())
    assert hits / 200_000 == pytest.approx(classes.chance(6, 14, part), rel=0.05)


def test_runs_in_which_nothing_changed_pass_and_a_new_fault_fails() -> None:
    """400 runs of 1,000 programs whose classes have the long tail that the recorded ones show: one that is met in n programs of 5,000 is as
    likely as several met in fewer."""
    rng = np.random.default_rng(1)
    rates = 0.04 * rng.dirichlet(np.full(300, 0.3))
    failed = 0
    for _ in range(400):
        before, now = rng.poisson(rates * 5000), rng.poisson(rates * 1000)
        kept = Known({"programs": 5000, "differ": int(before.sum())}, [], {("value", f"op{k}", ""): Entry(int(n), "") for k, n in enumerate(before) if n})
        failed += not _passes(kept, {("value", f"op{k}", ""): int(n) for k, n in enumerate(now)})
        assert not _passes(kept, {ODD: 10})
    assert failed <= 4


def _passes(kept: Known, counts: dict[Class, int]) -> bool:
    with contextlib.redirect_stdout(io.StringIO()):
        return programs.told_of_fresh("programs", kept, fresh(1000, **{str(c): (c, n) for c, n in counts.items() if n}), "0:1000")


def test_training_programs_are_made_by_their_seed_alone_and_are_python() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(300):
        inputs, lines = models_generator.gen(seed)
        assert (inputs, lines) == models_generator.gen(seed) and "x0" in inputs
        for line in lines:
            compile(line.removeprefix("!"), "program", "exec")
            kinds[models_generator.used(line)] += 1
    assert {"Linear", "Conv2d", "LSTM", "MultiheadAttention", "Embedding", "BatchNorm1d", "Adam", "AdamW", "SGD", "StepLR", "cross_entropy", "vmap", "jvp",
            "hessian", "clip_grad_norm_", "step", "backward", "call"} <= set(kinds)
    assert any("under(" in line for seed in range(50) for line in models_generator.gen(seed)[1])  # autocast


def test_a_call_that_hangs_tells_where_its_threads_are() -> None:
    program = """if True:
        import signal, time
        from tools.fuzz.guard_process import tell_where
        tell_where()

        class Slow(BaseException): pass

        def alarm(*given): raise Slow
        signal.signal(signal.SIGALRM, alarm)

        def waits_for_ever(): time.sleep(60)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try: waits_for_ever()
        except Slow: print("ended")
    """
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "ended" and "in waits_for_ever" in done.stdout, done.stdout + done.stderr
