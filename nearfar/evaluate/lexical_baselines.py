"""Lexical baselines of sentence similarity: word and letter counts, without model and training."""

from __future__ import annotations

import re

import torch
from jaxtyping import Float
from torch import Tensor

from nearfar.core import RandomKey
from nearfar.evaluate.sts import EncodeSentences

_WORD = re.compile(r"\w+")


def tf_idf_cosine(first: list[str], second: list[str]) -> Float[Tensor, " n"]:
    """Compute the cosine of tf-idf vectors, row by row.

    Word counts are sublinear. Document frequencies come from the texts themselves.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    counter = TfidfVectorizer(token_pattern=_WORD.pattern, sublinear_tf=True).fit(list(dict.fromkeys(first + second)))
    a, b = counter.transform(first), counter.transform(second)
    return torch.tensor(a.multiply(b).sum(1)).flatten().double()


def ngram_jaccard(first: list[str], second: list[str], n: int = 3) -> Float[Tensor, " n"]:
    """Compute the Jaccard similarity of character n-grams, row by row.

    The similarity is the number of shared n-grams divided by the number of all n-grams of both texts. The
    n-grams are sets, in lower case.
    """
    pairs = ((_ngrams(a, n), _ngrams(b, n)) for a, b in zip(first, second, strict=True))
    return torch.tensor([len(a & b) / len(a | b) for a, b in pairs], dtype=torch.float64)


def _ngrams(text: str, n: int) -> set[str]:
    padded = f" {' '.join(text.lower().split())} ".ljust(n)
    return {padded[i : i + n] for i in range(len(padded) - n + 1)}


def build_random_word_encoder(rng_key: RandomKey, dim: int = 300) -> EncodeSentences:
    """Build an encoder that averages one random vector per word.

    It measures word overlap as an encoder of width `dim` would see it. The vectors depend on the random key
    and on the order in which words first occur in a call. A text without words is zero.
    """

    def encode(texts: list[str]) -> Float[Tensor, "n d"]:
        """Encode each text as the mean of the vectors of its words."""
        words = [_WORD.findall(text.lower()) for text in texts]
        number = {word: i for i, word in enumerate(dict.fromkeys(w for text in words for w in text))}
        table = rng_key("words").normal(torch.arange(len(number)), dim)
        flat = torch.tensor([number[w] for text in words for w in text], dtype=torch.long)
        row = torch.repeat_interleave(torch.tensor([len(text) for text in words]))
        count = row.bincount(minlength=len(texts)).clamp_min(1)
        return torch.zeros(len(texts), dim).index_add_(0, row, table[flat]) / count[:, None]

    return encode
