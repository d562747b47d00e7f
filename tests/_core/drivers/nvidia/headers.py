"""What the headers of NVIDIA's libraries say: values and prototypes, as g++ reads them.  Needs the libraries' packages, no GPU."""

from __future__ import annotations

import functools
import json
import subprocess
import tempfile
from importlib import util
from pathlib import Path

from tests._core.kernels.cuda_c import build

HEADERS = ("cublas_v2.h", "cublasLt.h", "cufft.h", "cusolverDn.h", "cudnn.h")
_BESIDE = ("driver_types.h", "crt/host_defines.h")  # what those read
# the types of 16 bits, only pointers to which are needed: the packages' own want more packages
_STUBS = {"cuda_fp16.h": "#pragma once\nstruct __half; struct __half2;\n", "cuda_bf16.h": "#pragma once\nstruct __nv_bfloat16; struct __nv_bfloat162;\n"}
_TELLING = r"""
#include <cstdio>
#include <cstdlib>
#include <cstddef>
#include <cxxabi.h>
#include <string>
#include <type_traits>
#include <typeinfo>
template <class T> std::string told() {
  const char *kind = std::is_pointer_v<T> ? "pointer" : std::is_floating_point_v<T> ? (sizeof(T) == 8 ? "double" : "float")
      : std::is_enum_v<T> || std::is_integral_v<T> ? (sizeof(T) == 8 ? "int64" : sizeof(T) == 4 ? "int32" : "int8") : "other";
  char *name = abi::__cxa_demangle(typeid(T).name(), nullptr, nullptr, nullptr);
  std::string text = std::string("[\"") + kind + "\", \"" + name + "\"]";
  free(name);
  return text;
}
template <class F> struct Function;
template <class R, class... A> struct Function<R(A...)> {
  static void tell(const char *name) {
    std::string all;
    ((all += (all.empty() ? "" : ", ") + told<A>()), ...);
    printf("{\"function\": \"%s\", \"parameters\": [%s]}\n", name, all.c_str());
  }
};
"""


def folders() -> list[Path]:
    """Where the installed packages keep headers."""
    spec = util.find_spec("nvidia")
    places = (spec.submodule_search_locations or ()) if spec is not None else ()
    return [path for place in places for part in ("cu13", "cudnn", "nccl") if (path := Path(place) / part / "include").is_dir()]


@functools.cache
def missing() -> str:
    """Why they cannot be read here, or nothing."""
    absent = [h for h in HEADERS + _BESIDE if not any((folder / h).exists() for folder in folders())]
    if absent:
        return f"headers of NVIDIA's libraries are not installed: {', '.join(absent)} (make check-libraries)"
    return build.missing()


def ask(values: tuple[str, ...], functions: tuple[str, ...], headers: tuple[str, ...] = HEADERS,
        stubs: dict[str, str] = _STUBS) -> tuple[dict[str, int], dict[str, list[tuple[str, str]]]]:
    """The values of integer expressions, and each function's parameters: their kind and type.  stubs: texts that stand for headers."""
    assert build.COMPILER is not None
    text = "".join(f"#include <{h}>\n" for h in headers) + _TELLING + "int main() {\n"
    text += "".join(f'printf("{{\\"value\\": \\"{v}\\", \\"is\\": %lld}}\\n", (long long)({v}));\n' for v in values)
    text += "".join(f'Function<decltype({f})>::tell("{f}");\n' for f in functions) + "}\n"
    with tempfile.TemporaryDirectory() as home:
        for name, stub in stubs.items():
            (Path(home) / name).write_text(stub)
        out = Path(home) / "ask"
        command = [build.COMPILER, "-std=c++20", "-w", "-x", "c++", "-", f"-I{home}", *(f"-I{folder}" for folder in folders()), "-o", str(out)]
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:4000]
        lines = [json.loads(line) for line in subprocess.run([out], capture_output=True, text=True, check=True).stdout.splitlines()]
    return ({line["value"]: line["is"] for line in lines if "value" in line},
            {line["function"]: [tuple(p) for p in line["parameters"]] for line in lines if "function" in line})
