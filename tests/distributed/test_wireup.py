"""Where rank 0 listens when a launcher of MPI tells nobody an address."""

from __future__ import annotations

import socket

import pytest

from flambeau.distributed import wireup


def test_an_address_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "192.0.2.7")
    assert wireup._own_address() == "192.0.2.7"


def test_what_the_hosts_name_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "192.0.2.8")
    assert wireup._own_address() == "192.0.2.8"


@pytest.mark.parametrize("means", ["127.0.1.1", None])
def test_an_interface_where_the_name_means_this_host_alone(monkeypatch: pytest.MonkeyPatch, means: str | None) -> None:
    """Debian's installer writes 127.0.1.1 beside a host's name; in a container it may mean nothing."""
    def found(name: str) -> str:
        if means is None:
            raise OSError("no such name")
        return means
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setattr(socket, "gethostbyname", found)
    address = wireup._own_address()
    with socket.socket() as made:
        made.bind((address, 0))  # it is one of this host's
    interfaces = [name for _, name in socket.if_nameindex() if name != "lo"]
    assert not address.startswith("127.") or len(interfaces) < 2


def test_no_interface_but_the_hosts_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "127.0.0.1")
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo")])
    assert wireup._own_address() == "127.0.0.1"
