"""Convolutions whose groups have one channel each, of one or two axes, in CUDA C.

A window's sum has few terms, and neighbouring windows share most of what they read, so a block copies a tile of the images with its border into shared
memory first.  A thread then makes some results below one another, whose windows share what is read there; threads beside each other are at what
lies side by side: places of a row, or channels where those come last.  Gradients of weights are sums over all images: a block goes through a
part of the tiles of 32 channels, its warps share the places of the kernel, and a second launch adds the parts in order, so that results are the same each
time.  Sums are of float32, of float64 for float64.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ...c_forms import half
from ...loops.operands import NARROW
from .. import helpers, types
from .templates import Written

if TYPE_CHECKING:
    from ....dtypes import dtype
    from ...kernel import Kernel

    Sizes = tuple[int, ...]
    Operand = tuple[Sizes, Sizes]

THREADS = 256
_LANES = 32
_WARPS = THREADS // _LANES
_ROOM = 46 << 10  # bytes of shared memory
_WIDEST = 32  # places of a row in a tile
MOST = 128  # places of a kernel
_MANY = 132 * 3  # blocks that keep a large GPU busy

# A tile of $channels_in channels, $ih rows and $iw places of images; beyond an image's edge are zeros.
_READ = """
  for (int k = (int)threadIdx.x; k < $channels_in * $ih * $iw; k += $threads) {
    $read_order
    const int c = (channel0 + g) / $m, up = row0 * $sh - $ph + y, along = place0 * $sw - $pw + x;
    T v = 0;
    if (channel0 + g < $channels && up >= 0 && up < $height && along >= 0 && along < $width)
      v = from[(long long)c * $fc + (long long)up * $fh + (long long)along * $fw];
    tile[$at] = v;
  }"""

_WINDOWS = """
  __shared__ T tile[$channels_in * $ih * $iw];
  __shared__ T weight[$channels_in * $taps];
  unsigned int left = blockIdx.x;
  const int place0 = (int)(left % $across) * $tile_places;
  left /= $across;
  const int row0 = (int)(left % $down) * $tile_rows * $together;
  left /= $down;
  const int channel0 = (int)(left % $sheaves) * $channels_in;
  const long long image = left / $sheaves;
  const T* const from = (const T*)a.w[$source] + image * $fn;
