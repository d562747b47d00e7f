"""Tokens a second of a small decoder that generates with a cache of keys and values, beside PyTorch: each token's shapes are new.

    python -m benchmarks.generation [--tokens 200] [--layers 4] [--width 128] [--heads 4] [--rounds 5]

A decoder like GPT-2 (layer norms, one projection to queries, keys and values, a cache that `cat` makes longer, attention, a network of GELU), eager, one
thread, the same weights on both sides and the same tokens out.  Every round has another number of sequences, so that its shapes are new too; the last is made
again.  Printed are milliseconds and the share of PyTorch's speed: of the first round, in which code is written, of the others, and of the one made again.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

VOCABULARY = 512


def weights(T: Any, layers: int, width: int) -> dict[str, Any]:
    """Weights that no library draws: small numbers that look random."""
    def some(k: int, *shape: int) -> Any:
        count = 1
        for n in shape:
            count *= n
        values = (T.arange(count, dtype=T.float64) * 12.9898 + k * 78.233).sin() * 43758.5453
        return ((values - values.floor() - 0.5) * 0.25).to(T.float32).reshape(shape)
    found = {"tokens": some(1, VOCABULARY, width), "places": some(2, 1024, width)}
    for i in range(layers):
        k = 10 * (i + 1)
        found |= {f"qkv{i}": some(k, 3 * width, width), f"out{i}": some(k + 1, width, width), f"up{i}": some(k + 2, 4 * width, width),
                  f"down{i}": some(k + 3, width, 4 * width), f"b{i}": some(k + 4, 3 * width), f"s{i}": 1 + some(k + 5, width), f"t{i}": some(k + 6, width)}
    return found


def generate(T: Any, w: dict[str, Any], layers: int, heads: int, tokens: int, batch: int) -> list[int]:
    """The tokens that follow some four, the likeliest each."""
    F = T.nn.functional
    width = w["tokens"].shape[1]
    ids, place, found = T.arange(4 * batch).reshape(batch, 4), 0, []
    cache: list[Any] = [None] * layers
    with T.no_grad():
        for _ in range(tokens):
            count = ids.shape[1]
            x = F.embedding(ids, w["tokens"]) + w["places"][place:place + count]
            place += count
            for i in range(layers):
                h = F.layer_norm(x, (width,), w[f"s{i}"], w[f"t{i}"])
                q, k, v = [t.view(batch, count, heads, width // heads).transpose(1, 2) for t in F.linear(h, w[f"qkv{i}"], w[f"b{i}"]).split(width, dim=-1)]
                if cache[i] is not None:
                    k, v = T.cat((cache[i][0], k), dim=2), T.cat((cache[i][1], v), dim=2)
                cache[i] = (k, v)
                a = F.scaled_dot_product_attention(q, k, v, is_causal=count > 1)
                x = x + F.linear(a.transpose(1, 2).reshape(batch, count, width), w[f"out{i}"])
                h = F.layer_norm(x, (width,), w[f"s{i}"], w[f"t{i}"])
                x = x + F.linear(F.gelu(F.linear(h, w[f"up{i}"]), approximate="tanh"), w[f"down{i}"])
            ids = F.linear(x[:, -1], w["tokens"]).argmax(-1, keepdim=True)
            found.append(int(ids[-1].item()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("tokens", 200), ("layers", 4), ("width", 128), ("heads", 4), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    import torch

    import flambeau
    torch.set_num_threads(1)
    flambeau.set_num_threads(1)
    sides = {"flambeau": (flambeau, weights(flambeau, asked.layers, asked.width)), "torch": (torch, weights(torch, asked.layers, asked.width))}
    spent: dict[str, list[float]] = {name: [] for name in sides}
    same = True
    for batch in [*range(2, 2 + asked.rounds), 1 + asked.rounds, 1 + asked.rounds, 1 + asked.rounds]:
        made = {}
        for name, (T, w) in sides.items():
            begin = time.perf_counter()
            made[name] = generate(T, w, asked.layers, asked.heads, asked.tokens, batch)
            spent[name].append((time.perf_counter() - begin) * 1e3)
        same = same and made["flambeau"] == made["torch"]
    ours, theirs = spent["flambeau"], spent["torch"]

    def share(of: slice) -> str:
        mine, other = statistics.median(ours[of]), statistics.median(theirs[of])
        return f"{mine:.0f} ms, PyTorch {other:.0f}, {other / mine:.2f}"
    n = asked.rounds
    print(f"{asked.tokens} tokens, {asked.layers} layers of {asked.width}: first {share(slice(0, 1))}; new shapes {share(slice(1, n))}; again "
          f"{share(slice(n, n + 3))}; {'the same tokens' if same else 'other tokens'}")


if __name__ == "__main__":
    main()
