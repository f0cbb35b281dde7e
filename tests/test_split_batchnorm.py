"""Batch normalization by groups against torch's own on each group alone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from nearfar.core import UsageError
from nearfar.heads.split_batch_norm import SplitBatchNorm, split_batch_norm
from nearfar.train.sync_batch_norm import synchronize_batch_norm

CASES = [(nn.BatchNorm1d, (12, 5)), (nn.BatchNorm1d, (12, 5, 7)), (nn.BatchNorm2d, (12, 5, 3, 4)), (nn.BatchNorm3d, (6, 2, 3, 2, 2))]
CASES = [*CASES, (lambda c: nn.BatchNorm1d(c, affine=False), (12, 5)), (lambda c: nn.BatchNorm2d(c, momentum=None), (12, 5, 3, 4))]


def pair(make, shape: tuple[int, ...], groups: int) -> tuple[nn.Module, nn.Module, torch.Tensor]:
    """The same layer plain and split, with weights of its own, and an input whose rows drift, so that groups differ."""
    draw = torch.Generator().manual_seed(0)
    plain = make(shape[1]).double()
    for p in plain.parameters():
        nn.init.uniform_(p, 0.5, 2.0, generator=draw)
    split = copy.deepcopy(plain)
    split_batch_norm(split, groups)
    x = torch.randn(*shape, dtype=torch.float64, generator=draw)
    return plain, split, x + torch.arange(shape[0]).view(-1, *[1] * (len(shape) - 1))


@pytest.mark.parametrize(("make", "shape"), CASES)
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_every_group_is_normalised_as_if_it_were_the_batch(make, shape, groups):
    plain, split, x = pair(make, shape, groups)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    g = torch.randn(*shape, dtype=torch.float64)
    alone = [copy.deepcopy(plain) for _ in range(groups)]
    expected = torch.cat([layer(part) for layer, part in zip(alone, a.chunk(groups), strict=True)])
    found = split(b)
    torch.testing.assert_close(found, expected)
    (expected * g).sum().backward()
    (found * g).sum().backward()
    torch.testing.assert_close(b.grad, a.grad)
    for name, p in split.named_parameters():
        torch.testing.assert_close(p.grad, sum(dict(layer.named_parameters())[name].grad for layer in alone))
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(split, name), torch.stack([getattr(layer, name) for layer in alone]).mean(0))
    assert int(split.num_batches_tracked) == 1


def test_in_evaluation_it_is_any_batch_norm():
    plain, split, x = pair(nn.BatchNorm2d, (12, 5, 3, 4), 3)
    split(x)
    plain.load_state_dict(split.state_dict())
    assert torch.equal(split.eval()(x[:7]), plain.eval()(x[:7]))


def test_half_precision_is_normalised_in_single_and_layout_is_kept():
    _, split, x = pair(nn.BatchNorm2d, (12, 8, 4, 4), 3)
    x = x.to(torch.bfloat16, memory_format=torch.channels_last)
    y = split.float()(x)
    assert y.dtype == torch.bfloat16
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y.float(), split(x.float()), rtol=1e-2, atol=2e-2)


def test_statistics_are_left_alone_where_they_are_not_tracked():
    _, split, x = pair(nn.BatchNorm1d, (12, 5), 2)
    split.track_running_stats = False
    split(x)
    assert torch.equal(split.running_mean, torch.zeros(5, dtype=torch.float64))


def test_a_batch_that_does_not_divide_is_one_clear_error():
    _, split, x = pair(nn.BatchNorm1d, (12, 5), 5)
    with pytest.raises(UsageError, match="12 images cannot be divided into 5 equal groups"):
        split(x)
    _, split, x = pair(nn.BatchNorm1d, (12, 5), 12)
    with pytest.raises(UsageError, match="12 images cannot be divided into 12 equal groups"):
        split(x)


def test_names_and_objects_stay_and_other_layers_too():
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.GroupNorm(2, 4))
    before, parts = list(module.state_dict()), list(module)
    split_batch_norm(module, 2)
    assert list(module.state_dict()) == before
    assert all(a is b for a, b in zip(module, parts, strict=True))
    synchronize_batch_norm(module, torch.device("cpu"))
    assert [type(m) for m in module] == [nn.Conv2d, SplitBatchNorm, nn.GroupNorm], "nor does it become one over all ranks"
