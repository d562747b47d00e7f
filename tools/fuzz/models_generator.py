"""Random training programs as lines of source: layers, losses, optimizers, autocast, transforms of `func`; the seed decides all.

A program is (inputs, lines).  Lines name the library `T`, its device `D`, the inputs `x0`, `y0` and what earlier lines made; `fill(layer, n)` gives
a layer's parameters the values that n stands for.  Nothing draws random numbers of the library.  Layers are given sizes that fit, so that a line
that raises under PyTorch is rare.
"""

from __future__ import annotations

import random
import re

Program = tuple[dict[str, tuple[str, tuple[int, ...], int]], list[str]]  # inputs: type, shape, seed (or the number of classes) of their values

ACTIVATIONS = """ReLU() GELU() GELU('tanh') Tanh() Sigmoid() SiLU() Mish() ELU(0.7) SELU() CELU(1.3) LeakyReLU(0.2) Softplus(2.0) Softsign() Hardswish()
Hardsigmoid() Hardtanh(-0.5,0.5) ReLU6() LogSigmoid() Tanhshrink() Softshrink(0.1) Hardshrink(0.1) Softmax(-1) LogSoftmax(-1) Softmin(-1) Threshold(0.1,0.2)
PReLU() Identity() Dropout(0.0) GLU(-1)""".split()
OPTIMIZERS = ["SGD({p}, lr=0.1)", "SGD({p}, lr=0.05, momentum=0.9)", "SGD({p}, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)",
              "SGD({p}, lr=0.05, momentum=0.5, dampening=0.3, maximize=True)", "Adam({p}, lr=0.01)", "Adam({p}, lr=0.01, amsgrad=True, weight_decay=0.1)",
              "AdamW({p}, lr=0.01, betas=(0.8, 0.95))", "RMSprop({p}, lr=0.01, centered=True, momentum=0.4)", "RMSprop({p}, lr=0.01, alpha=0.9)",
              "Adagrad({p}, lr=0.05, lr_decay=0.1)", "Adamax({p}, lr=0.01)", "NAdam({p}, lr=0.01)", "RAdam({p}, lr=0.01)", "Adadelta({p}, lr=0.5)",
              "ASGD({p}, lr=0.05)"]
SCHEDULES = ["StepLR(o, 1, 0.5)", "ExponentialLR(o, 0.7)", "CosineAnnealingLR(o, 4)", "LambdaLR(o, lambda e: 1 / (e + 2))", "LinearLR(o, 0.5, total_iters=3)",
             "OneCycleLR(o, 0.1, total_steps=9)", "PolynomialLR(o, 4, 2.0)", "MultiStepLR(o, [1, 2], 0.3)", "CosineAnnealingWarmRestarts(o, 2)",
             "CyclicLR(o, 0.01, 0.1, step_size_up=2, cycle_momentum=False)"]
TRANSFORMS = ["T.func.grad(lambda a: {f}(a).sum())(h)", "T.func.vmap({f})(h)", "T.func.vmap(T.func.grad(lambda a: {f}(a).sum()))(h)",
              "T.func.jacrev({f})(h.flatten()[:3])", "T.func.jacfwd({f})(h.flatten()[:3])", "T.func.hessian(lambda a: {f}(a).sum())(h.flatten()[:3])",
              "T.func.jvp({f}, (h,), (T.ones_like(h),))[1]", "T.func.vjp({f}, h)[1](T.ones_like(h))[0]", "T.func.linearize({f}, h)[1](T.ones_like(h))",
              "T.autograd.functional.hvp(lambda a: {f}(a).sum(), h)[1]"]
FUNCTIONS = ["T.tanh", "T.nn.functional.gelu", "(lambda a: a * a.exp())", "T.sin", "(lambda a: (a * a).cumsum(-1))", "(lambda a: a.softmax(-1))",
             "(lambda a: T.nn.functional.silu(a) / (1 + a * a))", "(lambda a: a.sigmoid() - a.mean())", "(lambda a: T.where(a > 0, a, a.expm1()))",
             "(lambda a: a.logsumexp(-1, keepdim=True) * a)", "(lambda a: a.flip(-1) * a)", "(lambda a: T.linalg.vector_norm(a, dim=-1, keepdim=True) + a)"]


