"""Damaged and hostile files by the thousand: each gives a FileFormatError or a valid object, soon, in little memory, and runs nothing.

    python tests/io/fuzz.py --count 100000 [--seed 0]

Half of the files are PyTorch's, half safetensors.  Bytes of whole files are changed, and parts of files (a pickle, a header) that
are then wrapped as a sound file, so that every reader gets its share.  Exit status: 0 if all went well.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import pickletools
import random
import resource
import sys
import tempfile
import time
import warnings
import zipfile
from collections import OrderedDict

import flambeau
from flambeau import nn, optim
from flambeau._core.errors import FileFormatError
from flambeau._core.ops.storages import host_bytes
from flambeau.io import legacy, pickler, safetensors
from flambeau.io.archive import Writer
from flambeau.io.unpickler import Unpickler

MOST_SECONDS = 2.0
MOST_MEMORY = 256 << 20  # of growth over a run; a file has some kilobytes
_FORBIDDEN = ("import", "exec", "compile", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "socket.", "shutil.",
              "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink", "ctypes.dlopen", "pickle.find_class", "marshal.")
_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)

_watching = False
_events: list[str] = []


def _audit(event: str, args: object) -> None:
    if _watching and event.startswith(_FORBIDDEN):
        _events.append(f"{event}{args!r:.200}")


# -- files to start from
# -------------------------------------------------------------------------------------------------------------
def _archives() -> list[bytes]:
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    trainer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net(flambeau.ones(4, 3)).sum().backward()
    trainer.step()
    t = flambeau.arange(12.0).reshape(3, 4)
    t.note = "a tensor's own"
    objects = [
        {"model": net.state_dict(), "optimizer": trainer.state_dict(), "epoch": 3},
        [t, t.t(), t[1], nn.Parameter(t), {"a": (1, 2.5, None, True, "x", b"yz", {3}, frozenset("ab"), 1 << 70, 1j)}],
        OrderedDict(u=flambeau.ones(2).to(flambeau.uint16), b=flambeau.zeros(3, dtype=flambeau.bfloat16), dtype=flambeau.int8, size=t.shape,
                    device=flambeau.device("cuda", 1), layout=flambeau.strided, storage=t.untyped_storage()),
        flambeau.zeros(0, 3),
    ]
    made = []
    for value in objects:
        for protocol in (2, 4):
            stream = io.BytesIO()
            flambeau.save(value, stream, pickle_protocol=protocol)
            made.append(stream.getvalue())
    return [*made, old_format({"model": nn.Linear(3, 2).state_dict(), "t": [t, t.t(), t[1:]], "n": 1})]


def old_format(value: object) -> bytes:
    """A file as PyTorch wrote them before 1.6, of an object whose storages are all float32."""
    data, storages = pickler.dumps(value, None, 2)
    raws = [bytes(host_bytes(s, "test")) for s in storages]
    return b"".join([legacy.START, pickle.dumps(1001, 2), pickle.dumps({"protocol_version": 1001, "little_endian": True}, 2), data,
                     pickle.dumps([str(n) for n in range(len(raws))], 2), *[(len(raw) // 4).to_bytes(8, "little") + raw for raw in raws]])


def _safetensors() -> list[bytes]:
    return [safetensors.save({"a": flambeau.arange(12.0).reshape(3, 4), "b": flambeau.ones(2, dtype=flambeau.bfloat16), "c": flambeau.zeros(0)}, {"k": "v"}),
            safetensors.save({}), safetensors.save({"only": flambeau.tensor(1)})]


# -- changes
# -------------------------------------------------------------------------------------------------------------
def _changed(r: random.Random, data: bytes, other: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(r.choice((1, 1, 1, 2, 3, 8))):
        at = r.randrange(len(out) + 1)
        kind = r.randrange(8)
        if kind == 0 and out:
            out[at % len(out)] ^= 1 << r.randrange(8)
        elif kind == 1 and out:
            out[at % len(out)] = r.randrange(256)
        elif kind == 2:
            width = r.choice((1, 2, 4, 8))
            out[at:at + width] = (r.choice(_INTERESTING) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        elif kind == 3:
            del out[at:at + r.choice((1, 2, 8, 64))]
        elif kind == 4:
            out[at:at] = r.randbytes(r.choice((1, 2, 8)))
        elif kind == 5:
            start = r.randrange(len(other) + 1)
            out[at:at] = other[start:start + r.choice((1, 4, 16, 128))]
        elif kind == 6:
            del out[at:]
        else:
            start = r.randrange(len(out) + 1)
            out[at:at] = out[start:start + r.choice((4, 32, 256))]
    return bytes(out)


_CODES = bytes(code for code, operation in enumerate(Unpickler.operations) if operation) + b"."
_NAMES = [b"torch._utils\n_rebuild_tensor_v2\n", b"torch\nFloatStorage\n", b"collections\nOrderedDict\n", b"os\nsystem\n", b"builtins\neval\n",
          b"torch._utils\n_rebuild_parameter\n", b"torch._tensor\n_rebuild_from_type_v2\n", b"builtins\nset\n", b"torch.storage\nUntypedStorage\n",
          b"numpy._core.multiarray\n_reconstruct\n", b"numpy\nndarray\n", b"numpy\ndtype\n", b"torch\nSize\n", b"torch\ndevice\n", b"builtins\nbytearray\n",
          b"builtins\nrange\n", b"_codecs\nencode\n", b"collections\ndefaultdict\n", b"torch\nTensor\n", b"argparse\nNamespace\n", b"posix\nsystem\n"]


def _new_pickle(r: random.Random) -> bytes:
    out = bytearray(b"\x80\x02")
    for _ in range(r.randrange(1, 60)):
        code = r.choice(_CODES)
        out.append(code)
        if code == 0x63:
            out += r.choice(_NAMES)
        elif code in b"hqK":
            out.append(r.randrange(8))
        elif code in b"X":
            out += (3).to_bytes(4, "little") + b"abc"
    return bytes(out + b".")


def _grown_pickle(r: random.Random, data: bytes) -> bytes:
    """Operations moved, doubled and left out, each whole."""
    try:
        places = [at for _, _, at in pickletools.genops(data)] + [len(data)]
    except ValueError:
        return data
    pieces = [data[a:b] for a, b in zip(places, places[1:])]
    for _ in range(r.choice((1, 1, 2, 4))):
        i, j = r.randrange(len(pieces)), r.randrange(len(pieces))
        kind = r.randrange(4)
        if kind == 0:
            pieces[i], pieces[j] = pieces[j], pieces[i]
        elif kind == 1:
            pieces.insert(i, pieces[j])
        elif kind == 2 and len(pieces) > 1:
            del pieces[i]
        else:
            pieces[i:i] = pieces[j:j + r.randrange(1, 12)]
    return b"".join(pieces)


def wrapped(records: dict[str, bytes]) -> bytes:
    """A sound archive of these records."""
    stream = io.BytesIO()
    out = Writer(stream.write)
    for name, data in records.items():
        out.add(name, data)
    out.close()
    return stream.getvalue()


def archive_case(r: random.Random, seeds: list[bytes]) -> bytes:
    """A changed file of PyTorch's kind."""
    data, other = r.choice(seeds), r.choice(seeds)
    kind = r.randrange(5)
    if kind == 0 or data.startswith(legacy.START):
        return _changed(r, data, other)
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        records = {name.partition("/")[2]: z.read(name) for name in z.namelist()}
    if kind == 1:
        records["data.pkl"] = _changed(r, records["data.pkl"], other)
    elif kind == 2:
        records["data.pkl"] = _grown_pickle(r, records["data.pkl"])
    elif kind == 3:
        records["data.pkl"] = _new_pickle(r)
    else:
        name = r.choice(list(records))
        records[name] = _changed(r, records[name], b"\0" * 64)
    return wrapped(records)


