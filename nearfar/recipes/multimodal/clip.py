r"""CLIP: a shared embedding space for images and captions, learned from matching pairs.

Claim: predicting which caption belongs to which image is enough to learn image representations from natural
language. Classes can then be described in words, and no labeled sample is needed.

$$\mathcal L = -\frac{1}{2n} \sum_i \left[ \log \frac{e^{s_{ii}}}{\sum_j e^{s_{ij}}} + \log \frac{e^{s_{ii}}}{\sum_j e^{s_{ji}}} \right],
\qquad s_{ij} = e^{t} \cos(W_I f(I_i), W_T g(T_j))$$

Shapes: images (n, c, h, w) and token ids (n, u) -> f (n, image encoder's dim), g (n, text encoder's dim) ->
z_I, z_T (n, dim).

Requirements: images with captions. If an image has several captions, one is drawn each time. Two equal
captions in a batch are negatives of each other, as in the paper. The only augmentation is a random crop. The
encoders may be pretrained: --encoder hf:NAME, or --init-from RUN of a run on images; --text-encoder hf:NAME.
Both encoders may come from the same CLIP model of transformers, by the same name. They then keep its
projections, its embedding space and its temperature.

Relations: `dpr` between two modalities instead of two texts, in both directions, with the cosine and a
learned temperature; `simclr` with a caption as the second view. The heads are linear: the paper found no
difference to non-linear heads.

Reference: Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021,
arXiv:2103.00020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from nearfar.core import Card, Embeddings, Net, RandomKey, Recipe, Sizes, TrainConfig, Views
from nearfar.encoders import Pooling
from nearfar.losses import clip
from nearfar.scores import Temperature, unit_dot
from nearfar.similarity.augment import ImageViews
from nearfar.similarity.compose import Compose
from nearfar.similarity.geometric_ops import Crop
from nearfar.similarity.image_text import ImageCaptionPairs


@dataclass(frozen=True)
class CLIP(Recipe):
    """Contrastive language-image pretraining."""

    card = Card(
        title="CLIP",
        paper="arXiv:2103.00020",
        year=2021,
        modality="image-text",
        similarity="multisensory",
        query="image, caption",
        positive="the caption of the image, the image of the caption",
        negative="the other captions, the other images of the batch",
        encoder="ResNet or ViT for images, transformer for texts",
        head="one linear map each",
        score="cosine, learned temperature",
        loss="InfoNCE in both directions",
        equation=r"\mathcal L = -\frac{1}{2n} \sum_i \left[ \log \frac{e^{s_{ii}}}{\sum_j e^{s_{ij}}}"
        r" + \log \frac{e^{s_{ii}}}{\sum_j e^{s_{ji}}} \right], \quad s_{ij} = e^{t} \cos(W_I f(I_i), W_T g(T_j))",
        family="NCE and softmax",
        similarity_type=("multisensory",),
        head_type=("projection",),
    )
    towers: ClassVar = {"text_encoder": "text"}
    limits: ClassVar = {"dropout": (0.0, 0.9), "min_crop_scale": (0.01, 1.0)}

    text_encoder: str = "bert-tiny"
    """Encoder of the captions. Choices: bert-tiny, bert-mini, bert-small, bert-medium, bert-base (random
    weights), gru, bag, or hf:NAME-OR-FOLDER for any text model of transformers, with its tokenizer."""
    dim: int = 128
    """Dimension of the shared space of images and texts. A pretrained CLIP keeps its own dimension."""
    temperature: float = 0.07
    """Initial temperature; it is learned. The scale 1 / temperature is limited to 100. A pretrained CLIP
    keeps its own."""
    min_crop_scale: float = 0.6
    """Smallest share of an image that a random crop keeps."""
    dropout: float = 0.1
    """Dropout rate of every dropout layer of the text encoder."""
    pooling: Pooling = "mean"
    """Pooling of token vectors: cls, mean, or first-last (the mean of the first and last layers)."""

    prompts: tuple[str, ...] = ("a photo of a {}", "a picture of the {}")
    """Prompt templates for class names in zero-shot classification. The text vectors of all prompts are
    averaged."""

    def similarity(self, net: Net) -> ImageCaptionPairs:
        return ImageCaptionPairs(ImageViews((Compose(Crop(net.sizes["size"], scale=(self.min_crop_scale, 1.0))),)))

    def build(self, sizes: Sizes, encoder, text_encoder) -> Net:
        paired = encoder.shared_space is not None and encoder.shared_space == getattr(text_encoder, "shared_space", None)
        return Net(
            encoder=encoder,
            text_encoder=text_encoder.configure(self.pooling, self.dropout),
            W_I=nn.Identity() if paired else nn.Linear(encoder.dim, self.dim, bias=False),
            W_T=nn.Identity() if paired else nn.Linear(text_encoder.dim, self.dim, bias=False),
            temperature=Temperature(text_encoder.temperature if paired else self.temperature, max_scale=100.0),
        )

    def embed(self, net: Net, x: Views, rng_key: RandomKey) -> Embeddings:
        return {"image": self.encode(net, x["v0"], "image"), "text": self.encode(net, x["v1"], "text")}

    def objective(self, net: Net, z: Embeddings, rng_key: RandomKey) -> dict[str, Tensor]:
        scale = net.temperature()
        return {"loss": clip(z["image"], z["text"], scale, score=unit_dot), "temperature": 1 / scale.detach()}

    def update(self, net: Net, z: Embeddings, progress: float) -> None:
        net.temperature.clamp_scale()

    def encode(self, net: Net, x: Any, tower: str = "encoder") -> Tensor:
        """Return unit vectors of images (tower "image") or texts (tower "text").

        The default tower, "encoder", chooses by the shape of x: images have four axes, token ids two.
        """
        if tower == "text" or (tower == "encoder" and x.ndim == 2):
            return F.normalize(net.W_T(net.text_encoder(x)), dim=1)
        return F.normalize(net.W_I(net.encoder(x)), dim=1)


paper = CLIP(text_encoder="bert-medium", dim=1024, min_crop_scale=0.9, dropout=0.0), TrainConfig(
    data="captions.parquet", encoder="resnet50-imagenet", image_size=224, vocab_size=49152, max_length=76, batch_size=32768, epochs=32,
    lr=5e-4, weight_decay=0.2, warmup_ratio=0.005, precision="bf16",
)  # fmt: skip

reported = {
    "ImageNet zero-shot top-1, ViT-L/14 at 336 px": (76.2, "arXiv:2103.00020, table 1"),
    "Flickr30k zero-shot text to image R@1": (68.7, "arXiv:2103.00020, table 13"),
    "Flickr30k zero-shot image to text R@1": (88.0, "arXiv:2103.00020, table 13"),
}

tiny = CLIP(text_encoder="bag", dim=64, prompts=("the digit {}", "this is a {}")), TrainConfig(
    data="digits-captions", vocab_size=512, max_length=16, steps=200, batch_size=64, lr=2e-3,
)  # fmt: skip