$read
  for (int k = (int)threadIdx.x; k < $channels_in * $taps; k += $threads)
    weight[$weight_at] = channel0 + k / $taps < $channels ? ((const T*)a.w[$weights])[(long long)channel0 * $taps + k] : (T)0;
  __syncthreads();
  for (int u = (int)threadIdx.x; u < $channels_in * $tile_rows * $tile_places; u += $threads) {
    $unit
    const int channel = channel0 + g, first = row0 + r * $together, place = place0 + p;
    if (channel >= $channels || first >= $rows || place >= $places) continue;
    V sum[$together];
    #pragma unroll
    for (int k = 0; k < $together; k++) sum[k] = $bias;
    #pragma unroll 1
    for (int j = 0; j < $kw; j++) {
      const int y = r * $together * $sh, x = p * $sw + j * $dw;
      V seen[$span];
      #pragma unroll
      for (int k = 0; k < $span; k++) seen[k] = load(tile[$seen_at]);
      #pragma unroll
      for (int i = 0; i < $kh; i++) {
        const V f = load(weight[$tap_at]);
        #pragma unroll
        for (int k = 0; k < $together; k++) sum[k] += f * seen[k * $sh + i * $dh];
      }
    }
    T* const out = (T*)a.w[0] + image * $tn + (long long)channel * $tc + (long long)first * $th + (long long)place * $tw;
    #pragma unroll
    for (int k = 0; k < $together; k++)
      if (first + k < $rows) out[(long long)k * $th] = store(sum[k]);
  }"""

# which places of the result had an image's place in their windows
_IMAGES = """
  unsigned int left = blockIdx.x * $threads + threadIdx.x;
  if (left >= $count) return;
  $walk
  V sum = (V)0;
  #pragma unroll 1
  for (int c = channel * $m; c < channel * $m + $m; c++) {
    const T* const y = (const T*)a.w[2] + image * $yn + (long long)c * $yc;
    const T* const w = (const T*)a.w[1] + (long long)c * $taps;
    #pragma unroll 1
    for (int i = 0; i < $kh; i++) {
      const int up = row + $ph - i * $dh;
      if (up < 0 || up % $sh || up / $sh >= $height) continue;
      const T* const line = y + (long long)(up / $sh) * $yh;
      #pragma unroll
      for (int j = 0; j < $kw; j++) {
        const int along = place + $pw - j * $dw;
        if (along >= 0 && along % $sw == 0 && along / $sw < $width) sum += load(w[i * $kw + j]) * load(line[(long long)(along / $sw) * $yw]);
      }
    }
  }
  ((T*)a.w[0])[image * $xn + (long long)channel * $xc + (long long)row * $xh + (long long)place * $xw] = store(sum);"""

# tiles keep channels beside each other, whatever the images do; a warp takes each $warps-th place of the kernel
_WEIGHTS = """
  __shared__ T tile[$ih * $iw * $apart];
  __shared__ T grown[$tile_rows * $tile_places * $apart];
  const int lane = (int)threadIdx.x % $lanes, warp = (int)threadIdx.x / $lanes;
  const int part = (int)blockIdx.x % $split, channel0 = (int)blockIdx.x / $split * $channels_in;
  V sum[$own];
  int begin[$own];
  #pragma unroll
  for (int k = 0; k < $own; k++) {
    const int tap = warp + k * $warps < $taps ? warp + k * $warps : 0;
    sum[k] = (V)0;
    begin[k] = (tap / $kw * $dh * $iw + tap % $kw * $dw) * $apart + lane;
  }
  for (int t = part; t < $tiles; t += $split) {
    const int place0 = t % $across * $tile_places, row0 = t / $across % $down * $tile_rows;
    const long long image = t / ($across * $down);
    const T* const from = (const T*)a.w[1] + image * $fn;
    const T* const g_from = (const T*)a.w[2] + image * $yn;
    __syncthreads();
$read
    for (int k = (int)threadIdx.x; k < $channels_in * $tile_rows * $tile_places; k += $threads) {
      $grown_order
      T v = 0;
      if (channel0 + g < $channels && row0 + y < $rows && place0 + x < $places)
        v = g_from[(long long)(channel0 + g) * $yc + (long long)(row0 + y) * $yh + (long long)(place0 + x) * $yw];
      grown[(y * $tile_places + x) * $apart + g] = v;
    }
    __syncthreads();
    #pragma unroll 1
    for (int y = 0; y < $tile_rows; y++)
      #pragma unroll 2
      for (int x = 0; x < $tile_places; x++) {
        const V g = load(grown[(y * $tile_places + x) * $apart + lane]);
        #pragma unroll
        for (int k = 0; k < $own; k++) sum[k] += g * load(tile[(y * $sh * $iw + x * $sw) * $apart + begin[k]]);
      }
  }
  #pragma unroll
  for (int k = 0; k < $own; k++) {
    const int tap = warp + k * $warps;
    if (tap < $taps && channel0 + lane < $channels) ((V*)a.w[3])[((long long)part * $channels + channel0 + lane) * $taps + tap] = sum[k];
  }"""

_ADDED = """
  const int at = (int)blockIdx.x * $threads + (int)threadIdx.x;
  if (at >= $all_weights) return;
  V sum = (V)0;
  #pragma unroll 8
  for (int k = 0; k < $split; k++) sum += ((const V*)a.w[3])[(long long)k * $all_weights + at];
  ((T*)a.w[0])[at] = store(sum);"""


def _split(index: str, *axes: tuple[str, str]) -> str:
    """Declares an index's part along each axis, (name, size), the fastest first."""
    parts, step = [], ""
    for k, (name, size) in enumerate(axes):
        quotient = f"{index} / ({step})" if step else index
        parts.append(f"{name} = {quotient} % {size}" if k < len(axes) - 1 else f"{name} = {quotient}")
        step = f"{step} * {size}" if step else size
    return f"const int {', '.join(parts)};"


def _ordered(last: bool, channel: tuple[str, str], *others: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """The axes as they lie in memory: channels side by side where they are last, else after the others."""
    return (channel, *others) if last else (*others, channel)


def _walk(*axes: tuple[str, str]) -> str:
    """Takes what is `left` apart, axis after axis, (name, number of it), the fastest first; what remains is the image."""
    return "\n  ".join([*(f"const int {name} = (int)(left % {size});\n  left /= {size};" for name, size in axes), "const long long image = left;"])


class Shape(NamedTuple):
    """A convolution of images (N, C, H, W): sizes, and strides in elements, of images and results; of the kernel and its steps two numbers each.  Of one
    axis, H is 1."""

    x: Operand
    y: Operand
    kernel: Sizes
    padding: Sizes
    stride: Sizes
    dilation: Sizes

    @property
    def results(self) -> int:
        """Of each channel."""
        return self.y[0][1] // self.x[0][1]

    def seen(self, rows: int, places: int) -> tuple[int, int]:
        """Rows and places of an image in the windows of so many neighbours."""
        found = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip((rows, places), self.stride, self.kernel, self.dilation, strict=True)]
        return found[0], found[1]


