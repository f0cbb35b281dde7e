"""Evaluation across modalities: image-caption retrieval and zero-shot classification.

Retrieval measures if an image finds its captions and a caption finds its images. Zero-shot classification
measures if words alone name the class of an image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import DataError, UsageError
from nearfar.evaluate.input_checks import check_features
from nearfar.evaluate.knn import find_nearest_neighbors
from nearfar.evaluate.tied_scores import compute_hit_probability, count_above_and_tied

EncodeTexts = Callable[[list[str]], Tensor]
"""Function that maps texts to vectors in the space of the images."""
QUERIES_PER_BLOCK = 1024
"""Number of queries that are compared with all candidates at once."""


def recall_at(
    queries: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"], correct_pairs: Int64[Tensor, "p 2"], ks: Sequence[int] = (1, 5, 10)
) -> dict[int, float]:
    """Compute recall at k for each k.

    Recall at k is the share of queries with a correct candidate among the k nearest by cosine: the mean of
    `hits_at`.
    """
    return {k: float(hits.mean()) for k, hits in hits_at(queries, candidates, correct_pairs, ks).items()}


def hits_at(
    queries: Float[Tensor, "n d"], candidates: Float[Tensor, "m d"], correct_pairs: Int64[Tensor, "p 2"], ks: Sequence[int] = (1, 5, 10)
) -> dict[int, Float64[Tensor, " n"]]:
    """Compute hits at k for each query and each k.

    A hit is a correct candidate among the k nearest by cosine. Ties count by their expectation over all
    orders (`compute_hit_probability`), so hits lie in [0, 1]. Equal vectors give exactly chance.

    Args:
        queries: Query vectors (n, d).
        candidates: Candidate vectors (m, d).
        correct_pairs: Pairs (query, candidate) (p, 2). A query may have several correct candidates, and any
            of them counts. Every query needs at least one.
        ks: Numbers of neighbors.

    Returns:
        For each k, the hits of the queries (n,).
    """
    queries, candidates = _normalize_rows(queries, "queries"), _normalize_rows(candidates, "keys")
    if len(torch.unique(correct_pairs[:, 0])) != len(queries):
        raise DataError("recall_at: every query needs at least one correct key")
    correct_pairs = correct_pairs[correct_pairs[:, 0].argsort(stable=True)].to(queries.device)
    hits = {k: [] for k in ks}
    for start in range(0, len(queries), QUERIES_PER_BLOCK):
        own = correct_pairs[(correct_pairs[:, 0] >= start) & (correct_pairs[:, 0] < start + QUERIES_PER_BLOCK)]
        counts = count_above_and_tied(
            (queries[start : start + QUERIES_PER_BLOCK] @ candidates.T).float(), own - torch.tensor([start, 0], device=own.device)
        )
        for k in ks:
            hits[k].append(compute_hit_probability(counts, k))
    return {k: torch.cat(found) for k, found in hits.items()}


def _normalize_rows(x: Float[Tensor, "n d"], name: str) -> Float64[Tensor, "n d"]:
    """Scale rows to unit length.

    Raises `DataError` for rows with NaN. No comparison with NaN is true, so nothing would rank above such a
    row.
    """
    check_features(x, name)
    return F.normalize(x.double(), dim=1)


def encode_class_prompts(class_names: Sequence[str], prompts: Sequence[str], encode: EncodeTexts) -> Float[Tensor, "c d"]:
    """Encode each class as the mean vector of its prompts.

    The mean is over unit vectors, and is normalized again.

    Args:
        class_names: Names of the c classes.
        prompts: Templates such as "a photo of a {}". The class name replaces {}.
        encode: Function that maps texts to vectors.

    Returns:
        Unit vectors (c, d).
    """
    if not prompts or not all("{}" in prompt for prompt in prompts):
        raise UsageError(f"--prompts {','.join(prompts)}: each prompt needs a {{}} in place of the class name")
    vectors = encode([prompt.replace("{}", name) for prompt in prompts for name in class_names])
    return F.normalize(F.normalize(vectors, dim=1).unflatten(0, (len(prompts), len(class_names))).mean(0), dim=1)


def zero_shot_accuracy(images: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], class_embeddings: Float[Tensor, "c d"]) -> float:
    """Return the accuracy of predicting the class with the nearest vector by cosine.

    If k classes tie for the nearest, a correct class among them counts 1 / k.
    """
    scores = (_normalize_rows(images, "images") @ _normalize_rows(class_embeddings, "class vectors").T).float()
    best = scores == scores.amax(1, keepdim=True)
    return float((best[torch.arange(len(labels), device=labels.device), labels].double() / best.sum(1)).mean())


def build_neighbor_caption_baseline(
    pixels: Float[Tensor, "n d"], train_pixels: Float[Tensor, "m d"], train_captions: list[list[str]], neighbors: int = 10
) -> tuple[Float[Tensor, "n w"], EncodeTexts]:
    """Build a caption baseline that needs no training.

    It describes an image by the captions of the nearest training images in raw pixels. Both sides are tf-idf
    vectors of the words of the training captions. An image is the mean over the captions of its nearest
    neighbors.

    Args:
        pixels: Test images (n, d).
        train_pixels: Training images (m, d).
        train_captions: Captions of each training image.
        neighbors: Number of nearest training images.

    Returns:
        Image vectors (n, w) and the function that encodes texts.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    counter = TfidfVectorizer(max_features=4096, sublinear_tf=True, token_pattern=r"\w+")
    counter.fit([text for own in train_captions for text in own])

    def encode(texts: list[str]) -> Tensor:
        """Encode texts as tf-idf vectors."""
        return torch.from_numpy(counter.transform(texts).toarray()).float()

    _, index = find_nearest_neighbors(train_pixels, pixels, min(neighbors, len(train_pixels)))
    said = F.normalize(encode([" ".join(own) for own in train_captions]), dim=1)
    return said[index.cpu()].mean(1), encode
