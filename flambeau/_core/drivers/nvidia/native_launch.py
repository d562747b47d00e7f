"""Launches, products and plans without ctypes or the bindings' call: builtins over machine code that pack what they are given and call on.

It is the CPU's own way into kernels (`kernels.native`): the builtin finds its arguments as 64-bit words, which is how a kernel's
parameter begins, appends the words that belong to the launch, and calls ``cuLaunchKernel``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels import native
from ...kernels.llvm import compile as compiler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NAME = "flambeau_cuda_launch"
# block: the address of cuLaunchKernel, the function, grid and block (6), shared bytes, where a failure's code goes, how many
# arguments come from the call, how many words follow, those words.  The stream is the call's last argument.
_TEXT = f"""
define void @{_NAME}(i64 %begin, i64 %end, ptr %args, ptr %block) {{
entry:
  %heads_at = getelementptr i64, ptr %block, i64 10
  %heads = load i64, ptr %heads_at
  %tails_at = getelementptr i64, ptr %block, i64 11
  %tails = load i64, ptr %tails_at
  %total = add i64 %heads, %tails
  %buffer = alloca i64, i64 %total, align 16
  %params = alloca ptr, align 8
  store ptr %buffer, ptr %params
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i1, %head_body ]
  %more = icmp ult i64 %i, %heads
  br i1 %more, label %head_body, label %tail
head_body:
  %from = getelementptr i64, ptr %args, i64 %i
  %v = load i64, ptr %from
  %to = getelementptr i64, ptr %buffer, i64 %i
  store i64 %v, ptr %to
  %i1 = add i64 %i, 1
  br label %head
tail:
  %j = phi i64 [ 0, %head ], [ %j1, %tail_body ]
  %rest = icmp ult i64 %j, %tails
  br i1 %rest, label %tail_body, label %call
tail_body:
  %j12 = add i64 %j, 12
  %tail_from = getelementptr i64, ptr %block, i64 %j12
  %w = load i64, ptr %tail_from
  %place = add i64 %heads, %j
  %tail_to = getelementptr i64, ptr %buffer, i64 %place
  store i64 %w, ptr %tail_to
  %j1 = add i64 %j, 1
  br label %tail
call:
  %launch = load ptr, ptr %block
{"".join(f'''  %p{k} = getelementptr i64, ptr %block, i64 {k}
  %b{k} = load i64, ptr %p{k}
''' for k in range(1, 10))}  %function = inttoptr i64 %b1 to ptr
{"".join(f"  %n{k} = trunc i64 %b{k} to i32{chr(10)}" for k in range(2, 9))}  %stream_at = getelementptr i64, ptr %args, i64 %heads
  %stream = load ptr, ptr %stream_at
  %code = call i32 %launch(ptr %function, i32 %n2, i32 %n3, i32 %n4, i32 %n5, i32 %n6, i32 %n7, i32 %n8, ptr %stream, ptr %params, ptr null)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %tell, label %done
tell:
  %result = inttoptr i64 %b9 to ptr
  store i32 %code, ptr %result
  br label %done
done:
  ret void
}}
"""


def launcher(call: int, function: int, grid: Sequence[int], block: Sequence[int], shared: int, result: int, arguments: str,
             tail: Sequence[int]) -> Callable[..., None]:
    """A builtin that takes a launch's arguments and the stream's number, and launches.

    call: the address of cuLaunchKernel.  result: the address of an int that gets the code of a failure.  arguments: a letter
    for each, "d" a float, others ints.  tail: the words that follow them.
    """
    address = compiler.functions(("cuda launch", _TEXT), (_NAME,), lambda: _TEXT)[_NAME]
    params = [call, function, *grid, *block, shared, result, len(arguments), len(tail), *tail]
    floats = [k for k, letter in enumerate(arguments) if letter == "d"]
    return native.make_entry([(address, 1, 1)], params, len(arguments) + 1, floats)


_PRODUCT = "flambeau_cublaslt_matmul"


def _product_text(places: Sequence[int]) -> str:
    """block: the address of cublasLtMatmul, handle, description, alpha, the layouts of its first and second matrix, beta, the layout
    of its third, where a failure's code goes, and the address of cublasLtMatmulDescSetAttribute.  The call: C, A, B, algorithm,
    workspace, its size, stream, and an address for each of the description's attributes `places`.

    They are put there on each call: the GIL is held from then to the product's own, so no other thread's come between.
    """
    reads = "".join(f"  %a{k}.at = getelementptr i64, ptr %args, i64 {k}\n  %a{k} = load i64, ptr %a{k}.at\n" for k in range(7 + len(places)))
    reads += "".join(f"  %b{k}.at = getelementptr i64, ptr %block, i64 {k}\n  %b{k} = load i64, ptr %b{k}.at\n" for k in range(10))
    puts = "".join(f"  store i64 %a{7 + i}, ptr %slot\n  %put{i} = call i32 %set(i64 %b2, i32 {place}, ptr %slot, i64 8)\n"
                   for i, place in enumerate(places))
    arguments = ", ".join("i64 %" + name for name in ("b1", "b2", "b3", "a2", "b4", "a1", "b5", "b6", "a0", "b7", "a0", "b7", "a3", "a4", "a5", "a6"))
    return f"""
