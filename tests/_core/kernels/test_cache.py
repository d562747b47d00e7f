"""The disk cache of compiled kernels: never a wrong byte, whatever happens to the files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from flambeau._core.kernels import cache
from flambeau._core.kernels.llvm import compile as compiler

IR = "define void @flambeau_test(i64 %b, i64 %e, ptr %args, ptr %block) #0 {\n  ret void\n}\n"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "c"))
    monkeypatch.setattr(cache, "_open", {})
    monkeypatch.setattr(cache, "_stores", 0)
    return tmp_path / "c" / "kernels-1"


def test_what_is_stored_is_loaded(place) -> None:
    name = cache.key("a", "b")
    assert cache.load(name) is None
    assert cache.store(name, b"code" * 100)
    assert cache.load(name) == b"code" * 100
    assert os.listdir(place) == [name]


def test_keys_tell_the_boundaries_of_their_parts() -> None:
    assert len({cache.key("ab", "c"), cache.key("a", "bc"), cache.key("abc"), cache.key("abc", "")}) == 4
    assert cache.key("a", "b") == cache.key("a", "b")


@pytest.mark.parametrize("damage", ["truncate", "empty", "flip", "header", "append", "swap"])
def test_damaged_entries_are_not_loaded_and_disappear(place, damage) -> None:
    name, other = cache.key("x"), cache.key("y")
    cache.store(name, bytes(range(256)))
    cache.store(other, b"something else")
    path = place / name
    data = path.read_bytes()
    path.write_bytes({"truncate": data[:-1], "empty": b"", "flip": data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
                      "header": b"?" + data[1:], "append": data + b"x", "swap": (place / other).read_bytes()}[damage])
    assert cache.load(name) is None
    assert not path.exists()
    assert cache.load(other) == b"something else"


def test_a_damaged_kernel_is_compiled_again(place) -> None:
    parts = ("test", "damaged kernel")
    before = compiler.compiled
    first = compiler.functions(parts, ("flambeau_test",), lambda: IR)
    assert compiler.compiled == before + 1 and first["flambeau_test"]
    assert compiler.functions(parts, ("flambeau_test",), lambda: pytest.fail("it is loaded")) is first
    compiler._known.clear()  # as in another process
    compiler.functions(parts, ("flambeau_test",), lambda: pytest.fail("it was in the cache"))
    compiler._known.clear()
    file, = place.iterdir()
    file.write_bytes(file.read_bytes()[:200])
    compiler.functions(parts, ("flambeau_test",), lambda: IR)
    assert compiler.compiled == before + 2
    assert cache.load(file.name) is not None


def test_the_oldest_entries_go_first(place) -> None:
    names = [cache.key(str(k)) for k in range(8)]
    for k, name in enumerate(names):
        cache.store(name, bytes(1000))
        os.utime(place / name, (1000 + k, 1000 + k))
    left = cache.trim(5000)
    assert left <= 3750
    assert sorted(os.listdir(place)) == sorted(names[-(left // 1000):])


def test_loading_an_old_entry_marks_it_as_used(place) -> None:
    name = cache.key("old")
    cache.store(name, b"x")
    os.utime(place / name, (1000, 1000))
    cache.load(name)
    assert time.time() - os.stat(place / name).st_mtime < 100


def test_trimming_removes_what_dead_writers_left(place) -> None:
    cache.store(cache.key("a"), b"x")
    (place / "dead.1.2.tmp").write_bytes(b"half")
    (place / "live.1.2.tmp").write_bytes(b"half")
    os.utime(place / "dead.1.2.tmp", (1000, 1000))
    cache.trim()
    assert sorted(os.listdir(place)) == sorted([cache.key("a"), "live.1.2.tmp"])


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "file"))
    assert not cache.store(cache.key("a"), b"x")
    assert cache.load(cache.key("a")) is None
    assert cache.trim() == 0
    assert compiler.functions(("no folder",), ("flambeau_test",), lambda: IR)["flambeau_test"]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="POSIX permissions")
def test_a_folder_others_may_write_to_is_not_used(place) -> None:
    cache.store(cache.key("b"), b"y")
    place.chmod(0o777)
    assert not cache.store(cache.key("a"), b"x")
    assert cache.load(cache.key("b")) is None
    assert os.listdir(place) == [cache.key("b")]


root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files to another user")
OTHER = 54321


@root
def test_another_user_s_file_in_one_s_own_folder_is_not_run(place) -> None:
    name = cache.key("a")
    cache.store(name, b"code")
    os.chown(place / name, OTHER, OTHER)
    assert cache.load(name) is None
    assert cache.store(name, b"mine") and cache.load(name) == b"mine"


def test_a_file_others_may_write_to_is_not_run(place) -> None:
    name = cache.key("a")
    cache.store(name, b"code")
    (place / name).chmod(0o666)
    assert cache.load(name) is None


@root
@pytest.mark.parametrize("level", [1, 2])
def test_a_folder_below_another_user_s_is_not_used(place, level) -> None:
    cache.store(cache.key("a"), b"code")
    cache._open.clear()
    os.chown(place.parents[level - 1], OTHER, OTHER)
    assert cache.load(cache.key("a")) is None and not cache.store(cache.key("b"), b"x")
    assert str(OTHER) in cache.why_not()
    os.chown(place.parents[level - 1], 0, 0)
    assert cache.load(cache.key("a")) == b"code" and not cache.why_not()


@root
def test_another_folder_in_the_place_of_the_one_that_was_looked_at_is_not_read(place) -> None:
    name = cache.key("a")
    cache.store(name, b"code")
    entry = (place / name).read_bytes()
    place.rename(place.parent / "before")
    place.mkdir(mode=0o700)
    (place / name).write_bytes(entry.replace(b"code", b"evil"))
    for p in (place, place / name):
        os.chown(p, OTHER, OTHER)
    assert cache.load(name) == b"code"  # still from the folder that is open
    assert cache.store(cache.key("b"), b"x") and (place.parent / "before" / cache.key("b")).exists()
    cache._open.clear()
    assert cache.load(name) is None and not cache.store(cache.key("c"), b"x")


def test_a_parent_that_others_may_rename_in_is_not_used_unless_it_is_sticky(place) -> None:
    cache.store(cache.key("a"), b"code")
    for mode, used in ((0o777, False), (0o1777, True), (0o755, True)):
        cache._open.clear()
        place.parent.chmod(mode)
        assert (cache.load(cache.key("a")) == b"code") is used, oct(mode)


def test_a_pipe_a_link_and_a_folder_in_the_place_of_an_entry_are_no_entries_and_nobody_waits(place, tmp_path) -> None:
    names = [cache.key(k) for k in "abc"]
    cache.store(names[0], b"code")
    (place / names[0]).rename(tmp_path / "entry")
    os.mkfifo(place / names[0])
    (place / names[1]).symlink_to(tmp_path / "entry")
    (place / names[2]).mkdir()
    before = time.monotonic()
    assert [cache.load(n) for n in names] == [None] * 3
    assert cache.store(names[0], b"x") and cache.store(names[1], b"x") and not cache.store(names[2], b"x")
    assert [cache.load(n) for n in names] == [b"x", b"x", None]
    assert cache.trim() >= 2 and time.monotonic() - before < 5


def test_a_program_that_closes_all_descriptors_or_removes_the_folder_finds_the_cache_again(place) -> None:
    import shutil
    name = cache.key("a")
    cache.store(name, b"code")
    descriptor = cache._open[cache.folder()][0]
    os.close(descriptor)
    assert cache.load(name) == b"code"
    os.close(cache._open[cache.folder()][0])
    other = os.open(os.sep, os.O_RDONLY)  # the number means something else now
    try:
        assert cache.load(name) == b"code"
        os.fstat(other)  # and was not closed
    finally:
        os.close(other)
    shutil.rmtree(place)
    assert cache.load(name) is None
    assert cache.store(name, b"code") and cache.load(name) == b"code"


def test_the_folder_follows_the_environment(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("FLAMBEAU_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.folder() == str(tmp_path / "xdg" / "flambeau" / "kernels-1")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == str(tmp_path / ".cache" / "flambeau" / "kernels-1")


def test_many_writers_and_readers_at_once(place) -> None:
    names = [cache.key(str(k)) for k in range(5)]
    bad = []

    def work(seed: int) -> None:
        for k in range(200):
            name = names[(seed + k) % 5]
            if k % 3 == 0:
                cache.store(name, name.encode() * 300)
            got = cache.load(name)
            if got is not None and got != name.encode() * 300:
                bad.append(name)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad
    assert sorted(os.listdir(place)) == sorted(names)


SCRIPT = """
import sys
import numpy as np
from flambeau._core.dtypes import float32
from flambeau._core.kernels import expr as E
from flambeau._core.kernels.llvm import compile as compiler, prepare
from flambeau._core.kernels.programs import Map
a = np.arange(100, dtype=np.float32)
out = np.zeros_like(a)
for k in range(6):
    p = prepare(Map((E.input(0, float32) * float(k + 2),), (float32,)), (100,), ((1,), (1,)))
    p.entry(out.ctypes.data, a.ctypes.data)
    assert (out == a * (k + 2)).all()