def shape(x: Operand, y: Operand, kernel: Sizes, padding: Sizes, stride: Sizes, dilation: Sizes) -> Shape:
    """Of one or two axes.  Raises NotImplementedError for others, for large kernels and for 2**31 elements."""
    if len(kernel) not in (1, 2) or math.prod(kernel) > MOST or max(math.prod(x[0]), math.prod(y[0])) >= NARROW:
        raise NotImplementedError("a convolution of channels of this shape")
    if len(kernel) == 2:
        return Shape(x, y, kernel, padding, stride, dilation)
    (xs, xt), (ys, yt) = x, y
    return Shape(((*xs[:2], 1, xs[2]), (*xt[:2], 0, xt[2])), ((*ys[:2], 1, ys[2]), (*yt[:2], 0, yt[2])), (1, *kernel), (0, *padding), (1, *stride),
                 (1, *dilation))


def _last(operand: Operand) -> bool:
    """Whether channels lie side by side."""
    sizes, strides = operand
    return strides[1] == 1 and strides[3] != 1 and sizes[1] > 1


def _nbytes(d: dtype, s: Shape) -> int:
    return (math.prod(s.x[0]) + math.prod(s.y[0]) + s.y[0][1] * math.prod(s.kernel)) * d.itemsize


def _begun(d: dtype, s: Shape, arguments: str) -> Written:
    """The types, and what is known of the kernel."""
    if d.kind != "f":
        raise NotImplementedError(f"a convolution of {d}")
    w = Written(arguments)
    if half(d):
        w.add(helpers.text({"half" if d.name == "float16" else "bfloat"}))
    to, from_ = (f"to_{d.name}(x)", f"from_{d.name}(x)") if half(d) else ("x", "x")
    w.add(f"typedef {types.stored(d)} T;\ntypedef {types.value(d)} V;\n"
          f"__device__ __forceinline__ V load(T x) {{ return {from_}; }}\n__device__ __forceinline__ T store(V x) {{ return {to}; }}")
    kh, kw = s.kernel
    w.constants(threads=THREADS, kh=kh, kw=kw, taps=kh * kw, sh=s.stride[0], sw=s.stride[1], dh=s.dilation[0], dw=s.dilation[1])
    w.words(ph=s.padding[0], pw=s.padding[1])
    return w


def _strides(w: Written, letter: str, operand: Operand) -> None:
    w.words("long long", **{letter + axis: step for axis, step in zip("nchw", operand[1], strict=True)})


