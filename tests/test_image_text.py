"""Pictures with captions: readers and their errors, splits, what is drawn, recall and zero-shot against loops and known answers."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import nearfar
from nearfar.api.evaluate import evaluate_model
from nearfar.core import NearfarError, RandomKey, Rows, TrainConfig, UsageError
from nearfar.data.common.arrays import ImageReadOptions
from nearfar.data.image_text.dataset import GroupedRows
from nearfar.data.image_text.inputs import ImageTextInputs
from nearfar.data.image_text.load import load_all_captions, load_captions
from nearfar.data.image_text.readers import DIGIT_NAMES
from nearfar.data.text.readers import BrokenRow
from nearfar.evaluate.cross_modal import build_neighbor_caption_baseline, encode_class_prompts, hits_at, recall_at, zero_shot_accuracy
from nearfar.modalities.image_text import RenderedView
from nearfar.reports.report import ReportContent, render_report
from nearfar.similarity.augment import ImageViews
from nearfar.similarity.compose import Compose
from nearfar.similarity.image_text import ImageCaptionPairs

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "white": (255, 255, 255), "black": (0, 0, 0)}


@pytest.fixture
def pictures(tmp_path) -> Path:
    (tmp_path / "pictures").mkdir()
    for name, colour in COLOURS.items():
        Image.new("RGB", (8, 8), colour).save(tmp_path / "pictures" / f"{name}.png")
    return tmp_path


def table(folder: Path, name: str, rows: list[dict]) -> Path:
    path = folder / name
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)]) + "\n")
    return path


def described(data) -> dict[str, list[str]]:
    return {data.name(i): data.get_captions(i) for i in range(len(data))}


EXPECTED = {"pictures/red.png": ["a red square", "it is red"], "pictures/blue.png": ["a blue square"]}


def test_one_caption_a_row_or_a_list_of_them_is_the_same(pictures):
    said = [("a red square", "red"), ("a blue square", "blue"), ("it is red", "../pictures/red")]
    flat = [{"image": f"pictures/{image}.png", "caption": text} for text, image in said]
    listed = [{"image": image, "caption": texts} for image, texts in EXPECTED.items()]
    sources = [table(pictures, "a.csv", flat), table(pictures, "b.jsonl", listed), table(pictures, "c.parquet", listed)]
    for path in sources:
        data = load_all_captions(str(path), ImageReadOptions()).train
        assert described(data) == EXPECTED, path
        assert data.read([1])[0, :, 0, 0].tolist() == [0, 0, 255]


def test_columns_are_named_and_labels_read(pictures):
    kinds = dict.fromkeys(COLOURS, "colour") | {"white": "grey", "black": "grey"}
    rows = [{"where": f"pictures/{name}.png", "what": f"all {name}", "kind": kind} for name, kind in kinds.items()]
    path = table(pictures, "t.csv", rows)
    with pytest.raises(UsageError, match="--columns image,caption"):
        load_all_captions(path, ImageReadOptions())
    data = load_all_captions(path, ImageReadOptions(), "where,what,label=kind").train
    assert data.classes == ("colour", "grey")
    assert data.labels.tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"image": "pictures/none.png", "caption": "x"}, "there is no image"),
        ({"image": "pictures/red.png", "caption": ["x", " "]}, "a caption is empty"),
        ({"image": "pictures/red.png", "caption": []}, "a caption is empty"),
        ({"image": "pictures/red.png", "caption": 3}, "'caption' is neither a text nor a list of texts: 3"),
        ({"image": None, "caption": "x"}, "'image' is not the path"),
        ("[1, 2]", "not a JSON object"),
        ("{", "not JSON"),
    ],
)
def test_a_broken_row_is_named_by_file_and_line_or_left_out(pictures, row, says):
    good = [{"image": image, "caption": texts} for image, texts in EXPECTED.items()]
    path = table(pictures, "t.jsonl", good)
    path.write_text(path.read_text() + (row if isinstance(row, str) else json.dumps(row)) + "\n")
    with pytest.raises(BrokenRow, match=r"t\.jsonl, line 3: ") as e:
        load_all_captions(path, ImageReadOptions())
    assert says in str(e.value)
    data = load_all_captions(path, ImageReadOptions(on_error="skip")).train
    assert described(data) == EXPECTED
    assert len(data.skipped) == 1


def test_a_broken_image_is_named_or_left_out_with_its_captions(pictures):
    (pictures / "pictures" / "red.png").write_bytes(b"no image")
    path = table(pictures, "t.jsonl", [{"image": f"pictures/{n}.png", "caption": [n, f"a {n} one"]} for n in COLOURS])
    with pytest.raises(UsageError, match=r"red\.png"):
        load_all_captions(path, ImageReadOptions())
    data = load_all_captions(path, ImageReadOptions(on_error="skip")).train
    assert described(data) == {f"pictures/{n}.png": [n, f"a {n} one"] for n in COLOURS if n != "red"}


def test_two_labels_of_one_image_are_an_error(pictures):
    rows = [{"image": "pictures/red.png", "caption": c, "label": c} for c in ("x", "y")]
    with pytest.raises(BrokenRow, match=r"line 3.*label 'y' here and 'x'"):
        load_all_captions(table(pictures, "t.csv", rows), ImageReadOptions())


def test_a_test_image_that_was_trained_on_is_an_error(pictures):
    for part, names in (("train", ("red", "blue")), ("test", ("green", "red"))):
        table(pictures, f"{part}.csv", [{"image": f"pictures/{n}.png", "caption": n} for n in names])
    with pytest.raises(UsageError, match=r"red\.png is in the training table and in the test table"):
        load_all_captions(pictures, ImageReadOptions())


def test_flickr8k_keeps_its_published_split(pictures):
    (pictures / "pictures").rename(pictures / "images")
    tokens = [f"{name}.png#{i}\t{name} number {i} ." for name in COLOURS for i in range(5)]
    (pictures / "Flickr8k.token.txt").write_text("\n".join(tokens) + "\n")
    for part, names in (("train", ("red", "green", "blue")), ("dev", ("white",)), ("test", ("black",))):
        (pictures / f"Flickr_8k.{part}Images.txt").write_text("".join(f"{n}.png\n" for n in names))
    found = load_captions(pictures, ImageReadOptions())
    assert described(found.test) == {"black.png": [f"black number {i} ." for i in range(5)]}
    assert list(described(found.train)) == ["red.png", "green.png", "blue.png"]
    (pictures / "Flickr8k.token.txt").write_text("\n".join(["red.png a caption", *tokens]) + "\n")
    with pytest.raises(BrokenRow, match=r"Flickr8k\.token\.txt, line 1: "):
        load_captions(pictures, ImageReadOptions())


def test_emojis_are_divided_with_all_their_drawings(tmp_path):
    lines = ["image\tname\tshort_names\tcategory\tsubcategory"]
    for vendor in ("one", "two"):
        (tmp_path / vendor).mkdir()
    for i in range(20):
        lines.append(f"{i}.png\tNUMBER-SIGN {i}\tsign_{i},number_{i}\t{'odd' if i % 2 else 'even'}\tx")
        for vendor in ("one", "two") if i else ("two",):
            Image.new("RGB", (8, 8), (i, i, 7)).save(tmp_path / vendor / f"{i}.png")
    (tmp_path / "emoji.tsv").write_text("\n".join(lines) + "\n")
    found = load_captions(tmp_path, ImageReadOptions(), seed=3)
    shown = [{part.name(i).split("/")[1] for i in range(len(part))} for part in (found.train, found.test)]
    assert not shown[0] & shown[1]
    assert len(shown[1]) == len(found.test.images_by_object) == 4
    assert len(found.train) + len(found.test) == 39
    assert load_all_captions(tmp_path, ImageReadOptions()).train.get_captions(0) == ["number sign 0", "sign 0", "number 0"]
    again = load_captions(tmp_path, ImageReadOptions(), test_ids=found.test_ids)
    assert described(again.test) == described(found.test)


def test_pictures_and_captions_are_drawn_evenly_by_key_and_belong_together():
    groups = GroupedRows.from_group_ids(np.array([0, 1, 1, -1, 1, 0]), 2)
    assert [groups.get_members(g).tolist() for g in (0, 1)] == [[0, 5], [1, 2, 4]]
    drawn = groups.draw_members(np.ones(3000, dtype=np.int64), np.arange(3000), RandomKey(0))
    assert np.allclose([np.mean(drawn == m) for m in (1, 2, 4)], 1 / 3, atol=0.03)
    data = ImageTextInputs().load_splits("digits-captions", TrainConfig(vocab_size=300, max_length=16)).train
    ids = np.arange(50)
    seen, other = (ImageCaptionPairs(ImageViews((Compose(),))).read(data, Rows(ids, ids + s, ids), RandomKey(0)) for s in (0, 1000))
    said = [data.tokenizer.decode(row) for row in seen["text"].tolist()]
    assert all(DIGIT_NAMES[data.labels[i]] in text for i, text in enumerate(said))
    assert seen["text"].tolist() != other["text"].tolist()


def naive_recall(scores: torch.Tensor, right: set[tuple[int, int]], k: int) -> float:
    """All orders of equal scores, one by one."""
    total = 0.0
    for q, row in enumerate(scores.tolist()):
        hits = orders = 0
        for order in itertools.permutations(range(len(row))):
            if all(row[a] >= row[b] for a, b in itertools.pairwise(order)):
                orders += 1
                hits += any((q, key) in right for key in order[:k])
        total += hits / orders
    return total / len(scores)


@pytest.mark.parametrize("seed", range(4))
def test_recall_is_the_mean_over_all_orders_of_equal_scores(seed):
    draw = np.random.default_rng(seed)
    angles = torch.from_numpy(draw.integers(0, 3, 6) * 0.5)  # few directions: many scores are equal
    keys = torch.stack([angles.cos(), angles.sin()], 1)
    queries = torch.from_numpy(draw.normal(size=(5, 2)))
    right = {(q, int(draw.integers(6))) for q in range(5)} | {(q, int(draw.integers(6))) for q in range(5)}
    found = recall_at(queries, keys, torch.tensor(sorted(right)), (1, 2, 4, 6))
    scores = (torch.nn.functional.normalize(queries, dim=1) @ keys.T).float()
    for k, value in found.items():
        assert value == pytest.approx(naive_recall(scores, right, k), abs=1e-9)


def test_recall_of_alike_vectors_is_chance_and_of_equal_spaces_is_one():
    right = torch.arange(40)[:, None].expand(-1, 2)
    alike = torch.ones(40, 3)
    assert recall_at(alike, alike, right) == pytest.approx({1: 1 / 40, 5: 5 / 40, 10: 10 / 40})
    z = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    assert recall_at(z, z, right) == {1: 1.0, 5: 1.0, 10: 1.0}
    with pytest.raises(NearfarError, match="every query"):
        recall_at(z, z, right[1:])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_vectors_that_are_no_numbers_find_nothing(value):
    good = torch.eye(4)
    broken = good.clone()
    broken[2, 0] = value
    right = torch.arange(4)[:, None].expand(-1, 2)
    for measure in (hits_at, recall_at):
        with pytest.raises(NearfarError, match=r"queries: 1 of 4 rows hold NaN or infinity"):
            measure(broken, good, right)
        with pytest.raises(NearfarError, match=r"keys: 1 of 4 rows hold NaN or infinity"):
            measure(good, broken, right)
    with pytest.raises(NearfarError, match=r"images: 1 of 4 rows"):
        zero_shot_accuracy(broken, torch.arange(4), good)
    with pytest.raises(NearfarError, match=r"class vectors: 1 of 4 rows"):
        zero_shot_accuracy(good, torch.arange(4), broken)


def test_zero_shot_takes_the_mean_of_the_prompts_directions():
    vectors = {"a cat": [3.0, 0], "the cat": [0, 1.0], "a dog": [-1.0, 0], "the dog": [-1.0, 0]}
    classes = encode_class_prompts(("cat", "dog"), ("a {}", "the {}"), lambda texts: torch.tensor([vectors[t] for t in texts]))
    assert torch.allclose(classes, torch.tensor([[0.5**0.5, 0.5**0.5], [-1.0, 0.0]]))
    images = torch.tensor([[1.0, 1.0], [-1.0, -0.1], [-1.0, 0.0]])
    assert zero_shot_accuracy(images, torch.tensor([0, 1, 0]), classes) == pytest.approx(2 / 3)
    assert zero_shot_accuracy(torch.zeros(3, 2), torch.tensor([0, 1, 0]), classes) == pytest.approx(1 / 2)
    with pytest.raises(UsageError, match=r"each prompt needs a \{\}"):
        encode_class_prompts(("cat",), ("a photo",), lambda texts: torch.zeros(1, 2))


def test_borrowed_words_are_those_of_the_nearest_training_pictures():
    train = torch.eye(3)
    said = [["a red square"], ["a green circle"], ["a blue line"]]
    images, encode = build_neighbor_caption_baseline(torch.tensor([[0.1, 1.0, 0.0]]), train, said, neighbors=1)
    scores = (images @ encode(["red", "the green circle", "unknown"]).T)[0]
    assert int(scores.argmax()) == 1
    assert scores[2] == 0


def test_a_trained_net_takes_pictures_and_words_and_is_measured_beside_its_floors(tmp_path):
    run = nearfar.fit("clip", preset="tiny", steps=60, out=tmp_path / "run")
    images = torch.zeros(3, 8, 8, dtype=torch.uint8)
    assert run.encode(images).shape == run.encode(["the digit one", "this is a two", "x"]).shape == (3, 64)
    for vectors in (run.encode(images), run.encode(["the digit one"])):
        assert torch.allclose(vectors.norm(dim=1), torch.ones(len(vectors)))
    rows = {r["representation"]: r for r in evaluate_model(nearfar.load(tmp_path / "run")).results}
    assert rows["chance"]["zero_shot"] == pytest.approx(0.1)
    assert rows["chance"]["to_text_1"] == pytest.approx(0.1, abs=1e-6)
    for metric in ("zero_shot", "to_text_1", "to_image_5"):
        assert rows["trained encoders"][metric] > 0.3 + rows["chance"][metric]
        assert rows["trained encoders"][metric] > 0.3 + rows["untrained encoders"][metric]


def test_the_scale_is_learned_and_held_at_a_hundred():
    """The run starts at a scale of 200, and its low learning rate alone would leave it there."""
    scales = []

    class Scale(nearfar.Hook):
        def step(self, session, values, z):
            scales.append(float(session.net.temperature().detach()))

    nearfar.fit("clip", preset="tiny", steps=3, batch_size=32, temperature=0.005, lr=1e-4, hooks=[Scale()])
    assert scales == pytest.approx([100.0] * 3, rel=1e-3)
    moved = nearfar.fit("clip", preset="tiny", steps=3, batch_size=32, temperature=0.07)
    assert float(moved.net.temperature().detach()) != pytest.approx(1 / 0.07, abs=1e-6)


def test_a_pretrained_text_encoder_brings_its_tokenizer():
    with pytest.raises(UsageError, match=r"--tokenizer some/folder: is neither a folder nor in the local cache"):
        nearfar.fit("clip", preset="tiny", steps=1, text_encoder="hf:some/folder")


def test_the_image_tower_may_begin_with_a_run_on_images(tmp_path):
    donor = nearfar.fit("simclr", preset="tiny", steps=2, batch_size=32, out=tmp_path / "images")
    run = nearfar.fit("clip", preset="tiny", steps=1, batch_size=32, lr=1e-12, init_from=str(tmp_path / "images"))
    theirs, mine = donor.net.encoder.state_dict(), run.net.encoder.state_dict()
    assert all(torch.allclose(theirs[name], mine[name], atol=1e-6) for name in theirs if name.endswith("weight"))


def test_names_of_image_files_are_never_taken_for_texts(tmp_path):
    run = nearfar.fit("clip", preset="tiny", steps=1, batch_size=32)
    with pytest.raises(UsageError, match=r"missing\.png"):
        run.encode([str(tmp_path / "missing.png")])


def test_a_report_shows_images_and_escaped_texts():
    shown = [
        RenderedView(torch.zeros(3, 8, 8)),
        RenderedView(torch.ones(3, 8, 8)),
        RenderedView(text="a <b> & c"),
        RenderedView(text="plain"),
    ]
    sheet = shown[0].build_sheet(shown)
    assert [sheet.get_cell(i).text for i in range(4)] == [None, None, "a <b> & c", "plain"]
    page = render_report(ReportContent(title="t", pairs=(shown[:2], shown[2:])))
    assert page.count('role="img"') == 2
    assert ">a &lt;b&gt; &amp; c</q>" in page
    assert "data:image/png" in sheet.style
