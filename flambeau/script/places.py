"""PyTorch's inner paths that programs import by, and where the same things are here."""

from __future__ import annotations

# a module of PyTorch's and the one that stands for it
MOVED = {
    "torch._six": "flambeau.script.six", "torch.functional": "flambeau", "torch._tensor": "flambeau._core.tensor",
    "torch.torch": "flambeau",
    "torch.autograd.grad_mode": "flambeau._core.autograd.mode", "torch.autograd.anomaly_mode": "flambeau.autograd.anomaly",
    "torch.amp.autocast_mode": "flambeau.amp.autocast", "torch.cuda.amp.autocast_mode": "flambeau.cuda.amp",
    "torch.cuda.amp.grad_scaler": "flambeau.cuda.amp", "torch.cuda.graphs": "flambeau.cuda",
    "torch.cuda.amp.common": "flambeau.cuda.amp",
    "torch.optim.adamw": "flambeau.optim.adam", "torch.optim.nadam": "flambeau.optim.adam", "torch.optim.radam": "flambeau.optim.adam",
    "torch.optim.adamax": "flambeau.optim.adam", "torch.optim.sparse_adam": "flambeau.optim.sparse",
    "torch.optim.asgd": "flambeau.optim.sgd", "torch.optim.rprop": "flambeau.optim.adaptive",
    "torch.optim.adagrad": "flambeau.optim.adaptive", "torch.optim.rmsprop": "flambeau.optim.adaptive",
    "torch.optim.adadelta": "flambeau.optim.adaptive", "torch.optim._functional": "flambeau.optim",
    "torch.nn.parallel.data_parallel": "flambeau.nn.parallel", "torch.nn.parallel.distributed": "flambeau.nn.parallel",
    "torch.nn.parallel.parallel_apply": "flambeau.nn.parallel", "torch.nn.parallel.replicate": "flambeau.nn.parallel",
    "torch.nn.parallel.scatter_gather": "flambeau.nn.parallel", "torch.nn.parallel._functions": "flambeau.nn.parallel",
    "torch.nn.parallel.comm": "flambeau.cuda.comm",
    "torch.distributed.nn.functional": "flambeau.distributed.nn",
    "torch.profiler.profiler": "flambeau.profiler", "torch.autograd.profiler_util": "flambeau.profiler",
    "torch.optim._adafactor": "flambeau.optim.factored", "torch.optim._muon": "flambeau.optim.factored", "torch.optim._multi_tensor": "flambeau.optim",
    "torch.nn.utils.weight_norm": "flambeau.nn.utils.weight_norms", "torch.nn.utils.spectral_norm": "flambeau.nn.utils.weight_norms",
    "torch.nn.utils.init": "flambeau.nn.utils", "torch.nn.utils.memory_format": "flambeau.nn.utils",
    "torch.jit._script": "flambeau.jit", "torch.jit._state": "flambeau.jit", "torch.jit._trace": "flambeau.jit", "torch.jit.frontend": "flambeau.jit",
    "torch.cpu.amp.autocast_mode": "flambeau.cpu.amp", "torch.testing._comparison": "flambeau.testing",
    "torch.utils.tensorboard.writer": "flambeau.utils.tensorboard",
    "torch.multiprocessing.spawn": "flambeau.multiprocessing.spawning", "torch.multiprocessing.queue": "flambeau.multiprocessing",
    "torch.multiprocessing.pool": "flambeau.multiprocessing",
    "torch._vmap_internals": "flambeau.func", "torch._lowrank": "flambeau", "torch._linalg_utils": "flambeau", "torch._VF": "flambeau",
    "torch.distributed._tensor.experimental": "flambeau.distributed.tensor.experimental",
    "torch.cuda._utils": "flambeau._utils", "torch.utils.data._utils.worker": "flambeau.data.workers",
    "torch.utils.data.graph": "flambeau.data.pipe_graph", "torch.utils.data.graph_settings": "flambeau.data.pipe_graph",
}

# modules of Flambeau's own, which PyTorch has no such names for, by the package they lie in
OWN = {
    "flambeau": frozenset("_core _faces as_torch cli data demo errors functorch interop inventory io left_out script simulated suite vision".split()),
    "flambeau.nn": frozenset("activation containers conv distance distributed dropout hooks lazy linear loss module moves norm padding pairs pooling rare rnn "
                             "shapes sizes sparse state transformer upsampling".split()),
}

# where else a module's names are looked for, when they are not in the one that stands for it
NEAR = {
    "flambeau.nn.module": ("flambeau.nn.state", "flambeau.nn.hooks"),
    "flambeau.nn.activation": ("flambeau.nn.linear", "flambeau.nn.init", "flambeau.nn.parameter"),
    "flambeau.nn.containers": ("flambeau.nn.module",),
    "flambeau.nn.conv": ("flambeau.nn.sizes", "flambeau.nn.lazy", "flambeau.nn.module", "flambeau.nn.functional"),
    "flambeau.nn.linear": ("flambeau.nn.lazy", "flambeau.nn.functional"),
    "flambeau.nn.loss": ("flambeau.nn.distance", "flambeau.nn.linear"),
    "flambeau.nn.norm": ("flambeau.nn.lazy", "flambeau.nn.functional"),
    "flambeau.nn.padding": ("flambeau.nn.sizes",),
    "flambeau.nn.pooling": ("flambeau.nn.sizes",),
    "flambeau.nn.parallel": ("flambeau.nn.distributed",),
    "flambeau.fx._symbolic_trace": ("flambeau.jit",),
    "flambeau.optim.adam": ("flambeau.optim.optimizer", "flambeau.optim"),
    "flambeau.optim.adaptive": ("flambeau.optim.optimizer", "flambeau.optim"),
    "flambeau.optim.sgd": ("flambeau.optim.optimizer", "flambeau.optim"),
    "flambeau.optim.sparse": ("flambeau.optim.optimizer", "flambeau.optim"),
    "flambeau.optim.lbfgs": ("flambeau.optim.optimizer",),
    "flambeau.optim.lr_scheduler": ("flambeau.optim.optimizer",),
}
# modules whose dictionaries libraries go through
WHOLE = frozenset(("flambeau.distributions", "flambeau.optim", "flambeau.optim.lr_scheduler", "flambeau.nn", "flambeau.nn.functional"))
# what almost every one of PyTorch's files imports, so that programs take it from any of them
COMMON = {"Tensor": "flambeau", "nan": "math", "inf": "math", "Number": "flambeau.types", "_Number": "flambeau.types"}


def called(module: str) -> str:
    """What a program knows a module by."""
    for ours, theirs in (("flambeau.vision", "torchvision"), ("flambeau.data", "torch.utils.data"), ("flambeau._faces", "torch"), ("flambeau._core", "torch")):
        if module == ours or module.startswith(ours + "."):
            return theirs + module[len(ours):]
    parent, _, last = module.rpartition(".")
    if last in OWN.get(parent, ()) and parent == "flambeau.nn":
        return f"torch.nn.modules.{last}"
    return module.replace("flambeau", "torch", 1)


def elsewhere(module: str, name: str) -> list[str]:
    """The modules to look in for a name that a module of Flambeau does not have."""
    found = [*NEAR.get(module, ())]
    if name.startswith(("_size_", "_ratio_")) and module.startswith("flambeau.nn."):
        found.append("flambeau.nn.common_types")
    if name in COMMON and module.startswith(("flambeau.nn.", "flambeau.optim.", "flambeau.distributions.", "flambeau.autograd.", "flambeau.data.")):
        found.append(COMMON[name])
    return found
