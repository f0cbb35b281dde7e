"""Recipes for sounds against loops, and their parts: contexts, codes, hidden stretches, pooled frames, the report."""

from __future__ import annotations

import base64
import io
import math

import numpy as np
import pytest
import torch
from helpers import tiny_session

import nearfar
from nearfar.app.kinds.audio import AudioKind, wav_uri
from nearfar.app.report import Neighbours, ReportContent, render
from nearfar.core import Key, UsageError
from nearfar.data.tones import tones
from nearfar.encoders import AUDIO_ENCODERS, make_encoder, pooled
from nearfar.heads.context import GRUContext, MaskedTransformer
from nearfar.heads.gumbel import GumbelQuantiser, unused_codes
from nearfar.recipes.audio.cpc_audio import _told_apart
from nearfar.recipes.audio.wav2vec2 import candidates, hide

SIZES = {"n": 8, "rate": 8000, "samples": 4096, "classes": 0}


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", AUDIO_ENCODERS)
def test_encoders_take_clips_and_do_not_hear_the_silence_after_them(name):
    encoder = make_encoder(name, SIZES).eval()
    wave = drawn(2, 3200) * 0.1
    states = encoder.states(wave)
    heard = encoder.heard(wave, states.shape[1])
    assert states.shape[2] == encoder.width
    assert heard.all()
    longer = torch.cat([wave, torch.zeros(2, 3200)], 1)
    heard = encoder.heard(longer, encoder.states(longer).shape[1])
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
    with Key(0).seeded():
        first = encoder(wave)
    assert first.shape == (2, 32)
    assert encoder.heard(wave, encoder.states(wave).shape[1]).all()
    with pytest.raises(UsageError, match="neither a folder nor in the local cache"):
        make_encoder("hf:nowhere/at-all", SIZES)


def test_pooled_is_mean_and_deviation_of_what_is_heard():
    states, heard = drawn(3, 7, 4), torch.arange(7) < torch.tensor([[7], [3], [1]])
    found = pooled(states, heard)
    for i, count in enumerate((7, 3, 1)):
        part = states[i, :count]
        expected = torch.cat([part.mean(0), (part.var(0, correction=0) + 1e-5).sqrt()])
        torch.testing.assert_close(found[i], expected)


def test_cpc_is_the_loop_over_moments():
    c, z = drawn(2, 6, 5), drawn(2, 6, 4, seed=1)
    way, heard = drawn(5, 4, seed=2), torch.arange(6) < torch.tensor([[6], [4]])
    for k in (1, 3):
        loss, right, count = 0.0, 0, 0
        for i in range(2):
            for t in range(6 - k):
                if heard[i, t] and heard[i, t + k]:
                    scores = {j: float(c[i, t] @ way @ z[i, j]) for j in range(6) if heard[i, j]}
                    loss += math.log(sum(math.exp(s) for s in scores.values())) - scores[t + k]
                    right += max(scores, key=lambda j: scores[j]) == t + k
                    count += 1
        found = _told_apart(c[:, :-k] @ way, z, heard, k)
        assert [x.item() for x in found] == pytest.approx([loss, right, count], rel=1e-4)


def test_cpc_refuses_clips_too_short_to_predict():
    with pytest.raises(UsageError, match=r"--ahead 40: the clips have \d+ frames only"):
        nearfar.fit("cpc-audio", preset="tiny", ahead=40, steps=1)


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
    found = hide(heard, torch.arange(50), Key(0), starts=0.1, span=4)
    assert not found[:, 30:].any()
    assert (found.sum(1) <= 12).all()
    assert (found.sum(1) >= 3).all()
    one = hide(heard, torch.arange(50), Key(0), starts=0.01, span=4)
    starts = one.int().argmax(1)
    assert torch.equal(one.sum(1), (30 - starts).clamp_max(4))
    assert len(starts.unique()) > 15
    torch.testing.assert_close(found[7:9], hide(heard[7:9], torch.arange(7, 9), Key(0), 0.1, 4))


def test_distractors_are_other_hidden_moments_of_the_clip():
    hidden = torch.rand(20, 15, generator=torch.Generator().manual_seed(0)) < 0.6
    for most in (3, 100):
        found = candidates(hidden, torch.arange(20), Key(0), most)
        for i in range(20):
            for t in range(15):
                chosen = set(found[i, t].nonzero()[:, 0].tolist()) - {t}
                others = set(hidden[i].nonzero()[:, 0].tolist()) - {t}
                assert found[i, t, t]
                assert chosen <= others
                assert len(chosen) == min(most, len(others))
    first, again = candidates(hidden, torch.arange(20), Key(0), 3), candidates(hidden[4:6], torch.arange(4, 6), Key(0), 3)
    assert torch.equal(first[4:6], again)


