"""Graph encoders and recipes: against torch-geometric, against loops, and on the data that ship with networkx."""

from __future__ import annotations

import functools
import json
import warnings

import numpy as np
import pytest
import torch
from helpers import tiny_session
from torch.nn import functional as F

import nearfar
from nearfar.api.embed import embed
from nearfar.api.embedding_shards import ROWS_PER_SHARD
from nearfar.api.evaluate import measure_model
from nearfar.api.report import write_model_report
from nearfar.core import RandomKey, Rows, UsageError
from nearfar.data.graphs.dataset import Graphs
from nearfar.data.graphs.load import load_all_graphs
from nearfar.data.graphs.load_nodes import load_node_graph, load_nodes
from nearfar.encoders import make_encoder
from nearfar.encoders.graphs import GCN, GIN, sum_nodes
from nearfar.encoders.sparse_products import multiply
from nearfar.modalities.graphs import GraphModality, count_colors
from nearfar.modalities.nodes import NodeModality
from nearfar.recipes.graph.dgi import DGI
from nearfar.recipes.graph.infograph import InfoGraph
from nearfar.similarity.graphs import CorruptedGraph
from nearfar.train.encode import encode_all


@functools.cache
def atlas() -> Graphs:
    return load_all_graphs("atlas")


def edge_index(packed) -> torch.Tensor:
    """Links in both directions, without those from a node to itself."""
    begins, columns, _ = packed["links"]
    rows = torch.arange(len(begins) - 1).repeat_interleave(begins.diff())
    return torch.stack([rows, columns.long()])[:, rows != columns]


@functools.cache
def geometric():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("torch_geometric.nn")


def random_graph(n: int = 30, features: int = 12, sparse: bool = True):
    rng = np.random.default_rng(0)
    x = rng.random((n, features)) * (rng.random((n, features)) < (0.08 if sparse else 1))
    return load_node_graph({"x": x, "edge_index": rng.integers(0, n, (2, 2 * n))}).nodes


@pytest.mark.parametrize("sparse", [True, False])
def test_gcn_is_that_of_torch_geometric(sparse):
    data = random_graph(sparse=sparse)
    packed = data.read([0])
    ours = GCN(12, 5, 2)
    theirs = [geometric().GCNConv(d, 5) for d in (12, 5)]
    with torch.no_grad():
        for i, conv in enumerate(theirs):
            conv.lin.weight.copy_(ours.weights[i].T)
            conv.bias.copy_(ours.biases[i].uniform_())
            ours.slopes[i].weight.fill_(0.1 + i)
        h = torch.from_numpy(data.read_features())
        for i, conv in enumerate(theirs):
            h = F.prelu(conv(h, edge_index(packed)), torch.tensor([0.1 + i]))
    assert isinstance(packed["x"], tuple) == sparse
    assert torch.allclose(ours(packed), h, atol=1e-6)


def test_gin_is_that_of_torch_geometric():
    packed = atlas().read([3, 100, 900])
    packed["x"] = torch.randn(len(packed["graph"]), 4, generator=torch.Generator().manual_seed(0))
    ours = GIN(4, 6, 2, torch.nn.LayerNorm)
    h, found = packed["x"], []
    for first, second, norm in zip(ours.first, ours.second, ours.norms, strict=True):
        conv = geometric().GINConv(torch.nn.Sequential(first, torch.nn.ReLU(), second))
        h = norm(conv(h, edge_index(packed)).relu())
        found.append(h)
    assert torch.allclose(ours(packed), torch.cat(found, 1), atol=1e-5)


def test_sparse_products_and_their_gradients_are_exact():
    data = random_graph()
    packed = data.read([0])
    x = torch.from_numpy(data.read_features()).double()
    matrix, transposed = ((a, b, c.double()) for a, b, c in (packed["x"][:3], packed["x"][3:]))
    weight = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    assert torch.allclose(multiply(matrix, transposed, weight), x @ weight)
    assert torch.autograd.gradcheck(lambda w: multiply(matrix, transposed, w), [weight])


def test_sums_over_nodes_are_those_of_a_loop():
    h, size = torch.arange(12.0).view(6, 2).requires_grad_(), torch.tensor([1, 3, 2])
    found = sum_nodes(h, size)
    assert found.tolist() == [part.sum(0).tolist() for part in h.split(size.tolist())]
    found[1].sum().backward()
    assert h.grad.sum(1).tolist() == [0, 2, 2, 2, 0, 0]


