r"""Skip-gram with negative sampling: predict the context words of a word, against random words.

Claim: a classifier that tells a word's real neighbors from a few random words, without a softmax over the
vocabulary, learns vectors whose sums and differences have meaning. Frequent words are best subsampled, and
best drawn a little less often than they occur.

$$\mathcal{L} = -\frac{1}{|\mathcal{P}|} \sum_{(c, o) \in \mathcal{P}} \Big( \log \sigma(u_o^\top v_c)
+ \sum_{j=1}^{k} \mathbb{E}_{\tilde w_j \sim P_n} \log \sigma(-u_{\tilde w_j}^\top v_c) \Big),
\qquad P_n(w) \propto \operatorname{count}(w)^{3/4}$$

The pairs P are a center word and each word of its window. The reach of the window is drawn again for every
center. For a word with share f of the text, only $\sqrt{t/f} + t/f$ of the occurrences are kept.

Shapes: word, sentence (m, centers_per_group + 2 window), reach (m, centers_per_group), noise (m,
shared_negatives) for m tiles -> loss, count (n,); tables (words, dim).

Requirements: running text with millions of words, and two tables. Use `--optimizer adagrad`, which updates
only the rows of a step. A row of the batch is a block of consecutive text: windows end at the end of the
block. Neighboring centers share their noise (`shared_negatives` words, each weighted by k /
shared_negatives), so that a step is a few small matrix products.

Relations: NCE that assumes a noise density of 1/k: u·v converges to the shifted pointwise mutual information
log p(o|c)/p(o) - log k. `word2vec-cbow` predicts the center from the mean of its window. The original updates
after every pair, with separate noise for each pair. In this recipe all pairs of a batch use the same tables.
If a drawn word is in the window, the original draws again; this recipe keeps the word.

Reference: Mikolov, Sutskever, Chen, Corrado & Dean, "Distributed Representations of Words and Phrases and
their Compositionality", NIPS 2013, arXiv:1310.4546.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.encoders.lookup import LookupTable
from nearfar.losses.word2vec import skip_gram_neg
from nearfar.similarity.text_windows import WordWindows, sum_groups_per_row


@dataclass(frozen=True)
class SkipGram(Recipe):
    """word2vec: skip-gram with negative sampling."""

    card = Card(
        title="word2vec skip-gram, NEG",
        paper="arXiv:1310.4546",
        year=2013,
        modality="words",
        similarity="context-instance",
        query="center word",
        positive="each word of its window",
        negative="words drawn from counts^(3/4), shared by neighboring centers",
        encoder="two look-up tables, one for centers and one for contexts",
        head="none",
        score="dot product",
        loss="NEG",
        equation=r"-\log \sigma(u_o^\top v_c) - \sum_{j=1}^{k} \mathbb{E}_{\tilde w_j \sim P_n} \log \sigma(-u_{\tilde w_j}^\top v_c)",
        family="NCE and softmax",
        similarity_type=("context-instance",),
        head_type=("none",),
    )
    limits = {"subsample_threshold": (0.0, 1.0), "noise_exponent": (0.0, 1.0)}  # noqa: RUF012

    dim: int = 100
    """Dimension of the vectors."""
    window: int = 5
    """Largest distance between a center word and its context words."""
    negatives: int = 5
    """Weight of the negatives, as a number per positive pair (k in the equation)."""
    subsample_threshold: float = 1e-3
    """Subsample words whose share of the text is larger than this (t in the equation). 0 disables
    subsampling."""
    noise_exponent: float = 0.75
    """Exponent of the noise distribution: words are drawn in proportion to count ** exponent."""
    centers_per_group: int = 16
    """Neighboring center words that share their negatives and one matrix product."""
    shared_negatives: int = 16
    """Number of negatives that each group of centers shares. Fewer negatives than centers make the vectors
    worse, because each negative then has too much weight."""
    words_per_row: int = 256
    """Consecutive words of the text in a row of the batch."""

    def similarity(self, net: Net) -> WordWindows:
        return WordWindows(
            self.words_per_row, self.window, self.subsample_threshold, self.shared_negatives, self.noise_exponent, self.centers_per_group
        )

    def build(self, sizes: Sizes) -> Net:
        return Net(encoder=LookupTable(sizes["words"], self.dim), context=LookupTable(sizes["words"], self.dim))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        v, u = net.encoder.weight, net.context.weight
        loss, pairs = skip_gram_neg(v, u, x["word"], x["sentence"], x["reach"], x["noise"], self.negatives)
        return {"loss": sum_groups_per_row(loss, x), "count": sum_groups_per_row(pairs, x)}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return z["loss"].sum() / z["count"].detach().sum().clamp_min(1)


paper = (
    SkipGram(dim=300, subsample_threshold=1e-5),
    TrainConfig(data="news.txt", min_count=5, batch_size=32, epochs=1, optimizer="adagrad", lr=0.2, warmup_ratio=0.0),
)

reported = {"Google analogies, NEG-5, 300 dimensions, with subsampling": (60.0, "arXiv:1310.4546, table 1")}

tiny = (
    SkipGram(dim=32, words_per_row=64),
    TrainConfig(data="docstrings", min_count=5, steps=200, batch_size=64, optimizer="adagrad", lr=0.1, warmup_ratio=0.0),
)
