"""torch._functorch: `flambeau.func` under the inner names that libraries import by, and the names of a tracing compiler's parts."""

from __future__ import annotations

import sys
from typing import Any

from flambeau.func import mapping
from flambeau.interop import stand_ins

from ._dynamo import Settings

for _name in ("apis", "eager_transforms", "functional_call", "pyfunctorch"):
    stand_ins.other(f"{__name__}.{_name}", "flambeau.func")
sys.modules[f"{__name__}.vmap"] = vmap = mapping  # the very module: libraries replace functions in it
config: Any = Settings(f"{__name__}.config")
stand_ins.module(f"{__name__}.config", {"__getattr__": config.__getattr__, "patch": config.patch}, "Settings that change nothing.")
stand_ins.modules(__name__, {"aot_autograd": "aot_function() aot_module() aot_module_simplified() make_boxed_func() aot_export_joint_with_descriptors()",
                             "partitioners": "min_cut_rematerialization_partition() default_partition()",
                             "compile_utils": "fx_graph_cse()", "compilers": "ts_compile() nop()"}, "there is no tracing compiler here")
