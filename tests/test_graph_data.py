"""Graphs: readers of every kind, what they refuse, and the arrays that encoders are given."""

from __future__ import annotations

import functools
import types

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from nearfar.core import NearfarError, TrainConfig, UsageError
from nearfar.data.graphs.dataset import Graphs, build_graph_store
from nearfar.data.graphs.inputs import GraphInputs, NodeInputs
from nearfar.data.graphs.load import load_all_graphs, load_graphs
from nearfar.data.graphs.load_nodes import load_node_graph, load_nodes
from nearfar.data.graphs.readers import read_gin_folds

TRIANGLE_AND_TAIL = np.array([[0, 1, 2, 2], [1, 2, 0, 3]])
TWO_GRAPHS = "2\n3 1\n0 1 1\n5 2 0 2\n0 1 1\n2 -1\n5 1 1\n5 1 0\n"
"""A path of three nodes and a link of two, with node labels 0 and 5."""


@functools.cache
def atlas() -> Graphs:
    return load_all_graphs("atlas")


def dense(packed) -> torch.Tensor:
    begins, columns, values = packed["links"]
    table = torch.zeros(len(begins) - 1, len(begins) - 1)
    for row in range(len(begins) - 1):
        for at in range(begins[row], begins[row + 1]):
            table[row, columns[at]] += values[at]
    return table


def normalised(links: np.ndarray, n: int) -> np.ndarray:
    """The textbook formula, dense."""
    a = np.eye(n)
    for i, j in links.T:
        a[i, j] = a[j, i] = 1
    d = np.diag(a.sum(1) ** -0.5)
    return d @ a @ d


def test_links_are_normalised_as_the_formula_says():
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    packed = build_graph_store(x, TRIANGLE_AND_TAIL, np.array([0, 4])).full_batch
    assert torch.allclose(dense(packed), torch.from_numpy(normalised(TRIANGLE_AND_TAIL, 4)).float())
    assert torch.equal(packed["x"], torch.from_numpy(x))
    assert packed["size"].tolist() == [4]


def test_direction_repetition_and_loops_of_links_do_not_matter():
    x = np.ones((4, 1), dtype=np.float32)
    again = np.concatenate([TRIANGLE_AND_TAIL, TRIANGLE_AND_TAIL[::-1], [[1], [1]]], 1)
    one, other = (build_graph_store(x, links, np.array([0, 4])) for links in (TRIANGLE_AND_TAIL, again))
    assert torch.equal(dense(one.full_batch), dense(other.full_batch))
    assert one.fingerprint == other.fingerprint
    assert one.degrees.tolist() == [2, 2, 3, 1]


@given(st.lists(st.integers(0, 993), min_size=1, max_size=12))
def test_a_batch_of_graphs_is_block_diagonal(ids):
    data = atlas()
    packed, whole = data.read(np.array(ids)), dense(data.read(np.array(ids)))
    size = np.diff(data.store.node_offsets)[ids]
    assert packed["size"].tolist() == size.tolist()
    assert packed["graph"].tolist() == np.repeat(np.arange(len(ids)), size).tolist()
    blocks = torch.block_diag(*(dense(data.read(np.array([i]))) for i in ids))
    assert torch.equal(whole, blocks)


def test_the_karate_club_has_34_members_in_two_halves():
    found = load_nodes("karate")
    assert (found.train.store.num_nodes, len(found.train) + len(found.test)) == (34, 34)
    assert found.train.classes == ("Mr. Hi", "Officer")
    assert int(found.train.store.degrees.sum()) == 2 * 78
    assert found.train.store.num_features == 34, "nodes without features are told apart by their number"
    assert sorted([*found.train.ids, *found.test.ids]) == list(range(34))


def test_the_atlas_has_all_connected_graphs_and_their_diameters():
    data = atlas()
    assert len(data) == 2 + 6 + 21 + 112 + 853, "connected graphs of 3 to 7 nodes"
    assert data.classes == ("2 or less", "3", "4 or more")
    for i in (0, 17, 500, 993):
        graph = nx.from_numpy_array(
            (dense(data.read(np.array([i]))) > 0).numpy() & ~np.eye(int(data.read(np.array([i]))["size"]), dtype=bool)
        )
        assert data.classes[data.labels[i]][0] == str(min(max(nx.diameter(graph), 2), 4))


def write_npz(path, **fields):
    np.savez(path, **{"edge_index": TRIANGLE_AND_TAIL, **fields})
    return path