def _tile(d: dtype, s: Shape, last: bool, together: int) -> tuple[int, int, int]:
    """(Channels, rows of threads, places) of a block's tile: as many as it has threads, or as shared memory has room for."""
    (_, c, h, w), taps = s.y[0], math.prod(s.kernel)
    channels = _LANES if last else 1
    places, rows = min(w, 16 if last else _WIDEST), 1
    if not last:
        rows = max(1, min(-(-h // together), THREADS // places))
        channels = max(1, min(c, THREADS // (places * rows)))
    while (channels * (math.prod(s.seen(rows * together, places)) + taps)) * d.itemsize > _ROOM:
        if rows > 1:
            rows = -(-rows // 2)
        elif channels > 1 and not last:
            channels = -(-channels // 2)
        elif places > 1:
            places = -(-places // 2)
        elif channels > 1:
            channels //= 2
        else:
            raise NotImplementedError("a window larger than shared memory")
    return channels, rows, places


def _windows(d: dtype, s: Shape, arguments: str, source: int, weights: int, bias: bool, turned: bool) -> Kernel:
    """Windows of `s.x`, one result a channel of `s.y`, into the first argument."""
    w, last = _begun(d, s, arguments), _last(s.y)
    n, c, h, width = s.y[0]
    together = 8 if h > 4 else 4 if h > 1 else 1
    channels, rows, places = _tile(d, s, last, together)
    ih, iw = s.seen(rows * together, places)
    across, down, sheaves = -(-width // places), -(-h // (rows * together)), -(-c // channels)
    _strides(w, "f", s.x)
    _strides(w, "t", s.y)
    w.words(height=s.x[0][2], width=s.x[0][3], channels=c, rows=h, places=width)
    w.words("unsigned int", across=across, down=down, sheaves=sheaves)
    w.constants(
        m=s.results, source=source, weights=weights, together=together, channels_in=channels, tile_rows=rows, tile_places=places, ih=ih, iw=iw,
        span=s.seen(together, 1)[0], read=_READ.strip("\n"), read_order=_split("k", *_ordered(_last(s.x), ("g", "$channels_in"), ("x", "$iw"), ("y", "$ih"))),
        unit=_split("u", *_ordered(last, ("g", "$channels_in"), ("p", "$tile_places"), ("r", "$tile_rows"))),
        at="(y * $iw + x) * $channels_in + g" if last else "(g * $ih + y) * $iw + x",
        seen_at="((y + k) * $iw + x) * $channels_in + g" if last else "(g * $ih + y + k) * $iw + x",
        weight_at="k % $taps * $channels_in + k / $taps" if last else "k",
        tap="$taps - 1 - (i * $kw + j)" if turned else "i * $kw + j", tap_at="($tap) * $channels_in + g" if last else "g * $taps + $tap",
        bias="load(((const T*)a.w[3])[channel])" if bias else "(V)0")
    w.function("channelwise", THREADS, _WINDOWS)
    w.launch("channelwise", n * across * down * sheaves, THREADS)
    return w.kernel(0, _nbytes(d, s))


def forward(d: dtype, s: Shape, bias: bool) -> Kernel:
    """``entry(y, x, w, [bias,] workspace)``; w (C_out, KH, KW), contiguous."""
    return _windows(d, s, "PPPPP" if bias else "PPPP", 1, 2, bias, False)


def images(d: dtype, s: Shape) -> Kernel:
    """``entry(x, w, y, workspace)``: the gradient x of weights w and gradients y."""
    if s.results == 1 and s.stride == (1, 1):  # windows of the results, of the kernel turned round
        border = tuple([apart * (k - 1) - p for apart, k, p in zip(s.dilation, s.kernel, s.padding, strict=True)])
        return _windows(d, Shape(s.y, s.x, s.kernel, border, s.stride, s.dilation), "PPPP", 2, 1, False, True)
    w = _begun(d, s, "PPPP")
    (_, channels, rows, places), count = s.x[0], math.prod(s.x[0])
    _strides(w, "x", s.x)
    _strides(w, "y", s.y)
    w.words("unsigned int", channels=channels, rows=rows, places=places, count=count)
    w.words(height=s.y[0][2], width=s.y[0][3])
    w.constants(m=s.results, walk=_walk(*_ordered(_last(s.x), ("channel", "$channels"), ("place", "$places"), ("row", "$rows"))))
    w.function("channelwise_images", THREADS, _IMAGES)
    w.launch("channelwise_images", -(-count // THREADS), THREADS)
    return w.kernel(0, _nbytes(d, s))


def weights(d: dtype, s: Shape) -> Kernel:
    """``entry(w, x, y, workspace)``: the gradient w of images x and gradients y."""
    w = _begun(d, s, "PPPP")
    (n, channels, h, width), taps, apart = s.y[0], math.prod(s.kernel), _LANES + 1
    rows, places = min(h, 8), min(width, 16)
    while (math.prod(s.seen(rows, places)) + rows * places) * apart * d.itemsize > _ROOM:
        if rows * places == 1:
            raise NotImplementedError("a window larger than shared memory")
        rows, places = (rows, -(-places // 2)) if places >= rows else (-(-rows // 2), places)
    across, down, sheaves = -(-width // places), -(-h // rows), -(-channels // _LANES)
    tiles = n * across * down
    split = max(1, min(tiles, -(-_MANY // sheaves)))
    ih, iw = s.seen(rows, places)
    _strides(w, "f", s.x)
    _strides(w, "y", s.y)
    w.words(height=s.x[0][2], width=s.x[0][3], channels=channels, rows=h, places=width, across=across, down=down, tiles=tiles, split=split,
            all_weights=channels * taps)
    w.constants(m=s.results, lanes=_LANES, warps=_WARPS, own=-(-taps // _WARPS), apart=apart, channels_in=_LANES, tile_rows=rows, tile_places=places, ih=ih,
                iw=iw, read=_READ.strip("\n"), at="(y * $iw + x) * $apart + g",
                read_order=_split("k", *_ordered(_last(s.x), ("g", "$channels_in"), ("x", "$iw"), ("y", "$ih"))),
                grown_order=_split("k", *_ordered(_last(s.y), ("g", "$channels_in"), ("x", "$tile_places"), ("y", "$tile_rows"))))
    w.function("channelwise_weights", THREADS, _WEIGHTS)
    w.launch("channelwise_weights", sheaves * split, THREADS)
    w.function("channelwise_added", THREADS, _ADDED)
    w.launch("channelwise_added", -(-channels * taps // THREADS), THREADS)
    return w.kernel(split * channels * taps * (8 if d.itemsize == 8 else 4), _nbytes(d, s))
