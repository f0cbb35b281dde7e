"""Recipes for sounds against loops, and their parts: contexts, codes, hidden stretches, pooled frames, the report."""

from __future__ import annotations

import base64
import dataclasses
import io
import math

import numpy as np
import pytest
import torch
from helpers import tiny_session

import nearfar
from nearfar.core import Net, RandomKey, UsageError
from nearfar.data.samples.tones import make_tones
from nearfar.encoders import AUDIO_ENCODERS, make_encoder, pool_mean_std
from nearfar.encoders.audio import downsample_mask
from nearfar.heads.context import GRUContext, MaskedTransformer
from nearfar.heads.quantization import GumbelQuantizer, compute_unused_code_share
from nearfar.modalities.audio import AudioModality, encode_wav_uri
from nearfar.recipes.audio.cpc_audio import CPCAudio
from nearfar.recipes.audio.wav2vec2 import draw_mask
from nearfar.reports.report import ReportContent, SampleNeighbors, render_report

SIZES = {"n": 8, "sample_rate": 8000, "samples": 4096, "classes": 0}


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", AUDIO_ENCODERS)
@pytest.mark.parametrize("samples", [1, 3, 159, 161])
def test_a_clip_of_any_length_has_a_vector(name, samples):
    encoder = make_encoder(name, SIZES).eval()
    vectors = encoder(drawn(2, samples))
    assert vectors.shape == (2, encoder.dim)
    assert vectors.isfinite().all()


@pytest.mark.parametrize(("parts", "frames"), [(10, 3), (7, 7), (3, 5), (100, 13), (1, 1), (41, 40)])
def test_a_frame_is_heard_where_any_of_its_parts_is(parts, frames):
    heard = drawn(50, parts) > 1
    found = downsample_mask(heard, frames)
    for clip in range(50):
        for j in range(frames):
            own = heard[clip, math.floor(j * parts / frames) : math.ceil((j + 1) * parts / frames)]
            assert found[clip, j] == (bool(own.any()) or j == 0)


@pytest.mark.parametrize("name", AUDIO_ENCODERS)
def test_encoders_take_clips_and_do_not_hear_the_silence_after_them(name):
    encoder = make_encoder(name, SIZES).eval()
    wave = drawn(2, 3200) * 0.1
    states = encoder.encode_frames(wave)
    heard = encoder.compute_frame_mask(wave, states.shape[1])
    assert states.shape[2] == encoder.width
    assert heard.all()
    longer = torch.cat([wave, torch.zeros(2, 3200)], 1)
    heard = encoder.compute_frame_mask(longer, encoder.encode_frames(longer).shape[1])
    assert heard.float().mean() == pytest.approx(0.5, abs=0.1)
    assert encoder(wave).shape == (2, encoder.dim)
    assert torch.nn.functional.cosine_similarity(encoder(wave), encoder(longer)).min() > 0.95
    assert encoder(torch.zeros(1, 3200)).isfinite().all()


def test_an_unknown_encoder_is_named():
    with pytest.raises(UsageError, match=r"'mell' is unknown.*Did you mean 'mel'"):
        make_encoder("mell", SIZES)
    with pytest.raises(UsageError, match=r"compares spectrograms"):
        nearfar.fit("nandan-vepa", preset="tiny", encoder="wave", steps=1)


def test_a_speech_model_of_transformers_is_an_encoder(tmp_path):
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    small = Wav2Vec2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, conv_dim=(8, 8), conv_kernel=(10, 8),
        conv_stride=(20, 16), num_feat_extract_layers=2, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    Wav2Vec2Model(small).save_pretrained(tmp_path)
    encoder = make_encoder(f"hf:{tmp_path}", SIZES).train()
    wave = drawn(2, 4096) * 0.1
    with RandomKey(0).fork_torch_rng():
        first = encoder(wave)
    assert first.shape == (2, 32)
    assert encoder.compute_frame_mask(wave, encoder.encode_frames(wave).shape[1]).all()
    with pytest.raises(UsageError, match="neither a folder nor in the local cache"):
        make_encoder("hf:nowhere/at-all", SIZES)


def test_pooled_is_mean_and_deviation_of_what_is_heard():
    states, heard = drawn(3, 7, 4), torch.arange(7) < torch.tensor([[7], [3], [1]])
    found = pool_mean_std(states, heard)
    for i, count in enumerate((7, 3, 1)):
        part = states[i, :count]
        expected = torch.cat([part.mean(0), (part.var(0, correction=0) + 1e-5).sqrt()])
        torch.testing.assert_close(found[i], expected)


