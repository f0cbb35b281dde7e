"""MVGRL and graph diffusion: against inverses, torch-geometric and loops."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
import torch
from helpers import tiny_session
from torch.nn import functional as F

import nearfar
from nearfar.api.embed import embed
from nearfar.core import RandomKey, UsageError
from nearfar.data.graphs.load_nodes import load_node_graph
from nearfar.encoders.graph_diffusion import GraphDiffusion, compute_heat_coefficients, compute_pagerank_coefficients
from nearfar.encoders.graphs import GCN
from nearfar.recipes.graph.mvgrl import MVGRL


@functools.cache
def graph(n: int = 40):
    """Random links, a node without any, and a part that nothing else is linked to."""
    rng = np.random.default_rng(0)
    links = np.concatenate([rng.integers(0, n - 5, (2, 2 * n)), [[n - 4, n - 3], [n - 3, n - 2]]], 1)
    return load_node_graph({"x": rng.random((n, 6)).astype(np.float32), "edge_index": links}).nodes


def dense(data) -> torch.Tensor:
    return torch.from_numpy(data.store.adjacency.toarray()).double()


def links_of(data):
    begins, columns, values = data.store.full_batch["links"]
    return begins, columns, values.double()


def whole(S: GraphDiffusion, n: int) -> torch.Tensor:
    return S(torch.eye(n, dtype=torch.float64))


@pytest.mark.parametrize("alpha", [0.01, 0.2, 0.9, 1.0])
def test_pagerank_is_the_inverse(alpha):
    A, eye = dense(graph()), torch.eye(40, dtype=torch.float64)
    found = whole(GraphDiffusion(links_of(graph()), compute_pagerank_coefficients(alpha)), 40)
    assert torch.linalg.matrix_norm(found - alpha * torch.linalg.inv(eye - (1 - alpha) * A), 2) < 1e-6


@pytest.mark.parametrize("t", [0.1, 5.0, 30.0])
def test_heat_is_the_matrix_exponential(t):
    A, eye = dense(graph()), torch.eye(40, dtype=torch.float64)
    found = whole(GraphDiffusion(links_of(graph()), compute_heat_coefficients(t)), 40)
    assert torch.linalg.matrix_norm(found - torch.linalg.matrix_exp(t * (A - eye)), 2) < 1e-6


@pytest.mark.parametrize(
    ("series", "theirs"),
    [(compute_pagerank_coefficients(0.2), {"method": "ppr", "alpha": 0.2}), (compute_heat_coefficients(5.0), {"method": "heat", "t": 5.0})],
)
def test_diffusion_is_that_of_torch_geometric(series, theirs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transforms = pytest.importorskip("torch_geometric.transforms")
    begins, columns, values = graph().store.full_batch["links"]
    rows = torch.arange(40).repeat_interleave(begins.diff())
    gdc = transforms.GDC()
    expected = gdc.diffusion_matrix_exact(torch.stack([rows, columns.long()]), values, 40, **theirs)
    assert torch.allclose(whole(GraphDiffusion(graph().store.full_batch["links"], series), 40).float(), expected, atol=1e-5)


def test_pagerank_is_where_walks_end():
    """Many walks from one node, each of which ends with the probability alpha at each node it comes to."""
    begins, columns, _ = (part.numpy() for part in graph().store.full_batch["links"])
    degree, rng, at = np.diff(begins), np.random.default_rng(0), np.zeros(100_000, dtype=np.int64)
    walking = np.flatnonzero(rng.random(len(at)) >= 0.2)
    while len(walking):
        here = at[walking]
        at[walking] = columns[begins[here] + (rng.random(len(here)) * degree[here]).astype(np.int64)]
        walking = walking[rng.random(len(walking)) >= 0.2]
    S = whole(GraphDiffusion(links_of(graph()), compute_pagerank_coefficients(0.2)), 40)[0].numpy()
    shares = np.bincount(at, minlength=40) / len(at)
    assert np.abs(S * np.sqrt(degree / degree[0]) - shares).max() < 0.01, "up to the symmetric normalization"


def test_diffusion_stays_within_parts_and_keeps_the_stationary_vector():
    S = whole(GraphDiffusion(links_of(graph()), compute_pagerank_coefficients(0.2)), 40)
    root = torch.from_numpy(graph().store.degrees + 1.0).sqrt()
    assert torch.allclose(S, S.T)
    assert torch.allclose(S @ root, root, atol=1e-5)
    assert S[36, :35].abs().max() < 1e-12 < S[36, 38]
    assert S[39, 39] == pytest.approx(1.0, abs=1e-6), "a node without links hears only itself"


def test_the_gradient_of_a_diffusion_is_exact_and_half_precision_is_near():
    S = GraphDiffusion(links_of(graph()), compute_pagerank_coefficients(0.5))
    h = torch.randn(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(S, [h])
    with torch.no_grad():
        half = S(h.bfloat16())
    assert half.dtype == torch.bfloat16
    assert torch.allclose(half.double(), S(h), atol=0.02)


def test_a_convolution_takes_a_diffusion_for_links():
    data, gcn = graph(), GCN(6, 3, 2).double()
    X, S = torch.from_numpy(data.read_features()).double(), GraphDiffusion(links_of(data), compute_pagerank_coefficients(0.2))
    h = X
    for weight, slope in zip(gcn.weights, gcn.slopes, strict=True):
        h = slope(whole(S, 40) @ h @ weight)
    assert torch.allclose(gcn({"x": X, "links": S}), h)


def test_mvgrl_is_binary_cross_entropy_across_views():
    """Of nodes against the other view's summary, by loops over views and nodes, from features to the loss."""
    session = tiny_session("mvgrl", steps=1)
    recipe, net = session.recipe, session.net.double()
    whole_graph = session.data.store.full_batch
    order = torch.randperm(34, generator=torch.Generator().manual_seed(0))
    A = dense(session.data)
    S = 0.2 * torch.linalg.inv(torch.eye(34, dtype=torch.float64) - 0.8 * A)
    X = torch.eye(34, dtype=torch.float64)  # what is known of the club's members is who they are
    H, fake = ([gcn.slopes[0](P @ x @ gcn.weights[0]) for gcn, P in ((net.encoder, A), (net.diffused, S))] for x in (X, X[order]))
    logits, truth = [], []
    for view in (0, 1):
        s = torch.sigmoid(H[1 - view].mean(0))
        for i in range(34):
            for h, real in ((H[view][i], 1.0), (fake[view][i], 0.0)):
                logits.append(h @ net.W @ s)
                truth.append(real)
    expected = F.binary_cross_entropy_with_logits(torch.stack(logits), torch.tensor(truth, dtype=torch.float64))
    x = {**whole_graph, "x": X, "order": order}
    found = recipe.objective(net, recipe.embed(net, x, RandomKey(0)), RandomKey(0))
    assert torch.allclose(found, expected, atol=1e-6)
    nodes = torch.tensor([3, 30])
    assert torch.allclose(recipe.encode(net, {**x, "node": nodes}), (H[0] + H[1])[nodes], atol=1e-6)


