"""torch._functorch: `flambeau.func` under the inner names that libraries import by, and the names of a tracing compiler's parts."""

from __future__ import annotations

from typing import Any

from flambeau import func
from flambeau._core.tensor import Tensor
from flambeau.interop import stand_ins
from flambeau.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

from ._dynamo import Settings

for _name in ("apis", "eager_transforms", "functional_call", "pyfunctorch"):
    stand_ins.other(f"{__name__}.{_name}", "flambeau.func")
_LEVELS = "_maybe_remove_batch_dim() _add_batch_dim() _remove_batch_dim() _create_batched_inputs() _unwrap_batched() _process_batched_inputs()"
stand_ins.module(f"{__name__}.vmap", {**{name: getattr(func, name) for name in func.__all__}, "Tensor": Tensor, "tree_flatten": tree_flatten,
                                      "tree_unflatten": tree_unflatten, "_broadcast_to_and_flatten": _broadcast_to_and_flatten,
                                      "_get_name": lambda f: getattr(f, "__name__", repr(f)),
                                      **stand_ins.names(f"{__name__}.vmap", _LEVELS, "vmap here has no levels by number; func.vmap is the way in")},
                 "`flambeau.func`, and the names of levels that vmap here has not.")
config: Any = Settings(f"{__name__}.config")
stand_ins.module(f"{__name__}.config", {"__getattr__": config.__getattr__, "patch": config.patch}, "Settings that change nothing.")
stand_ins.modules(__name__, {"aot_autograd": "aot_function() aot_module() aot_module_simplified() make_boxed_func() aot_export_joint_with_descriptors()",
                             "partitioners": "min_cut_rematerialization_partition() default_partition()",
                             "compile_utils": "fx_graph_cse()", "compilers": "ts_compile() nop()"}, "there is no tracing compiler here")