def test_arrays_in_a_file_dense_and_sparse_are_one(tmp_path):
    x = np.zeros((4, 40), dtype=np.float32)
    x[[0, 1, 3], [3, 7, 9]] = [2, 5, 1]
    x[0, 5] = 6
    rows = csr_matrix(x)
    sparse = {"x_indptr": rows.indptr, "x_indices": rows.indices, "x_data": rows.data, "x_shape": rows.shape}
    one, other = load_node_graph(write_npz(tmp_path / "a.npz", x=x)).nodes, load_node_graph(write_npz(tmp_path / "b.npz", **sparse)).nodes
    assert one.fingerprint == other.fingerprint
    assert isinstance(one.store.x, csr_matrix)
    expected = x / np.maximum(x.sum(1, keepdims=True), 1)
    np.testing.assert_allclose(one.read_features(), expected, rtol=1e-6)


def test_features_with_a_negative_one_are_left_as_they_are(tmp_path):
    x = np.array([[1, -1], [2, 3], [0, 0], [5, 5]], dtype=np.float64)
    np.testing.assert_array_equal(load_node_graph(write_npz(tmp_path / "a.npz", x=x)).nodes.read_features(), x)


def test_masks_that_overlap_are_refused(tmp_path):
    fields = {"y": np.array([0, 1, -1, 1]), "train": np.array([1, 1, 0, 1], bool), "test": np.array([0, 1, 0, 1], bool)}
    with pytest.raises(UsageError, match=r"a\.npz: 2 nodes are for training and for testing; the first: node 1\."):
        load_nodes(write_npz(tmp_path / "a.npz", **fields))
    with pytest.raises(UsageError, match=r"2 nodes are for training and for testing; the first: rye\."):
        load_nodes({"edge_index": TRIANGLE_AND_TAIL, "x": np.ones((4, 1)), "names": ["oat", "rye", "corn", "rice"], **fields})
    assert len(load_node_graph(tmp_path / "a.npz").nodes) == 4, "what needs no split has no use for masks"


@pytest.mark.parametrize("empty", ["train", "test"])
def test_masks_that_name_nobody_are_refused(tmp_path, empty):
    masks = {"train_mask": np.array([1, 0, 0, 1], bool), "test_mask": np.array([0, 1, 1, 0], bool)}
    path = write_npz(tmp_path / "a.npz", y=np.array([0, 1, 0, 1]), **masks | {f"{empty}_mask": np.zeros(4, bool)})
    with pytest.raises(UsageError, match=f"a.npz: the mask '{empty}' selects no node"):
        load_nodes(path)


def test_masks_are_the_split_and_unlabelled_nodes_stay_in_the_graph(tmp_path):
    masks = {"train": np.array([1, 0, 0, 0], bool), "test": np.array([0, 0, 1, 0], bool)}
    path = write_npz(tmp_path / "a.npz", y=np.array([7, -1, 9, -1]), **masks)
    found = load_nodes(path)
    assert (found.train.ids.tolist(), found.test.ids.tolist(), found.test_ids) == ([0], [2], None)
    assert found.test.labels.tolist() == [1]
    assert found.train.classes == ("7", "9")
    assert len(found.train.read([0])["graph"]) == 4
    every = load_node_graph(path).nodes
    assert (len(every), every.labels) == (4, None)


def test_a_data_object_a_dict_and_a_networkx_graph_are_read_alike():
    fields = {"edge_index": torch.from_numpy(TRIANGLE_AND_TAIL), "x": torch.ones(4, 3), "y": torch.tensor([0, 1, 0, 1])}
    one, other = load_node_graph(types.SimpleNamespace(**fields)).labeled, load_node_graph(fields).labeled
    assert one.fingerprint == other.fingerprint
    graph = nx.Graph(TRIANGLE_AND_TAIL.T.tolist())
    assert np.array_equal(load_node_graph(graph).nodes.store.adjacency.toarray(), one.store.adjacency.toarray())