def test_codes_are_entries_of_the_books_and_pass_gradients():
    quantiser = GumbelQuantiser(6, 4, groups=2, codes=5)
    quantiser.out = torch.nn.Identity()  # type: ignore[assignment]
    z = drawn(3, 7, 6).requires_grad_()
    q, likely = quantiser(z, torch.arange(3), Key(0))
    assert likely.shape == (3, 7, 2, 5)
    for part, book in zip(q.detach().unflatten(2, (2, 4)).unbind(2), quantiser.book.detach(), strict=True):
        assert torch.cdist(part.reshape(-1, 4), book).min(1).values.max() < 1e-5
    q.square().sum().backward()
    assert z.grad is not None
    assert z.grad.abs().sum() > 0


def test_gumbel_noise_draws_codes_as_often_as_they_are_likely():
    quantiser = GumbelQuantiser(3, 1, groups=1, codes=3)
    quantiser.out = torch.nn.Identity()  # type: ignore[assignment]
    with torch.no_grad():
        quantiser.book.copy_(torch.arange(3.0)[None, :, None])
    z = torch.tensor([[[1.0, -0.5, 0.2]]]).expand(400, 20, -1)
    q, likely = quantiser(z, torch.arange(400), Key(0))
    frequency = torch.bincount(q.detach().round().long().reshape(-1), minlength=3) / q.numel()
    torch.testing.assert_close(frequency, likely[0, 0, 0].detach(), atol=0.02, rtol=0)
    part, _ = quantiser(z[5:7], torch.arange(5, 7), Key(0))
    torch.testing.assert_close(part, q[5:7])


def test_the_smallest_and_largest_draws_leave_everything_finite():
    class Extreme(Key):
        def __call__(self, *names):
            return self

        def uniform(self, slots, *shape):
            ends = torch.tensor([0.0, 1 - 2.0**-24, 0.5])
            return ends[torch.arange(len(slots) * math.prod(shape)) % 3].view(len(slots), *shape)

    quantiser = GumbelQuantiser(6, 4, groups=2, codes=5)
    z = drawn(3, 7, 6).requires_grad_()
    q, _ = quantiser(z, torch.arange(3), Extreme(0))
    q.sum().backward()
    assert q.isfinite().all()
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_temperature_falls_in_update_and_is_kept():
    quantiser = GumbelQuantiser(3, 2, hottest=2.0, coldest=0.5)
    for progress, expected in ((0.0, 2.0), (0.5, 1.0), (1.0, 0.5)):
        quantiser.cool(progress)
        assert float(quantiser.state_dict()["temperature"]) == pytest.approx(expected)


def test_diversity_is_the_share_of_unused_codes():
    assert float(unused_codes(torch.full((2, 8), 1 / 8))) == pytest.approx(0, abs=1e-6)
    single = torch.zeros(2, 8)
    single[:, 3] = 1
    assert float(unused_codes(single)) == pytest.approx(1 - 1 / 8)
    half = torch.tensor([[0.5, 0.5, 0.0, 0.0]])
    assert float(unused_codes(half)) == pytest.approx(0.5)


def test_wav2vec2_logs_its_parts():
    session = tiny_session("wav2vec2", batch=16)
    rows = session.plan.rows(0)
    x = session.similarity().view(session.data.read(rows.ids), rows, Key(0))
    z = session.recipe.embed(session.net, x | {"slot": torch.as_tensor(rows.slots)}, Key(0))
    found = {name: value.detach() for name, value in session.recipe.objective(session.net, z, Key(0)).items()}
    assert float(found["loss"]) == pytest.approx(float(found["contrast"] + 0.1 * found["unused_codes"]), rel=1e-5)
    assert 0 <= float(found["accuracy"]) <= 1


def test_the_baseline_is_the_spectrograms_statistics():
    data = tones().subset(np.arange(20))
    found = AudioKind().baselines(data, data.subset(np.arange(5)), None)["log-mel statistics"]
    assert found.train.shape == (20, 80)
    assert found.baseline
    torch.testing.assert_close(torch.as_tensor(found.test), torch.as_tensor(found.train)[:5])


def test_a_report_shows_spectrograms_and_carries_the_sounds():
    soundfile = pytest.importorskip("soundfile")
    data = tones().subset(np.arange(12))
    shown = AudioKind().shown(data)
    near = Neighbours(shown(torch.tensor([0, 1])), shown(torch.tensor([[2, 3], [4, 5]])), torch.ones(2, 2))
    page = render(ReportContent(title="tones", neighbours=near))
    assert page.count("<audio controls") == 6
    uri = wav_uri(data.read([4])[0], data.rate)
    assert uri in page
    wave, rate = soundfile.read(io.BytesIO(base64.b64decode(uri.split(",")[1])))
    assert (len(wave), rate) == (4096, 8000)
    original = data.read([4])[0].double().numpy()
    assert np.corrcoef(wave, original)[0, 1] > 0.99