@pytest.mark.parametrize("own_clip", [True, False])
def test_cpc_is_the_loop_over_moments_of_all_clips(own_clip):
    recipe = CPCAudio(dim=5, min_steps_ahead=2, steps_ahead=3, same_clip_negatives=own_clip)
    c, z, ways = drawn(2, 6, 5), drawn(2, 6, 4, seed=1), drawn(2, 5, 4, seed=2)
    heard = torch.arange(6) < torch.tensor([[6], [4]])
    losses = []
    for k, way in zip((2, 3), ways, strict=True):
        moments = [(i, t) for i in range(2) for t in range(6 - k) if heard[i, t] and heard[i, t + k]]
        each = []
        for i, t in moments:
            candidates = [(j, s) for j, s in moments if own_clip or j != i or s == t]
            scores = {(j, s): float(c[i, t] @ way @ z[j, s + k]) for j, s in candidates}
            each.append(math.log(sum(math.exp(score) for score in scores.values())) - scores[i, t])
        losses.append(sum(each) / len(each))
    found = recipe.objective(Net(ways=torch.nn.Parameter(ways)), {"c": c, "z": z, "heard": heard}, RandomKey(0))
    assert found["loss"].item() == pytest.approx(sum(losses) / 2, rel=1e-4)
    assert float(found["information_first_step"]) == pytest.approx(math.log(6) - losses[0], rel=1e-3)
    assert float(found["information_last_step"]) == pytest.approx(math.log(4) - losses[1], rel=1e-3)


def test_cpc_of_clips_that_end_too_soon_says_nothing():
    recipe = CPCAudio(dim=5, min_steps_ahead=5, steps_ahead=5)
    z = {"c": drawn(2, 6, 5).requires_grad_(), "z": drawn(2, 6, 4), "heard": torch.arange(6)[None].expand(2, -1) < 3}
    loss = recipe.objective(Net(ways=torch.nn.Parameter(drawn(1, 5, 4))), z, RandomKey(0))["loss"]
    loss.backward()
    assert loss.item() == 0
    assert not z["c"].grad.any()


def test_cpc_sees_past_and_future_at_the_same_times_but_not_alike():
    session = tiny_session("cpc-audio", batch_size=16)
    rows = session.plan.get_rows(0)
    x = session.similarity().view(session.data.read(rows.ids), rows, RandomKey(0))
    assert x["v0"].shape == x["v1"].shape
    assert not torch.allclose(x["v0"], x["v1"])
    moved = [torch.corrcoef(torch.stack([a.sum(0), b.sum(0)]))[0, 1] for a, b in zip(x["v0"], x["v1"], strict=True)]
    assert min(moved) > 0.7


def test_cpc_refuses_clips_too_short_to_predict():
    with pytest.raises(UsageError, match=r"--steps-ahead 40: the clips have only \d+ frames"):
        nearfar.fit("cpc-audio", preset="tiny", steps_ahead=40, steps=1)
    with pytest.raises(UsageError, match=r"--min-steps-ahead 9 is larger than --steps-ahead 8"):
        nearfar.fit("cpc-audio", preset="tiny", min_steps_ahead=9, steps=1)


def test_the_past_does_not_see_the_future():
    context, z = GRUContext(4, 6), drawn(2, 9, 4)
    changed = z.clone()
    changed[:, 5:] += 1
    torch.testing.assert_close(context(z)[:, :5], context(changed)[:, :5])
    assert not torch.allclose(context(z)[:, 5:], context(changed)[:, 5:])


def test_hidden_frames_and_silence_are_not_seen():
    context, z = MaskedTransformer(4, 8, 1), drawn(2, 12, 4)
    heard = torch.arange(12)[None].expand(2, -1) < 9
    hidden = (torch.arange(12) == 4)[None].expand(2, -1)
    changed = z.clone()
    changed[:, 4] += drawn(4, seed=1)
    changed[:, 9:] += drawn(4, seed=2)
    torch.testing.assert_close(context(z, heard, hidden)[:, :9], context(changed, heard, hidden)[:, :9])
    changed[:, 6] += drawn(4, seed=3)
    assert not torch.allclose(context(z, heard, hidden)[:, 4], context(changed, heard, hidden)[:, 4])