def _changed_json(r: random.Random, value: object) -> object:
    if r.random() < 0.15:
        return r.choice((None, True, -1, 0, 1.5, "x", [], {}, [0, 4], [2, 2], 1 << 62, 1 << 64, "F32", "BF16", [1 << 40, 1 << 40], [-1]))
    if isinstance(value, dict):
        made = {k if r.random() < 0.95 else r.choice(("", "__metadata__", "a", "b")): _changed_json(r, v) if r.random() < 0.5 else v for k, v in value.items()}
        return dict(r.sample(list(made.items()), len(made)))
    if isinstance(value, list):
        return [_changed_json(r, v) for v in value for _ in range(r.choice((1, 1, 1, 1, 0, 2)))]
    return value


def safetensors_case(r: random.Random, seeds: list[bytes]) -> bytes:
    """A changed safetensors file."""
    data, other = r.choice(seeds), r.choice(seeds)
    length = int.from_bytes(data[:8], "little")
    kind = r.randrange(3)
    if kind == 0:
        return _changed(r, data, other)
    header, rest = data[8:8 + length], data[8 + length:]
    header = _changed(r, header, other) if kind == 1 else json.dumps(_changed_json(r, json.loads(header))).encode()
    return len(header).to_bytes(8, "little") + header + rest


