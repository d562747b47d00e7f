"""torch.utils' small modules: trees, timers, and the old names."""

from __future__ import annotations

import collections
import weakref

import pytest

import flambeau as torch
from flambeau.nn.utils import _named_member_accessor as accessor
from flambeau.utils import _contextlib, _device, _foreach_utils, _pytree, benchmark, collect_env, module_tracker, weak


def test_trees_go_flat_and_back() -> None:
    Pair = collections.namedtuple("Pair", "a b")
    tree = {"x": [1, (2, 3)], "y": Pair(4, {"z": 5})}
    values, spec = _pytree.tree_flatten(tree)
    assert values == [1, 2, 3, 4, 5] and spec.num_leaves == 5 and "*" in repr(spec)
    assert _pytree.tree_unflatten([v * 2 for v in values], spec) == {"x": [2, (4, 6)], "y": Pair(8, {"z": 10})}
    assert spec == _pytree.tree_structure({"x": [0, (0, 0)], "y": Pair(0, {"z": 0})}) and spec != _pytree.tree_structure([1])
    with pytest.raises(ValueError, match="5 leaves, 1 came"):
        _pytree.tree_unflatten([1], spec)
    moved = _pytree.tree_map_only(torch.Tensor, lambda t: t.tolist(), [torch.ones(2), "name"])
    assert moved == [[1.0, 1.0], "name"] and _pytree.tree_map(lambda a, b: a + b, [1, 2], [3, 4]) == [4, 6]
    assert _pytree.tree_all(lambda v: v > 0, tree) and not _pytree.tree_any(lambda v: v > 5, tree) and _pytree.tree_leaves(3) == [3]


def test_a_timer_counts_what_it_is_told_to() -> None:
    seen: list[int] = []
    clock = iter(range(1000))  # each look at the clock is a second later
    timer = benchmark.Timer("seen.append(n)", "n = 7", globals={"seen": seen}, timer=lambda: next(clock), label="append")
    found = timer.timeit(10)
    assert len(seen) == 12 and set(seen) == {7} and found.raw_times == [1.0] and found.mean == found.median == 0.1
    assert repr(found) == "<append: median 100.00 ms, 1 samples of 10 runs>"
    several = timer.blocked_autorange(min_run_time=3)
    assert several.raw_times == [1.0] * 3 and several.iqr == 0
    threads = torch.get_num_threads()
    assert benchmark.Timer("x + x", globals={"x": torch.ones(3)}).adaptive_autorange(min_run_time=0.001, max_run_time=0.01).median > 0
    assert torch.get_num_threads() == threads
    with pytest.raises(NotImplementedError, match="python"):
        benchmark.Timer(language="c++")


def test_a_table_of_measurements() -> None:
    def timed(label: str, sub: str, description: str, *times: float, threads: int = 1) -> benchmark.Measurement:
        return benchmark.Measurement(10, [10 * t for t in times], benchmark.TaskSpec("f()", "", "", label, sub, description, None, threads))
    found = [timed("add", "4 x 4", "ours", 1e-6, 1.02e-6, 0.98e-6), timed("add", "4 x 4", "theirs", 2.5e-6, 2.5e-6), timed("add", "8 x 8", "ours", 4e-6, 9e-6),
             timed("add", "4 x 4", "ours", 3e-6, threads=2)]
    table = benchmark.Compare(found)
    assert str(table).split("\n") == [
        "[------------ add -------------]", "              |  ours  |  theirs", "1 threads: ---------------------", "       4 x 4  |   1.0  |     2.5",
        "       8 x 8  |   6.5  |", "2 threads: ---------------------", "       4 x 4  |   3.0  |", "", "Times are in microseconds (us).", ""]
    table.extend_results([timed("add", "4 x 4", "ours", 1e-6), timed("mul", "", "ours", 0.5)])
    table.trim_significant_figures()
    table.highlight_warnings()
    table.colorize(rowwise=True)
    rows = [line for line in str(table).split("\n") if "4 x 4" in line]
    assert rows[0].count("\033[32m") == 1 and rows[0].count("\033[31m") == 1 and rows[0].index("\033[32m") < rows[0].index("\033[31m")
    assert "(!)" in str(table) and "Times are in milliseconds (ms)." in str(table)
    assert found[0].sub_label == "4 x 4" and found[2].has_warnings and not found[0].has_warnings
    with pytest.raises(ValueError, match="Expected an instance of `Measurement`"):
        table.extend_results([1])


