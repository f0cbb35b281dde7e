r"""Skip-gram with negative sampling: a word predicts the words around it, against words drawn at random.

Claim: telling a word's real neighbours from a few drawn ones, without any softmax over the vocabulary, is enough to learn vectors
of which sums and differences mean something; frequent words are best thinned out, and best drawn a little less often than they occur.

$$\mathcal{L} = -\frac{1}{|\mathcal{P}|} \sum_{(c, o) \in \mathcal{P}} \Big( \log \sigma(u_o^\top v_c)
+ \sum_{j=1}^{k} \mathbb{E}_{\tilde w_j \sim P_n} \log \sigma(-u_{\tilde w_j}^\top v_c) \Big),
\qquad P_n(w) \propto \operatorname{count}(w)^{3/4}$$

The pairs P are a centre and each word of its window, whose reach is drawn anew for every centre; of a word of share f only
$\sqrt{t/f} + t/f$ of the occurrences are kept.

Shapes: word, sentence (m, tile + 2 window), reach (m, tile), noise (m, shared) for m tiles -> loss, count (n,); tables (words, dim).

Requirements: running text, millions of words of it; two tables. `--optimizer adagrad`, which touches the rows of a step only. A row of
the batch is a block of consecutive text: windows end where a block does. Neighbouring centres share their noise (`shared` words,
weighted by k / shared), so that a step is a few small matrix products.

Relations: NCE that pretends the noise has density 1/k: u·v tends to the shifted pointwise mutual information log p(o|c)/p(o) - log k.
`word2vec-cbow` predicts the centre from the mean of its window. The original updates after every pair with noise of its own; here all
pairs of a batch see the same tables. A drawn word may happen to be in the window: the original draws again, here it counts.

Reference: Mikolov, Sutskever, Chen, Corrado & Dean, "Distributed Representations of Words and Phrases and their
Compositionality", NIPS 2013, arXiv:1310.4546.
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
        query="centre word",
        positive="each word of its window",
        negative="words drawn from counts^(3/4), shared by neighbouring centres",
        encoder="two look-up tables, one for centres and one for contexts",
        head="none",
        score="dot product",
        loss="NEG",
        equation=r"-\log \sigma(u_o^\top v_c) - \sum_{j=1}^{k} \mathbb{E}_{\tilde w_j \sim P_n} \log \sigma(-u_{\tilde w_j}^\top v_c)",
    )
    limits = {"subsample_threshold": (0.0, 1.0), "noise_exponent": (0.0, 1.0)}  # noqa: RUF012

    dim: int = 100
    """Width of the vectors."""
    window: int = 5
    """Words to each side that a window may reach."""
    negatives: int = 5
    """Drawn words that weigh as much as one real pair (k)."""
    subsample_threshold: float = 1e-3
    """Words of a larger share of the text than this are thinned out (t); 0: none."""
    noise_exponent: float = 0.75
    """Noise is drawn in proportion to counts to this power."""
    centers_per_group: int = 16
    """Neighbouring centres that share the words drawn for them, and are scored in one matrix product."""
    shared_negatives: int = 16
    """Drawn words that they share. Fewer than there are centres make the vectors worse, because each then weighs too much."""
    words_per_row: int = 256
    """Consecutive words of the text that make up a row of the batch."""

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