print(compiler.compiled, "llvmlite" in sys.modules)
"""


def test_processes_share_it_and_a_warm_one_does_not_import_llvm(place) -> None:
    env = dict(os.environ)
    run = [sys.executable, "-c", SCRIPT]
    cold = [subprocess.Popen(run, env=env, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for p in cold:
        out, _ = p.communicate(timeout=60)
        assert p.returncode == 0, out
    warm = subprocess.run(run, env=env, capture_output=True, text=True, timeout=60, check=True)
    if sys.platform == "linux" and os.uname().machine == "x86_64":
        assert warm.stdout.split() == ["0", "False"]
    else:
        assert warm.stdout.split()[0] == "0"


def test_the_fingerprint_follows_the_cpu_chosen(monkeypatch) -> None:
    monkeypatch.setenv("FLAMBEAU_CPU", "")
    here = compiler.cpu_description()
    monkeypatch.setenv("FLAMBEAU_CPU", "x86-64-v3")
    assert compiler.cpu_description() != here


def test_llvms_own_linker_serves_where_ours_does_not() -> None:
    data = compiler.to_object("declare double @cos(double)\n" + IR.replace(
        "  ret void", "  %p = load ptr, ptr %args\n  %x = load double, ptr %p\n  %y = call double @cos(double %x)\n"
        "  store double %y, ptr %p\n  ret void"))
    import ctypes
    import math
    name = ("flambeau_test",)
    for found in (compiler._load_by_orc(data, name, "orc"), compiler.load(data, name, "own")):
        value = ctypes.c_double(0.5)
        args = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(
            found["flambeau_test"])(0, 1, ctypes.addressof(args), None)
        assert value.value == math.cos(0.5)


def test_what_is_made_is_kept_and_slow_making_is_told_once(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(cache, "made", 0)
    monkeypatch.setattr(cache, "seconds", 0.0)
    monkeypatch.setattr(cache, "SLOW", 0.5)
    told = []
    monkeypatch.setattr(cache, "on_slow", lambda count, seconds: told.append((count, seconds)))
    names = [cache.key("told", str(i)) for i in range(3)]

    def slowly():
        time.sleep(0.3)
        return b"body"
    assert [cache.get(name, slowly) for name in names] == [b"body"] * 3
    assert [count for count, _ in told] == [2] and told[0][1] > 0.5 and cache.made == 3
    assert cache.get(names[0], lambda: b"another") == b"body" and cache.made == 3


def test_no_entry_is_made_by_two_at_once(tmp_path):
    """Four processes ask for the same entries at once: each is made once, and nothing else stays in the folder."""
    program = """