def test_text_files_of_links_labels_and_features(tmp_path):
    (tmp_path / "links.txt").write_text("# who knows whom\nanna\tberta\nberta, carl\n\ncarl dora\n")
    (tmp_path / "labels.txt").write_text("dora x\nanna y\nberta x\n")
    (tmp_path / "features.txt").write_text("carl 1 1\ndora 2 0\nanna 0 3\nberta -1 4\n")
    found = load_node_graph(tmp_path)
    assert [found.nodes.name(i) for i in range(4)] == ["anna", "berta", "carl", "dora"]
    assert [found.labeled.name(i) for i in range(3)] == ["anna", "berta", "dora"]
    assert [found.labeled.classes[y] for y in found.labeled.labels] == ["y", "x", "x"]
    np.testing.assert_array_equal(found.nodes.read_features(), [[0, 3], [-1, 4], [1, 1], [2, 0]])
    assert found.nodes.store.degrees.tolist() == [1, 2, 2, 1]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("links.txt", "a b\nb c d\n", "links.txt, line 2: 3 entries where 2"),
        ("labels.txt", "a x\na y\n", "labels.txt, line 2: the node 'a' has a second label"),
        ("features.txt", "a 1 2\nb 1\n", "features.txt, line 2: 1 features where 2"),
        ("features.txt", "a 1\nb one\n", "features.txt, line 2: could not convert"),
        ("features.txt", "a 1\n", "features.txt has no line for the node 'b'"),
        ("links.txt", b"a b\nb \xff\n", "links.txt, line 2: not UTF-8"),
    ],
)
def test_a_broken_line_is_named(tmp_path, file, text, message):
    (tmp_path / "links.txt").write_text("a b\n")
    (tmp_path / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(NearfarError, match=message):
        load_node_graph(tmp_path)


def test_names_with_spaces_have_labels_and_features(tmp_path):
    (tmp_path / "links.csv").write_text("source,target\nNew York,Boston\n")
    (tmp_path / "labels.txt").write_text("New York,very big\nBoston\tbig\n")
    (tmp_path / "features.txt").write_text("Boston 1 -2\nNew York\t3 4\n")
    found = load_node_graph(tmp_path)
    assert [found.labeled.classes[y] for y in found.labeled.labels] == ["very big", "big"]
    np.testing.assert_array_equal(found.nodes.read_features(), [[3, 4], [1, -2]])


def test_broken_lines_are_left_out_where_the_user_says_so(tmp_path):
    (tmp_path / "links.txt").write_bytes(b"a b\nb c d\n,c\nc \xff\nb c\n")
    (tmp_path / "labels.txt").write_text("a x\na y\nb\nb y\nc x\n")
    (tmp_path / "features.txt").write_text("a -1 2\na one 2\nb 1\nb 1 1\nc 2 2\n")
    skip = TrainConfig(on_error="skip")
    for data in (NodeInputs().load_splits(tmp_path, skip, test_ids=[]).train, NodeInputs().load_all(tmp_path, skip)[0]):
        assert [data.name(i) for i in range(len(data))] == ["a", "b", "c"]
        assert [data.classes[y] for y in data.labels] == ["x", "y", "x"]
        assert [line.split(": ")[0].removeprefix(f"{tmp_path}/") for line in data.skipped] == [
            *("links.txt, line 2", "links.txt, line 3", "links.txt, line 4"),
            *("labels.txt, line 2", "labels.txt, line 3", "features.txt, line 2", "features.txt, line 3"),
        ]  # fmt: skip
    with pytest.raises(NearfarError, match=r"links.txt, line 2: 3 entries .*--on-error skip"):
        NodeInputs().load_splits(tmp_path, TrainConfig())
    (tmp_path / "features.txt").write_text("a 1\nb one\nc 1\n")
    with pytest.raises(NearfarError, match=r"features.txt has no line for the node 'b' that could be read"):
        NodeInputs().load_splits(tmp_path, skip)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"edge_index": np.array([[0, 9], [1, 1]]), "x": np.ones((4, 1))}, "link 1 is between nodes 9 and 1, but there are 4"),
        ({"edge_index": np.array([[0.5], [1.0]]), "x": np.ones((4, 1))}, "links must be two rows of node numbers"),
        ({"x": np.ones((4, 2, 2))}, "features must be a table of numbers"),
        ({"x": np.array([[np.nan], [1], [1], [1]])}, "not a finite number"),
        ({"x": np.ones((4, 1)), "y": np.array([0, 1])}, "labels must be one whole number or text for each of 4 nodes"),
        ({"x": np.ones((4, 1)), "y": np.zeros(4, int), "train": np.ones(3, bool)}, "'train' must be one boolean for each of 4 nodes"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(UsageError, match=message):
        load_node_graph({"edge_index": TRIANGLE_AND_TAIL, **fields})


def test_no_pickle_is_read(tmp_path):
    np.savez(tmp_path / "a.npz", edge_index=np.array([{"a": 1}], dtype=object))
    with pytest.raises(NearfarError, match="cannot be read as arrays"):
        load_node_graph(tmp_path / "a.npz")


def test_graphs_of_one_file_have_tags_as_features(tmp_path):
    (tmp_path / "SET.txt").write_text(TWO_GRAPHS)
    data = load_all_graphs(tmp_path)
    assert (len(data), data.classes, data.labels.tolist(), data.store.node_label_values) == (2, ("-1", "1"), [1, 0], (0, 5))
    packed = data.read(np.array([1, 0]))
    assert packed["x"].tolist() == [[0, 1], [0, 1], [1, 0], [0, 1], [1, 0]]
    assert packed["size"].tolist() == [2, 3]
    expected = torch.block_diag(*(torch.from_numpy(normalised(np.array(a).T, n)) for a, n in (([[0, 1]], 2), ([[0, 1], [1, 2]], 3))))
    assert torch.allclose(dense(packed), expected.float())


def test_a_folder_of_tudataset_is_the_same_set(tmp_path):
    files = {"A": "1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n", "graph_indicator": "1\n1\n1\n2\n2\n"}
    files |= {"graph_labels": "1\n-1\n", "node_labels": "0\n5\n0\n5\n5\n"}
    for name, text in files.items():
        (tmp_path / f"SET_{name}.txt").write_text(text)
    (tmp_path / "one.text").write_text(TWO_GRAPHS)
    folder, file = load_all_graphs(tmp_path), load_all_graphs(tmp_path / "one.text")
    assert folder.fingerprint == file.fingerprint
    assert folder.labels.tolist() == file.labels.tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TWO_GRAPHS.replace("5 2 0 2", "5 2 0 3"), "line 4: a neighbor is not one of the graph's nodes 0 … 2"),
        (TWO_GRAPHS.replace("5 2 0 2", "5 2 0"), "line 4: 1 whole numbers where 2"),
        (TWO_GRAPHS.replace("2 -1", "2 minus"), "line 6: invalid literal"),
        (TWO_GRAPHS.rsplit("5", 1)[0], "ends too early"),
        (TWO_GRAPHS + "1 0\n", "line 9: more lines than 2 graphs have"),
        ("1\n0 1\n", "graph 0 has no nodes"),
    ],
)
def test_a_broken_set_of_graphs_is_named_by_its_line(tmp_path, text, message):
    (tmp_path / "SET.txt").write_text(text)
    with pytest.raises(NearfarError, match=message):
        load_all_graphs(tmp_path)