define void @{_PRODUCT}(i64 %begin, i64 %end, ptr %args, ptr %block) {{
entry:
  %slot = alloca i64, align 8
{reads}  %set = inttoptr i64 %b9 to ptr
{puts}  %matmul = inttoptr i64 %b0 to ptr
  %code = call i32 %matmul({arguments})
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %tell, label %done
tell:
  %result = inttoptr i64 %b8 to ptr
  store i32 %code, ptr %result
  br label %done
done:
  ret void
}}
"""


def product(block: Sequence[int], places: Sequence[int] = ()) -> Callable[..., None]:
    """A builtin that takes (C, A, B, algorithm, workspace, its size, the stream's number, *addresses) and calls cublasLtMatmul.

    block, places: what `_product_text` says.
    """
    text = _product_text(places)
    address = compiler.functions(("cublaslt matmul", text), (_PRODUCT,), lambda: text)[_PRODUCT]
    return native.make_entry([(address, 1, 1)], block, 7 + len(places))


_GRAPH = "flambeau_cudnn_execute"
# a pack of addresses, its attributes, and what they are made of: numbers of cudnn_graph.h
PACK, PACK_IDS, PACK_POINTERS, PACK_WORKSPACE, INT64, ADDRESS = 16, 1000, 1001, 1003, 3, 6


def _graph_text(operands: int, rooms: int, fixed: int) -> str:
    """block: the addresses of cudnnBackendCreateDescriptor, -SetAttribute, -Finalize, -Execute and -DestroyDescriptor, the plan, the
    ids of all tensors, where a failure's code goes, where in the workspace the library's own begins, where each of the rooms, and
    the addresses of what is fixed.  The call: the operands, the workspace, the handle.

    A pack of addresses can be filled but once, so each call has its own.
    """
    count, lines = operands + rooms + fixed, []

    def word(name: str, place: int, of: str = "%block") -> None:
        lines.append(f"  %{name}.at = getelementptr i64, ptr {of}, i64 {place}\n  %{name} = load i64, ptr %{name}.at")
    for k, name in enumerate(("create", "set", "finish", "run", "destroy", "plan", "ids", "result", "own")):
        word(name, k)
        if k < 5:
            lines.append(f"  %{name}.f = inttoptr i64 %{name} to ptr")
    for k in range(operands + 2):
        word(f"a{k}", k, "%args")
    for k in range(count):
        if k < operands:
            value = f"%a{k}"
        elif k < operands + rooms:
            word(f"r{k}", 9 + k - operands)
            lines.append(f"  %w{k} = add i64 %a{operands}, %r{k}")
            value = f"%w{k}"
        else:
            word(f"f{k}", 9 + k - operands)
            value = f"%f{k}"
        lines.append(f"  %to{k} = getelementptr i64, ptr %pointers, i64 {k}\n  store i64 {value}, ptr %to{k}")
    lines.append(f"  %space = add i64 %a{operands}, %own\n  store i64 %space, ptr %room\n  %code0 = call i32 %create.f(i32 {PACK}, ptr %pack)")
    steps = [f"%set.f(i64 %made, i32 {PACK_IDS}, i32 {INT64}, i64 {count}, i64 %ids)",
             f"%set.f(i64 %made, i32 {PACK_POINTERS}, i32 {ADDRESS}, i64 {count}, ptr %pointers)",
             f"%set.f(i64 %made, i32 {PACK_WORKSPACE}, i32 {ADDRESS}, i64 1, ptr %room)",
             "%finish.f(i64 %made)", f"%run.f(i64 %a{operands + 1}, i64 %plan, i64 %made)"]
    body = "  %bad0 = icmp ne i32 %code0, 0\n  br i1 %bad0, label %tell, label %s1\n"
    for k, step in enumerate(steps, 1):
        body += f"s{k}:\n" + ("  %made = load i64, ptr %pack\n" if k == 1 else "") + f"  %code{k} = call i32 {step}\n"
        body += f"  %bad{k} = icmp ne i32 %code{k}, 0\n  br i1 %bad{k}, label %ended, label %s{k + 1}\n" if k < len(steps) else "  br label %ended\n"
    codes = ", ".join(f"[ %code{k}, %s{k} ]" for k in range(1, len(steps) + 1))
    return f"""
define void @{_GRAPH}(i64 %begin, i64 %end, ptr %args, ptr %block) {{
entry:
  %pack = alloca i64, align 8
  %room = alloca i64, align 8
  %pointers = alloca i64, i64 {count}, align 8
{chr(10).join(lines)}
{body}ended:
  %last = phi i32 {codes}
  %gone = call i32 %destroy.f(i64 %made)
  %bad = icmp ne i32 %last, 0
  br i1 %bad, label %tell, label %done
tell:
  %code = phi i32 [ %code0, %entry ], [ %last, %ended ]
  %to = inttoptr i64 %result to ptr
  store i32 %code, ptr %to
  br label %done
done:
  ret void
}}
"""


def graph(block: Sequence[int], operands: int, rooms: int, fixed: int) -> Callable[..., None]:
    """A builtin that takes (*operands, workspace, handle) and carries out a plan of cuDNN's.

    block: what `_graph_text` says.
    """
    text = _graph_text(operands, rooms, fixed)
    address = compiler.functions(("cudnn execute", text), (_GRAPH,), lambda: text)[_GRAPH]
    return native.make_entry([(address, 1, 1)], block, operands + 2)
