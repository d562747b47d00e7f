"""What our calls of NVIDIA's libraries rest on, held against the libraries' own headers, and what the libraries say where no GPU is.

Needs the packages, which are large, and no GPU: `make check-libraries` makes an environment that has them.  Their calculations are not
reached here: they first ask the driver for a device.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flambeau._core.drivers.nvidia import blaslt, cudnn, cudnn_graph, cufft, cusolver, libraries, native_launch

from . import headers, host_kernels
from .running import named, on_fake, run

needs_headers = pytest.mark.skipif(bool(headers.missing()), reason=headers.missing())
_OPERANDS = {"float32": "CUDA_R_32F", "float64": "CUDA_R_64F", "float16": "CUDA_R_16F", "bfloat16": "CUDA_R_16BF", "complex64": "CUDA_C_32F",
             "complex128": "CUDA_C_64F"}
_DNN_OPERANDS = {"float32": "CUDNN_DATA_FLOAT", "float64": "CUDNN_DATA_DOUBLE", "float16": "CUDNN_DATA_HALF", "bfloat16": "CUDNN_DATA_BFLOAT16"}
_EPILOGUES = {"": "DEFAULT", "bias": "BIAS", "row sums": "BGRADB", "bias relu": "RELU_BIAS", "bias relu signs": "RELU_AUX_BIAS", "bias gelu": "GELU_BIAS",
              "bias gelu input": "GELU_AUX_BIAS", "relu gradient": "DRELU", "gelu gradient": "DGELU"}

BLASLT = {
    "CUBLAS_COMPUTE_32F": blaslt._COMPUTE_32F, "CUBLAS_COMPUTE_64F": blaslt._COMPUTE_64F, "CUBLAS_COMPUTE_32F_FAST_TF32": blaslt._COMPUTE_TF32,
    "CUBLASLT_MATMUL_DESC_TRANSA": blaslt._TRANS_A, "CUBLASLT_MATMUL_DESC_TRANSB": blaslt._TRANS_B, "CUBLASLT_MATMUL_DESC_EPILOGUE": blaslt._EPILOGUE,
    "CUBLASLT_MATMUL_DESC_BIAS_POINTER": blaslt._BIAS, "CUBLAS_OP_N": 0, "CUBLAS_OP_T": 1,
    "CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER": blaslt._AUX, "CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD": blaslt._AUX_LEAD,
    **{f"CUBLASLT_EPILOGUE_{_EPILOGUES[name]}": number for name, number in blaslt._EPILOGUES.items()},
    "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT": blaslt._BATCH, "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET": blaslt._BATCH_STEP,
    "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES": blaslt._MOST_WORKSPACE, "CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK": blaslt._REDUCTIONS,
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES": blaslt._ALIGN_A, "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES": blaslt._ALIGN_B,
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES": blaslt._ALIGN_C, "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES": blaslt._ALIGN_D,
    "CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE": blaslt._IN_COMPUTE_TYPE,
    **{_OPERANDS[name]: number for name, number in blaslt._TYPES.items()},
    "sizeof(cublasLtMatmulAlgo_t)": ctypes.sizeof(blaslt._Algorithm), "sizeof(cublasLtMatmulHeuristicResult_t)": ctypes.sizeof(blaslt._Heuristic),
    **{f"offsetof(cublasLtMatmulHeuristicResult_t, {theirs})": getattr(blaslt._Heuristic, ours).offset for ours, theirs in (
        ("algorithm", "algo"), ("workspace", "workspaceSize"), ("state", "state"), ("waves", "wavesCount"), ("reserved", "reserved"))},
}
CUDNN = {
    "CUDNN_CROSS_CORRELATION": cudnn_graph._CROSS_CORRELATION,
    "CUDNN_STATUS_NOT_SUPPORTED": cudnn.REFUSED.start, "CUDNN_STATUS_INTERNAL_ERROR": cudnn.REFUSED.stop,
    "CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED": cudnn.NO_KERNEL[0], "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED": cudnn.NO_KERNEL[1],
    "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER": cudnn.NO_KERNEL[2],
    "CUDNN_NUMERICAL_NOTE_TENSOR_CORE": cudnn_graph.TENSOR_CORES, "CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS": cudnn_graph.ROUNDED,
    "CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC": cudnn_graph.VARYING, "CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION": cudnn_graph._COMPILED,
}
CUFFT = {
    **{f"CUFFT_{cufft._EXEC[number]}": number for number in cufft._TYPES.values()}, "CUFFT_FORWARD": cufft._FORWARD, "CUFFT_INVERSE": cufft._INVERSE,
    **dict(zip(("CUFFT_INVALID_SIZE", "CUFFT_NOT_IMPLEMENTED", "CUFFT_NOT_SUPPORTED"), cufft._NOT_SERVED, strict=True)),
}
CUSOLVER = {
    "CUBLAS_FILL_MODE_LOWER": cusolver._LOWER, "CUBLAS_FILL_MODE_UPPER": cusolver._UPPER, "CUBLAS_SIDE_LEFT": cusolver._LEFT,
    "CUBLAS_OP_N": cusolver._PLAIN, "CUBLAS_OP_C": cusolver._ADJOINT, "CUBLAS_DIAG_NON_UNIT": 0, "CUBLAS_DIAG_UNIT": 1,
    "CUSOLVER_EIG_MODE_NOVECTOR": 0, "CUSOLVER_EIG_MODE_VECTOR": 1,
}
# cuDNN's graphs: descriptors, and their attributes by descriptor
GRAPH_KINDS = {"pointwise": "POINTWISE", "convolution": "CONVOLUTION", "forward operation": "OPERATION_CONVOLUTION_FORWARD",
               "images operation": "OPERATION_CONVOLUTION_BACKWARD_DATA", "weights operation": "OPERATION_CONVOLUTION_BACKWARD_FILTER",
               "engine": "ENGINE", "configuration": "ENGINECFG", "heuristics": "ENGINEHEUR", "plan": "EXECUTION_PLAN",
               "pointwise operation": "OPERATION_POINTWISE", "graph": "OPERATIONGRAPH", "tensor": "TENSOR", "matmul": "MATMUL",
               "matmul operation": "OPERATION_MATMUL", "reduction": "REDUCTION", "reduction operation": "OPERATION_REDUCTION",
               "reshape operation": "OPERATION_RESHAPE", "device": "DEVICEPROP"}
GRAPH_ATTRIBUTES = {
    "pointwise": {"mode": "MODE", "type": "MATH_PREC", "axis": "AXIS"},
    "engine": {"number": "GLOBAL_INDEX", "notes": "NUMERICAL_NOTE", "behaviour": "BEHAVIOR_NOTE"}, "configuration": {"engine": "ENGINE"},
    "convolution": {"type": "COMP_TYPE", "mode": "CONV_MODE", "dilation": "DILATIONS", "stride": "FILTER_STRIDES", "after": "POST_PADDINGS",
                    "before": "PRE_PADDINGS", "axes": "SPATIAL_DIMS"},
    **{f"{kind} operation": {"alpha": "ALPHA", "beta": "BETA", "how": "CONV_DESC"} for kind in ("forward", "images", "weights")},
    "heuristics": {"mode": "MODE", "graph": "OPERATION_GRAPH", "results": "RESULTS", "device": "DEVICEPROP"},
    "plan": {"handle": "HANDLE", "configuration": "ENGINE_CONFIG", "workspace": "WORKSPACE_SIZE", "json": "JSON_REPRESENTATION", "device": "DEVICEPROP"},
    "pointwise operation": {"how": "PW_DESCRIPTOR", "x": "XDESC", "b": "BDESC", "y": "YDESC", "t": "TDESC"},
    "graph": {"handle": "HANDLE", "operations": "OPS"},
    "tensor": {"alignment": "BYTE_ALIGNMENT", "type": "DATA_TYPE", "sizes": "DIMENSIONS", "strides": "STRIDES", "id": "UNIQUE_ID",
               "virtual": "IS_VIRTUAL", "by_value": "IS_BY_VALUE"},
    "matmul": {"type": "COMP_TYPE"}, "matmul operation": {"a": "ADESC", "b": "BDESC", "c": "CDESC", "how": "DESC"},
    "reduction": {"operator": "OPERATOR", "type": "COMP_TYPE"}, "reduction operation": {"x": "XDESC", "y": "YDESC", "how": "DESC"},
    "reshape operation": {"x": "XDESC", "y": "YDESC"}, "device": {"json": "JSON_REPRESENTATION"}}
for _kind, _operands in (("forward", ("W", "X", "Y")), ("images", ("W", "DX", "DY")), ("weights", ("DW", "X", "DY"))):
    GRAPH_ATTRIBUTES[f"{_kind} operation"] |= dict(zip("wxy", _operands, strict=True))
# of these the attributes are named otherwise than the descriptor
GRAPH_PREFIXES = GRAPH_KINDS | {"images operation": "OPERATION_CONVOLUTION_BWD_DATA", "weights operation": "OPERATION_CONVOLUTION_BWD_FILTER"}
GRAPH_TYPES = {"HANDLE": "_HANDLE", "DATA_TYPE": "_TYPE", "BOOLEAN": "_FLAG", "INT64": "_INT", "FLOAT": "_FLOAT", "CONVOLUTION_MODE": "_CONVOLUTION",
               "NUMERICAL_NOTE": "_NOTE", "BEHAVIOR_NOTE": "_BEHAVIOUR", "HEUR_MODE": "_HEURISTIC",
               "POINTWISE_MODE": "_MODE", "BACKEND_DESCRIPTOR": "_DESCRIPTOR", "REDUCTION_OPERATOR_TYPE": "_REDUCTION", "CHAR": "_TEXT"}
GRAPH_MODES = {"add": "ADD", "mul": "MUL", "div": "DIV", "sub": "SUB", "exp": "EXP", "log": "LOG", "identity": "IDENTITY", "ge": "CMP_GE",
               "index": "GEN_INDEX", "select": "BINARY_SELECT"}
# what each code that our messages word is called there
STATUSES = {
    "CUBLAS_STATUS": ({1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 8: "ARCH_MISMATCH", 13: "EXECUTION_FAILED", 14: "INTERNAL_ERROR",
                       15: "NOT_SUPPORTED"}, blaslt._STATUS.keys() | cusolver._BLAS_STATUS.keys()),
    "CUSOLVER_STATUS": ({1: "NOT_INITIALIZED", 2: "ALLOC_FAILED", 3: "INVALID_VALUE", 4: "ARCH_MISMATCH", 6: "EXECUTION_FAILED", 7: "INTERNAL_ERROR",
                         9: "NOT_SUPPORTED"}, cusolver._STATUS.keys()),
    "CUFFT": ({1: "INVALID_PLAN", 2: "ALLOC_FAILED", 4: "INVALID_VALUE", 5: "INTERNAL_ERROR", 6: "EXEC_FAILED", 7: "SETUP_FAILED", 8: "INVALID_SIZE",
               0xD: "NO_WORKSPACE", 0x11: "MISSING_DEPENDENCY"}, cufft._STATUS.keys()),
    "CUDNN_STATUS": ({1001: "NOT_INITIALIZED", 1002: "SUBLIBRARY_VERSION_MISMATCH", 1008: "SUBLIBRARY_LOADING_FAILED", 2000: "BAD_PARAM",
                      4004: "INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"}, cudnn._STATUS.keys()),
}


def _functions() -> tuple[str, ...]:
    """What the fake libraries have of the real ones."""
    found: set[str] = set()
    for name, path in host_kernels.libraries().items():
        if not name.startswith(("libcuda.", "libnvidia-ml")):
            listed = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True).stdout
            found |= set(re.findall(r" T (cu\w+)$", listed, re.MULTILINE))
    return tuple(sorted(found))


@functools.cache
def _prototypes() -> dict[str, list[tuple[str, str]]]:
    return headers.ask((), _functions())[1]


@needs_headers
@pytest.mark.parametrize("ours", [BLASLT, CUDNN, CUFFT, CUSOLVER], ids=["cublasLt", "cudnn", "cufft", "cusolver"])
def test_numbers_and_layouts(ours: dict[str, int]) -> None:
    theirs, _ = headers.ask(tuple(ours), ())
    assert theirs == ours


@needs_headers
def test_numbers_of_graphs() -> None:
    ours = {f"CUDNN_BACKEND_{GRAPH_KINDS[kind]}_DESCRIPTOR": number for kind, number in cudnn_graph._KINDS.items()}
    for name, (number, _) in cudnn_graph._ATTRIBUTES.items():
        kind, attribute = name.split(".")
        ours[f"CUDNN_ATTR_{GRAPH_PREFIXES[kind]}_{GRAPH_ATTRIBUTES[kind][attribute]}"] = number
    ours |= {f"CUDNN_TYPE_{theirs}": getattr(cudnn_graph, name)[0] for theirs, name in GRAPH_TYPES.items()}
    ours |= {f"CUDNN_POINTWISE_{GRAPH_MODES[name]}": number for name, number in cudnn_graph._MODES.items()}
    ours |= {f"CUDNN_REDUCE_TENSOR_{name.upper()}": number for name, number in cudnn_graph._REDUCTIONS.items()}
    ours |= {_DNN_OPERANDS[name]: cudnn_graph.TYPES[name] for name in _DNN_OPERANDS} | {
        "CUDNN_DATA_INT32": cudnn_graph.TYPES["int32"], "CUDNN_DATA_BOOLEAN": cudnn_graph.TYPES["bool"],
        "CUDNN_HEUR_MODE_A": cudnn_graph._BEST, "CUDNN_HEUR_MODE_FALLBACK": cudnn_graph._ANY}
    ours |= {"CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR": native_launch.PACK, "CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS": native_launch.PACK_IDS,
             "CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS": native_launch.PACK_POINTERS, "CUDNN_ATTR_VARIANT_PACK_WORKSPACE": native_launch.PACK_WORKSPACE,
             "CUDNN_TYPE_INT64": native_launch.INT64, "CUDNN_TYPE_VOID_PTR": native_launch.ADDRESS}
    assert headers.ask(tuple(ours), ())[0] == ours


@needs_headers
def test_statuses() -> None:
    for prefix, (names, worded) in STATUSES.items():
        assert names.keys() == set(worded)
        theirs, _ = headers.ask(tuple(f"{prefix}_{name}" for name in names.values()), ())
        assert theirs == {f"{prefix}_{name}": code for code, name in names.items()}


@needs_headers
@pytest.mark.parametrize("attributes, sizes", [
    ("cublasLtMatmulDescAttributes_t", {"TRANSA": "int32_t", "TRANSB": "int32_t", "EPILOGUE": "uint32_t", "BIAS_POINTER": "void *",
                                       "EPILOGUE_AUX_POINTER": "void *", "EPILOGUE_AUX_LD": "int64_t"}),
    ("cublasLtMatrixLayoutAttribute_t", {"BATCH_COUNT": "int32_t", "STRIDED_BATCH_OFFSET": "int64_t"}),
    ("cublasLtMatmulPreferenceAttributes_t", {"MAX_WORKSPACE_BYTES": "uint64_t", "REDUCTION_SCHEME_MASK": "uint32_t",
                                              "MIN_ALIGNMENT_A_BYTES": "uint32_t", "MIN_ALIGNMENT_D_BYTES": "uint32_t"})])
def test_types_of_attributes(attributes: str, sizes: dict[str, str]) -> None:
    """As the comments of cublasLt.h give them, and as `blaslt.Description` writes them."""
    path = next(p for folder in headers.folders() if (p := folder / "cublasLt.h").exists())
    body = path.read_text().split("} " + attributes)[0].rsplit("typedef enum {", 1)[1]
    for name, kind in sizes.items():
        comment = re.split(r"/\*\*", re.split(rf"\bCUBLASLT_\w+_{name} = ", body)[0])[-1]
        assert re.search(rf"\b{re.escape(kind)}[,;]? ", comment), comment


@needs_headers
@on_fake
@pytest.mark.parametrize("file, names", [("cases_libraries.py", "cu(?!dnn)"), ("cases_cudnn.py", "cudnn"), ("cases_cudnn_attention.py", "cudnn")])
def test_calls_fit_the_prototypes(file: str, names: str, tmp_path: Path) -> None:
    """Every call that the cases make through ctypes: the number of arguments, the kind of each, the type of each descriptor."""
    path = tmp_path / "prototypes.json"
    path.write_text(json.dumps(_prototypes()))
    found = run("eager", 3, file=file, FAKE_PROTOTYPES=str(path))
    for case in named(file):
        assert not found.get(case, found[""]), found.get(case, found[""])
    called = set(found["called"]["functions"])
    ours = {name for name in _functions() if re.match(names, name)}
    # made but not unmade: handles live as long as the process; and products and plans themselves go through builtins (below)
    assert ours - called <= {"cudnnDestroy", "cublasLtDestroy", "cublasLtMatmul", "cudnnBackendExecute"} | _by_size(ours), sorted(ours - called)


def _by_size(names: set[str]) -> set[str]:
    """What only larger matrices than the cases have go by, in types that the cases have none of."""
    return {name for name in names if re.fullmatch(r"cu(solverDn|blas)[CZS]\w+", name)}


@needs_headers
def test_the_product_entered_by_a_builtin() -> None:
    """Its arguments lie where cublasLtMatmul and cublasLtMatmulDescSetAttribute look for them."""
    layout = "cublasLtMatrixLayoutOpaque_t*"
    kinds = {"b1": "cublasLtContext*", "b2": "cublasLtMatmulDescOpaque_t*", "b3": "void const*", "a2": "void const*", "b4": layout, "a1": "void const*",
             "b5": layout, "b6": "void const*", "a0": "void const*", "b7": layout, "a3": "cublasLtMatmulAlgo_t const*", "a4": "void*",
             "a5": "unsigned long", "a6": "CUstream_st*"}
    given = re.findall(r"i64 %([ab]\d)\b", native_launch._product_text((8,)).split("call i32 %matmul(")[1].split(")")[0])
    expected = [kinds[name] for name in given]
    expected[given.index("a0", given.index("a0") + 1)] = "void*"  # the second time it is written
    found = headers.ask((), ("cublasLtMatmul", "cublasLtMatmulDescSetAttribute"))[1]
    assert expected == [of for _, of in found["cublasLtMatmul"]]
    assert "(i64 %b2, i32 8, ptr %slot, i64 8)" in native_launch._product_text((8,))
    assert [of for _, of in found["cublasLtMatmulDescSetAttribute"]] == [
        "cublasLtMatmulDescOpaque_t*", "cublasLtMatmulDescAttributes_t", "void const*", "unsigned long"]


@needs_headers
def test_the_plan_entered_by_a_builtin() -> None:
    """Its calls pass as many arguments as the prototypes have, each as wide."""
    kinds = {"i32": ("int32",), "i64": ("int64", "pointer"), "ptr": ("pointer",)}
    names = {"create": "CreateDescriptor", "set": "SetAttribute", "finish": "Finalize", "run": "Execute", "destroy": "DestroyDescriptor"}
    found = headers.ask((), tuple(f"cudnnBackend{name}" for name in names.values()))[1]
    calls = re.findall(r"call i32 %(\w+)\.f\((.*)\)", native_launch._graph_text(5, 2, 3))
    assert [name for name, _ in calls] == ["create", "set", "set", "set", "finish", "run", "destroy"]
    for name, arguments in calls:
        wanted = [kind for kind, _ in found[f"cudnnBackend{names[name]}"]]
        given = [a.split()[0] for a in arguments.split(", ")]
        assert len(given) == len(wanted) and all(w in kinds[g] for g, w in zip(given, wanted, strict=True)), (name, given, wanted)


_INSTALLED = [name for name in ("cublasLt", "cublas", "cudnn", "cufft", "cusolver") if os.path.isabs(libraries.find(name))]
# a library in a process of its own, as a program's first: does it find what it needs, and what does it say where no GPU is?
_START = """
import ctypes
from flambeau._core.drivers.nvidia import libraries
lib, made = libraries.load({name!r}), ctypes.c_void_p()
print(getattr(lib, {create!r})(ctypes.byref(made)))
"""


@pytest.mark.parametrize("name, create, statuses", [
    ("cublasLt", "cublasLtCreate", blaslt._STATUS), ("cublas", "cublasCreate_v2", cusolver._BLAS_STATUS), ("cudnn", "cudnnCreate", cudnn._STATUS),
    ("cufft", "cufftCreate", cufft._STATUS), ("cusolver", "cusolverDnCreate", cusolver._STATUS)])
def test_each_starts_by_itself(name: str, create: str, statuses: dict[int, str]) -> None:
    """It loads with no help from the environment; without a GPU it says so by a code that our messages word."""
    if name not in _INSTALLED:
        pytest.skip(f"{libraries.KNOWN[name].package} is not installed (make check-libraries)")
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"} | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", _START.format(name=name, create=create)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) in statuses


@pytest.mark.skipif("cublasLt" not in _INSTALLED, reason="nvidia-cublas is not installed (make check-libraries)")
def test_descriptions_of_every_product() -> None:
    """The library takes each description and gives back what it was told; a value of another size it refuses."""
    import itertools

    import flambeau as torch
    lib = blaslt.load()
    m, n, k = 24, 16, 8
    number, size = ctypes.c_uint64(), ctypes.c_size_t()

    def asked(of: str, what: ctypes.c_void_p, attribute: int, width: int) -> int:
        number.value = 0
        ask = getattr(lib, f"cublasLt{of}GetAttribute")
        assert ask(what, attribute, ctypes.byref(number), ctypes.c_size_t(width), ctypes.byref(size)) == 0 and size.value == width
        return number.value
    for name, (at, bt), epilogue, batch, tf32 in itertools.product(
            blaslt._TYPES, itertools.product((False, True), repeat=2), blaslt._EPILOGUES, (1, 3), (False, True)):
        if batch > 1 and (epilogue == "row sums" or blaslt._EPILOGUES[epilogue] & blaslt._WITH_BESIDE):
            with pytest.raises(NotImplementedError, match="for a batch"):
                blaslt.Description(lib, getattr(torch, name), m, n, k, (k, 1, 0), (n, 1, 0), (n, 1, m * n), batch, tf32, False, epilogue)
            continue
        a, b = ((1, m, m * k) if at else (k, 1, m * k)), ((1, k, k * n) if bt else (n, 1, k * n))
        made = blaslt.Description(lib, getattr(torch, name), m, n, k, a, b, (n, 1, m * n), batch, tf32, False, epilogue)
        double, single = name in ("float64", "complex128"), name in ("float32", "complex64")
        assert asked("MatmulDesc", made.matmul, 0, 4) == (blaslt._COMPUTE_64F if double else blaslt._COMPUTE_TF32 if tf32 and single else blaslt._COMPUTE_32F)
        assert asked("MatmulDesc", made.matmul, 1, 4) == {"float64": 1, "complex64": 4, "complex128": 5}.get(name, 0)
        assert asked("MatmulDesc", made.matmul, blaslt._TRANS_A, 4) == bt and asked("MatmulDesc", made.matmul, blaslt._TRANS_B, 4) == at
        assert asked("MatmulDesc", made.matmul, blaslt._EPILOGUE, 4) == blaslt._EPILOGUES[epilogue]
        made.put(512)
        for place in (blaslt._BIAS, blaslt._AUX):
            assert asked("MatmulDesc", made.matmul, place, 8) == (512 if place in made.places else 0)
        for layout, rows, cols, step in ((made.first, *((k, n) if bt else (n, k)), k * n), (made.second, *((m, k) if at else (k, m)), m * k),
                                         (made.third, n, m, m * n)):
            assert asked("MatrixLayout", layout, 0, 4) == blaslt._TYPES[name]
            assert [asked("MatrixLayout", layout, attribute, 8) for attribute in (2, 3, 4)] == [rows, cols, rows]
            assert asked("MatrixLayout", layout, blaslt._BATCH, 4) == batch
            assert asked("MatrixLayout", layout, blaslt._BATCH_STEP, 8) == (step if batch > 1 else 0)
    wrong = ctypes.c_uint64(1)
    assert lib.cublasLtMatmulDescSetAttribute(made.matmul, blaslt._EPILOGUE, ctypes.byref(wrong), ctypes.c_size_t(8)) == 7
    assert lib.cublasLtMatrixLayoutSetAttribute(made.first, blaslt._BATCH_STEP, ctypes.byref(wrong), ctypes.c_size_t(4)) == 7


@on_fake
@pytest.mark.parametrize("name", ["cublasLt", "cublas", "cudnn", "cufft", "cusolver"])
def test_every_function_is_there(name: str) -> None:
    """What the fake libraries have, since we call it, the real one exports."""
    if name not in _INSTALLED:
        pytest.skip(f"{libraries.KNOWN[name].package} is not installed (make check-libraries)")
    lib = libraries.load(name)
    start = {"cublasLt": "cublasLt", "cublas": "cublas(?!Lt)"}.get(name, name)
    ours = [f for f in _functions() if re.match(start, f)]
    assert ours and not [f for f in ours if not hasattr(lib, f)]