@pytest.mark.parametrize("spec", ["gcn", "gin-3", "gcn-1x512-ln", "gin-0x3", "resnet18"])
def test_an_unknown_encoder_of_graphs_is_named(spec):
    with pytest.raises(UsageError, match=r"is unknown: for graphs use gcn-LAYERSxWIDTH.*, such as gcn-1x512 or gin-3x32\."):
        make_encoder(spec, {"node_features": 3})


def test_the_corruption_swaps_the_features_of_all_nodes_and_keeps_the_links():
    data = load_nodes("karate").train
    ids = np.array([0])
    views = [CorruptedGraph().view(data.store.full_batch, Rows(ids, np.array([slot]), ids), RandomKey(0)) for slot in (0, 1, 0)]
    order = [view["order"].tolist() for view in views]
    assert sorted(order[0]) == list(range(34))
    assert order[0] == order[2] != order[1]
    encoder = GCN(34, 8, 2)
    swapped = {**views[0], "x": torch.eye(34)[order[0]]}
    corrupted = encoder.convolve(encoder.project(views[0]["x"])[order[0]], views[0]["links"])
    assert torch.allclose(corrupted, encoder(swapped), atol=1e-6)


def test_dgi_is_binary_cross_entropy_of_a_bilinear_discriminator():
    session = tiny_session("dgi", steps=1)
    net, generator = session.net, torch.Generator().manual_seed(0)
    H, fake = torch.randn(34, 64, generator=generator), torch.randn(34, 64, generator=generator)
    s = torch.sigmoid(H.mean(0))
    logits = torch.stack([h @ net.W @ s for h in torch.cat([H, fake])])
    expected = F.binary_cross_entropy_with_logits(logits, torch.cat([torch.ones(34), torch.zeros(34)]))
    assert torch.allclose(DGI().objective(net, {"H": H, "corrupted": fake, "s": s[None]}, RandomKey(0)), expected)


def test_infograph_is_the_jensen_shannon_bound_over_nodes_and_graphs():
    generator = torch.Generator().manual_seed(0)
    local, graph = torch.randn(9, 5, generator=generator), torch.randn(3, 5, generator=generator)
    of = torch.tensor([7, 7, 7, 4, 4, 9, 9, 9, 9])
    ids = torch.tensor([7, 4, 9])
    pos, neg = [], []
    for u in range(9):
        for g in range(3):
            t = local[u] @ graph[g]
            (pos if of[u] == ids[g] else neg).append(F.softplus(-t) if of[u] == ids[g] else F.softplus(t))
    z = {"local": local, "graph": graph, "of": of, "id": ids}
    net = tiny_session("infograph", steps=1).net
    assert torch.allclose(InfoGraph().objective(net, z, RandomKey(0)), torch.stack(pos).mean() + torch.stack(neg).mean())


def test_a_graph_is_represented_the_same_whatever_stands_beside_it_and_however_its_nodes_are_counted():
    trained = nearfar.fit("infograph", preset="tiny", steps=3)
    graphs = [{"edge_index": np.array(links).T} for links in ([[0, 1], [1, 2], [2, 3]], [[0, 1], [1, 2], [2, 0]], [[2, 0], [0, 3], [3, 1]])]
    together, alone = trained.encode(graphs), torch.cat([trained.encode([graph]) for graph in graphs])
    assert torch.allclose(together, alone, atol=1e-5)
    assert torch.allclose(together[0], together[2], atol=1e-5), "the same path, its nodes in another order"
    assert not torch.allclose(together[0], together[1], atol=1e-2)


def test_dgi_tells_nodes_from_corrupted_ones_and_sees_a_data_object():
    data = nearfar_data()
    trained = nearfar.fit("dgi", data, steps=150, lr=5e-3, encoder="gcn-1x32")
    losses = [m["loss"] for m in trained.metrics if "loss" in m]
    assert losses[-1] < 0.6 < losses[0]
    vectors = trained.encode(data)
    assert vectors.shape == (60, 32)
    assert torch.equal(trained.encode(load_node_graph(data).nodes.subset([5, 3])), vectors[[5, 3]])


