"""Gradient of one training step: computed at once, in chunks or over ranks.

The objective is that of the global batch.

    views -> embed -| detach, gather: z |-> objective -> dL/dz -> backward through embed, chunk by chunk

`embed` works row by row, and `objective` sees all rows. One dictionary of tensors, z, connects the two parts.
The gradient of z is all that the backward pass through `embed` needs. It does not matter how that gradient
was computed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from nearfar.core import Embeddings, NearfarError, Net, RandomKey, RawBatch, Recipe, Rows, Similarity
from nearfar.core.rank_sharing import shared_over_ranks
from nearfar.core.ranks import gather_from_ranks, get_rank, get_world_size
from nearfar.train import recipe_outputs
from nearfar.train.cuda_graph import StepRecorder, UnrecordableKey
from nearfar.train.gradient_buckets import GradientBuckets
from nearfar.train.optimizers import select_parameters


class GradStep:
    """Function that computes the exact gradient of a recipe's objective on the global batch.

    `GradStep(recipe, net, rng_key)(similarity, raws, row_chunks, step)` leaves the gradient in `p.grad` of
    the recipe's parameters.

    With one chunk, the autograd graph of `embed` is kept. With several chunks it is built again in the
    backward pass, so that only the activations of one chunk are in memory at a time. The gradient is exact
    for encoders without batch statistics. BatchNorm normalizes over the rows that it sees at once (with
    `nearfar.train.sync_batch_norm`, over those of all ranks).
    """

    def __init__(self, recipe: Recipe, net: Net, rng_key: RandomKey, autocast_dtype: torch.dtype | None = None, cuda_graph: bool = False):
        self.recipe, self.net, self.rng_key, self.autocast_dtype = recipe, net, rng_key, autocast_dtype
        self.params = [p for _, p in select_parameters(net, recipe.trains)]
        mine = {id(p) for p in self.params}
        self.frozen_params = [p for p in net.parameters() if p.requires_grad and id(p) not in mine]
        self.device = next(net.parameters()).device
        self.recorder = StepRecorder(self._to_record, self.params) if cuda_graph and self.device.type == "cuda" else None

    def __call__(
        self, similarity: Similarity, raws: Sequence[RawBatch], row_chunks: Sequence[Rows], step: int
    ) -> tuple[dict[str, Tensor], Embeddings]:
        """Compute the gradient of one step.

        Args:
            similarity: similarity of the recipe.
            raws: raw samples of each chunk.
            row_chunks: this rank's rows, one entry for each chunk.
            step: number of the step.

        Returns:
            The values that the objective logs, and z: the detached tensors of the global batch.
        """
        if not self.recipe.rowwise and (len(row_chunks) > 1 or get_world_size() > 1):
            raise NearfarError(f"{type(self.recipe).__name__} embeds all rows at once: it runs on one rank and without --chunk-size")
        chunks = list(zip(raws, row_chunks, strict=True))
        with _without_gradient(self.frozen_params):
            if len(chunks) == 1 and get_world_size() == 1:
                log, z = self._replayed(similarity, *chunks[0], step) or self._whole(similarity, *chunks[0], step)
            else:
                log, z = self._cut_and_gather(similarity, chunks, step)
        return {k: v.detach() for k, v in log.items()}, {k: v.detach() for k, v in z.items()}

    def _replayed(self, similarity: Similarity, raw: RawBatch, rows: Rows, step: int) -> tuple[dict[str, Tensor], Embeddings] | None:
        recorder = self.recorder
        if recorder is None or not recorder.is_ready(similarity):
            return None
        self._seed_torch(step, 0)
        return recorder(similarity, raw, rows)

    def _seed_torch(self, step: int, chunk: int) -> None:
        """Seed torch's generators from the step, the chunk and the rank.

        The random numbers that torch draws in views and in `embed` (dropout) then depend on nothing else.
        """
        self.rng_key("dropout", step, chunk, get_rank()).seed_torch()

    def _to_record(self, similarity: Similarity, raw: RawBatch, rows: Rows) -> tuple[dict[str, Tensor], Embeddings]:
        log, z = self._whole(similarity, raw, rows, None)
        return {k: v.detach() for k, v in log.items()}, {k: v.detach() for k, v in z.items()}

    def _whole(self, similarity: Similarity, raw: RawBatch, rows: Rows, step: int | None) -> tuple[dict[str, Tensor], Embeddings]:
        """Compute the gradient of one chunk on one rank.

        The graph is not cut, and one backward pass goes from the loss to the parameters.
        """
        part = self._embed(similarity, raw, rows, step, 0, grad=True)
        z = {k: _single(v) for k, v in part.items()}
        return self._objective(z, step), z

    def _cut_and_gather(
        self, similarity: Similarity, chunks: list[tuple[RawBatch, Rows]], step: int
    ) -> tuple[dict[str, Tensor], Embeddings]:
        whole = len(chunks) == 1
        local = [self._embed_first(similarity, *chunk, step, i, grad=whole) for i, chunk in enumerate(chunks)]
        z, own = _cut(local)
        log = self._objective(z, step)
        self._count_objective_once()
        at_cut = {k: v.grad[own[k]] for k, v in z.items() if v.grad is not None}
        if whole:
            with self._summed_over_ranks():
                _backward(local[0], at_cut)
        else:
            self._backward_again(similarity, chunks, step, at_cut)
        return log, z

    def _objective(self, z: Embeddings, step: int | None) -> dict[str, Tensor]:
        """Compute the recipe's objective on the global batch, and its gradient.

        Ranks share the rows of its tables.
        """
        with shared_over_ranks():
            log = recipe_outputs.check_objective(self.recipe, self.recipe.objective(self.net, z, self._rng_key("objective", step)))
            recipe_outputs.check_loss_depends(self.recipe, log["loss"])
            log["loss"].backward()
        return log

    def _embed_first(self, similarity: Similarity, raw: RawBatch, rows: Rows, step: int, chunk: int, grad: bool) -> Embeddings:
        """Embed a chunk as `_embed` does.

        Only the first chunk updates BatchNorm's running statistics, so that they change once per step.
        """
        with freeze_batch_norm_statistics(self.net) if chunk else contextlib.nullcontext():
            return self._embed(similarity, raw, rows, step, chunk, grad)

    def _embed(self, similarity: Similarity, raw: RawBatch, rows: Rows, step: int | None, chunk: int, grad: bool) -> Embeddings:
        """Embed the views of a chunk.

        The same arguments always give the same values.
        """
        if step is not None:
            self._seed_torch(step, chunk)
        with torch.no_grad():
            x = similarity.view(raw, rows, self.rng_key("view"))
        x["id"] = torch.as_tensor(rows.ids).to(self.device, non_blocking=True)
        x["slot"] = torch.as_tensor(rows.slots).to(self.device, non_blocking=True)
        # Each pass has its own autocast region: a shared cache could return weights without a graph.
        region = torch.autocast(self.device.type, self.autocast_dtype) if self.autocast_dtype else contextlib.nullcontext()
        with torch.set_grad_enabled(grad), region:
            return recipe_outputs.check_embedded(self.recipe, self.recipe.embed(self.net, x, self._rng_key("embed", step)))

    def _rng_key(self, name: str, step: int | None) -> RandomKey:
        """Return the random key of a step.

        The number of a step that is being recorded is unknown. Its key cannot be recorded.
        """
        return UnrecordableKey(0) if step is None else self.rng_key(name, step)

    def _count_objective_once(self) -> None:
        """Drop the gradient of the objective's parameters on all ranks but the first.

        Every rank holds the whole gradient of the parameters behind the cut. The sum over ranks must count it
        once.
        """
        for p in self.params if get_rank() else ():
            p.grad = None

    @functools.cached_property
    def _buckets(self) -> GradientBuckets:
        return GradientBuckets(self.params)

    def _summed_over_ranks(self) -> contextlib.AbstractContextManager:
        """Sum gradients over the ranks during the last backward pass of a step.

        Gradients are sent while the backward pass continues.
        """
        return self._buckets.reduce_gradients() if get_world_size() > 1 else contextlib.nullcontext()

    def _backward_again(self, similarity: Similarity, chunks: list[tuple[RawBatch, Rows]], step: int, at_cut: Embeddings) -> None:
        start = dict.fromkeys(at_cut, 0)
        for i, chunk in enumerate(chunks):
            with freeze_batch_norm_statistics(self.net):
                part = self._embed(similarity, *chunk, step, i, grad=True)
            with self._summed_over_ranks() if i == len(chunks) - 1 else contextlib.nullcontext():
                _backward(part, {k: g[start[k] : start[k] + len(part[k])] for k, g in at_cut.items()})
            start = {k: start[k] + len(part[k]) for k in at_cut}


def _cut(local: list[Embeddings]) -> tuple[Embeddings, dict[str, slice]]:
    """Gather the global batch as fp32 leaf tensors of a new graph.

    Returns them with the range of this rank's rows.
    """
    z: Embeddings = {}
    own: dict[str, slice] = {}
    for name in local[0]:
        rows = torch.cat([part[name].detach() for part in local]) if len(local) > 1 else local[0][name].detach()
        whole, own[name] = gather_from_ranks(_single(rows))
        z[name] = whole.requires_grad_(whole.is_floating_point())
    return z, own


def _single(x: Tensor) -> Tensor:
    """Convert half precision to fp32.

    Losses compute in fp32 at least, for any precision of the encoder.
    """
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def _backward(part: Embeddings, gradient: Embeddings) -> None:
    live = [k for k in gradient if part[k].requires_grad]
    if live:
        torch.autograd.backward([part[k] for k in live], [gradient[k].to(part[k].dtype) for k in live])


@contextlib.contextmanager
def freeze_batch_norm_statistics(net: nn.Module) -> Iterator[None]:
    """Freeze the running statistics of BatchNorm within the block.

    It still normalizes as in training. The running statistics change only once per step.
    """
    norms = [m for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    for m in norms:
        m.track_running_stats = False
    try:
        yield
    finally:
        for m in norms:
            m.track_running_stats = True


@contextlib.contextmanager
def _without_gradient(params: list[nn.Parameter]) -> Iterator[None]:
    """Turn off the gradients of these parameters within the block.

    They belong to the phase of another recipe.
    """
    for p in params:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in params:
            p.requires_grad_(True)