def test_hidden_stretches_are_as_long_and_as_many_as_asked():
    heard = torch.arange(40)[None].expand(50, -1) < 30
    found = draw_mask(heard, torch.arange(50), RandomKey(0), mask_start_share=0.1, mask_length=4)
    assert not found[:, 30:].any()
    assert (found.sum(1) <= 12).all()
    assert (found.sum(1) >= 3).all()
    one = draw_mask(heard, torch.arange(50), RandomKey(0), mask_start_share=0.01, mask_length=4)
    starts = one.int().argmax(1)
    assert torch.equal(one.sum(1), (30 - starts).clamp_max(4))
    assert len(starts.unique()) > 15
    torch.testing.assert_close(found[7:9], draw_mask(heard[7:9], torch.arange(7, 9), RandomKey(0), 0.1, 4))


def test_codes_are_entries_of_the_books_and_pass_gradients():
    quantiser = GumbelQuantizer(6, 4, num_codebooks=2, codebook_size=5)
    quantiser.out = torch.nn.Identity()  # type: ignore[assignment]
    z = drawn(3, 7, 6).requires_grad_()
    q, likely = quantiser(z, torch.arange(3), RandomKey(0))
    assert likely.shape == (3, 7, 2, 5)
    for part, book in zip(q.detach().unflatten(2, (2, 4)).unbind(2), quantiser.book.detach(), strict=True):
        assert torch.cdist(part.reshape(-1, 4), book).min(1).values.max() < 1e-5
    q.square().sum().backward()
    assert z.grad is not None
    assert z.grad.abs().sum() > 0


def test_gumbel_noise_draws_codes_as_often_as_they_are_likely():
    quantiser = GumbelQuantizer(3, 1, num_codebooks=1, codebook_size=3)
    quantiser.out = torch.nn.Identity()  # type: ignore[assignment]
    with torch.no_grad():
        quantiser.book.copy_(torch.arange(3.0)[None, :, None])
    z = torch.tensor([[[1.0, -0.5, 0.2]]]).expand(400, 20, -1)
    q, likely = quantiser(z, torch.arange(400), RandomKey(0))
    frequency = torch.bincount(q.detach().round().long().reshape(-1), minlength=3) / q.numel()
    torch.testing.assert_close(frequency, likely[0, 0, 0].detach(), atol=0.02, rtol=0)
    part, _ = quantiser(z[5:7], torch.arange(5, 7), RandomKey(0))
    torch.testing.assert_close(part, q[5:7])


def test_the_smallest_and_largest_draws_leave_everything_finite():
    class Extreme(RandomKey):
        def __call__(self, *names):
            return self

        def uniform(self, slots, *shape):
            ends = torch.tensor([0.0, 1 - 2.0**-24, 0.5])
            return ends[torch.arange(len(slots) * math.prod(shape)) % 3].view(len(slots), *shape)

    quantiser = GumbelQuantizer(6, 4, num_codebooks=2, codebook_size=5)
    z = drawn(3, 7, 6).requires_grad_()
    q, _ = quantiser(z, torch.arange(3), Extreme(0))
    q.sum().backward()
    assert q.isfinite().all()
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_codes_follow_the_mean_and_the_deviation_of_the_frames():
    quantiser, z = GumbelQuantizer(6, 4, num_codebooks=1, codebook_size=8), drawn(50, 7, 6) * 0.1 + torch.arange(6) * 10
    assert float(quantiser(z)[1].argmax(3).unique().numel()) < 3
    quantiser.update_statistics(z.mean((0, 1)), z.square().mean((0, 1)))
    torch.testing.assert_close(quantiser.mean, z.mean((0, 1)))
    assert quantiser(z)[1].argmax(3).unique().numel() == 8
    for _ in range(200):
        quantiser.update_statistics(torch.zeros(6), torch.ones(6))
    torch.testing.assert_close(quantiser.mean, torch.zeros(6), atol=1e-4, rtol=0)
    torch.testing.assert_close(quantiser.square, torch.ones(6), atol=1e-3, rtol=0)


def test_temperature_falls_in_update_and_is_kept():
    quantiser = GumbelQuantizer(3, 2, max_temperature=2.0, min_temperature=0.5)
    for progress, expected in ((0.0, 2.0), (0.5, 1.0), (1.0, 0.5)):
        quantiser.anneal_temperature(progress)
        assert float(quantiser.state_dict()["temperature"]) == pytest.approx(expected)


