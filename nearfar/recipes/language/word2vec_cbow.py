r"""Continuous bag of words with negative sampling: the words around a place predict the word that stands there.

Claim: the mean of the surrounding words' vectors, in whatever order, is enough to tell the word in the middle from drawn ones; one
prediction for each place instead of one for each pair makes it several times faster than skip-gram, and smoother for frequent words.

$$\mathcal{L} = -\frac{1}{|\mathcal{C}|} \sum_{c \in \mathcal{C}} \Big( \log \sigma(u_c^\top h_c)
+ \sum_{j=1}^{k} \mathbb{E}_{\tilde w_j \sim P_n} \log \sigma(-u_{\tilde w_j}^\top h_c) \Big),
\qquad h_c = \frac{1}{|W_c|} \sum_{o \in W_c} v_o$$

Windows W, thinning-out and noise P_n are those of `word2vec-skipgram-neg`.

Shapes: word (m, tile), noise (m, shared) and lists of the words near each centre for m tiles -> loss, count (n,); tables (words, dim).

Requirements: running text; more of it than skip-gram needs, because rare words share every gradient with their neighbours.
`--optimizer adagrad`, which touches the rows of a step only.

Relations: `word2vec-skipgram-neg` takes the window apart into pairs. The survey's table gives this row's loss to CBOW and names it NEG;
the paper of CBOW itself trained with a hierarchical softmax, negative sampling came half a year later. Mnih & Kavukcuoglu's vLBL
weights the places of a window, and trains by NCE.

References: Mikolov, Chen, Corrado & Dean, "Efficient Estimation of Word Representations in Vector Space", arXiv:1301.3781 (CBOW);
Reference: Mikolov, Sutskever, Chen, Corrado & Dean, NIPS 2013, arXiv:1310.4546 (negative sampling).
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
        negative="words drawn from counts^(3/4), shared by neighbouring centres",
        encoder="two look-up tables, one for contexts and one for centres",
        head="mean, whatever the order",
        score="dot product",
        loss="NEG",
        equation=r"-\log \sigma(u_c^\top h_c) - \sum_{j=1}^{k} \mathbb{E}_{\tilde w_j \sim P_n} \log \sigma(-u_{\tilde w_j}^\top h_c),"
        r"\quad h_c = \frac{1}{|W_c|} \sum_{o \in W_c} v_o",
    )

    centers_per_group: int = 32
    """Neighbouring centres that share the words drawn for them: a centre is one prediction here, so that each weighs less."""

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
