"""Tables of numbers: formats, columns, labels, broken rows, statistics, splits and rows for a trained model."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

from nearfar.core import NearfarError, TrainConfig, UsageError
from nearfar.data.table import dataset
from nearfar.data.table.dataset import TableRows, TableStore, format_values
from nearfar.data.table.inputs import TableInputs
from nearfar.data.table.load import BUNDLED_TABLES, load_all_tables, load_tables
from nearfar.data.table.table_columns import TableReadOptions
from nearfar.encoders import make_encoder, resolve_encoder
from nearfar.encoders.table import StandardizeColumns

ROWS = np.array([[1.5, -2, 300], [2.5, 4, 100], [0.25, 8, 200], [9, 1e-3, 50]])
HEADER = ("width", "height", "area")


def read(spec, columns=None, on_error="stop", model_columns=()) -> TableRows:
    return load_all_tables(spec, TableReadOptions(columns, on_error, model_columns)).train


def values(data: TableRows) -> np.ndarray:
    return data.read(np.arange(len(data))).numpy()


def write_text(path, rows, header=None, separator=","):
    lines = [] if header is None else [separator.join(header)]
    path.write_text("\n".join([*lines, *(separator.join(map(str, row)) for row in rows)]) + "\n")
    return path


def write_parquet(path, columns):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path, row_group_size=3)
    return path


def test_every_format_gives_the_same_rows(tmp_path):
    columns = dict(zip(HEADER, ROWS.T, strict=True))
    np.save(tmp_path / "t.npy", ROWS)
    np.savez(tmp_path / "t.npz", X=ROWS)
    named = [
        write_text(tmp_path / "t.csv", ROWS, HEADER),
        write_text(tmp_path / "t.tsv", ROWS, HEADER, "\t"),
        write_parquet(tmp_path / "t.parquet", columns),
        columns,
        {name: column.tolist() for name, column in columns.items()},
        [dict(zip(HEADER, row, strict=True)) for row in ROWS.tolist()],
    ]
    unnamed = [write_text(tmp_path / "u.csv", ROWS), tmp_path / "t.npy", tmp_path / "t.npz", ROWS, torch.from_numpy(ROWS), ROWS.tolist()]
    for names, sources in ((HEADER, named), (("x1", "x2", "x3"), unnamed)):
        for source in sources:
            data = read(source)
            np.testing.assert_array_equal(values(data), ROWS.astype(np.float32))
            assert data.columns == names
            assert data.labels is None
    assert len({read(source).fingerprint for source in (*named, *unnamed)}) == 1
    assert read(ROWS[::-1]).fingerprint != read(ROWS).fingerprint


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ("1,2\n3,4\n", ("x1", "x2")),
        ("a,b\n3,4\n", ("a", "b")),
        ("day,2019,2020\n1,3,4\n", ("day", "2019", "2020")),
        (",2,\n5,3,4\n", ("x1", "x2", "x3")),
        ("\ufeffa,\n3,4\n", ("a", "x2")),
        ("1e5,-3\n", ("x1", "x2")),
    ],
)
def test_a_header_is_detected(tmp_path, lines, names):
    (tmp_path / "t.csv").write_text(lines)
    assert read(tmp_path / "t.csv", on_error="skip").columns == names


def test_labels_come_from_the_named_or_usual_column(tmp_path):
    rows = [(1, 2, "b"), (3, 4, "a"), (5, 6, "b")]
    for name, columns in (("species", "label=species"), ("label", None)):
        for path in (
            write_text(tmp_path / "t.csv", rows, ("w", "h", name)),
            write_parquet(tmp_path / "t.parquet", {"w": [1, 3, 5], "h": [2, 4, 6], name: ["b", "a", "b"]}),
        ):
            data = read(path, columns)
            assert (data.columns, data.classes, data.labels.tolist()) == (("w", "h"), ("a", "b"), [1, 0, 1])
            assert data.drop_labels().labels is None
    headerless = write_text(tmp_path / "u.csv", rows)
    assert read(headerless, "label=x3").classes == ("a", "b")
    assert read(headerless, "x2,label=x3").columns == ("x2",)


def test_whole_numbers_are_sorted_as_numbers_and_fractions_are_rejected(tmp_path):
    for labels in (["10", "9", "9"], ["10.0", "9.0", "9.0"]):
        data = read(write_text(tmp_path / "t.csv", zip([1, 2, 3], labels, strict=True), ("w", "y")), "label=y")
        assert (data.classes, data.labels.tolist()) == (("9", "10"), [1, 0, 0])
    assert read((ROWS, np.array([3.0, 1.0, 3.0, 1.0]))).classes == ("1", "3")
    with pytest.raises(UsageError, match="labels must be whole numbers or texts"):
        read(write_text(tmp_path / "t.csv", [(1, 0.5), (2, 1.5)], ("w", "y")), "label=y")
    with pytest.raises(UsageError, match=r"has 4 rows, and labels of the shape \(3,\)"):
        read((ROWS, [1, 2, 3]))


def test_columns_choose_features_in_their_order(tmp_path):
    path = write_text(tmp_path / "t.csv", ROWS, HEADER)
    np.save(tmp_path / "t.npy", ROWS)
    np.testing.assert_array_equal(values(read(path, "area,width")), ROWS[:, [2, 0]].astype(np.float32))
    np.testing.assert_array_equal(values(read(tmp_path / "t.npy", "x3,x1")), ROWS[:, [2, 0]].astype(np.float32))
    with pytest.raises(UsageError, match=r"no column 'widht'. Did you mean 'width' or 'height'\? It has width, height, area"):
        read(path, "widht")
    with pytest.raises(UsageError, match="'score' is not a role; use label=NAME"):
        read(path, "width,score=area")


def test_an_equals_sign_may_be_part_of_a_column_name(tmp_path):
    path = write_text(tmp_path / "t.csv", ROWS, ("color=red", "color=blue", "area"))
    assert read(path, "color=red,label=area").columns == ("color=red",)


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_text_columns_are_named_with_file_line_and_remedy(tmp_path, on_error):
    rows = [(1, "red", 2), (3, "blue", 4)]
    why = r"line 2: the column 'color' holds text \('red'\).*--columns w,h.*--columns label=color.*not one-hot encoded"
    with pytest.raises(UsageError, match=r"t\.csv, " + why):
        read(write_text(tmp_path / "t.csv", rows, ("w", "color", "h")), on_error=on_error)
    columns = {"w": [1, 3], "color": ["red", "blue"], "h": [2, 4]}
    for source in (write_parquet(tmp_path / "t.parquet", columns), columns):
        with pytest.raises(UsageError, match=why.replace("line 2", "row 0")):
            read(source, on_error=on_error)
    with pytest.raises(UsageError, match=r"row 1: the column 'a' holds text \('x'\)"):
        read({"a": np.array([1, "x"], dtype=object)}, on_error=on_error)
    with pytest.raises(UsageError, match="holds <U1; features must be numbers"):
        read(np.array([["a", "b"]]), on_error=on_error)


BROKEN_CELLS = {
    "": "the column 'height' is empty or NaN",
    "nan": "the column 'height' is empty or NaN",
    "NA": "the column 'height' is empty or NaN",
    "tall": "the column 'height' holds 'tall', which is not a number",
    "inf": "the column 'height' holds inf, which is not a finite float32",
    "1e39": "the column 'height' holds 1e39, which is not a finite float32",
    "1,2": "4 values, but 3 columns",
}


@pytest.mark.parametrize("cell", BROKEN_CELLS)
def test_broken_cells_of_text_files_stop_or_are_skipped(tmp_path, cell):
    rows = [list(row) for row in ROWS]
    rows[2][1] = cell
    path = write_text(tmp_path / "t.csv", rows, HEADER)
    with pytest.raises(NearfarError, match=rf"t\.csv, line 4: {BROKEN_CELLS[cell]}.*--on-error skip"):
        read(path)
    data = read(path, on_error="skip")
    np.testing.assert_array_equal(values(data), ROWS[[0, 1, 3]].astype(np.float32))
    assert [data.name(i) for i in range(3)] == ["t.csv, line 2", "t.csv, line 3", "t.csv, line 5"]
    assert data.skipped == (f"t.csv, line 4: {BROKEN_CELLS[cell]}",)


@pytest.mark.parametrize(("cell", "reason"), [(np.nan, "is empty or NaN"), (-np.inf, "holds -inf"), (1e300, r"holds (inf|1e\+300)")])
def test_broken_cells_of_other_sources_stop_or_are_skipped(tmp_path, cell, reason):
    broken = ROWS.copy()
    broken[2, 1] = cell
    np.save(tmp_path / "t.npy", broken)
    columns = dict(zip(HEADER, broken.T, strict=True))
    for source in (tmp_path / "t.npy", broken, columns, write_parquet(tmp_path / "t.parquet", columns)):
        with pytest.raises(NearfarError, match=rf"row 2: the column '(x2|height)' {reason}"):
            read(source)
        data = read(source, on_error="skip")
        np.testing.assert_array_equal(values(data), ROWS[[0, 1, 3]].astype(np.float32))
        assert [data.name(i) for i in range(3)] == ["row 0", "row 1", "row 3"]
        assert len(data.skipped) == 1


def test_rows_without_a_label_stop_or_are_skipped(tmp_path):
    for source in (
        write_text(tmp_path / "t.csv", [(1, "a"), (2, ""), (3, "b")], ("w", "label")),
        write_parquet(tmp_path / "t.parquet", {"w": [1, 2, 3], "label": ["a", None, "b"]}),
        {"w": [1, 2, 3], "label": ["a", None, "b"]},
    ):
        with pytest.raises(NearfarError, match=r"(line 3|row 1): it has no label"):
            read(source)
        data = read(source, on_error="skip")
        assert (values(data)[:, 0].tolist(), data.labels.tolist()) == ([1, 3], [0, 1])


def test_numpy_files_are_mapped_and_archives_bring_their_split(tmp_path):
    np.save(tmp_path / "t.npy", ROWS)
    assert isinstance(read(tmp_path / "t.npy").store.values, np.memmap)
    np.savez(tmp_path / "t.npz", x_train=ROWS, Y_train=["b", "a", "b", "b"], x_test=ROWS[:2] + 1, y_test=["c", "b"])
    splits = load_tables(str(tmp_path / "t.npz"))
    assert (splits.test_ids, splits.train.classes, splits.test.labels.tolist()) == (None, ("a", "b", "c"), [2, 1])
    np.testing.assert_array_equal(values(splits.test), (ROWS[:2] + 1).astype(np.float32))


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (lambda p: np.save(p / "t.npy", ROWS[0]), r"has the shape \(3,\); a table has the shape \(n, features\)"),
        (lambda p: np.save(p / "t.npy", np.array([[None, 1]]), allow_pickle=True), "does not hold plain numbers"),
        (lambda p: (p / "t.npy").write_bytes(b"\x93NUMPY\x01"), "cannot read"),
        (lambda p: np.savez(p / "t.npz", a=ROWS), "has no array x of rows, it has a"),
        (lambda p: (p / "t.parquet").write_bytes(b"PAR1 and so on"), "cannot read"),
        (lambda p: (p / "t.csv").write_text("a;b\n1;2\n"), r"has one column, with ';'.*separated by ','"),
        (lambda p: (p / "t.csv").write_text("a,a\n1,2\n"), "two columns have the name 'a'"),
        (lambda p: (p / "t.csv").write_text(""), "there are no rows"),
        (lambda p: (p / "t.csv").write_text("a,b\n"), "0 rows to learn from"),
        (lambda p: (p / "t.csv").write_text("a,b\n1,2\n"), "1 row to learn from"),
        (lambda p: (p / "t.csv").write_text('a,b\n1,"2\n'), "line 2: unexpected end of data"),
        (lambda p: (p / "t.csv").write_bytes(b"a,b\n1,\xff\n"), "line 2: not UTF-8"),
        (lambda p: (p / "t.txt").write_text("1 2\n"), r"ends in \.csv or"),
    ],
)
def test_unusable_files_are_rejected(tmp_path, write, why):
    write(tmp_path)
    (path,) = tmp_path.iterdir()
    with pytest.raises(NearfarError, match=why):
        load_tables(path)


def test_unusable_objects_are_rejected():
    for spec, why in (
        (42, "cannot read rows from a int"),
        ("", "no data given: give --data 'iris'"),
        ("irsi", "Did you mean 'iris'"),
        ({"a": [1, 2], "b": [1]}, "the columns of a mapping of 2 columns differ in length: a 2, b 1"),
        ([{"a": 1}, {"b": 1}], "row 1 has the columns b, row 0 has a"),
        ([[1, 2], [3]], "different lengths: 1, 2"),
        (np.zeros((0, 3)), r"has the shape \(0, 3\)"),
        ({"label": [1, 2]}, "has no column of features"),
    ):
        with pytest.raises(UsageError, match=why):
            load_tables(spec)
    with pytest.raises(UsageError, match="--on-error must be"):
        load_tables(ROWS, on_error="ignore")


@pytest.mark.parametrize("name", BUNDLED_TABLES)
def test_bundled_tables_are_split_by_class(name):
    splits = load_tables(name, seed=3)
    again = load_tables(name, seed=3, test_ids=splits.test_ids)
    n = len(splits.train) + len(splits.test)
    assert sorted([*splits.train.ids, *splits.test.ids]) == list(range(n))
    assert again.test.fingerprint == splits.test.fingerprint
    assert load_tables(name, seed=4).test_ids != splits.test_ids
    for label in range(len(splits.train.classes)):
        counts = [int((part.labels == label).sum()) for part in (splits.train, splits.test)]
        assert abs(counts[1] - sum(counts) / 5) <= 0.5
    assert splits.train.sizes()["features"] == {"iris": 4, "wine": 13, "breast-cancer": 30, "digits-table": 64}[name]


def test_iris_is_scikit_learns_table():
    data, known = read("iris"), load_iris()
    np.testing.assert_array_equal(values(data), known.data.astype(np.float32))
    assert data.labels.tolist() == known.target.tolist()
    assert data.classes == ("setosa", "versicolor", "virginica")
    assert data.format_row(0) == "sepal length (cm) = 5.1, sepal width (cm) = 3.5, petal length (cm) = 1.4, petal width (cm) = 0.2"
    assert read("iris", "petal length (cm)").num_features == 1


def test_statistics_are_those_of_the_training_rows_in_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    table = (rng.normal(size=(1000, 5)) * [1, 1e-4, 1e5, 1, 0] + [0, 10, -1e6, 1e-3, 0.1]).astype(np.float32)
    splits = load_tables(table)
    train = table[splits.train.ids].astype(np.float64)
    for block in (1 << 22, 35):
        monkeypatch.setattr(dataset, "VALUES_PER_BLOCK", block)
        sizes = load_tables(table).train.sizes()
        assert (sizes["n"], sizes["features"], sizes["columns"]) == (800, 5, ["x1", "x2", "x3", "x4", "x5"])
        np.testing.assert_allclose(sizes["mean"], train.mean(0), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(sizes["std"][:4], train.std(0)[:4], rtol=1e-9)
        assert sizes["std"][4] == 0, "a constant column has no deviation, not one of rounding"


def test_the_encoder_standardizes_and_only_shifts_constant_columns():
    table = np.array([[1.0, 0.1, 1e30], [3.0, 0.1, -1e30]], dtype=np.float32)
    sizes = TableRows(TableStore(table, ("a", "b", "c")), np.arange(2)).sizes()
    found = StandardizeColumns(sizes["mean"], sizes["std"])(torch.from_numpy(table))
    np.testing.assert_allclose(found.numpy(), [[-1, 0, 1], [1, 0, -1]], atol=1e-6)


def test_encoders_have_the_named_layers_and_their_weights_keep_the_statistics():
    splits = load_tables("wine")
    sizes = splits.train.sizes()
    assert resolve_encoder("auto", sizes) == "mlp"
    encoder = make_encoder("mlp", sizes)
    shapes = [tuple(p.shape) for p in encoder.parameters() if p.ndim == 2]
    assert (encoder.dim, shapes) == (256, [(256, 13), (256, 256), (256, 256), (256, 256)])
    small, other = make_encoder("mlp-2x32", sizes), make_encoder("mlp-2x32", {**sizes, "mean": [0.0] * 13, "std": [1.0] * 13})
    other.load_state_dict(small.state_dict())
    rows = splits.test.read(np.arange(5))
    assert torch.equal(small(rows), other(rows))
    assert small(rows).shape == (5, small.dim) == (5, 32)
    with pytest.raises(UsageError, match="for rows of numbers use mlp or mlp-LAYERSxWIDTH, such as mlp-2x128"):
        make_encoder("resnet18", sizes)


def test_cells_of_other_rows_keep_their_column():
    data = read(np.arange(40.0).reshape(10, 4)).subset(np.array([9, 2, 5]))
    donors = np.array([[0, 1, 2, 0], [2, 2, 1, 1]])
    np.testing.assert_array_equal(data.read_cells(donors).numpy(), [[36, 9, 22, 39], [20, 21, 10, 11]])


def test_rows_for_a_model_are_matched_by_name_or_by_position(tmp_path):
    inputs = TableInputs({"columns": list(HEADER)})
    mixed = {"area": ROWS[:, 2], "note": ["a", "b", "c", "d"], "height": ROWS[:, 1], "width": ROWS[:, 0], "label": [1, 1, 2, 2]}
    path = write_text(tmp_path / "t.csv", zip(*mixed.values(), strict=True), mixed)
    named = read(dict(zip(HEADER, ROWS.T, strict=True)), "area,height,width")
    for samples in (mixed, path, str(path), ROWS, ROWS.tolist(), torch.from_numpy(ROWS), named, read(ROWS)):
        (data,) = inputs.adapt(samples)
        np.testing.assert_array_equal(values(data), ROWS.astype(np.float32))
    (data,) = TableInputs({"columns": ["x1", "x2", "x3"]}).adapt({"a": [1, 2], "b": [3, 4], "c": [5, 6]})
    assert values(data).tolist() == [[1, 3, 5], [2, 4, 6]]
    for samples, why in (
        (ROWS[:, :2], "has 2 features, and this model was trained on 3"),
        ({"width": [1], "height": [2]}, "no column 'area', which this model was trained on. It has width, height"),
        ([[1.0, float("nan"), 2.0]], "row 0: the column 'height' is empty or NaN|the column 'x2'"),
    ):
        with pytest.raises(NearfarError, match=why):
            inputs.adapt(samples)


def test_stored_columns_label_the_same_data_again(tmp_path):
    rows = [(*row, "ab"[i % 2]) for i, row in enumerate(np.repeat(ROWS, 5, axis=0))]
    path = write_text(tmp_path / "t.csv", rows, (*HEADER, "species"))
    config = TrainConfig(data=str(path), columns="label=species")
    first = TableInputs().load_splits(str(path), config)
    again = TableInputs(first.train.sizes()).load_splits(str(path), config, test_ids=first.test_ids)
    assert again.train.fingerprint == first.train.fingerprint
    assert again.test.labels.tolist() == first.test.labels.tolist()
    assert [len(part) for part in TableInputs(first.train.sizes()).load_all(str(path), config)] == [20]


def test_text_of_a_row_is_short():
    text = format_values([1.23456, -2e9, 3, 4, 5, 6, 7], tuple("abcdefg"))
    assert text == "a = 1.235, b = -2e+09, c = 3, d = 4, e = 5, f = 6, …"
    assert re.fullmatch(r"a = 0.5", format_values([0.5], ("a",)))
