"""The linear probe: multinomial logistic regression on frozen features, to convergence, with a fixed penalty."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nearfar.evaluate.inputs import TestX, TestY, TrainX, TrainY, as_features, as_labels, standardised

TOLERANCE = 1e-6
MAX_ITERATIONS = 500


@dataclass(frozen=True)
class Linear:
    """A fitted classifier: scores = x weight^T + bias; column c of the scores stands for `classes[c]`."""

    weight: Float[Tensor, "c d"]
    bias: Float[Tensor, " c"]
    classes: Int[Tensor, " c"]
    loss: float
    iterations: int
    converged: bool

    def predict(self, x: Float[Tensor, "m d"]) -> Int[Tensor, " m"]:
        return self.classes[(x @ self.weight.T + self.bias).argmax(1)]


@dataclass(frozen=True)
class Probe:
    """Accuracy on both splits and the protocol: penalty `C` (as in scikit-learn) and whether features were scaled."""

    accuracy: float
    train_accuracy: float
    C: float
    scale: bool
    iterations: int
    converged: bool


def linear_probe(train_x: TrainX, train_y: TrainY, test_x: TestX, test_y: TestY, C: float = 1.0, scale: bool = True) -> Probe:
    """Fit on the training split, count on the test split; `scale` standardises by the training split's mean and deviation.

    The penalty is fixed beforehand, never chosen on the test split.
    """
    train, test = as_features(train_x, "training features"), as_features(test_x, "test features")
    y, truth = as_labels(train_y, train, "training labels"), as_labels(test_y, test, "test labels")
    if scale:
        train, test = standardised(train, test)
    fitted = fit_linear(train, y, C)
    return Probe(_share(fitted.predict(test) == truth), _share(fitted.predict(train) == y), C, scale, fitted.iterations, fitted.converged)


def _share(hits: Tensor) -> float:
    return float(hits.double().mean())


def fit_linear(x: Float[Tensor, "n d"], y: Int[Tensor, " n"], C: float = 1.0, tolerance: float = TOLERANCE) -> Linear:
    r"""The minimiser, by L-BFGS on all rows at once, of scikit-learn's `LogisticRegression` objective divided by C n:

    \[ \frac{1}{n} \sum_i -\log \mathrm{softmax}(W x_i + b)_{y_i} + \frac{1}{2 C n} \lVert W \rVert^2 \]

    Features of one encoder are strongly correlated, which makes plain L-BFGS crawl. So it runs on V = W L, where
    L L^T is an upper bound of the Hessian (Böhning, Multinomial logistic regression algorithm, 1992), in which the
    problem is nearly round: some tens of iterations instead of thousands. Products with `x` are float32, all else float64.
    """
    classes, target = y.unique(return_inverse=True)
    mean = x.mean(0)
    # The bias is not penalised, so centring changes nothing but the conditioning.
    rows, basis = _within_span(x - mean)
    factor = _hessian_bound(rows, C)
    v = torch.zeros(len(classes), rows.shape[1], dtype=torch.float64, device=x.device, requires_grad=True)
    b = torch.zeros(len(classes), dtype=torch.float64, device=x.device, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [v, b], max_iter=MAX_ITERATIONS, tolerance_grad=tolerance, tolerance_change=1e-11, history_size=20, line_search_fn="strong_wolfe"
    )

    def weight() -> Tensor:
        return torch.linalg.solve_triangular(factor, v, upper=False, left=False)

    def objective() -> Tensor:
        optimizer.zero_grad()
        w = weight()
        loss = F.cross_entropy((rows @ w.float().T).double() + b, target) + w.square().sum() / (2 * C * len(x))
        loss.backward()
        return loss

    with torch.enable_grad():
        optimizer.step(objective)
        loss = float(objective().detach())
    w = weight().detach().float()
    w = w if basis is None else w @ basis.T
    iterations = int(optimizer.state[v]["n_iter"])
    return Linear(w, b.detach().float() - w @ mean, classes, loss, iterations, iterations < MAX_ITERATIONS)


def _within_span(rows: Tensor) -> tuple[Tensor, Tensor | None]:
    """More columns than rows: the solution lies in the span of the rows, so n coordinates in it say all that d do."""
    if rows.shape[1] <= len(rows):
        return rows, None
    basis = torch.linalg.qr(rows.T).Q
    return rows @ basis, basis


def _hessian_bound(rows: Tensor, C: float) -> Tensor:
    """Cholesky factor of rows^T rows / 2n + I / Cn; a trace of ridge covers the rounding of the float32 product."""
    gram = (rows.T @ rows).double() / (2 * len(rows))
    ridge = 1 / (C * len(rows)) + 1e-7 * gram.trace()
    return torch.linalg.cholesky(gram + ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device))