class Writer:
    """Writes one program; `shape` is that of `h`, what the last layer gave."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.inputs: dict[str, tuple[str, tuple[int, ...], int]] = {}
        self.lines: list[str] = []
        self.shape: tuple[int, ...] = ()
        self.layers = 0

    def program(self) -> Program:
        r = self.r
        dtype = r.choice(["float64", "float64", "float32"])
        self.shape = r.choice([(r.randint(2, 5), r.randint(1, 8)), (r.randint(2, 4), r.randint(1, 6), r.choice([2, 4, 6, 8])),
                               (r.randint(2, 3), r.choice([1, 2, 3, 4, 6]), r.randint(4, 9), r.randint(4, 9))])
        tokens = len(self.shape) == 3 and r.random() < 0.3
        if tokens:
            b, n, e = self.shape
            self.inputs["x0"] = ("int64", (b, n), 7)
            self.layer(f"Embedding(7, {e}{r.choice(['', ', padding_idx=1', ', max_norm=1.0', ', scale_grad_by_freq=True'])}, dtype=T.{dtype})", "x0")
        else:
            self.inputs["x0"] = (dtype, self.shape, r.randrange(1 << 30))
            self.lines.append(f"h = x0{r.choice(['', '', '.requires_grad_()', '.transpose(0, 1).contiguous().transpose(0, 1)'])}")
        autocast = dtype == "float32" and r.random() < 0.5
        for _ in range(r.randint(1, 5)):
            self.any_layer(dtype, autocast)
        if not autocast and r.random() < 0.25:
            self.lines.append("q = " + r.choice(TRANSFORMS).format(f=r.choice(FUNCTIONS)).replace("(h", "(h.detach()"))
        self.train(dtype, autocast)
        return self.inputs, self.lines

    def layer(self, made: str, of: str = "h", take: str = "") -> None:
        n, self.layers = self.layers, self.layers + 1
        self.lines.append(f"l{n} = fill(T.nn.{made[:-1]}, device=D), {self.r.randrange(999)})")
        self.lines.append(f"h = l{n}({of}){take}")

    def any_layer(self, dtype: str, autocast: bool) -> None:
        r, s = self.r, self.shape
        t = f"dtype=T.{dtype}"
        if r.random() < 0.35:
            name = r.choice(ACTIVATIONS)
            if name == "GLU(-1)":
                if s[-1] % 2:
                    return
                self.shape = (*s[:-1], s[-1] // 2)
            if name == "PReLU()":
                self.layer(f"PReLU({r.choice(['1', str(s[1])])}, {t})")
                return
            self.lines.append(f"h = T.nn.{name}(h)")
            return
        if len(s) == 4:
            self.of_images(t)
        else:
            self.of_rows(t)
        if autocast and r.random() < 0.3:
            self.lines.append("h = h.float()")

    def of_rows(self, t: str) -> None:
        r, s = self.r, self.shape
        f, bias = s[-1], r.choice(["", "bias=False, "])
        kinds = ["linear", "layer", "rms", "bilinear"]
        kinds += ["batch", "group"] if len(s) == 2 else ["batch3", "conv", "lstm", "gru", "rnn", "attention", "encoder", "pool", "convt", "mean"]
        kind = r.choice(kinds)
        if kind == "linear":
            out = r.randint(1, 8)
            self.layer(f"Linear({f}, {out}, {bias}{t})")
            self.shape = (*s[:-1], out)
        elif kind == "bilinear":
            out = r.randint(1, 4)
            self.layer(f"Bilinear({f}, {f}, {out}, {bias}{t})", "h, h.flip(0)")
            self.shape = (*s[:-1], out)
        elif kind == "layer":
            self.layer(f"LayerNorm({f}, eps=1e-3, {r.choice(['', 'elementwise_affine=False, ', 'bias=False, '])}{t})")
        elif kind == "rms":
            self.layer(f"RMSNorm({f}, eps=1e-4, {t})")
        elif kind == "batch":
            self.layer(f"BatchNorm1d({f}, {r.choice(['', 'affine=False, ', 'track_running_stats=False, ', 'momentum=None, '])}{t})")
        elif kind == "batch3":
            self.layer(f"BatchNorm1d({s[1]}, {r.choice(['', 'momentum=0.3, '])}{t})")
        elif kind == "group":
            self.layer(f"GroupNorm({r.choice([g for g in (1, 2, 3, f) if f % g == 0])}, {f}, eps=1e-3, {t})")
        elif kind in ("lstm", "gru", "rnn"):
            out = r.randint(1, 5)
            two = r.choice([1, 1, 2])
            self.layer(f"{kind.upper()}({f}, {out}, {r.choice([1, 2])}, {bias}batch_first={r.choice([True, False])}, bidirectional={two == 2}, {t})",
                       take="[0]")
            self.shape = (*s[:-1], out * two)
        elif kind in ("attention", "encoder"):
            heads = r.choice([k for k in (1, 2, 4) if f % k == 0])
            if kind == "attention":
                operands = r.choice(["h, h, h", "h, h.flip(1), h, need_weights=False"])
                self.layer(f"MultiheadAttention({f}, {heads}, {bias}batch_first=True, {t})", operands, "[0]")
            else:
                self.layer(f"TransformerEncoderLayer({f}, {heads}, {r.randint(2, 8)}, 0.0, {r.choice(['', repr('gelu') + ', '])}batch_first=True, "
                           f"norm_first={r.choice([True, False])}, {t})")
        elif kind == "conv":
            out, k = r.randint(1, 4), r.choice([1, 2, 3])
            self.layer(f"Conv1d({s[1]}, {out}, {k}, padding={k - 1}, {bias}{t})")
            self.shape = (s[0], out, f + k - 1)
        elif kind == "convt":
            out, k = r.randint(1, 4), r.choice([1, 2, 3])
            self.layer(f"ConvTranspose1d({s[1]}, {out}, {k}, {bias}{t})")
            self.shape = (s[0], out, f + k - 1)
        elif kind == "pool":
            self.lines.append(f"h = T.nn.{r.choice(['AdaptiveAvgPool1d', 'AdaptiveMaxPool1d'])}({f // 2 or 1})(h)")
            self.shape = (*s[:-1], f // 2 or 1)
        else:
            self.lines.append(f"h = h.mean({r.choice([1, -2])})")
            self.shape = (s[0], f)

    def of_images(self, t: str) -> None:
        r, (b, c, hgt, wid) = self.r, self.shape
        bias = r.choice(["", "bias=False, "])
        kind = r.choice(["conv", "conv", "depth", "batch", "group", "instance", "max", "avg", "adaptive", "convt", "flatten", "up", "shuffle", "lrn"])
        if kind in ("conv", "depth"):
            groups = c if kind == "depth" else r.choice([g for g in (1, 1, 2, 3) if c % g == 0])
            out, k, stride, pad = groups * r.randint(1, 3), r.choice([1, 2, 3]), r.choice([1, 1, 2]), r.choice([0, 1, 1])
            mode = r.choice(["", "", "padding_mode='reflect', ", "padding_mode='circular', "])
            if min(hgt, wid) + 2 * pad < k or min(hgt, wid) <= pad:
                return
            self.layer(f"Conv2d({c}, {out}, {k}, {stride}, {pad}, groups={groups}, {bias}{mode}{t})")
            self.shape = (b, out, (hgt + 2 * pad - k) // stride + 1, (wid + 2 * pad - k) // stride + 1)
        elif kind == "batch":
            self.layer(f"BatchNorm2d({c}, {r.choice(['', 'affine=False, '])}{t})")
        elif kind == "group":
            self.layer(f"GroupNorm({r.choice([g for g in (1, 2, 3, c) if c % g == 0])}, {c}, {t})")
        elif kind == "instance" and hgt * wid > 1:
            self.layer(f"InstanceNorm2d({c}, affine={r.choice([True, False])}, {t})")
        elif kind in ("max", "avg") and min(hgt, wid) >= 2:
            self.lines.append(f"h = T.nn.{'MaxPool2d' if kind == 'max' else 'AvgPool2d'}(2{r.choice(['', ', 1', ', ceil_mode=True'])})(h)")
            line = self.lines[-1]
            self.shape = (b, c, *[n - 1 if ", 1" in line else -(-n // 2) if "ceil" in line else n // 2 for n in (hgt, wid)])
        elif kind == "adaptive":
            self.lines.append(f"h = T.nn.{r.choice(['AdaptiveAvgPool2d', 'AdaptiveMaxPool2d'])}((2, 1))(h)")
            self.shape = (b, c, 2, 1)
        elif kind == "convt":
            out, stride = r.randint(1, 3), r.choice([1, 2])
            self.layer(f"ConvTranspose2d({c}, {out}, 2, {stride}, {bias}{t})")
            self.shape = (b, out, (hgt - 1) * stride + 2, (wid - 1) * stride + 2)
        elif kind == "up" and hgt * wid < 60:
            self.lines.append("h = T.nn.functional.interpolate(h, scale_factor=2, " +
                              r.choice(["mode='nearest')", "mode='bilinear')", "mode='bilinear', align_corners=True)", "mode='bicubic')"]))
            self.shape = (b, c, 2 * hgt, 2 * wid)
        elif kind == "shuffle" and c % 4 == 0:
            self.lines.append("h = T.nn.PixelShuffle(2)(h)")
            self.shape = (b, c // 4, 2 * hgt, 2 * wid)
        elif kind == "lrn":
            self.lines.append("h = T.nn.LocalResponseNorm(2)(h)")
        elif kind == "flatten":
            self.lines.append("h = h.flatten(1)")
            self.shape = (b, c * hgt * wid)

    def train(self, dtype: str, autocast: bool) -> None:
        """The loss, its gradients and steps of an optimizer."""
        r, s = self.r, self.shape
        names = [f"l{i}" for i in range(self.layers)]
        forward = [line for line in self.lines if line.startswith("h = ")]
        loss = r.choice(["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "cross_entropy", "binary_cross_entropy_with_logits", "soft_margin_loss"])
        how = r.choice(["mean", "sum"])
        if loss == "cross_entropy":
            extra = r.choice(["", ", label_smoothing=0.1", ", ignore_index=0"])
            self.inputs["y0"] = ("int64", (s[0], *s[2:]), s[1])
        else:
            extra = ""
            self.inputs["y0"] = (dtype, s, r.randrange(1 << 30))
        measured = f"e = T.nn.functional.{loss}(h, y0, reduction='{how}'{extra})"
        if autocast:
            measured = measured.replace("(h,", "(h.float(),")
            self.lines = [f"h = under({line.removeprefix('h = ')!r})" if line.startswith("h = l") else line for line in self.lines]
        self.lines.append(measured)
        if not names:
            self.lines += ["!e.backward()"] if "requires_grad_" in self.lines[0] else []
            return
        self.lines += [f"ps = [p for l in ({', '.join(names)},) for p in l.parameters()]", "!e.backward()"]
        if r.random() < 0.3:
            self.lines.append(f"n = T.nn.utils.clip_grad_{r.choice(['norm_(ps, 0.5)', 'norm_(ps, 0.3, float(' + repr('inf') + '))', 'value_(ps, 0.1)'])}")
        if dtype != "float64":  # rounding decides the sign of a small gradient, and some optimizers take no more of it than that
            return
        self.lines += [f"o = T.optim.{r.choice(OPTIMIZERS).format(p='ps')[:-1]}{r.choice(['', '', ', foreach=True', ', foreach=False'])}) if ps else None"]
        scheduled = r.random() < 0.3
        if scheduled:
            self.lines.append(f"c = T.optim.lr_scheduler.{r.choice(SCHEDULES)} if ps else None")
        for i in range(r.randint(1, 3)):
            if i:
                self.lines += ["!o.zero_grad() if o else None", *[f for f in forward if "requires_grad_" not in f or i == 0], measured, "!e.backward()"]
            self.lines.append("!o.step() if o else None")
            if scheduled:
                self.lines.append("!c.step() if c else None")


def gen(seed: int) -> Program:
    return Writer(seed).program()


def used(line: str) -> str:
    """What a line is about: the layer, the optimizer, the loss or the transform that it names."""
    found = re.search(r"T\.(?:nn\.functional|nn\.utils|optim\.lr_scheduler|autograd\.functional|optim|func|nn)\.(\w+)", line)
    return found[1] if found else "backward" if "backward" in line else "step" if ".step()" in line else "call"
