"""Graphs from files and objects, and walks: along edges, with the probabilities of the paper, keyed, without a loop over nodes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.io import savemat
from scipy.sparse import coo_matrix, csr_matrix

from nearfar.core import NearfarError, RandomKey, Rows, TrainConfig, UsageError
from nearfar.data.graphs.load_nodes import load_node_graph
from nearfar.data.walks.dataset import build_walk_graph
from nearfar.data.walks.inputs import WalkInputs
from nearfar.data.walks.load import load_walks
from nearfar.similarity import walks
from nearfar.similarity.text_windows import CENTERS_PER_GROUP
from nearfar.similarity.walks import RandomWalks, build_walk_tables, draw_walks


def neighbours(graph, i):
    return graph.neighbors[graph.neighbor_offsets[i] : graph.neighbor_offsets[i + 1]].tolist()


def edge_list(path):
    graph = load_walks(path)
    return graph.nodes, {frozenset((graph.nodes[i], graph.nodes[j])) for i in range(len(graph)) for j in neighbours(graph, i)}


def links_file(path):
    nodes = load_node_graph(path).nodes
    names, ends = [nodes.name(i) for i in range(len(nodes))], nodes.store.adjacency.nonzero()
    return names, {frozenset((names[i], names[j])) for i, j in zip(*ends, strict=True) if i != j}


def test_an_edge_list_counts_both_ways_and_once(tmp_path):
    (tmp_path / "edges.txt").write_text("# friends\nann bob\nbob ann  # again\nbob\tcat\ncat,cat\ncat ann\n")
    graph = load_walks(tmp_path / "edges.txt")
    assert graph.nodes == ("ann", "bob", "cat")
    assert [neighbours(graph, i) for i in range(3)] == [[1, 2], [0, 2], [0, 1]]
    assert graph.weights is None
    assert graph.weighted_degrees.tolist() == [2, 2, 2]


def test_weights_are_read_and_add_up(tmp_path):
    (tmp_path / "edges.csv").write_text("a,b,2\nb,c,0.5\nb,a,1\n")
    graph = load_walks(tmp_path / "edges.csv")
    assert graph.weights.tolist() == [3, 3, 0.5, 0.5]
    assert graph.weighted_degrees.tolist() == [3, 3.5, 0.5]


@pytest.mark.parametrize("read", [edge_list, links_file])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("java\tC#\nC\tjava\n", {("java", "C#"), ("C", "java")}),
        ("java C#\nC java # older\nC #go\n", {("java", "C#"), ("C", "java"), ("C", "#go")}),
        ("%%MatrixMarket\n  % by hand\n\n# more\na b\n", {("a", "b")}),
        ("New York,Boston\nBoston , Rio\n", {("New York", "Boston"), ("Boston", "Rio")}),
        ("New York\tA, B\nA, B\tC # 5\n", {("New York", "A, B"), ("A, B", "C # 5")}),
        ("a b # one, or two\nb c\t# more\n", {("a", "b"), ("b", "c")}),
        ("\ufeffsource,target\na,b\n", {("a", "b")}),
        ("# said\nFrom To\na b\nb from\n", {("a", "b"), ("b", "from")}),
        ("SRC\tDst\na\tb\nsrc\tdst\n", {("a", "b"), ("src", "dst")}),
        ("head,tail\na,b\n", {("a", "b")}),
    ],
)
def test_all_readers_of_links_agree_on_comments_separators_and_headings(tmp_path, read, text, wanted):
    (tmp_path / "links.csv").write_text(text)
    nodes, edges = read(tmp_path / "links.csv")
    assert edges == {frozenset(pair) for pair in wanted}
    assert set(nodes) == {name for pair in wanted for name in pair}


def test_a_heading_may_name_a_weight(tmp_path):
    (tmp_path / "edges.csv").write_text("Source,Target,Weight\na,b,2\nb,c,0.5\n")
    graph = load_walks(tmp_path / "edges.csv")
    assert graph.nodes == ("a", "b", "c")
    assert graph.weights.tolist() == [2, 2, 0.5, 0.5]


def test_arrays_in_a_file_are_a_graph_to_walk_on(tmp_path):
    ends = np.array([[0, 1, 2], [1, 2, 4]])
    np.savez(tmp_path / "plain.npz", edge_index=ends)
    plain = load_walks(tmp_path / "plain.npz")
    assert plain.nodes == ("0", "1", "2", "3", "4")
    assert [neighbours(plain, i) for i in range(5)] == [[1], [0, 2], [1, 4], [], [2]]
    assert (plain.weights, plain.groups) == (None, None)
    (tmp_path / "folder").mkdir()
    more = {"names": np.array(list("vwxyz")), "edge_weight": np.array([1, 2, 3]), "y": np.array([0, 7, -1, 7, 0])}
    np.savez(tmp_path / "folder" / "more.npz", links=ends, **more)
    np.savez(tmp_path / "labels.npz", links=ends, labels=more["y"])
    found = load_walks(tmp_path / "folder")
    assert np.array_equal(load_walks(tmp_path / "labels.npz").groups, found.groups)
    assert found.nodes == tuple("vwxyz")
    assert found.weights.tolist() == [1, 1, 2, 2, 3, 3]
    assert found.group_names == ("0", "7")
    assert found.groups.tolist() == [[True, False], [False, True], [False, False], [False, True], [True, False]]
    assert [load_node_graph(tmp_path / "folder").nodes.name(i) for i in range(5)] == list("vwxyz"), "as other recipes call them"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"x": np.ones((3, 2))}, "has no edge_index"),
        ({"edge_index": np.array([[0, 1]])}, "links must be two rows"),
        ({"edge_index": np.array([[0], [1]]), "weights": np.ones(2)}, "weights must be one number for each of 1 links"),
        ({"edge_index": np.array([[0], [1]]), "names": np.array(["a", "a"])}, "names must be different texts, one for each of 2 nodes"),
    ],
)
def test_arrays_that_are_no_graph_are_said(tmp_path, fields, said):
    np.savez(tmp_path / "graph.npz", **fields)
    with pytest.raises(UsageError, match=said):
        load_walks(tmp_path / "graph.npz")


@pytest.mark.parametrize(
    ("bad", "said"),
    [(b"c", "two names"), (b"c d -1", "the weight '-1'"), (b"c d", "a weight"), (b"c \xff 1", "UTF-8"), (b"c \0 1", "zero byte")],
)
def test_broken_lines_are_left_out_where_the_user_says_so(tmp_path, bad, said):
    path, good = tmp_path / "edges.txt", tmp_path / "good.txt"
    path.write_bytes(b"x\na b 1\n" + bad + b"\nb e 2\n")
    good.write_text("a b 1\nb e 2\n")
    graph = WalkInputs().load_splits(path, TrainConfig(on_error="skip")).train
    assert graph.fingerprint == load_walks(good).fingerprint
    assert [line.split(": ")[0] for line in graph.skipped] == [f"{path}, line 1", f"{path}, line 3"]
    assert said in graph.skipped[1]
    with pytest.raises(NearfarError, match=r"edges.txt, line 1: two names .*--on-error skip"):
        WalkInputs().load_splits(path, TrainConfig())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a b\na\n", "line 2: two names"),
        ("a b 1\na c\n", "line 2: two names and a weight"),
        ("a b -1\n", "line 1: the weight '-1'"),
        ("a b x\n", "line 1: the weight 'x'"),
        ("a a\n", "no edges"),
        ("", "no edges"),
    ],
)
def test_mistakes_are_named_with_file_and_line(tmp_path, text, said):
    (tmp_path / "edges.txt").write_text(text)
    with pytest.raises(NearfarError, match=said):
        load_walks(tmp_path / "edges.txt")


def test_the_same_graph_from_every_source(tmp_path):
    networkx = pytest.importorskip("networkx")
    karate = load_walks("karate")
    matrix = csr_matrix((np.ones(len(karate.neighbors)), karate.neighbors, karate.neighbor_offsets), shape=(34, 34))
    ends = torch.from_numpy(np.stack(coo_matrix(matrix).coords).astype(np.int64))
    savemat(tmp_path / "karate.mat", {"network": matrix, "group": csr_matrix(karate.groups.astype(float))})
    plain = networkx.Graph(networkx.karate_club_graph().edges())
    assert len(load_walks("miserables")) == 77
    for found in (load_walks(matrix), load_walks(ends), load_walks(tmp_path)):
        assert np.array_equal(found.neighbors, karate.neighbors)
        assert np.array_equal(found.neighbor_offsets, karate.neighbor_offsets)
    assert np.array_equal(load_walks(tmp_path / "karate.mat").groups, karate.groups)
    assert len(load_walks(plain).neighbors) == 2 * plain.number_of_edges()


@pytest.mark.parametrize("spec", ["nowhere", 3, coo_matrix((2, 3)), torch.zeros(3, 4)])
def test_what_is_no_graph_is_said(spec):
    with pytest.raises(UsageError):
        load_walks(spec)


def test_a_mat_file_that_is_none_is_said(tmp_path):
    (tmp_path / "x.mat").write_bytes(b"not a matrix" * 20)
    with pytest.raises(NearfarError, match=r"x\.mat"):
        load_walks(tmp_path / "x.mat")


def biased(graph, before, now, p, q):
    """The paper's transition probabilities, by a loop."""
    weights = np.zeros(len(graph))
    for place in range(graph.neighbor_offsets[now], graph.neighbor_offsets[now + 1]):
        x = graph.neighbors[place]
        w = 1.0 if graph.weights is None else graph.weights[place]
        weights[x] = w * (1 / p if x == before else 1.0 if x in neighbours(graph, before) else 1 / q)
    return weights / weights.sum()


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (0.25, 0.25), (4.0, 0.5), (0.1, 10.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_steps_have_the_probabilities_of_the_paper(p, q, weighted):
    a, b = np.array([0, 0, 0, 1, 1, 2, 3, 4]), np.array([1, 2, 3, 2, 4, 3, 5, 5])
    graph = build_walk_graph("abcdef", a, b, np.arange(1, 9) if weighted else None)
    n = 20_000
    paths = draw_walks(build_walk_tables(graph), torch.zeros(n, dtype=torch.long), 3, p, q, RandomKey(0), torch.arange(n)).numpy()
    first = np.bincount(paths[:, 1], minlength=6) / n
    weights = np.array([0.0, 1, 2, 3, 0, 0]) if weighted else np.array([0.0, 1, 1, 1, 0, 0])
    assert np.abs(first - weights / weights.sum()).max() < 0.015
    for now in (1, 2, 3):
        third = paths[paths[:, 1] == now, 2]
        wanted = biased(graph, 0, now, p, q)
        assert np.abs(np.bincount(third, minlength=6) / len(third) - wanted).max() < 4 / np.sqrt(len(third))


def test_walks_follow_edges_and_depend_on_their_slot_alone():
    graph = load_walks("karate")
    steps, origin, slots = build_walk_tables(graph), torch.arange(34), torch.arange(34) + 7
    paths = draw_walks(steps, origin, 30, 0.5, 2.0, RandomKey(1), slots)
    assert paths.shape == (34, 30)
    assert torch.equal(paths[:, 0], origin)
    assert bool(steps.has_edge(paths[:, :-1], paths[:, 1:]).all())
    part = draw_walks(steps, origin[[5, 2]], 30, 0.5, 2.0, RandomKey(1), slots[[5, 2]])
    assert torch.equal(part, paths[[5, 2]])
    assert not torch.equal(draw_walks(steps, origin, 30, 0.5, 2.0, RandomKey(2), slots), paths)


def test_rows_are_walks_from_every_node_that_has_an_edge():
    graph = build_walk_graph("abcd", np.array([0, 1]), np.array([1, 3]))  # nobody knows c
    walks = RandomWalks(walk_length=40, walks_per_node=3, window=4, shared_negatives=8)
    assert walks.count(graph) == 9
    ids = np.arange(9)
    raw = walks.read(graph, Rows(ids, ids, ids), RandomKey(0))
    tiles = -(-40 // CENTERS_PER_GROUP)
    assert raw["word"].shape == (9 * tiles, CENTERS_PER_GROUP + 8)
    assert raw["row"].tolist() == [i for i in range(9) for _ in range(tiles)]
    assert 2 not in raw["word"][raw["sentence"] > 0]
    starts = raw["word"][::tiles, 4]
    assert starts.tolist() == [0, 1, 3] * 3
    assert not (raw["noise"] == 2).any(), "a node without edges is no noise either"


@pytest.mark.parametrize(("p", "q"), [(1e9, 1.0), (1.0, 1e9), (1e9, 1e9), (1e-9, 1.0)])
def test_walks_end_however_unlikely_their_steps_are(p, q):
    graph = build_walk_graph(list("abcd"), np.array([0, 1, 2, 3]), np.array([1, 2, 3, 1]))  # a dead end at 0
    found = draw_walks(build_walk_tables(graph), torch.tensor([0, 1, 2, 3] * 5), 12, p, q, RandomKey(0), torch.arange(20))
    assert all(b in neighbours(graph, a) for row in found.tolist() for a, b in itertools.pairwise(row))


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 3.0, 4.0, 0.5]])
def test_weighed_steps_have_the_probabilities_of_the_paper(weights):
    given = None if weights is None else np.array(weights)
    graph, p, q = build_walk_graph(list("abcde"), np.array([0, 1, 0, 1, 1]), np.array([1, 2, 2, 3, 4]), given), 4.0, 0.5
    steps, n, before, now = build_walk_tables(graph), 40_000, 0, 1
    u = RandomKey(3).uniform(torch.arange(n), 1)[:, 0].double()
    found = walks._draw_exactly(steps, torch.full((n,), before), torch.full((n,), now), u, p, q)
    lines = range(graph.neighbor_offsets[now], graph.neighbor_offsets[now + 1])
    factor = {x: 1 / p if x == before else 1.0 if x in neighbours(graph, before) else 1 / q for x in neighbours(graph, now)}
    wanted = {int(graph.neighbors[e]): factor[int(graph.neighbors[e])] * (1.0 if weights is None else graph.weights[e]) for e in lines}
    for x, weight in wanted.items():
        share = float(weight / sum(wanted.values()))
        assert float((found == x).double().mean()) == pytest.approx(share, abs=4 * (share / n) ** 0.5)