def test_tensors_that_change_places() -> None:
    a, b = torch.nn.Parameter(torch.ones(2)), torch.tensor([[1.0], [2.0]])
    a.kind = "weight"
    held = {"a": a, "b": b}
    torch.utils.swap_tensors(a, b)
    assert type(held["b"]) is torch.nn.Parameter and held["b"].requires_grad and held["b"].kind == "weight" and held["b"].tolist() == [1, 1]
    assert type(a) is torch.Tensor and a.tolist() == [[1], [2]] and not hasattr(a, "kind")
    (held["b"] * 3).sum().backward()
    assert held["b"].grad.tolist() == [3, 3] and a.grad is None
    seen = weakref.ref(a)
    with pytest.raises(RuntimeError, match="Cannot swap t1 because it has weakref"):
        torch.utils.swap_tensors(a, b)
    assert seen() is a


def test_tables_by_identity() -> None:
    a, b = torch.ones(2), torch.ones(2)
    table = weak.WeakTensorKeyDictionary({a: 1})
    table[b] = 2
    assert table[a] == 1 and table[b] == 2 and len(table) == 2 and a in table and torch.ones(2) not in table and 3 not in table
    assert {id(k) for k in table} == {id(a), id(b)} and table == table.copy() and weak.WeakIdRef(a) == weak.WeakIdRef(a) != weak.WeakIdRef(b)
    seen = weak.TensorWeakRef(b)
    assert seen() is b
    del b
    assert len(table) == 1 and seen() is None and list(table.values()) == [1]
    with pytest.raises(AssertionError, match="expected torch.Tensor"):
        weak.TensorWeakRef([1])


def test_context_managers_of_ones_own() -> None:
    entered: list[str] = []

    class Mode(_contextlib._DecoratorContextManager):
        def __init__(self, name: str) -> None:
            self.name = name

        def clone(self) -> Mode:
            return Mode(self.name + "'")

        def __enter__(self) -> None:
            entered.append(self.name)

        def __exit__(self, *exc: object) -> None:
            entered.append("-" + self.name)

    @Mode("a")
    def steps(n: int):
        yield from range(n)
    assert list(steps(2)) == [0, 1] and entered[:2] == ["a'", "-a'"] and len(entered) == 8
    assert _contextlib.context_decorator(lambda: Mode("b"), lambda x: x + 1)(1) == 2 and entered[-2:] == ["b", "-b"]
    with pytest.raises(RuntimeError, match="Cannot decorate classes"):
        _contextlib.context_decorator(lambda: Mode("b"), int)

    class Bare(_contextlib._NoParamDecoratorContextManager):
        def __enter__(self) -> None:
            entered.append("bare")

        def __exit__(self, *exc: object) -> None:
            pass

    @Bare
    def f() -> int:
        return 1
    assert f() == 1 and entered[-1] == "bare"


def test_the_modules_at_work() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.ReLU()))
    seen: list[set[str]] = []
    net[1][0].register_forward_pre_hook(lambda *args: seen.append({*tracker.parents}))
    with module_tracker.ModuleTracker() as tracker:
        net(torch.ones(1, 2))
        assert tracker.parents == {"Global"} and not tracker.is_bw
        x = torch.ones(1, requires_grad=True)
        x.register_hook(lambda g: seen.append({str(tracker.is_bw)}))
        (x * 2).sum().backward()
    assert seen == [{"Global", "Sequential", "Sequential.1", "Sequential.1.0"}, {"True"}]
    net(torch.ones(1, 2))
    assert tracker.parents == {"Global"}


