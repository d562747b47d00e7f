"""The whole steps beside ``jax.jit``: the same networks, losses and optimizers in jax.numpy, their arguments donated."""

from __future__ import annotations

from typing import Any

from line import Line, Work
from lines_models import captured, character_gpt, compiled, pinn
from lines_small import adamw_captured, adamw_compiled


def _linear(jax: Any, key: Any, sizes: tuple[int, int]) -> Any:
    bound = sizes[0] ** -0.5
    return [jax.random.uniform(key, sizes, minval=-bound, maxval=bound), jax.numpy.zeros(sizes[1])]


def _adam(jax: Any, loss_of: Any, decay: float, rate: float = 1e-3, clip: float = 0.0) -> Any:
    """``step(params, first, second, t, *data)``: a step of AdamW."""
    np, each = jax.numpy, jax.tree.map

    def step(params: Any, first: Any, second: Any, t: Any, *data: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, *data)
        if clip:
            norm = np.sqrt(sum(np.sum(g * g) for g in jax.tree.leaves(grads)))
            grads = each(lambda g: g * np.minimum(1.0, clip / (norm + 1e-6)), grads)
        t = t + 1
        first = each(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = each(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
        params = each(lambda p, m, v: p * (1 - rate * decay) - rate * (m / (1 - 0.9 ** t)) / (np.sqrt(v / (1 - 0.999 ** t)) + 1e-8), params, first, second)
        return params, first, second, t, loss
    return jax.jit(step, donate_argnums=(0, 1, 2, 3))


def _repeated(jax: Any, step: Any, params: Any, *data: Any) -> Work:
    zeros = jax.tree.map(jax.numpy.zeros_like, params)
    state = [params, zeros, jax.tree.map(jax.numpy.copy, zeros), jax.numpy.zeros(())]

    def work() -> None:
        *state[:], loss = step(*state, *data)
        loss.block_until_ready()
    return work


def mlp(jax: Any) -> Work:
    keys = jax.random.split(jax.random.key(0), 5)
    params = [_linear(jax, keys[0], (8, 8)), _linear(jax, keys[1], (8, 8)), _linear(jax, keys[2], (8, 4))]

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        for k, (w, b) in enumerate(params):
            x = x @ w + b if k == 2 else jax.nn.relu(x @ w + b)
        return ((x - y) ** 2).mean()
    x, y = jax.random.uniform(keys[3], (4, 8)), jax.random.uniform(keys[4], (4, 4))
    return _repeated(jax, _adam(jax, loss_of, 0.01, 0.01), params, x, y)


def heat(jax: Any, points: int = 1024, hidden: int = 64) -> Work:
    keys = jax.random.split(jax.random.key(0), 4)
    params = [_linear(jax, keys[0], (2, hidden)), _linear(jax, keys[1], (hidden, hidden)), _linear(jax, keys[2], (hidden, 1))]

    def u(params: Any, x: Any) -> Any:
        for k, (w, b) in enumerate(params):
            x = x @ w + b if k == 2 else jax.numpy.tanh(x @ w + b)
        return x

    def loss_of(params: Any, x: Any) -> Any:
        def du(x: Any) -> Any:
            return jax.grad(lambda x: u(params, x).sum())(x)
        d = du(x)
        dd = jax.grad(lambda x: du(x)[:, 1].sum())(x)
        return ((d[:, 0] - dd[:, 1]) ** 2).mean() + (u(params, x) ** 2).mean()
    return _repeated(jax, _adam(jax, loss_of, 0.0), params, jax.random.uniform(keys[3], (points, 2)))


def gpt(jax: Any, layers: int = 4, heads: int = 4, width: int = 128, context: int = 64, batch: int = 12, letters: int = 65) -> Work:
    np, nn = jax.numpy, jax.nn
    keys = iter(jax.random.split(jax.random.key(0), 4 * layers + 4))
    params = {"tokens": jax.random.normal(next(keys), (letters, width)), "places": jax.random.normal(next(keys), (context, width)),
              "ln": [np.ones(width), np.zeros(width)],
              "blocks": [{"ln1": [np.ones(width), np.zeros(width)], "ln2": [np.ones(width), np.zeros(width)],
                          "qkv": _linear(jax, next(keys), (width, 3 * width)), "proj": _linear(jax, next(keys), (width, width)),
                          "up": _linear(jax, next(keys), (width, 4 * width)), "down": _linear(jax, next(keys), (4 * width, width))} for _ in range(layers)]}

    def norm(x: Any, p: Any) -> Any:
        d = x - x.mean(-1, keepdims=True)
        return d * jax.lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5) * p[0] + p[1]

    def linear(x: Any, p: Any) -> Any:
        return x @ p[0] + p[1]

    def loss_of(params: Any, ids: Any, wanted: Any) -> Any:
        x = params["tokens"][ids] + params["places"]
        mask = np.tril(np.ones((context, context), bool))
        for b in params["blocks"]:
            q, k, v = (y.reshape(batch, context, heads, -1).transpose(0, 2, 1, 3) for y in np.split(linear(norm(x, b["ln1"]), b["qkv"]), 3, -1))
            scores = np.where(mask, q @ k.swapaxes(-1, -2) * (width // heads) ** -0.5, -np.inf)
            y = (nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(batch, context, width)
            x = x + linear(y, b["proj"])
            x = x + linear(nn.gelu(linear(norm(x, b["ln2"]), b["up"]), approximate=False), b["down"])
        told = nn.log_softmax(norm(x, params["ln"]) @ params["tokens"].T)
        return -np.take_along_axis(told, wanted[..., None], -1).mean()
    ids = jax.random.randint(next(keys), (2, batch, context), 0, letters)
    return _repeated(jax, _adam(jax, loss_of, 0.01, 1e-3, 1.0), params, ids[0], ids[1])


LINES = [
    Line("tiny MLP (8-8-8-4, batch 4) AdamW step: jax.jit, ours captured", 10.0, mlp, ours=adamw_captured, beside="jax"),
    Line("the same step: jax.jit, ours compiled", 1.0, mlp, ours=adamw_compiled, beside="jax"),
    Line("a PINN's step (2-64-64-1, 1024 points): jax.jit, ours captured", 1.0, heat, ours=captured(pinn()), beside="jax"),
    Line("the character GPT's step: jax.jit, ours compiled", 3.5, gpt, ours=compiled(character_gpt()), beside="jax"),
]
