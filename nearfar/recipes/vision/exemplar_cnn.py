r"""Exemplar-CNN: every image is a class of its own, made of its transformations, and a classifier learns to name them all.

Claim: a network that must recognise each of thousands of images under all that is done to it becomes invariant to what is done, and its
features classify objects better than those of earlier unsupervised methods.

$$\mathcal{L} = \sum_{x_i \in X} \sum_{T \in \mathcal{T}_i} l(i, T x_i), \qquad
l(i, T x_i) = -\log \frac{\exp(w_i^\top g(T x_i))}{\sum_{j=1}^N \exp(w_j^\top g(T x_i))}$$

Shapes: view (n, c, h, w) -> features g (n, encoder.dim); class weights w (N, encoder.dim), one row an image, learned.

Requirements: as many weights as there are images: the paper has 8,000 classes (patches of 32 pixels, where an image has strong
gradients) and finds that more classes stop to help, because images that look alike become different classes. Each row of w is
the positive of its image once an epoch: many epochs.

Relations: the parametric ancestor of `instance-discrimination-npid`, which puts remembered features in the place of w; MoCo and SimCLR put
the other view there. The paper draws all transformations beforehand, here they are drawn at every step, and every image is a class.

Reference: Dosovitskiy, Fischer, Springenberg, Riedmiller & Brox, "Discriminative Unsupervised Feature Learning with Exemplar Convolutional
Neural Networks", NIPS 2014 and TPAMI 2016, arXiv:1406.6909.
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
    )

    def similarity(self, net: Net) -> ImageViews:
        """Training uses the first view; the second is there for what is measured between views."""
        return choose_views(net.sizes, _photo_views)

    def build(self, sizes: Sizes, encoder) -> Net:
        w = torch.empty(sizes["n"], encoder.dim).normal_(std=encoder.dim**-0.5)
        return Net(encoder=encoder, w=nn.Parameter(w))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return {"g": net.encoder(x["v0"]), "id": x["id"]}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> Tensor:
        return parametric_softmax(z["g"], net.w, z["id"]).mean()


def _photo_views(size: int) -> ImageViews:
    """The paper's list: translation and scale, rotation up to 20 degrees, contrast and colours."""
    pipeline = Compose(Crop(size, scale=(0.5, 1.0), ratio=(1.0, 1.0)), Rotate(20.0), ColorJitter(0.4, 0.4, 0.4, 0.1))
    return ImageViews.repeat(pipeline)


paper = ExemplarCNN(), TrainConfig(
    data="stl10", encoder="convnet", image_size=32, batch_size=128, epochs=100,
    optimizer="sgd", lr=0.01, weight_decay=4e-3, momentum=0.9, schedule="constant", warmup_ratio=0.0,
)  # fmt: skip

reported = {"STL-10, linear SVM on pooled features": (72.8, "NIPS 2014, table 1"), "CIFAR-10, likewise": (82.0, "NIPS 2014, table 1")}

tiny = ExemplarCNN(), TrainConfig(data="digits", steps=300, batch_size=128, lr=5e-3)
