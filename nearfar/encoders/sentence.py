"""Ready-made sentence encoder from a local folder in the format of sentence-transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import UsageError
from nearfar.data.common.tokenizer import load_pretrained_tokenizer
from nearfar.encoders.pretrained import read_pretrained_config
from nearfar.encoders.text import Pooling, load_text_encoder

_POOLING: dict[str, Pooling] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


class SentenceEncoder:
    """Encoder `hf:FOLDER` with its tokenizer, pooling and normalization.

        encoder = SentenceEncoder("all-MiniLM-L6-v2", device="cpu")
        encoder.encode(["a text", "another"])  # (2, 384)

    Pooling, normalization and the maximum number of tokens come from the folder's own settings
    (1_Pooling/config.json, modules.json, sentence_bert_config.json). A plain transformers folder has no such
    settings: its texts get the mean of their tokens, without normalization.
    """

    def __init__(self, folder: str | Path, device: str | torch.device = "cpu", batch_size: int = 64):
        folder, self.batch_size, self.device = Path(folder), batch_size, torch.device(device)
        self.pooling = _pooling(_settings(folder / "1_Pooling" / "config.json"), folder)
        self.normalize = any(str(m.get("type", "")).endswith(".Normalize") for m in _settings(folder / "modules.json") or [])
        config = read_pretrained_config(f"hf:{folder}")["architecture"]
        self.max_length = int(
            _settings(folder / "sentence_bert_config.json").get("max_seq_length") or config.get("max_position_embeddings", 512)
        )
        self.tokenizer = load_pretrained_tokenizer(str(folder))
        sizes = {"vocab_size": self.tokenizer.vocab_size, "max_length": self.max_length, "special": self.tokenizer.special_ids}
        self.model = load_text_encoder(str(folder), sizes).configure(self.pooling, 0.0).to(self.device).eval()
        self.dim = self.model.dim

    @torch.no_grad()
    def encode(self, texts: list[str], progress: Callable[[int, int], None] | None = None) -> Float[Tensor, "n d"]:
        """Return the vectors of the texts, in their order, on the model's device.

        Texts of similar length share a batch, which reduces padding.

        Args:
            texts: the texts.
            progress: function called after each batch with the number of texts done and in total.
        """
        out = torch.empty(len(texts), self.dim, device=self.device)
        tokens = self.tokenizer.encode(texts, self.max_length)
        order = np.argsort(-np.diff(tokens.starts), kind="stable")
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            x = self.model(tokens.pad_rows(rows, self.tokenizer.special_ids["pad"]).to(self.device)).float()
            out[torch.from_numpy(rows).to(self.device)] = F.normalize(x, dim=1) if self.normalize else x
            if progress:
                progress(start + len(rows), len(texts))
        return out


def _settings(path: Path) -> Any:
    """Read a settings file. Return {} if there is none."""
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as e:
        raise UsageError(f"{path} is not readable JSON ({e})") from e


def _pooling(settings: dict[str, Any], folder: Path) -> Pooling:
    wanted = [name for name, on in settings.items() if name.startswith("pooling_mode") and on is True]
    if not wanted:
        return "mean"
    if len(wanted) > 1 or wanted[0] not in _POOLING:
        raise UsageError(f"{folder / '1_Pooling' / 'config.json'}: pooling by {' and '.join(wanted)} is not supported: use mean or cls")
    return _POOLING[wanted[0]]