import os, sys, time
from flambeau._core.kernels import cache
def slowly():
    time.sleep(0.2)
    return b"body"
while not os.path.exists(sys.argv[1]):
    time.sleep(0.001)
assert [cache.get(cache.key("shared", str(i)), slowly) for i in range(3)] == [b"body"] * 3
print(cache.made)
"""
    start = tmp_path / "start"
    env = {**os.environ, "FLAMBEAU_CACHE_DIR": str(tmp_path / "kept")}
    those = [subprocess.Popen([sys.executable, "-c", program, str(start)], env=env, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    time.sleep(1)
    start.touch()
    told = [p.communicate(timeout=200)[0] for p in those]
    assert [p.returncode for p in those] == [0] * 4 and sum(map(int, told)) == 3
    assert len(list((tmp_path / "kept" / "kernels-1").iterdir())) == 3


def test_a_lock_that_stays_does_not_stop_anybody(tmp_path, monkeypatch):
    import fcntl
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "kept"))
    assert cache.store("other", b"x")
    # what the holder says: it works, it is of the lowest priority, nothing yet
    for said, patience in ((b"a", 0.05), (b"b", 60.0), (b"", 60.0)):
        monkeypatch.setattr(cache, "_PATIENCE", patience)
        name = cache.key("held", repr(said))
        with open(tmp_path / "kept" / "kernels-1" / (name + ".lock"), "wb") as held:
            held.write(said)
            held.flush()
            fcntl.flock(held, fcntl.LOCK_EX)
            since = time.monotonic()
            assert cache.get(name, lambda: b"mine") == b"mine" and time.monotonic() - since < 5
        assert cache.load(name) == b"mine"
    # one that a process left when it died is nobody's
    gone = cache.key("left")
    (tmp_path / "kept" / "kernels-1" / (gone + ".lock")).touch()
    assert cache.get(gone, lambda: b"new") == b"new" and cache.load(gone) == b"new"