def test_diversity_is_the_share_of_unused_codes():
    assert float(compute_unused_code_share(torch.full((2, 8), 1 / 8))) == pytest.approx(0, abs=1e-6)
    single = torch.zeros(2, 8)
    single[:, 3] = 1
    assert float(compute_unused_code_share(single)) == pytest.approx(1 - 1 / 8)
    half = torch.tensor([[0.5, 0.5, 0.0, 0.0]])
    assert float(compute_unused_code_share(half)) == pytest.approx(0.5)


def first_batch(name, batch=16):
    session = tiny_session(name, batch_size=batch)
    rows = session.plan.get_rows(0)
    x = session.similarity().view(session.data.read(rows.ids), rows, RandomKey(0)) | {"slot": torch.as_tensor(rows.slots)}
    return session, x, session.recipe.embed(session.net, x, RandomKey(0))


@pytest.mark.parametrize("own_clip", [True, False])
def test_wav2vec2_is_the_loop_over_hidden_moments_and_logs_its_parts(own_clip):
    session, x, z = first_batch("wav2vec2")
    encoder, recipe = session.net.encoder, dataclasses.replace(session.recipe, same_clip_negatives=own_clip)
    heard = encoder.compute_frame_mask(x["v0"], encoder.encode_frames(x["v0"]).shape[1])
    assert len(z["c"]) == len(z["q"]) == int(draw_mask(heard, x["slot"], RandomKey(0), recipe.mask_start_share, recipe.mask_length).sum())
    c, q = ([row / row.norm() for row in z[name].detach().double()] for name in "cq")
    each, clip = [], z["clip"].tolist()
    for i, moment in enumerate(c):
        scores = {j: float(moment @ code) / recipe.temperature for j, code in enumerate(q) if own_clip or clip[j] != clip[i] or j == i}
        each.append(math.log(sum(math.exp(s) for s in scores.values())) - scores[i])
    found = {name: value.detach() for name, value in recipe.objective(session.net, z, RandomKey(0)).items()}
    assert float(found["contrast"]) == pytest.approx(sum(each) / len(each), rel=1e-4)
    assert float(found["loss"]) == pytest.approx(float(found["contrast"] + 0.1 * found["unused_codes"]), rel=1e-5)


def test_codes_do_not_move_the_frames_they_are_made_of():
    session, _, z = first_batch("wav2vec2")
    z["q"].square().sum().backward()
    assert all(p.grad is None for p in session.net.encoder.parameters())
    assert session.net.quantiser.book.grad.any()


def test_the_frames_that_codes_follow_are_those_that_are_heard():
    session, x, z = first_batch("wav2vec2")
    there = session.net.encoder.encode_frames(x["v1"]).detach()
    kept = there[session.net.encoder.compute_frame_mask(x["v0"], there.shape[1])]
    session.recipe.update(session.net, {name: value.detach() for name, value in z.items()}, 0.5)
    torch.testing.assert_close(session.net.quantiser.mean, kept.mean(0))
    torch.testing.assert_close(session.net.quantiser.square, kept.square().mean(0))
    assert float(session.net.quantiser.temperature) == pytest.approx(1.0)


def test_the_baseline_is_the_spectrograms_statistics():
    data = make_tones().subset(np.arange(20))
    found = AudioModality().compute_baselines(data, data.subset(np.arange(5)), None)["log-mel statistics"]
    assert found.train.shape == (20, 80)
    assert found.baseline
    torch.testing.assert_close(torch.as_tensor(found.test), torch.as_tensor(found.train)[:5])


def test_a_report_shows_spectrograms_and_carries_the_sounds():
    soundfile = pytest.importorskip("soundfile")
    data = make_tones().subset(np.arange(12))
    shown = AudioModality().build_sample_renderer(data)
    near = SampleNeighbors(shown(torch.tensor([0, 1])), shown(torch.tensor([[2, 3], [4, 5]])), torch.ones(2, 2))
    page = render_report(ReportContent(title="tones", neighbors=near))
    assert page.count("<audio controls") == 6
    uri = encode_wav_uri(data.read([4])[0], data.sample_rate)
    assert uri in page
    wave, rate = soundfile.read(io.BytesIO(base64.b64decode(uri.split(",")[1])))
    assert (len(wave), rate) == (4096, 8000)
    original = data.read([4])[0].double().numpy()
    assert np.corrcoef(wave, original)[0, 1] > 0.99
