"""BERT as sentence encoders use it, for whichever library speaks PyTorch's names, and the tokens of a sentence.

The parameters have the names of the transformers package, so that files made for it load as they are.  Sources: Devlin
et al., "BERT" (2018), 3 and A.2; Wu et al., "Google's Neural Machine Translation System" (2016), 4.1 (word pieces).
"""

from __future__ import annotations

import unicodedata
from typing import Any

SENTENCES = ["The cat sits outside.", "A man is playing guitar", "I love pasta", "The new movie is awesome!", "The cat plays in the garden",
             "A woman watches TV", "Do you like pizza?", "Ein völlig unverständlicher Satz, naïvely put: 42% of it."]


def build(lib: Any, vocabulary: int = 30522, width: int = 384, layers: int = 6, heads: int = 12, inner: int = 1536, places: int = 512) -> Any:
    """The encoder: `model(ids, mask)` gives one unit vector (width,) for each row; all-MiniLM-L6-v2's sizes unless others are given.

    ids: (batch, tokens) int64.  mask: (batch, tokens) bool or int, 1 where there is a token.
    """
    nn, F = lib.nn, lib.nn.functional

    class Embeddings(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.word_embeddings = nn.Embedding(vocabulary, width, padding_idx=0)
            self.position_embeddings = nn.Embedding(places, width)
            self.token_type_embeddings = nn.Embedding(2, width)
            self.LayerNorm = nn.LayerNorm(width, eps=1e-12)
            self.dropout = nn.Dropout(0.1)
            self.register_buffer("position_ids", lib.arange(places).expand((1, -1)))

        def forward(self, ids: Any) -> Any:
            x = self.word_embeddings(ids) + self.token_type_embeddings(lib.zeros_like(ids))
            x = x + self.position_embeddings(self.position_ids[:, :ids.size(1)])
            return self.dropout(self.LayerNorm(x))

    class SelfAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

        def forward(self, x: Any, mask: Any) -> Any:
            q, k, v = (part(x).view(*x.shape[:2], heads, -1).transpose(1, 2) for part in (self.query, self.key, self.value))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.1 if self.training else 0.0)
            return y.transpose(1, 2).reshape(x.shape)

    class Output(nn.Module):
        def __init__(self, given: int) -> None:
            super().__init__()
            self.dense = nn.Linear(given, width)
            self.LayerNorm = nn.LayerNorm(width, eps=1e-12)
            self.dropout = nn.Dropout(0.1)

        def forward(self, x: Any, residual: Any) -> Any:
            return self.LayerNorm(self.dropout(self.dense(x)) + residual)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.ModuleDict({"self": SelfAttention(), "output": Output(width)})
            self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
            self.output = Output(inner)

        def forward(self, x: Any, mask: Any) -> Any:
            x = self.attention["output"](self.attention["self"](x, mask), x)
            return self.output(F.gelu(self.intermediate["dense"](x)), x)

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = Embeddings()
            self.encoder = nn.ModuleDict({"layer": nn.ModuleList([Layer() for _ in range(layers)])})
            self.pooler = nn.ModuleDict({"dense": nn.Linear(width, width)})  # in the file; sentences are averaged instead

        def forward(self, ids: Any, mask: Any) -> Any:
            there = mask.bool()
            x, wide = self.embeddings(ids), there[:, None, None, :]
            for layer in self.encoder["layer"]:
                x = layer(x, wide)
            kept = there[:, :, None].to(x.dtype)
            return F.normalize((x * kept).sum(1) / kept.sum(1).clamp(min=1e-9), p=2, dim=1)

    return Encoder()


def _parts(sentence: str) -> list[str]:
    """Lower case without accents, words and single signs."""
    plain = [c for c in unicodedata.normalize("NFD", sentence.lower()) if unicodedata.category(c) != "Mn"]
    return "".join(f" {c} " if unicodedata.category(c)[0] in "PS" else c for c in plain).split()


def _pieces(word: str, vocabulary: dict[str, int]) -> list[int]:
    """The longest pieces of the vocabulary from the left; "[UNK]" where they do not fill the word."""
    out, begin = [], 0
    while begin < len(word):
        end = next((e for e in range(len(word), begin, -1) if ("##" if begin else "") + word[begin:e] in vocabulary), None)
        if end is None:
            return [vocabulary["[UNK]"]]
        out.append(vocabulary[("##" if begin else "") + word[begin:end]])
        begin = end
    return out


def tokens(sentences: list[str], vocabulary_file: Any) -> tuple[list[list[int]], list[list[int]]]:
    """Ids and mask of each sentence, of one length: [CLS] pieces [SEP], then zeros."""
    with open(vocabulary_file, encoding="utf-8") as file:
        vocabulary = {line.rstrip("\n"): i for i, line in enumerate(file)}
    rows = [[vocabulary["[CLS]"], *(p for word in _parts(s) for p in _pieces(word, vocabulary)), vocabulary["[SEP]"]] for s in sentences]
    longest = max(map(len, rows))
    return [r + [0] * (longest - len(r)) for r in rows], [[1] * len(r) + [0] * (longest - len(r)) for r in rows]
