"""The groups of this process: the default one and those made from it, and which rank is who."""

from __future__ import annotations

import datetime
import os
import socket
import sys
from typing import Any
from urllib.parse import parse_qs, urlparse

from .._core.drivers.collectives import parent
from .._core.drivers.collectives.alone import DONE, Alone
from .._core.runtime.device import device as Device
from .groups import DEFAULT_TIMEOUT, ProcessGroup, split
from .peers import Watch, user_line
from .stores import DistNetworkError, FileStore, PrefixStore, Store, TCPStore, seconds

BACKENDS = ("gloo", "nccl", "mpi", "undefined", "cpu:gloo,cuda:nccl")


class _State:
    """What `init_process_group` made."""

    def __init__(self) -> None:
        self.default: ProcessGroup | None = None
        self.store: Store | None = None
        self.groups: list[ProcessGroup] = []
        self.count = 0


state = _State()


class GroupMember:
    """`GroupMember.WORLD` is the default group, `NON_GROUP_MEMBER` what `new_group` gives a process outside of it."""

    WORLD: Any = None
    NON_GROUP_MEMBER: Any = -100


class group:
    """`group.WORLD` is the default group."""

    WORLD: Any = None


def default() -> ProcessGroup:
    """The default group.  Raises ValueError where there is none."""
    if state.default is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return state.default


def of(given: Any) -> ProcessGroup:
    """The group an argument names, None being the default one.  Raises ValueError, TypeError."""
    if given is None:
        return default()
    if isinstance(given, ProcessGroup):
        return given
    raise TypeError(f"Invalid function argument: group must be a ProcessGroup or None, got {type(given).__name__}")


def inside(given: Any) -> ProcessGroup | None:
    """The group, or None for a process that is not in it."""
    return None if given is GroupMember.NON_GROUP_MEMBER else of(given)


def member(g: ProcessGroup, rank: Any, name: str, within: Any = None) -> int:
    """The group's number of a global rank, or `within`, its number in the group as given.  Raises ValueError for one that is not in it."""
    if within is not None:
        if rank is not None:
            raise ValueError(f"Can't specify both {name} and group_{name}")
        if not 0 <= within < g.size():
            raise ValueError(f"group_{name} {within} is not in the group of {g.size()}")
        return int(within)
    if rank is None:
        raise ValueError(f"Must specify {name} or group_{name}")
    if rank not in g._ranks:
        raise ValueError(f"Global rank {rank} is not part of group {g!r}")
    return g._ranks.index(rank)


def _checked_backend(name: Any) -> str:
    text = str(name or "gloo").lower()
    parts = [p.partition(":")[2] or p for p in text.split(",")]
    for p in parts:
        if p not in ("gloo", "nccl", "mpi", "undefined", "fake"):
            raise ValueError(f"Invalid backend: {name!r}; accepted are 'gloo', 'nccl', 'mpi' and 'cpu:gloo,cuda:nccl'")
    return text


