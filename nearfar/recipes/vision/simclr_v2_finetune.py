r"""SimCLR v2, second phase: fine-tune a pretrained encoder with few labels.

Claim: a few labels are enough to adapt features that were learned without labels. All weights are trained.
The classifier follows the first layer of the projection head, not the encoder.

$$\mathcal{L} = -\sum_{(x_i, y_i) \in \mathcal{D}_L} \log P(y_i \mid x_i), \qquad
P(\cdot \mid x) = \operatorname{softmax}\big(W_{task}\, \sigma(W_1\, h(x))\big)$$

The sum is over the few labeled images \(\mathcal{D}_L\).

Shapes: views v0, v1 (n, c, h, w), labels (n,) -> logits (2n, classes): each image twice, with different
crops.

Requirements: a finished run of `simclr-v2` as the start (`--init-from RUN`), which provides the encoder and
the first layer. Without a run this recipe is supervised training from scratch on the same few labels, the
baseline. Views are weak: colors are not distorted, because color may characterize a class.

Relations: a linear probe leaves the encoder unchanged. The next phase, `simclr-v2-distil`, trains a student
on all images, labeled or not, with this model as the teacher. `encode(net, x, "classifier")` returns the
logits.

Reference: Chen, Kornblith, Swersky, Norouzi & Hinton, "Big Self-Supervised Models are Strong Semi-Supervised
Learners", NeurIPS 2020, arXiv:2006.10029.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, UsageError, Views
from nearfar.heads import HeadNorm, mlp
from nearfar.losses import cross_entropy
from nearfar.recipes.vision.simclr_v2 import build_first_layer
from nearfar.similarity import Compose, Crop, Flip, ImageViews, choose_views
from nearfar.similarity.labels import LabeledViews


@dataclass(frozen=True)
class SimCLRv2FineTune(Recipe):
    """Big self-supervised models are strong semi-supervised learners: the fine-tuning."""

    card = Card(
        title="SimCLR v2, fine-tuning",
        paper="arXiv:2006.10029",
        year=2020,
        modality="image",
        similarity="labels",
        query="image, cropped and flipped",
        positive="its class",
        negative="the other classes",
        encoder="pre-trained, end to end",
        head="the first layer of the projection head, and a linear classifier",
        score="dot product with a class's weights",
        loss="cross-entropy on few labels",
        equation=r"\mathcal{L} = -\sum_{(x_i, y_i) \in \mathcal{D}_L} \log P(y_i \mid x_i)",
        family="classification",
        similarity_type=("labels",),
        head_type=("projection", "classifier"),
    )
    uses_labels = True
    inherits = {"middle": "middle"}  # noqa: RUF012

    labels_per_class: int = 10
    """Labeled images of each class. All other images are ignored."""
    norm: HeadNorm = "batch"
    """Normalization in the head's first layer. It must match the initial run."""

    def similarity(self, net: Net) -> LabeledViews:
        return LabeledViews(build_weak_views(net.sizes), samples_per_class=self.labels_per_class)

    def build(self, sizes: Sizes, encoder) -> Net:
        middle = nn.Sequential(encoder, build_first_layer(encoder.dim, self.norm))
        return Net(encoder=encoder, middle=middle, classifier=nn.Sequential(middle, build_task_layer(encoder.dim, sizes)))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return {"logits": net.classifier(torch.cat([x["v0"], x["v1"]])), "y": x["label"].repeat(2)}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> dict[str, Tensor]:
        right = (z["logits"].argmax(1) == z["y"]).float().mean()
        return {"loss": cross_entropy(z["logits"], z["y"]), "accuracy": right}


def build_weak_views(sizes: Sizes) -> ImageViews:
    """Return two views with random crops and flips."""
    return choose_views(sizes, lambda size: ImageViews.repeat(Compose(Crop(size), Flip())))


def build_task_layer(width: int, sizes: Sizes) -> nn.Module:
    """Return the linear classifier of the task.

    Raises:
        UsageError: if the dataset has fewer than two classes.
    """
    if sizes["classes"] < 2:
        raise UsageError("this recipe needs at least two classes, and the data have no labels, or only one class")
    return mlp(width, sizes["classes"])


paper = SimCLRv2FineTune(labels_per_class=13), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=1024, epochs=60,
    optimizer="lars", lr=0.16, weight_decay=0.0, momentum=0.9, warmup_ratio=0.0,
)  # fmt: skip

reported = {"ImageNet top-1, ResNet-50, 1% of the labels": (57.9, "arXiv:2006.10029, table 1")}

tiny = SimCLRv2FineTune(), TrainConfig(data="digits", steps=60, batch_size=64, lr=1e-3)
