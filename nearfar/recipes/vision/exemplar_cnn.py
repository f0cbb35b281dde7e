r"""Exemplar-CNN: classify augmented images, with a separate class for every image.

Claim: a network that must recognize each of thousands of images under all augmentations becomes invariant to
the augmentations. Its features classify objects better than those of earlier unsupervised methods.

$$\mathcal{L} = \sum_{x_i \in X} \sum_{T \in \mathcal{T}_i} l(i, T x_i), \qquad
l(i, T x_i) = -\log \frac{\exp(w_i^\top g(T x_i))}{\sum_{j=1}^N \exp(w_j^\top g(T x_i))}$$

Shapes: view (n, c, h, w) -> features g (n, encoder.dim). The learned class weights w (N, encoder.dim) have
one row for each image.

Requirements: as many weight vectors as images. The paper has 8,000 classes (patches of 32 pixels with strong
gradients) and finds that further classes stop helping, because similar images become different classes. Each
row of w is the positive of its image once an epoch, so training needs many epochs.

Relations: the parametric ancestor of `instance-discrimination-npid`, which replaces w by remembered features.
MoCo and SimCLR replace it by the other view. The paper draws all augmentations before training. Here they are
drawn at every step, and every image is a class.

Reference: Dosovitskiy, Fischer, Springenberg, Riedmiller & Brox, "Discriminative Unsupervised Feature
Learning with Exemplar Convolutional Neural Networks", NIPS 2014 and TPAMI 2016, arXiv:1406.6909.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.losses import parametric_softmax
from nearfar.similarity import ColorJitter, Compose, Crop, ImageViews, Rotate, choose_views


@dataclass(frozen=True)
class ExemplarCNN(Recipe):
    """Discriminative unsupervised feature learning with surrogate classes."""

    card = Card(
        title="Exemplar-CNN",
        paper="arXiv:1406.6909",
        year=2014,
        modality="image",
        similarity="data transformation",
        query="transformed image",
        positive="the weights of its own class",
        negative="the weights of all other images' classes",
        encoder="ConvNet, end to end",
        head="linear classifier with a class for each image",
        score="dot product",
        loss="parametric softmax over exemplars",
        equation=r"\mathcal{L} = -\sum_{x_i \in X} \sum_{T \in \mathcal{T}_i} \log"
        r"\frac{\exp(w_i^\top g(T x_i))}{\sum_{j=1}^N \exp(w_j^\top g(T x_i))}",
        family="NCE and softmax",
        similarity_type=("data transformation",),
        head_type=("classifier",),
    )

    def similarity(self, net: Net) -> ImageViews:
        """Return two views. Training uses the first; diagnostics between views use the second."""
        return choose_views(net.sizes, _photo_views)

    def build(self, sizes: Sizes, encoder) -> Net:
        w = torch.empty(sizes["n"], encoder.dim).normal_(std=encoder.dim**-0.5)
        return Net(encoder=encoder, w=nn.Parameter(w))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return {"g": net.encoder(x["v0"]), "id": x["id"]}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return parametric_softmax(z["g"], net.w, z["id"]).mean()


def _photo_views(size: int) -> ImageViews:
    """Return the paper's augmentations: crop, scale, rotation up to 20 degrees, contrast and color."""
    pipeline = Compose(Crop(size, scale=(0.5, 1.0), ratio=(1.0, 1.0)), Rotate(20.0), ColorJitter(0.4, 0.4, 0.4, 0.1))
    return ImageViews.repeat(pipeline)


paper = ExemplarCNN(), TrainConfig(
    data="stl10", encoder="convnet", image_size=32, batch_size=128, epochs=100,
    optimizer="sgd", lr=0.01, weight_decay=4e-3, momentum=0.9, schedule="constant", warmup_ratio=0.0,
)  # fmt: skip

reported = {"STL-10, linear SVM on pooled features": (72.8, "NIPS 2014, table 1"), "CIFAR-10, likewise": (82.0, "NIPS 2014, table 1")}

tiny = ExemplarCNN(), TrainConfig(data="digits", steps=300, batch_size=128, lr=5e-3)