def init_process_group(backend: str | None = None, init_method: str | None = None, timeout: datetime.timedelta | None = None, world_size: int = -1,
                       rank: int = -1, store: Store | None = None, group_name: str = "", pg_options: Any = None, device_id: Any = None,
                       _ranks: Any = None) -> None:
    """Connects this process with the others of its job, and makes the default group of all of them.

    backend: "gloo", "mpi", "nccl" or "cpu:gloo,cuda:nccl".  All are served by MPI (mpi4py), with each its own rules.
    init_method: "env://" (MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE say it), "tcp://host:port" or "file:///path"; without it the environment
    is asked, or, under mpiexec and srun, MPI.  store, rank, world_size: instead of an init_method.  timeout: for connecting, and of every collective.
    device_id: the GPU this process uses.

    Without RANK and WORLD_SIZE, and not under an MPI launcher, the process is alone: rank 0 of 1, which needs no MPI.
    Raises ValueError for contradictions or when called twice, ImportError without mpi4py, DistNetworkError when others do not come.
    """
    from . import wireup
    if state.default is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise ValueError("Cannot specify both init_method and store.")
    if store is not None and (world_size < 1 or rank < 0):
        raise ValueError("world_size must be positive and rank non-negative if using store")
    name = _checked_backend(backend)
    limit = DEFAULT_TIMEOUT if timeout is None else timeout
    seconds(limit)
    if timeout is not None and not isinstance(timeout, datetime.timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    bound = None if device_id is None else Device("cuda", device_id) if isinstance(device_id, int) else Device(device_id)
    if bound is not None and bound.type == "cuda" and bound.index is None:
        raise ValueError(f"init_process_group device_id must have an index, got {device_id}")
    job: wireup.Job | None = None
    host = "127.0.0.1"
    if store is None and init_method is None and rank == -1 and world_size == -1 and parent.launched_by_mpi():
        job = wireup.connect(None, -1, -1, limit, "")
        rank, world_size = job.comm.rank, job.comm.size
    elif store is None:
        store, rank, world_size, host = rendezvous(init_method, rank, world_size, limit)
    if job is None and world_size > 1:
        assert store is not None
        job = wireup.connect(PrefixStore("default_pg", store), rank, world_size, limit, _interface(host))
    ranks = list(range(world_size))
    comm: Any = Alone()
    if job is not None and world_size > 1:
        comm = split(job.comm, ranks, 0, Watch(job.peers, rank, ranks, "init_process_group", user_line(sys._getframe(1)), seconds(limit)))
    assert comm is not None
    made = ProcessGroup(comm, ranks, name, limit, group_name, job.peers if job is not None else None, rank)
    made.bound_device_id = bound
    state.default, state.store, state.count = made, store, 0
    state.groups = [made]
    group.WORLD = GroupMember.WORLD = made


def _interface(host: str) -> str:
    """The address to listen at for those who know `host` as rank 0's."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return "127.0.0.1"


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"init_process_group: {name} must be a whole number, got {text!r}") from None


def rendezvous(init_method: str | None, rank: int, world_size: int, timeout: Any) -> tuple[Store | None, int, int, str]:
    """The store, rank, world and rank 0's host that an init_method names."""
    url = urlparse(init_method or "env://")
    query = parse_qs(url.query)
    env = os.environ
    if url.scheme == "env":
        size = world_size if world_size != -1 else _number("WORLD_SIZE", env.get("WORLD_SIZE", query.get("world_size", ["1"])[0]))
        me = rank if rank != -1 else _number("RANK", env.get("RANK", query.get("rank", ["0"])[0]))
        _sane(me, size)
        if size == 1:
            return None, me, size, "127.0.0.1"
        missing = [n for n in ("MASTER_ADDR", "MASTER_PORT") if n not in env]
        if missing:
            raise ValueError(f"Error initializing torch.distributed using env:// rendezvous: environment variable {missing[0]} expected, but not set")
        host, port = env["MASTER_ADDR"], _number("MASTER_PORT", env["MASTER_PORT"])
        agent = env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        found = _store(host, port, size, me, me == 0 and not agent, timeout)
        return PrefixStore(f"run{env.get('TORCHELASTIC_RESTART_COUNT', '0')}", found), me, size, host
    size = world_size if world_size != -1 else int(query.get("world_size", ["-1"])[0])
    me = rank if rank != -1 else int(query.get("rank", ["-1"])[0])
    if url.scheme not in ("tcp", "file"):
        raise ValueError(f"init_process_group: init_method must begin with env://, tcp:// or file://, got {init_method!r}")
    if size == -1 or me == -1:
        raise ValueError(f"init_process_group: {init_method} needs rank and world_size")
    _sane(me, size)
    if url.scheme == "file":
        if not url.path:
            raise ValueError(f"init_process_group: {init_method!r} names no file")
        return FileStore(url.path, size), me, size, "127.0.0.1"
    if not url.port or not url.hostname:
        raise ValueError(f"init_process_group: {init_method!r} must be tcp://host:port")
    return _store(url.hostname, url.port, size, me, me == 0, timeout), me, size, url.hostname


def _store(host: str, port: int, size: int, rank: int, serves: bool, timeout: Any) -> TCPStore:
    """The job's store.  Raises DistNetworkError."""
    try:
        return TCPStore(host, port, size, serves, timeout, wait_for_workers=False)
    except DistNetworkError as error:
        if serves:
            raise
        raise DistNetworkError(f"init_process_group: rank {rank} was waiting for rank 0, or the agent beside it: {error}") from None


def _sane(rank: int, size: int) -> None:
    if size < 1 or not 0 <= rank < size:
        raise ValueError(f"init_process_group: rank {rank} is not in a world of {size}")


def destroy_process_group(group: Any = None) -> None:
    """Ends a group; the default group ends with all others.  The connection of the processes lasts until the program ends."""
    g = of(group)
    settle()
    for ending in (state.groups if g is state.default else [g]):
        for queue in ending.gpus.values():
            queue.close()
        ending.gpus.clear()
    if g is not state.default:
        if g in state.groups:
            state.groups.remove(g)
        return
    state.default = state.store = None
    state.groups = []
    _World.WORLD = GroupMember.WORLD = None


_World = group


def settle() -> None:
    """Waits for what was queued on GPUs for any group."""
    for g in state.groups:
        for queue in g.gpus.values():
            queue.stream.synchronize()
        g.host.settle()
        g.device.settle()


def new_group(ranks: Any = None, timeout: datetime.timedelta | None = None, backend: Any = None, pg_options: Any = None,
              use_local_synchronization: bool = False, group_desc: str | None = None, device_id: Any = None, sort_ranks: bool = True) -> Any:
    """A group of some of the processes.  All processes call it, in one order; those outside get `GroupMember.NON_GROUP_MEMBER`.

    ranks: global ranks, all by default.  use_local_synchronization: only these ranks call it.  Raises ValueError for ranks that are not there, or twice,
    DistBackendError where ranks call different things.
    """
    world = default()
    wanted = list(world._ranks) if ranks is None else [int(r) for r in ranks]
    if sort_ranks:
        wanted = sorted(wanted)
    if len(set(wanted)) != len(wanted):
        raise ValueError(f"Provided group ranks should be distinct, got {wanted}")
    if any(not 0 <= r < world.size() for r in wanted):
        raise ValueError(f"Provided group ranks {wanted} exceed the world size {world.size()} or are negative")
    if not wanted:
        raise ValueError("the new group's rank should be within the world_size set by init_process_group")
    if not use_local_synchronization:  # that is what it says: the group's own ranks alone call it
        world.host.run(f"new_group({wanted})", lambda comm: DONE)
    state.count += 1
    name = f"{state.count}"
    limit = timeout or world._timeout
    if world._rank not in wanted:
        return GroupMember.NON_GROUP_MEMBER
    comm = world.part(wanted, 2 + state.count % 30000)
    assert comm is not None
    made = ProcessGroup(comm, wanted, _checked_backend(backend) if backend else world._backend, limit, name, world._peers, wanted.index(world._rank))
    made.group_desc = group_desc or name
    state.groups.append(made)
    return made


def pair(g: ProcessGroup, peer: int) -> ProcessGroup:
    """The group of this process and rank `peer` of `g`, which only these two ask for."""
    made = g.pairs.get(peer)
    if made is None:
        ranks = sorted((g._rank, peer))
        comm = g.part(ranks, 3)
        assert comm is not None
        names = [g._ranks[r] for r in ranks]
        name = f"{g.group_name or 'default'}, ranks {names[0]} and {names[1]}"
        made = ProcessGroup(comm, names, g._backend, g._timeout, name, g._peers, ranks.index(g._rank))
        g.pairs[peer] = made
        state.groups.append(made)
    return made


def new_subgroups(group_size: int | None = None, group: Any = None, timeout: Any = None, backend: Any = None, pg_options: Any = None,
                  group_desc: str | None = None) -> tuple[Any, list[Any]]:
    """The world cut into groups of `group_size` neighbours: this process's own, and all of them."""
    world = default()
    if not group_size or group_size < 1:
        raise ValueError("new_subgroups: group_size must be positive; it is asked for, since a host's GPUs are not known here")
    if world.size() % group_size:
        raise ValueError(f"The world size must be divisible by group_size={group_size}")
    parts = [list(range(k, k + group_size)) for k in range(0, world.size(), group_size)]
    return new_subgroups_by_enumeration(parts, timeout, backend)


def new_subgroups_by_enumeration(ranks_per_subgroup_list: Any, timeout: Any = None, backend: Any = None, pg_options: Any = None,
                                 group_desc: str | None = None) -> tuple[Any, list[Any]]:
    """Groups of the ranks listed: this process's own, and all of them.  Raises ValueError for a rank in two of them."""
    seen: set[int] = set()
    for part in ranks_per_subgroup_list:
        if seen & set(part):
            raise ValueError(f"ranks {sorted(seen & set(part))} are in two subgroups")
        seen |= set(part)
    own, made = None, []
    for part in ranks_per_subgroup_list:
        g = new_group(part, timeout, backend)
        made.append(g)
        if default()._rank in part:
            own = g
    return own, made


def split_group(parent_pg: Any = None, split_ranks: Any = None, timeout: Any = None, pg_options: Any = None, group_desc: str | None = None) -> Any:
    """The part of a group that this process is in; None where it is in none."""
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    parent = of(parent_pg)
    found = None
    for part in split_ranks:
        made = new_group([parent._ranks[r] for r in part], timeout, use_local_synchronization=parent is not state.default)  # other ranks do not call it
        if made is not GroupMember.NON_GROUP_MEMBER:
            found = made
    return found


def _set_pg_timeout(timeout: datetime.timedelta, group: Any = None) -> None:
    """How long the collectives of a group may take from now on.  Raises TypeError for anything but a timedelta."""
    if not isinstance(timeout, datetime.timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    of(group)._timeout = timeout


# ------------------------------------------------------------------------------------------------ questions
def is_initialized() -> bool:
    """Whether `init_process_group` was called."""
    return state.default is not None


def get_rank(group: Any = None) -> int:
    """This process's number in a group, the default one without; -1 where it is not in it."""
    g = inside(group)
    if group is not None:
        default()
    return -1 if g is None else g._rank


def get_world_size(group: Any = None) -> int:
    """How many processes a group has; -1 where this one is not in it."""
    g = inside(group)
    return -1 if g is None else g.size()


def get_backend(group: Any = None) -> str:
    """The name of a group's backend."""
    g = inside(group)
    if g is None:
        raise ValueError("Invalid process group specified")
    return g._backend


def get_backend_config(group: Any = None) -> str:
    """The backends by kind of device."""
    name = get_backend(group)
    return name if ":" in name else f"cpu:{name},cuda:{name}"


def get_process_group_ranks(group: Any) -> list[int]:
    """The global ranks of a group, in its order."""
    return list(of(group)._ranks)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The global rank of a group's rank.  Raises ValueError for one that is not there."""
    g = of(group)
    if not 0 <= group_rank < g.size():
        raise ValueError(f"Group rank {group_rank} is not part of group {g!r}")
    return g._ranks[group_rank]


def get_group_rank(group: Any, global_rank: int) -> int:
    """A group's rank of a global one.  Raises ValueError for one that is not in it."""
    return member(of(group), global_rank, "rank")


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This process's number on its host, which the launcher tells in LOCAL_RANK.  Raises RuntimeError without."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is None:
        raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work, "
                           "assuming you are not running in a multi-device context and want the code to run locally instead.")
    return int(fallback_rank)