def nearfar_data():
    """Two communities with words of their own, as torch-geometric holds a graph."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    a, b = np.nonzero(np.triu(rng.random((60, 60)) < np.where(y[:, None] == y, 0.2, 0.02), 1))
    x = (rng.random((60, 20)) < np.where(y[:, None] == np.arange(20) % 2, 0.3, 0.1)).astype(np.float32)
    geometric()
    from torch_geometric.data import Data

    return Data(x=torch.from_numpy(x), edge_index=torch.from_numpy(np.stack([a, b])), y=torch.from_numpy(y))


def test_baselines_count_what_they_say():
    data = atlas()
    degrees, neighbourhoods = (count_colors(data, data, rounds)[0] for rounds in (0, 3))
    i, j = 10, 400
    for g in (i, j):
        mine = data.store.degrees[data.store.node_offsets[g] : data.store.node_offsets[g + 1]]
        assert degrees[g].tolist() == [int((mine == d).sum()) for d in np.unique(data.store.degrees)]
        assert neighbourhoods[g].sum() <= 4 * len(mine)
    assert len(np.unique(neighbourhoods, axis=0)) > 900, "nearly all of the 994 graphs are told apart"
    rows = GraphModality().compute_baselines(data, data, None)
    assert rows["summed features"].train[:, 0].tolist() == np.diff(data.store.node_offsets).tolist()
    club = load_nodes("karate")
    raw = NodeModality().compute_baselines(club.train, club.test, None)["raw features"]
    assert raw.test.argmax(1).tolist() == club.test.ids.tolist()


@pytest.mark.parametrize(("name", "data", "count"), [("dgi", "karate", 34), ("infograph", "atlas", 994)])
def test_from_training_to_vectors_and_a_report(name, data, count, tmp_path):
    trained = nearfar.fit(name, preset="tiny", steps=20, out=tmp_path / "run")
    evaluation = measure_model(trained)
    assert [r["representation"] for r in evaluation.table.results][-2:] == ["untrained encoder", "trained encoder"]
    page = write_model_report(trained, evaluation).read_text()
    assert json.dumps(data)[1:-1] in page
    assert embed(trained, data, tmp_path / "all.npy") == count
    assert np.isfinite(np.load(tmp_path / "all.npy")).all()
    import pyarrow.parquet as pq

    embed(trained, data, tmp_path / "test.parquet", split="test")
    table = pq.read_table(tmp_path / "test.parquet").to_pydict()
    assert len(table["name"]) == len(evaluation.splits.test)
    assert table["label"] == [evaluation.splits.test.classes[y] for y in evaluation.splits.test.labels]


def test_a_whole_graph_is_one_row_of_a_step():
    with pytest.raises(UsageError, match=r"batch 4 is larger than the data: 1 training sample\. Use --batch-size 1 or give more data"):
        nearfar.fit("dgi", preset="tiny", batch_size=4)


def test_nodes_are_encoded_in_one_pass_over_their_graph():
    session, passes = tiny_session("dgi"), []
    session.net.encoder.register_forward_hook(lambda *_: passes.append(1))
    found = encode_all(session.recipe, session.net, session.data, torch.device("cpu"), batch_size=4)
    assert len(found) == len(session.data) > 4
    assert len(passes) == 1


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_nodes_are_embedded_in_one_pass_and_as_encode_gives_them(kind, tmp_path):
    """More nodes than a shard of other data has rows."""
    rng = np.random.default_rng(0)
    graph = {
        "x": rng.normal(size=(ROWS_PER_SHARD + 700, 5)).astype(np.float32),
        "edge_index": rng.integers(0, ROWS_PER_SHARD + 700, (2, 3 * ROWS_PER_SHARD)),
    }
    trained, passes = nearfar.fit("dgi", data=graph, preset="tiny", steps=1), []
    known = trained.encode(graph).numpy()
    trained.net.encoder.register_forward_hook(lambda *_: passes.append(1))
    assert embed(trained, graph, tmp_path / f"all.{kind}") == ROWS_PER_SHARD + 700
    assert len(passes) == 1
    if kind == "npy":
        found = np.load(tmp_path / "all.npy", allow_pickle=False)
    else:
        import pyarrow.parquet as pq

        found = np.array(pq.read_table(tmp_path / "all.parquet")["vector"].to_pylist(), dtype=np.float32)
    assert np.array_equal(found, known)


@pytest.mark.parametrize("name", ["dgi", "infograph", "mvgrl"])
def test_half_precision_stays_near_single(name):
    losses = [[m["loss"] for m in nearfar.fit(name, preset="tiny", steps=10, precision=p).metrics if "loss" in m] for p in ("fp32", "bf16")]
    assert losses[1][0] == pytest.approx(losses[0][0], rel=0.01)
    assert losses[1][-1] < losses[1][0]
    assert losses[1] != losses[0]
