"""Stores: their values, their waiting, several clients, hostile peers."""

from __future__ import annotations

import datetime
import socket
import threading

import pytest

from flambeau import distributed as dist

SHORT = datetime.timedelta(seconds=0.2)


@pytest.fixture(params=["hash", "file", "tcp", "prefix"])
def store(request, tmp_path):
    kind = request.param
    if kind == "hash":
        return dist.HashStore()
    if kind == "file":
        return dist.FileStore(str(tmp_path / "store"), 1)
    made = dist.TCPStore("127.0.0.1", 0, 1, True)
    return made if kind == "tcp" else dist.PrefixStore("a", made)


def test_values(store) -> None:
    store.set("x", "one")
    store.set("bytes", b"\0\xff")
    assert store.get("x") == b"one" and store.get("bytes") == b"\0\xff"
    assert store.add("n", 3) == 3 and store.add("n", -5) == -2 and store.get("n") == b"-2"
    assert store.check(["x", "n"]) and not store.check(["x", "y"])
    assert store.compare_set("x", "two", "three") == b"one" and store.compare_set("x", "one", "three") == b"three" and store.get("x") == b"three"
    assert store.compare_set("new", "", "first") == b"first"
    store.append("x", "!")
    assert store.get("x") == b"three!"
    assert store.delete_key("x") and not store.delete_key("x") and not store.check(["x"])
    store.multi_set(["p", "q"], [b"1", b"2"])
    assert store.multi_get(["q", "p"]) == [b"2", b"1"]
    assert store.num_keys() >= 5


def test_waiting_ends(store) -> None:
    store.set_timeout(SHORT)
    with pytest.raises(dist.DistStoreError, match="never"):
        store.get("never")
    with pytest.raises(dist.DistStoreError, match="keys: .*b"):
        store.wait(["b"], SHORT)


def test_a_value_that_comes_later(tmp_path) -> None:
    master = dist.TCPStore("127.0.0.1", 0, 1, True)
    other = dist.TCPStore("127.0.0.1", master.port)
    threading.Timer(0.1, lambda: other.set("late", b"here")).start()
    assert master.get("late") == b"here"
    path = str(tmp_path / "s")
    a, b = dist.FileStore(path, 2), dist.FileStore(path, 2)
    threading.Timer(0.1, lambda: b.set("late", b"here")).start()
    assert a.get("late") == b"here"


def test_many_adds_at_once(tmp_path) -> None:
    master = dist.TCPStore("127.0.0.1", 0, 1, True)
    path = str(tmp_path / "s")

    def work() -> None:
        client, file = dist.TCPStore("127.0.0.1", master.port), dist.FileStore(path)
        for _ in range(50):
            client.add("n", 1)
            file.add("n", 1)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert master.add("n", 0) == 200 and dist.FileStore(path).add("n", 0) == 200


def test_strangers_do_no_harm() -> None:
    master = dist.TCPStore("127.0.0.1", 0, 1, True)
    for junk in (b"", b"GET / HTTP/1.0\r\n\r\n", b"\x01\xff\xff\xff\xff", b"\x01" + (1).to_bytes(4, "little") + (1 << 62).to_bytes(8, "little")):
        with socket.create_connection(("127.0.0.1", master.port)) as s:
            s.sendall(junk)
    master.set("still", "there")
    assert master.get("still") == b"there"


def test_nobody_listens() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        with pytest.raises(dist.DistNetworkError, match="timed out"):
            dist.TCPStore("127.0.0.1", s.getsockname()[1], timeout=SHORT)
        s.listen()
        with pytest.raises(dist.DistNetworkError, match="failed to listen"):
            dist.TCPStore("127.0.0.1", s.getsockname()[1], is_master=True, timeout=SHORT)


def test_arguments() -> None:
    with pytest.raises(TypeError, match="str or bytes"):
        dist.HashStore().set("x", 3)
    with pytest.raises(TypeError, match="timedelta"):
        dist.HashStore().set_timeout("soon")
