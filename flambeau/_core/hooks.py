"""What lower layers call that higher ones provide.

A file may import from its own layer and those below it, also inside functions (`tools/import_order.py`).  Where it needs more, it calls
`hooks.name(...)`, and the layer above sets that name when it is imported (`provide`).  All names are here, so that one sees what reaches up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def _nobody(name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"nobody provides {name!r}: import flambeau first")
    return call


# of operations, for the tensor and the tape
empty = _nobody("empty")  # as in `ops.creation`
full = _nobody("full")
zeros_meta = _nobody("zeros_meta")
zeros_like = _nobody("zeros_like")
tensor = _nobody("tensor")
stack = _nobody("stack")
fit = _nobody("fit")  # a gradient in the shape and type of what it is for
dense_copy = _nobody("dense_copy")
strided_sum = _nobody("strided_sum")
launch_plan = _nobody("launch_plan")  # `ops.launch.plan`
mismatch = _nobody("mismatch")  # the error for tensors of several devices

watch = _nobody("watch")  # `engine.interpreters.watch`: shows calls of operations
note_who_asks = _nobody("note_who_asks")  # `engine.interpreters.note_who_asks`: until `close()`, notes whether the outermost operation says that it moves

aten = _nobody("aten")  # `torch.ops.aten`, and the other namespaces of PyTorch's own, by name

# of operations, for the simpler ones
cat = _nobody("cat")
sum_to = _nobody("sum_to")
convert = _nobody("convert")  # `ops.casts.convert`
resolved = _nobody("resolved")  # the elements of a conjugate or negative view in new memory; another tensor itself
settle = _nobody("settle")  # makes such a view a tensor with memory of its own
turning = _nobody("turning")  # the node of conjugates or negatives
complex_ = _nobody("complex_")
view_of = _nobody("view_of")
pinned_empty = _nobody("pinned_empty")
operations = _nobody("operations")  # the table of operations
searchsorted = _nobody("searchsorted")
gradient_of_values = _nobody("gradient_of_values")  # the gradient of a sparse tensor's values, from the tensor's; of another tensor itself
sparse_form = _nobody("sparse_form")  # carries an operation out, by its name, on sparse tensors

# of `autograd`, for tensors with tangents
answer_of_duals = _nobody("answer_of_duals")
carry_duals = _nobody("carry_duals")  # calls a function that is no operation
function_of_duals = _nobody("function_of_duals")
grad_of_duals = _nobody("grad_of_duals")
keep_tangents = _nobody("keep_tangents")  # gives one tensor the tangents of another
no_out_of_duals = _nobody("no_out_of_duals")  # raises where an operation with `out=` has such a tensor among its arguments

# of `nn`
optimized: Callable[[Any], Any] = lambda model: model  # noqa: E731 (a Module with compiled calls, anything else itself; without `nn` there is no Module)

# of `warm`
many_made: Callable[[], None] = lambda: None  # noqa: E731 (told once a process that has made many kernels itself)

# of `func`
vmap = _nobody("vmap")

# of `interop`
from_dlpack = _nobody("from_dlpack")
adopt = _nobody("adopt")  # makes a subclass of Tensor hear `__torch_function__`


def provide(**given: Callable[..., Any]) -> None:
    """Sets hooks by name.  Raises AttributeError for one that nobody calls."""
    for name, function in given.items():
        if name not in globals():
            raise AttributeError(f"there is no hook {name!r}")
        globals()[name] = function