# -- the judgement
# -------------------------------------------------------------------------------------------------------------
def check(value: object) -> int:
    """Raises AssertionError unless every tensor in a loaded object lies within its storage; how many there were."""
    todo, seen, count = [value], set(), 0
    while todo:
        x = todo.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, flambeau.Tensor):
            count += 1
            if x.numel():
                last = x.data_ptr() + (sum((n - 1) * s for n, s in zip(x.shape, x.stride())) + 1) * x.element_size()
                start = x.untyped_storage().data_ptr()
                assert start <= x.data_ptr() and last <= start + x.untyped_storage().nbytes(), "a tensor reaches past its storage"
                assert all(s >= 0 for s in x.stride())
                if x.numel() < 10000:
                    x.detach().clone()
        elif isinstance(x, dict):
            todo.extend(x.keys())
            todo.extend(x.values())
        elif isinstance(x, (list, tuple, set, frozenset)):
            todo.extend(x)
    return count


def run(count: int, seed: int, loud: bool = False) -> dict[str, int]:
    """Tries `count` files; raises AssertionError for the first that does wrong, with what makes it again."""
    global _watching
    sys.addaudithook(_audit)
    warnings.simplefilter("ignore")
    archives, plain = _archives(), _safetensors()
    for data in archives + plain:  # whatever is loaded at first use is loaded now
        flambeau.load(io.BytesIO(data))
    "x".encode("cp437")  # old zip names
    flambeau.cuda.device_count()
    tally = {"refused": 0, "loaded": 0, "tensors": 0}
    before, begin, slowest = 0, time.perf_counter(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "case")
        with open(path, "wb") as f:
            f.write(plain[0])
        safetensors.load_file(path)
        with open(path, "wb") as f:
            f.write(archives[0])
        flambeau.load(path, mmap=True)
        for i in range(count):
            r = random.Random(f"{seed}/{i}")
            kind = i % 2
            data = safetensors_case(r, plain) if kind else archive_case(r, archives)
            by_path = r.random() < 0.2
            if by_path:
                with open(path, "wb") as f:
                    f.write(data)
            start = time.perf_counter()
            _watching = True
            try:
                if not by_path:
                    value = safetensors.load(data) if kind and r.random() < 0.5 else flambeau.load(io.BytesIO(data))
                else:
                    value = safetensors.load_file(path) if kind else flambeau.load(path, mmap=True)
                _watching = False
                tally["tensors"] += check(value)
                tally["loaded"] += 1
                del value
            except FileFormatError:
                tally["refused"] += 1
            except BaseException as error:
                raise AssertionError(f"file {i} of seed {seed} gave {type(error).__name__}: {error!s:.500}") from error
            finally:
                _watching = False
            took = time.perf_counter() - start
            slowest = max(slowest, took)
            assert not _events, f"file {i} of seed {seed} did {_events}"
            assert took < MOST_SECONDS, f"file {i} of seed {seed} took {took:.1f} s"
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            before = before or memory
            assert memory - before < MOST_MEMORY, f"file {i} of seed {seed} took the process from {before} to {memory} bytes"
            if loud and i % 10000 == 9999:
                print(f"{i + 1} files, {tally}, slowest {slowest * 1e3:.0f} ms, {time.perf_counter() - begin:.0f} s, "
                      f"memory +{(memory - before) >> 20} MiB", flush=True)
    return tally


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(run(options.count, options.seed, loud=True))
