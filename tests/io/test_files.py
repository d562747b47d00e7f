"""Writing never harms the file that was there: errors, full disks, interrupts at every line, kill -9."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import textwrap
import time

import pytest

import flambeau
from flambeau.io import checkpoint, files, safetensors

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _child(code, *args):
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": ROOT})


def _writers():
    return [("a.pt", lambda value, path: flambeau.save({"a": flambeau.full((500,), value)}, path), lambda path: flambeau.load(path)),
            ("a.safetensors", lambda value, path: safetensors.save_file({"a": flambeau.full((500,), value)}, path), safetensors.load_file)]


@pytest.mark.parametrize("name,write,read", _writers())
def test_the_mode_is_kept(tmp_path, name, write, read):
    path = tmp_path / name
    mask = os.umask(0o027)
    try:
        write(1.0, path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        write(2.0, path)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604 and read(path)["a"][0] == 2.0 and os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("step", ["open", "fchmod", "fdopen", "fsync", "replace"])
@pytest.mark.parametrize("name,write,read", _writers())
def test_a_failed_step_leaves_the_old_file(tmp_path, monkeypatch, step, name, write, read):
    path = tmp_path / name
    write(1.0, path)

    def fails(*args, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, step, fails)
        if step == "fsync":
            patch.setattr(files, "_keep_name", lambda folder: None)
        with pytest.raises(OSError, match="No space left"):
            write(2.0, path)
    assert read(path)["a"].tolist() == [1.0] * 500 and os.listdir(tmp_path) == [name]
    assert not [n for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}") and ".tmp" in os.readlink(f"/proc/self/fd/{n}")]


@pytest.mark.parametrize("name,write,read", _writers())
def test_an_interrupt_at_any_line(tmp_path, name, write, read):
    """Ctrl-C is a KeyboardInterrupt between two lines: one at each line that runs while a file is written."""
    path = tmp_path / name
    write(1.0, path)
    watched = {checkpoint.__file__, files.__file__, safetensors.__file__, os.path.join(os.path.dirname(files.__file__), "archive.py")}
    count = stop = 0

    def trace(frame, event, arg):
        nonlocal count
        if frame.f_code.co_filename not in watched:
            return None
        if event == "line":
            count += 1
            if count == stop:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    outcomes = []
    for stop in range(1, 10_000):
        count = 0
        sys.settrace(trace)
        try:
            write(2.0, path)
            done = True
        except KeyboardInterrupt:
            done = False
        finally:
            sys.settrace(before)
        found = read(path)["a"].tolist()
        assert found in ([1.0] * 500, [2.0] * 500) and os.listdir(tmp_path) == [name], f"line {stop}"
        outcomes.append(found[0])
        if found[0] == 2.0:
            write(1.0, path)
        if done:
            break
    assert done and outcomes[0] == 1.0 and len(outcomes) > 60


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_a_full_disk(tmp_path, name):
    path = tmp_path / name
    child = _child("""
        import resource, sys, os
        import flambeau
        from flambeau.io import safetensors
        path, small, big = sys.argv[1], {"a": flambeau.ones(100)}, {"a": flambeau.zeros(1 << 20)}
        write = flambeau.save if path.endswith("pt") else safetensors.save_file
        write(small, path)
        for limit in (0, 1, 100, 4096, 1 << 20, 4 << 20):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            try:
                write(big, path)
            except OSError as error:
                print(error.errno, os.listdir(os.path.dirname(path)))
    """, path)
    out, err = child.communicate(timeout=100)
    assert child.returncode == 0, err
    assert out.splitlines() == [f"27 ['{name}']"] * 6
    assert flambeau.load(path)["a"].tolist() == [1.0] * 100


def test_a_full_device_is_told():
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    with pytest.raises(OSError, match="No space"):
        flambeau.save(flambeau.ones(10), "/dev/full")
    with pytest.raises(OSError, match="No space"), open("/dev/full", "wb", buffering=0) as stream:
        flambeau.save(flambeau.ones(10), stream)


@pytest.mark.parametrize("name,read", [("a.pt", flambeau.load), ("a.safetensors", safetensors.load_file)])
def test_kill_9_at_any_moment(tmp_path, name, read):
    path = tmp_path / name
    draw = random.Random(5)
    sizes = set()
    for _ in range(4):
        child = _child("""
            import sys
            import flambeau
            from flambeau.io import safetensors
            path = sys.argv[1]
            write = flambeau.save if path.endswith("pt") else safetensors.save_file
            print("ready", flush=True)
            for n in range(1, 10**9):
                write({"a": flambeau.full((100_000 + n % 7,), float(n)), "n": flambeau.tensor(n)}, path)
        """, path)
        assert child.stdout.readline() == "ready\n"
        for _ in range(3):
            time.sleep(draw.uniform(0.0, 0.1))
            if path.exists():
                sizes.add(int(read(path)["n"]))  # a reader meets whole files too
        child.send_signal(signal.SIGKILL)
        child.wait(20)
        child.stdout.close()
        child.stderr.close()
        if path.exists():
            found = read(path)
            n = int(found["n"])
            assert found["a"].shape == (100_000 + n % 7,) and (found["a"] == n).all()
    assert len(sizes) > 1
    left = [f for f in os.listdir(tmp_path) if f != name]
    assert all(f.startswith(f".{name}.") and f.endswith(".tmp") for f in left) and len(left) <= 4


def test_pipes_folders_and_long_names(tmp_path):
    read, write = os.pipe()
    flambeau.save([1], f"/dev/fd/{write}")
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        data = stream.read()
    (tmp_path / "x").write_bytes(data)
    assert flambeau.load(tmp_path / "x") == [1]
    with pytest.raises(IsADirectoryError):
        flambeau.save([1], tmp_path)
    path = tmp_path / ("n" * 252 + ".pt")
    flambeau.save([2], path)
    flambeau.save([3], os.fsencode(path))
    assert flambeau.load(path) == [3] and len(os.listdir(tmp_path)) == 2


def test_a_folder_that_may_not_be_written_to(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    path = tmp_path / "a.pt"
    flambeau.save([1], path)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError):
            flambeau.save([2], path)
        assert flambeau.load(path) == [1]
    finally:
        tmp_path.chmod(0o700)