def test_new_graphs_get_the_features_of_the_net(tmp_path):
    (tmp_path / "SET.txt").write_text(TWO_GRAPHS)
    (tmp_path / "NEW.txt").write_text("1\n2 0\n5 1 1\n5 1 0\n")
    inputs = GraphInputs(load_all_graphs(tmp_path / "SET.txt").sizes())
    assert inputs.adapt(tmp_path / "NEW.txt")[0].read([0])["x"].tolist() == [[0, 1], [0, 1]]
    (tmp_path / "NEW.txt").write_text("1\n1 0\n6 0\n")
    with pytest.raises(UsageError, match="the node label 6 is not one of those"):
        inputs.adapt(tmp_path / "NEW.txt")
    with pytest.raises(UsageError, match="34 features, and this model was trained on 33"):
        NodeInputs({"node_features": 33}).adapt("karate")


def test_splits_are_drawn_stored_and_repeated():
    first, again = (GraphInputs().load_splits("atlas", TrainConfig(seed=3)) for _ in range(2))
    assert first.test_ids == again.test_ids
    assert first.train.fingerprint == again.train.fingerprint
    stored = load_graphs("atlas", seed=99, test_ids=first.test_ids)
    assert stored.test.fingerprint == first.test.fingerprint
    share = [np.bincount(part.labels) / len(part) for part in (first.train, first.test)]
    np.testing.assert_allclose(*share, atol=0.01)
    assert first.train.drop_labels().fingerprint == first.train.fingerprint


def test_cora_is_as_published(data_folder):
    if not (data_folder / "cora").is_dir():
        pytest.skip("no Cora here")
    found = load_nodes(data_folder / "cora")
    store = found.train.store
    assert (store.num_nodes, store.num_features, int(store.degrees.sum())) == (2708, 1433, 2 * 5278)
    assert (len(found.train), len(found.test), len(found.train.classes)) == (140, 1000, 7)
    assert np.bincount(found.train.labels).tolist() == [20] * 7
    assert isinstance(store.x, csr_matrix)


def test_mutag_is_as_published(data_folder):
    if not (data_folder / "tu" / "MUTAG").is_dir():
        pytest.skip("no MUTAG here")
    data, folds = load_all_graphs(data_folder / "tu" / "MUTAG"), read_gin_folds(data_folder / "tu" / "MUTAG")
    assert (len(data), data.store.num_features, sorted(np.bincount(data.labels))) == (188, 7, [63, 125])
    assert data.store.num_nodes == 3371
    assert len(np.unique(np.concatenate([test for _, test in folds]))) == 180, "ten times 18 graphs; 8 are never tested"
    assert all(sorted([*train, *test]) == list(range(188)) for train, test in folds)
