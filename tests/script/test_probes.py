"""What scripts ask before they start: versions, devices, compilers, what is there and what is not."""

from __future__ import annotations

from .test_run import run

PROBES = """
    import warnings
    import torch, torch.nn as nn, torch.nn.functional as F
    import torch._dynamo
    import torch.version
    from torch.torch_version import TorchVersion
"""


def test_versions(tmp_path) -> None:
    made = run(tmp_path, PROBES + """
    assert isinstance(torch.__version__, TorchVersion) and torch.__version__ >= "2.0" and torch.__version__ > (1, 8)
    assert tuple(int(p) for p in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 0)
    assert torch.version.__version__ == str(torch.__version__) and torch.version.cuda is None and torch.version.hip is None
    assert "Flambeau" in torch.__config__.show() and "get_num_threads" in torch.__config__.parallel_info()
    print("ok")
    """)
    assert made.stdout == "ok\n"


def test_devices_and_kinds(tmp_path) -> None:
    made = run(tmp_path, PROBES + """
    device = torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
    assert device.type == "cpu" and torch.cuda.device_count() == 0 and not torch.cuda.is_bf16_supported()
    assert not torch.backends.mps.is_built() and isinstance(torch.backends.cudnn.benchmark, bool)
    for ask in (torch.cuda.get_device_capability, torch.cuda.current_device, torch.cuda.get_device_name, nn.Linear(1, 1).cuda):
        try:
            ask()
        except (RuntimeError, AssertionError) as error:
            assert "no CUDA GPU is available" in str(error), error
        else:
            raise SystemExit(f"{ask} answered")
    x = torch.ones(2)
    assert isinstance(x, torch.Tensor) and isinstance(x, torch.FloatTensor) and not isinstance(x, nn.Parameter)
    assert isinstance(x.dtype, torch.dtype) and isinstance(x.device, torch.device) and isinstance(x.shape, torch.Size)
    assert isinstance(x.layout, torch.layout) and x.layout is torch.strided and x.type() == "torch.FloatTensor"
    print("ok")
    """)
    assert made.stdout == "ok\n"


def test_gpus_that_are_simulated_answer(tmp_path) -> None:
    made = run(tmp_path, PROBES + """
    major, minor = torch.cuda.get_device_capability()
    assert major >= 7 and torch.cuda.get_device_properties(0).total_memory > 0 and torch.cuda.current_device() == 0
    dtype = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float16"
    with torch.amp.autocast(device_type="cuda", dtype=getattr(torch, dtype)):
        assert str((torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")).dtype) == "torch." + dtype
    assert isinstance(torch.ones(1).cuda(), torch.cuda.FloatTensor)
    model = nn.DataParallel(nn.Linear(2, 2)).cuda()
    assert model(torch.ones(4, 2).cuda()).shape == (4, 2) and hasattr(model, "module")
    print("ok")
    """, "--sim-gpus", "2")
    assert made.stdout == "ok\n"


def test_compilers_are_accepted(tmp_path) -> None:
    made = run(tmp_path, PROBES + """
    torch._dynamo.config.suppress_errors = True
    torch._dynamo.config.cache_size_limit = 64
    assert torch._dynamo.config.suppress_errors is True and not torch._dynamo.config.verbose
    torch._inductor.config.coordinate_descent_tuning = True
    torch.set_float32_matmul_precision("high")

    @torch.compile
    def f(x):
        return x + 1

    @torch.compile(mode="max-autotune", fullgraph=True, dynamic=False)
    def g(x):
        return x * 2

    @torch._dynamo.disable
    def h(x):
        return x - 1

    net = torch.compile(nn.Linear(2, 2), backend="inductor")
    assert f(1) == 2 and g(2) == 4 and h(3) == 2 and net(torch.ones(1, 2)).shape == (1, 2)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        scripted = torch.jit.script(nn.Linear(2, 2))
        torch.jit.script(f)
    assert len(seen) == 1 and scripted(torch.ones(1, 2)).shape == (1, 2)
    assert not torch.onnx.is_in_onnx_export() and torch._C._get_tracing_state() is None and not torch.jit.is_scripting()
    print("ok")
    """)
    assert made.stdout == "ok\n"


def test_one_process_is_a_group(tmp_path) -> None:
    made = run(tmp_path, PROBES + """
    import torch.distributed as dist
    import torch.distributed.nn
    from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler, SubsetRandomSampler
    assert dist.is_available() and not dist.is_initialized()
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    x = torch.ones(2, requires_grad=True)
    torch.distributed.nn.all_reduce(x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert list(BatchSampler(SequentialSampler(range(5)), 2, drop_last=True)) == [[0, 1], [2, 3]]
    assert sorted(RandomSampler(range(5))) == list(range(5)) and set(SubsetRandomSampler([4, 7])) == {4, 7}
    assert list(DistributedSampler(range(4), num_replicas=2, rank=1, shuffle=False)) == [1, 3]
    try:
        torch.hub.load("somebody/something", "model")
    except Exception as error:
        assert "network" in str(error)
    print("ok")
    """)
    assert made.stdout == "ok\n"


def test_a_missing_name_says_what_is_near_and_where(tmp_path) -> None:
    made = run(tmp_path, """
    import torch, torch.nn as nn, torch.nn.functional as F
    assert not hasattr(nn, "Linearr") and not hasattr(F, "reluu") and hasattr(F, "relu") and getattr(torch.optim, "Adamm", None) is None
    for name in ("nn.Linearr", "nn.functional.reluu", "cuda.is_availble", "utils.data.DataLoadr", "nn.utils.rnn.pad_sequenc"):
        try:
            found = torch
            for part in name.split("."):
                found = getattr(found, part)
        except AttributeError as error:
            print(error)
    torch.ones(2).sumz()
    """, check=False)
    lines = made.stdout.splitlines()
    for line, module, near in zip(lines, ("torch.nn", "torch.nn.functional", "torch.cuda", "torch.utils.data", "torch.nn.utils.rnn"),
                                  ("Linear", "relu", "is_available", "DataLoader", "pad_sequence"), strict=True):
        assert f"module '{module}' has no attribute" in line and near in line.partition("nearest")[2] and "script.py:8" in line, line
    assert made.returncode == 1 and "Flambeau's Tensor does not have 'sumz'; the nearest that exists: sum" in made.stderr


def test_what_a_script_puts_on_torch_stays(tmp_path) -> None:
    made = run(tmp_path, """
    import torch
    import flambeau
    before = torch.add
    torch.add = lambda *a: "mine"
    assert torch.add(1, 2) == "mine" and flambeau.add is before
    del torch.add
    assert torch.add is before and "add" in dir(torch)
    from flambeau._core.engine import interpreters  # what a trace looks on with
    seen = []
    def hook(name, function, args, kwargs):
        seen.append(name)
        return function(*args, **kwargs)
    x = torch.ones(2)
    with interpreters.watch(hook):
        torch.add(x, x)  # found before
        torch.mul(x, x)  # found for the first time
    torch.add(torch.mul(x, x), x)
    print(seen.count("add"), seen.count("mul"))
    """)
    assert made.stdout == "1 1\n"
