"""Functions of singles for results of 16 bits: a few instructions each, right to about two units in a single's last place.

Where all that a program writes has 11 bits or fewer, the exact formulas (`transcendental.py`), which give the CPU's bits, cost more than
the memory that is moved, and their last bits are rounded away: one result in some ten thousand is the neighbour of the CPU's.  The GPU's
own instructions give 2^x and 1 / x to 2^-22; around them, the argument is reduced and the result scaled as exactly as before, so that
infinities, NaN, and results below the least normal number come out alike.  Under `FLAMBEAU_HOST` the library's functions stand for the
instructions.

The polynomial of log2(1 - erf(x)) / x on [0, 4.2] is a least-maximum fit of this project's (erf to 2^-23); those near 0 are Taylor's.
"""

from __future__ import annotations


def _polynomial(x: str, coefficients: list[float]) -> str:
    """By Horner's rule; coefficients lowest first."""
    text = f"{coefficients[-1]!r}f"
    for c in coefficients[-2::-1]:
        text = f"fmaf({text}, {x}, {c!r}f)"
    return text


def _instruction(name: str, instruction: str, operands: int, host: str) -> str:
    """A device function that is one instruction of up to two floats."""
    names = "ab"[:operands]
    given, places = ", ".join(f"float {x}" for x in names), ", ".join(f"%{k}" for k in range(operands + 1))
    sources = ", ".join(f'"f"({x})' for x in names)
    text = f'float y; asm("{instruction} {places};" : "=f"(y) : {sources}); return y;'
    return f"""
__device__ __forceinline__ float {name}({given}) {{
#ifndef FLAMBEAU_HOST
  {text}
#else
  return {host};
#endif
}}"""


_ERF = [-1.6279085874557495, -0.9184163808822632, -0.14848162233829498, 0.028253693133592606, -0.0007746402989141643,
        -0.0014894369523972273, 0.0004455068556126207, -4.53585889772512e-05]

ROUGH = {"div": "rough_div", "sqrt": "rough_sqrt", "rsqrt": "rough_rsqrt", "exp": "rough_exp", "tanh": "rough_tanh", "erf": "rough_erf"}

HELPERS: dict[str, tuple[tuple[str, ...], str]] = {
    "rough_div": ((), _instruction("rough_div", "div.full.f32", 2, "a / b")),
    "rough_sqrt": ((), _instruction("rough_sqrt", "sqrt.approx.f32", 1, "sqrtf(a)")),
    "rough_rsqrt": ((), _instruction("rough_rsqrt", "rsqrt.approx.f32", 1, "1.0f / sqrtf(a)")),
    "power_of_two": ((), _instruction("power_of_two", "ex2.approx.ftz.f32", 1, "exp2f(a)")),
    "reciprocal": ((), _instruction("reciprocal", "rcp.approx.ftz.f32", 1, "1.0f / a")),
    # between 0 and 1; 0 for NaN
    "saturated": ((), _instruction("saturated", "cvt.sat.f32.f32", 1, "a > 1.0f ? 1.0f : a > 0.0f ? a : 0.0f")),
    # x = (n + f) ln 2: n is at most 126 from 0, where 2^n is a normal number; f is small unless the result overflows or is below those.
    # 12583039 is 2^23 + 2^22 + 127: adding it rounds to a whole number, whose sum with 127 is then in the lowest bits
    "rough_exp": (("power_of_two", "saturated", "bits"), """
__device__ __forceinline__ float rough_exp(float x) {
  const float shifted = fmaf(saturated(fmaf(x, 0.00572498f, 0.5f)), 252.0f, 12582913.0f);
  const float f = fmaf(x, 1.44269502162933349609375f, 12583039.0f - shifted);
  return power_of_two(fmaf(x, 1.92596299e-8f, f)) * bits_of<float>(bits_of<int>(shifted) << 23);
}"""),
    # 2^y need not be exact where it is great, since 1 is added to a part of its reciprocal
    "rough_tanh": (("power_of_two", "reciprocal"), """
__device__ __forceinline__ float rough_tanh(float x) {
  const float u = fabsf(x), z = x * x;
  const float large = fmaf(-2.0f, reciprocal(power_of_two(u * 2.8853900818f) + 1.0f), 1.0f);
  return copysignf(u < 0.1f ? u * fmaf(z, fmaf(z, 0.1333333333f, -0.3333333333f), 1.0f) : large, x);
}"""),
    "rough_erf": (("power_of_two",), f"""
__device__ __forceinline__ float rough_erf(float x) {{
  const float w = fabsf(x), u = w > 4.2f ? 4.2f : w;
  const float large = 1.0f - power_of_two(u * {_polynomial("u", _ERF)});
  return copysignf(w < 0.03f ? w * fmaf(w * w, -0.37612638903f, 1.1283791671f) : large, x);
}}"""),
}
