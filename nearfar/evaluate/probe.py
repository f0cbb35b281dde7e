"""Linear probe: multinomial logistic regression on frozen features.

The fit runs to convergence with a fixed penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nearfar.core import DataError, RandomKey
from nearfar.core.argument_checks import check_positive
from nearfar.evaluate.input_checks import TestX, TestY, TrainX, TrainY, check_features, check_labels, standardize_columns

GRADIENT_TOLERANCE = 1e-6
"""Gradient tolerance of a search: largest entry of the gradient at which it stops.

The gradient is in the coordinates of the search. The precision of float32 products ends most searches
earlier, near 1e-5.
"""
CONVERGENCE_TOLERANCE = 1e-3
"""Gradient tolerance for convergence: largest entry of the gradient in a converged fit.

The gradient is in coordinates where the Hessian is about 1 and in units of the square root of the loss. Each
weight then adds at most about 5e-7 of the loss to it.
"""
MAX_ROUNDS, ITERATIONS_PER_ROUND, EVALUATIONS_PER_ITERATION = 40, 25, 25
"""Maximum rounds per fit, iterations per round and evaluations per iteration."""
PENALTY_CANDIDATES = (1e-4, 1e-3, 1e-2, 0.1, 1.0)
"""Values of C that `choose_penalty` tries."""


@dataclass(frozen=True)
class LinearClassifier:
    """Fitted linear classifier with scores = x weight^T + bias.

    Column c of the scores stands for `classes[c]`.
    """

    weight: Float[Tensor, "c d"]
    bias: Float[Tensor, " c"]
    classes: Int[Tensor, " c"]
    loss: float
    iterations: int
    converged: bool

    def predict(self, x: Float[Tensor, "m d"]) -> Int[Tensor, " m"]:
        """Predict the class of each sample."""
        x = check_features(x, "features to be classified")
        return self.classes[(x @ self.weight.T + self.bias).argmax(1)]


@dataclass(frozen=True)
class ProbeResult:
    """Accuracy of a linear probe on both splits, and the protocol.

    The protocol is the inverse penalty `C` (as in scikit-learn) and `standardize`: True if features were
    standardized.
    """

    accuracy: float
    train_accuracy: float
    C: float
    standardize: bool
    iterations: int
    converged: bool


def linear_probe(train_x: TrainX, train_y: TrainY, test_x: TestX, test_y: TestY, C: float = 1.0, standardize: bool = True) -> ProbeResult:
    """Fit a linear probe and measure its test accuracy.

    `standardize` scales features with the mean and deviation of the training split. The penalty is fixed
    beforehand or chosen on training rows (`choose_penalty`), never on the test split.
    """
    train, test = check_features(train_x, "training features"), check_features(test_x, "test features")
    y, truth = check_labels(train_y, train, "training labels"), check_labels(test_y, test, "test labels")
    if standardize:
        train, test = standardize_columns(train, test)
    fitted = fit_linear(train, y, C)
    return ProbeResult(
        _compute_accuracy(fitted.predict(test) == truth),
        _compute_accuracy(fitted.predict(train) == y),
        C,
        standardize,
        fitted.iterations,
        fitted.converged,
    )


def choose_penalty(
    x: TrainX, y: TrainY, rng_key: RandomKey, candidates: Sequence[float] = PENALTY_CANDIDATES, standardize: bool = True
) -> float:
    """Choose the C with the best accuracy on held-out training rows.

    A random fifth of the training rows, drawn by `rng_key`, is held out. The other rows are for fitting. Ties
    go to the strongest penalty.
    """
    rows = check_features(x, "training features")
    labels = check_labels(y, rows, "training labels")
    order = torch.as_tensor(rng_key("held out").permutation(len(rows)), device=rows.device)
    if len(rows) < 5:
        raise DataError(f"chosen_penalty: at least 5 rows are needed to hold out a fifth, got {len(rows)}")
    held, kept = order[: len(rows) // 5], order[len(rows) // 5 :]
    return max(sorted(candidates), key=lambda C: linear_probe(rows[kept], labels[kept], rows[held], labels[held], C, standardize).accuracy)


def _compute_accuracy(hits: Tensor) -> float:
    return float(hits.double().mean())


def fit_linear(x: Float[Tensor, "n d"], y: Int[Tensor, " n"], C: float = 1.0, tolerance: float = GRADIENT_TOLERANCE) -> LinearClassifier:
    r"""Fit a multinomial logistic regression.

    L-BFGS runs on all rows at once. The result minimizes the objective of scikit-learn's `LogisticRegression`
    divided by C n:

    \[ \frac{1}{n} \sum_i -\log \mathrm{softmax}(W x_i + b)_{y_i} + \frac{1}{2 C n} \lVert W \rVert^2 \]

    Features of one encoder are strongly correlated, so plain L-BFGS is slow. The search therefore runs on
    V = W L, where L L^T is nearly the Hessian. In these coordinates the problem is well conditioned: tens of
    iterations instead of thousands. L is recomputed every few iterations, because the Hessian shrinks as rows
    become certain.

    Products with `x` are float32, everything else is float64.
    """
    check_positive(C=C)
    x = check_features(x, "training features")
    y = check_labels(y, x, "training labels")
    classes, target = y.unique(return_inverse=True)
    mean = x.mean(0)
    # The bias is not penalized, so centering changes only the conditioning.
    rows, basis = _project_to_row_span(x - mean)
    w = torch.zeros(len(classes), rows.shape[1], dtype=torch.float64, device=x.device)
    b = torch.zeros(len(classes), dtype=torch.float64, device=x.device)
    last, iterations = _descend(rows, target, w, b, C, tolerance), 0
    for _ in range(MAX_ROUNDS - 1):
        if last.stalled or (last.converged and last.iterations < ITERATIONS_PER_ROUND):
            break
        iterations += last.iterations
        last = _descend(rows, target, last.w, last.b, C, tolerance)
    w = last.w.float() if basis is None else last.w.float() @ basis.T
    return LinearClassifier(w, last.b.float() - w @ mean, classes, last.loss, iterations + last.iterations, last.converged)


@dataclass(frozen=True, eq=False)
class _Round:
    """State at the end of one round of the search.

    It holds weights, bias and loss at the end, the loss at the start, and the largest entry of the gradient.
    """

    w: Tensor
    b: Tensor
    before: float
    loss: float
    steepest: float
    iterations: int

    @property
    def converged(self) -> bool:
        """Return True if the gradient is small enough.

        The coordinates are those of the start of the round. The Hessian shrinks about as the loss does, and
        its square root as the square root of the loss. In the coordinates of the end, the gradient is larger
        by sqrt(before / loss), and that value is compared with sqrt(loss).
        """
        return self.steepest * self.before**0.5 <= CONVERGENCE_TOLERANCE * self.loss

    @property
    def stalled(self) -> bool:
        """Return True if the loss fell by less than the precision of float32."""
        return self.before - self.loss <= torch.finfo(torch.float32).eps * self.loss


def _descend(rows: Tensor, target: Tensor, w: Tensor, b: Tensor, C: float, tolerance: float) -> _Round:
    """Run one round of L-BFGS from (w, b).

    Its coordinates fit the curvature at the start.
    """
    factor, unit = _factor_curvature(rows, w, b, C)
    v, u = (w @ factor).requires_grad_(), (b * unit).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [v, u],
        max_iter=ITERATIONS_PER_ROUND,
        max_eval=ITERATIONS_PER_ROUND * EVALUATIONS_PER_ITERATION,
        tolerance_grad=tolerance,
        tolerance_change=1e-13,
        history_size=ITERATIONS_PER_ROUND,
        line_search_fn="strong_wolfe",
    )

    def back() -> tuple[Tensor, Tensor]:
        return torch.linalg.solve_triangular(factor, v, upper=False, left=False), u / unit

    def objective() -> Tensor:
        optimizer.zero_grad()
        w, b = back()
        loss = F.cross_entropy((rows @ w.float().T).double() + b, target) + w.square().sum() / (2 * C * len(rows))
        loss.backward()
        return loss

    with torch.enable_grad():
        before = float(optimizer.step(objective).detach())
        loss = float(objective().detach())
    assert v.grad is not None
    assert u.grad is not None
    steepest = float(torch.cat([v.grad.flatten(), u.grad]).abs().max())
    w, b = (t.detach() for t in back())
    return _Round(w, b, before, loss, steepest, int(optimizer.state[v]["n_iter"]))


def _project_to_row_span(rows: Tensor) -> tuple[Tensor, Tensor | None]:
    """Project rows with more columns than rows onto their span.

    The solution lies in this span, so n coordinates describe it as well as d.
    """
    if rows.shape[1] <= len(rows):
        return rows, None
    basis = torch.linalg.qr(rows.T).Q
    return rows @ basis, basis


def _factor_curvature(rows: Tensor, w: Tensor, b: Tensor, C: float) -> tuple[Tensor, Tensor]:
    """Compute the Cholesky factor of the Hessian of one class, averaged over classes.

    Also returns the square root of the curvature of the bias. A small ridge, proportional to the trace,
    covers the rounding error of the float32 product.
    """
    p = ((rows @ w.float().T).double() + b).softmax(1)
    uncertain = (p * (1 - p)).sum(1) / 2
    gram = ((rows * uncertain.float()[:, None]).T @ rows).double() / len(rows)
    ridge = 1 / (C * len(rows)) + 1e-6 * gram.trace()
    factor = torch.linalg.cholesky(gram + ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device))
    return factor, uncertain.mean().clamp_min(1e-9).sqrt()