def test_the_two_encoders_begin_and_stay_different_and_nothing_is_a_matrix_of_nodes_by_nodes():
    session = tiny_session("mvgrl", steps=1)
    net = session.net
    assert not torch.equal(net.encoder.weights[0], net.diffused.weights[0])
    assert all(tensor.shape != (34, 34) for tensor in net.state_dict().values())


def test_views_of_heat_and_of_pagerank_differ_and_both_train():
    losses = {}
    for diffusion in ("ppr", "heat"):
        trained = nearfar.fit("mvgrl", preset="tiny", steps=30, diffusion=diffusion)
        losses[diffusion] = [m["loss"] for m in trained.metrics if "loss" in m]
        assert losses[diffusion][-1] < 0.6 < losses[diffusion][0] < 0.75
    assert losses["ppr"] != losses["heat"]


def test_another_graph_is_embedded_by_its_own_diffusion(tmp_path):
    rng = np.random.default_rng(1)
    one = {"x": rng.random((40, 6)).astype(np.float32), "edge_index": rng.integers(0, 40, (2, 80))}
    trained = nearfar.fit("mvgrl", one, encoder="gcn-1x8", steps=3)
    other = {"x": rng.random((3000, 6)).astype(np.float32), "edge_index": rng.integers(0, 3000, (2, 6000))}
    assert embed(trained, other, tmp_path / "other.npy") == 3000
    found, known = np.load(tmp_path / "other.npy"), trained.encode(other)
    assert np.array_equal(found, known.numpy())
    shuffled = rng.permutation(3000)
    place = np.argsort(shuffled)
    moved = trained.encode({"x": other["x"][shuffled], "edge_index": place[other["edge_index"]]})
    assert torch.allclose(moved, known[shuffled], atol=1e-5), "nodes may be counted in any order"


def test_other_encoders_and_impossible_walks_are_refused():
    with pytest.raises(UsageError, match=r"--encoder must be a GCN, such as gcn-1x512"):
        nearfar.fit("mvgrl", preset="tiny", encoder="gin-2x8")
    with pytest.raises(UsageError, match="teleport-prob"):
        MVGRL(teleport_prob=0.0)
