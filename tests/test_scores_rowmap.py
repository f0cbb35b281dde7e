"""rowmap against plain autograd on the whole: values, gradients, blocks, refusals."""

from __future__ import annotations

import pytest
import torch

from nearfar.core import NearfarError, UsageError
from nearfar.scores import rowmap


def _problem(n: int = 11, m: int = 7, d: int = 4):
    g = torch.Generator().manual_seed(0)
    x, w, k = (torch.randn(*shape, generator=g, dtype=torch.float64).requires_grad_() for shape in [(n, d), (d, d), (m, d)])
    label, other = torch.arange(n) % 3, torch.arange(m) % 3
    return x, label, k, w, other


def _two_results(x, label, k, w, other):
    s = (x @ w @ k.T).tanh() + 0.1 * (label[:, None] == other)
    return s.logsumexp(1), s.square() @ k


@pytest.mark.parametrize("block", [1, 2, 5, 11, 100])
def test_values_and_gradients_equal_plain_autograd_for_every_block(block):
    x, label, k, w, other = _problem()
    plain = _two_results(x, label, k, w, other)
    streamed = rowmap(_two_results, (x, label), (k, w, other), block)
    assert isinstance(streamed, tuple)
    weights = [torch.cos(torch.arange(r.numel(), dtype=r.dtype)).view_as(r) for r in plain]
    for a, b in zip(plain, streamed, strict=True):
        torch.testing.assert_close(a, b)
    expected, found = (
        torch.autograd.grad(sum((r * c).sum() for r, c in zip(rs, weights, strict=True)), (x, k, w)) for rs in (plain, streamed)
    )
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(a, b)


def test_gradcheck():
    x, label, k, w, other = _problem(5, 3, 2)
    assert torch.autograd.gradcheck(lambda x, k, w: rowmap(_two_results, (x, label), (k, w, other), 2), (x, k, w))


def test_same_tensor_as_rows_and_shared_gets_both_gradients():
    x = _problem()[0]
    whole = (x @ x.T).exp().sum()
    streamed = rowmap(lambda a, b: (a @ b.T).exp().sum(1), (x,), (x,), 3).sum()
    torch.testing.assert_close(*(torch.autograd.grad(y, x)[0] for y in (whole, streamed)))


def test_integer_results_pass_without_gradient():
    x, _, k, _, _ = _problem()
    nearest, best = rowmap(lambda a, b: ((a @ b.T).argmax(1), (a @ b.T).amax(1)), (x,), (k,), 4)
    assert not nearest.requires_grad
    assert nearest.dtype == torch.long
    torch.testing.assert_close(best, (x @ k.T)[torch.arange(len(x)), nearest])
    best.sum().backward()
    assert x.grad is not None


def test_no_rows():
    k = torch.randn(3, 2, requires_grad=True)
    y = rowmap(lambda a, b: a @ b.T, (torch.zeros(0, 2),), (k,), 4)
    assert isinstance(y, torch.Tensor)
    assert y.shape == (0, 3)
    y.sum().backward()
    assert k.grad is not None
    assert not k.grad.any()


def test_differentiating_twice_is_an_error():
    x, _, k, _, _ = _problem()
    y = rowmap(lambda a, b: (a @ b.T).exp().sum(1), (x,), (k,), 4)
    with pytest.raises(NearfarError, match="only once"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


def test_a_captured_parameter_is_refused_instead_of_losing_its_gradient():
    x, _, k, w, _ = _problem()
    y = rowmap(lambda a, b: (a @ w @ b.T).sum(1), (x,), (k,), 4)
    with pytest.raises(UsageError, match=r"closes over a tensor of shape \(4, 4\)"):
        y.sum().backward()


def test_wrong_calls_are_named():
    x, _, k, _, _ = _problem()
    with pytest.raises(UsageError, match="one length"):
        rowmap(lambda a, b: a, (x, k))
    with pytest.raises(UsageError, match="one row for each of its 4 rows"):
        rowmap(lambda a, b: a.sum(), (x,), (k,), 4)
    with pytest.raises(UsageError, match="block must be at least 1"):
        rowmap(lambda a: a, (x,), (), 0)
