r"""Continuous bag of words with negative sampling: predict a word from its context words.

Claim: the mean of the context words' vectors, in any order, is enough to tell the center word from random
words. CBOW makes one prediction for each position instead of one for each pair. This is several times faster
than skip-gram, and smoother for frequent words.

$$\mathcal{L} = -\frac{1}{|\mathcal{C}|} \sum_{c \in \mathcal{C}} \Big( \log \sigma(u_c^\top h_c)
+ \sum_{j=1}^{k} \mathbb{E}_{\tilde w_j \sim P_n} \log \sigma(-u_{\tilde w_j}^\top h_c) \Big),
\qquad h_c = \frac{1}{|W_c|} \sum_{o \in W_c} v_o$$

Windows W, subsampling and the noise distribution P_n are the same as in `word2vec-skipgram-neg`.

Shapes: word (m, centers_per_group), noise (m, shared_negatives) and lists of the words near each center for m
tiles -> loss, count (n,); tables (words, dim).

Requirements: running text. CBOW needs more text than skip-gram, because rare words share every gradient with
their neighbors. Use `--optimizer adagrad`, which updates only the rows of a step.

Relations: `word2vec-skipgram-neg` splits each window into pairs. The survey's table gives this loss to CBOW
and names it NEG. The original CBOW paper trained with a hierarchical softmax; negative sampling came half a
year later. Mnih & Kavukcuoglu's vLBL weights the positions of a window, and trains by NCE.

Reference: Mikolov, Chen, Corrado & Dean, "Efficient Estimation of Word Representations in Vector Space",
arXiv:1301.3781 (CBOW); Mikolov, Sutskever, Chen, Corrado & Dean, NIPS 2013, arXiv:1310.4546 (negative
sampling).
"""

from __future__ import annotations

from dataclasses import dataclass

from nearfar.core import Card, Embeddings, Net, RandomKey, TrainConfig, Views
from nearfar.losses.word2vec import cbow_neg
from nearfar.recipes.language.word2vec_skipgram_neg import SkipGram
from nearfar.similarity.text_windows import WordBags, sum_groups_per_row


@dataclass(frozen=True)
class Cbow(SkipGram):
    """word2vec: continuous bag of words with negative sampling."""

    card = Card(
        title="word2vec CBOW, NEG",
        paper="arXiv:1301.3781",
        year=2013,
        modality="words",
        similarity="context-instance",
        query="mean of the words of a window",
        positive="the word in its middle",
        negative="words drawn from counts^(3/4), shared by neighboring centers",
        encoder="two look-up tables, one for contexts and one for centers",
        head="mean, whatever the order",
        score="dot product",
        loss="NEG",
        equation=r"-\log \sigma(u_c^\top h_c) - \sum_{j=1}^{k} \mathbb{E}_{\tilde w_j \sim P_n} \log \sigma(-u_{\tilde w_j}^\top h_c),"
        r"\quad h_c = \frac{1}{|W_c|} \sum_{o \in W_c} v_o",
        family="NCE and softmax",
        similarity_type=("context-instance",),
        head_type=("contextualization",),
    )

    centers_per_group: int = 32
    """Neighboring center words that share their negatives. Each center is only one prediction, so it has less
    weight."""

    def similarity(self, net: Net) -> WordBags:
        return WordBags(
            self.words_per_row, self.window, self.subsample_threshold, self.shared_negatives, self.noise_exponent, self.centers_per_group
        )

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        v, u = net.encoder.weight, net.context.weight
        loss, windows = cbow_neg(v, u, x["word"], x["noise"], x["near"], x["seen"], x["named"], self.negatives)
        return {"loss": sum_groups_per_row(loss, x), "count": sum_groups_per_row(windows, x)}


paper = Cbow(dim=300), TrainConfig(data="news.txt", min_count=5, batch_size=128, epochs=3, optimizer="adagrad", lr=0.3, warmup_ratio=0.0)

reported = {"Google analogies, semantic, CBOW, 640 dimensions": (24.0, "arXiv:1301.3781, table 3")}

tiny = (
    Cbow(dim=32, words_per_row=64),
    TrainConfig(data="docstrings", min_count=5, steps=200, batch_size=64, optimizer="adagrad", lr=0.1, warmup_ratio=0.0),
)
