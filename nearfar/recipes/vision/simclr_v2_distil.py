r"""SimCLR v2, third phase: distill a fine-tuned teacher into a student on all images.

Claim: unlabeled images help a second time, now for the task. A student that learns the teacher's soft
predictions on them is better than the teacher. It needs none of the teacher's few labels.

$$\mathcal{L} = -\sum_{x_i \in \mathcal{D}} \sum_y P^T(y \mid x_i; \tau) \log P^S(y \mid x_i; \tau), \qquad
P(y \mid x; \tau) = \frac{\exp(f(x)[y]/\tau)}{\sum_{y'} \exp(f(x)[y']/\tau)}$$

The teacher \(f^T\) is fixed.

Shapes: views v0, v1 (n, c, h, w) -> student and teacher logits (2n, classes) of the same views.

Requirements: a finished run of `simclr-v2-finetune` as the start (`--init-from RUN`). Its classifier is the
teacher. Only the number of classes is used from the labels of the dataset.

Relations: self-distillation: the student has the architecture of the teacher and starts from its encoder,
with a new head. CRD (Tian et al.) distills representations with a contrastive loss; this recipe distills
predictions. `encode(net, x, "classifier")` returns the logits of the student.

Reference: Chen, Kornblith, Swersky, Norouzi & Hinton, "Big Self-Supervised Models are Strong Semi-Supervised
Learners", NeurIPS 2020, arXiv:2006.10029.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.core import Ema, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.heads import HeadNorm
from nearfar.recipes.vision.simclr_v2 import build_first_layer
from nearfar.recipes.vision.simclr_v2_finetune import SimCLRv2FineTune, build_task_layer, build_weak_views
from nearfar.similarity import ImageViews


class Teacher(Ema):
    """Fixed copy of the network, always in evaluation mode.

    It keeps the batch statistics of its training.
    """

    def train(self, mode: bool = True) -> Teacher:
        return super().train(False)


@dataclass(frozen=True)
class SimCLRv2Distil(Recipe):
    """Big self-supervised models are strong semi-supervised learners: the distillation."""

    card = dataclasses.replace(
        SimCLRv2FineTune.card,
        title="SimCLR v2, distillation",
        similarity="a teacher's predictions",
        positive="its classes, as the teacher weighs them",
        encoder="student end to end, teacher fixed",
        loss="cross-entropy with the teacher's predictions",
        equation=r"\mathcal{L} = -\sum_{x_i \in \mathcal{D}} \sum_y P^T(y \mid x_i; \tau) \log P^S(y \mid x_i; \tau)",
    )
    uses_labels = True
    inherits = {"teacher.module": "classifier"}  # noqa: RUF012

    temperature: float = 1.0
    """Temperature of both predictions (tau in the equation). Lower values give harder labels."""
    norm: HeadNorm = "batch"
    """Normalization in the head's first layer. It must match the initial run."""

    def similarity(self, net: Net) -> ImageViews:
        return build_weak_views(net.sizes)

    def build(self, sizes: Sizes, encoder) -> Net:
        student, teacher = (self.build_classifier(sizes, e) for e in (encoder, copy.deepcopy(encoder)))
        return Net(encoder=encoder, classifier=student, teacher=Teacher(teacher))

    def build_classifier(self, sizes: Sizes, encoder) -> nn.Module:
        """Build the classifier: the encoder, the first layer of the head and a linear task layer."""
        middle = nn.Sequential(encoder, build_first_layer(encoder.dim, self.norm))
        return nn.Sequential(middle, build_task_layer(encoder.dim, sizes))

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        views = torch.cat([x["v0"], x["v1"]])
        return {"student": net.classifier(views), "teacher": net.teacher(views)}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> dict[str, Tensor]:
        student, teacher = z["student"], z["teacher"]
        agree = (student.argmax(1) == teacher.argmax(1)).float().mean()
        return {"loss": F.cross_entropy(student / self.temperature, (teacher / self.temperature).softmax(1)), "agreement": agree}


paper = SimCLRv2Distil(), TrainConfig(
    data="imagenet", encoder="resnet50-imagenet", image_size=224, batch_size=4096, epochs=400,
    optimizer="lars", lr=6.4, weight_decay=1e-4, momentum=0.9, warmup_ratio=0.05,
)  # fmt: skip

reported = {"ImageNet top-1, ResNet-50, 1% of the labels, teacher ResNet-152 (3x, SK)": (73.9, "arXiv:2006.10029, table 3")}

tiny = SimCLRv2Distil(), TrainConfig(data="digits", steps=150, batch_size=128, lr=1e-3)