def test_lists_by_device_and_type() -> None:
    a, b, c = torch.ones(1), torch.ones(2, dtype=torch.float64), torch.ones(3)
    made = _foreach_utils._group_tensors_by_device_and_dtype([[a, b, c], [None, b, c]], with_indices=True)
    assert [(str(d), t, [[None if x is None else x.shape[0] for x in row] for row in rows], places) for (d, t), (rows, places) in made.items()] == [
        ("cpu", torch.float32, [[1, 3], [None, 3]], [0, 2]), ("cpu", torch.float64, [[2], [2]], [1])]
    with pytest.raises(RuntimeError, match=r"differ in length: \[1, 2\]"):
        _foreach_utils._group_tensors_by_device_and_dtype([[a], [a, b]])
    assert _foreach_utils._has_foreach_support([a, None], a.device) and not _foreach_utils._has_foreach_support([torch.nn.Parameter(a)], a.device)


def test_a_device_for_a_function() -> None:
    assert _device.set_device("meta")(lambda: torch.ones(2).device.type)() == "meta" and torch.ones(1).device.type == "cpu"


def test_what_a_report_of_an_error_says() -> None:
    told = collect_env.get_pretty_env_info()
    assert f"PyTorch version: {torch.__version__} (Flambeau)" in told and "Is CUDA available: " in told and "numpy==" in told


def test_members_by_their_paths() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Sequential(torch.nn.BatchNorm1d(3)))
    members, other = accessor.NamedMemberAccessor(net), torch.zeros(3, 2)
    weight = members.swap_tensor("0.weight", other)
    assert net[0].weight is other and isinstance(weight, torch.nn.Parameter) and members.get_tensor("0.weight") is other
    before, missing = members.swap_tensors_dict({"0.weight": weight, "1.0.running_mean": torch.ones(3)})
    assert before["0.weight"] is other and missing == [] and net[1][0].running_mean.tolist() == [1, 1, 1]
    with pytest.raises(AttributeError, match="has no attribute `nothing`"):
        members.swap_tensors_dict({"0.weight": other, "0.nothing": other})
    assert net[0].weight is weight
    assert members.check_keys(["0.weight", "0.bias", "1.0.weight", "more"]) == (
        ["1.0.bias", "1.0.num_batches_tracked", "1.0.running_mean", "1.0.running_var"], ["more"])
    with pytest.raises(TypeError, match="is not an instance of torch.Tensor"):
        members.set_tensor("0.weight", [1])
    child = torch.nn.ReLU()
    assert isinstance(members.swap_submodule("1.0", child), torch.nn.BatchNorm1d) and net[1][0] is child
    members.del_tensor("0.bias")
    assert not hasattr(net[0], "bias")


def test_the_old_names() -> None:
    assert torch.utils.model_zoo.load_url is torch.hub.load_state_dict_from_url
    x = torch.arange(3.0)
    y = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    y[0] = 5
    assert x.tolist() == [5, 1, 2]
    assert isinstance(torch.nn.Linear(1, 1).register_forward_hook(lambda *a: None), torch.utils.hooks.RemovableHandle)
    with pytest.raises(AttributeError, match="no_such"):
        torch.utils.no_such  # noqa: B018


def test_private_names_that_libraries_write() -> None:
    import io

    from flambeau._C import _LinAlgError
    from flambeau.fx._symbolic_trace import compatibility
    from flambeau.nn import init
    from flambeau.storage import _load_from_bytes
    from flambeau.utils.data.dataloader import _DatasetKind
    assert _LinAlgError is torch.linalg.LinAlgError and compatibility(True)(len) is len and (_DatasetKind.Map, _DatasetKind.Iterable) == (0, 1)
    p = torch.nn.Parameter(torch.zeros(3))
    assert init._no_grad_uniform_(p, 1.0, 2.0) is p and bool((p >= 1).all()) and init._no_grad_fill_(p, 7.0).tolist() == [7, 7, 7]
    assert init._no_grad_zero_(p).tolist() == [0, 0, 0] and p.requires_grad
    file = io.BytesIO()
    torch.save({"x": torch.arange(3)}, file)
    assert _load_from_bytes(file.getvalue())["x"].tolist() == [0, 1, 2]
    assert p._cdata == p._cdata != p.detach()._cdata


def test_devices_by_the_numbers_of_dlpack() -> None:
    from flambeau.utils.dlpack import DLDeviceType
    assert torch.ones(1).__dlpack_device__()[0] == DLDeviceType.kDLCPU and DLDeviceType(2) is DLDeviceType.kDLCUDA and len(DLDeviceType) == 15
    assert torch.version.rocm is None and torch.random.thread_safe_generator() is None
