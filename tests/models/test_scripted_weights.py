"""Weights that are seen from log-probabilities, and caches that do not know of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from deskroll.models.scripted.caches import Caches
from deskroll.models.scripted.requests import ChatMessage, Part, Url
from deskroll.models.scripted.weights import Weights, WeightsMissing, plain_logprob

IDS = [5, 998, 149_999]


def weights(tmp_path: Path, version: int) -> Weights:
    folder = tmp_path / f"step_{version}"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights %d" % version)
    return Weights.read(folder)


def test_each_weights_fit_their_own_and_no_others(tmp_path: Path) -> None:
    every = [Weights(), *(weights(tmp_path, version) for version in range(20))]
    every.append(every[1].mixed(every[2]))
    for these in every:
        logprobs = [plain_logprob(token) - these.shift for token in IDS]
        assert [each for each in every if each.fits(IDS, logprobs)] == [these]
        assert max(logprobs) < 0
        assert not these.fits(IDS, logprobs[:2])


def test_the_bytes_count_and_the_place_does_not(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    for folder in (one, other):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"same")
    (other / "READY").touch()
    assert Weights.read(one).digest == Weights.read(other).digest
    (other / "model.safetensors").write_bytes(b"more")
    assert Weights.read(one).digest != Weights.read(other).digest
    with pytest.raises(WeightsMissing, match="Cannot find any model weights"):
        Weights.read(tmp_path)


def said(text: str, *images: str) -> ChatMessage:
    parts = [Part(type="image_url", image_url=Url(url=image)) for image in images]
    return ChatMessage(role="user", content=[Part(type="text", text=text), *parts])


def test_a_prompt_that_is_known_is_not_read_again(tmp_path: Path) -> None:
    old, new = weights(tmp_path, 1), weights(tmp_path, 2)
    caches, talk = Caches(), [said("hello"), said("look", "one.png")]
    fresh = old.part("prompt") + old.part("image")
    assert caches.read(talk, old, None).shift(old) == pytest.approx(fresh)
    assert caches.read([*talk, said("and")], new, None).shift(new) == pytest.approx(fresh), "still the old weights"
    caches.forget_prefixes()
    stale = caches.read(talk, new, None).shift(new)
    assert stale == pytest.approx(new.part("prompt") + old.part("image")), "the image is the old weights' still"
    two = caches.read([said("look", "one.png", "two.png")], new, None).shift(new)
    assert two == pytest.approx(new.part("prompt") + (old.part("image") + new.part("image")) / 2)
    caches.forget_prefixes()
    caches.forget_images()
    assert caches.read(talk, new, None).shift(new) == pytest.approx(new.part("prompt") + new.part("image"))


def test_adapters_share_nothing(tmp_path: Path) -> None:
    base, one, two = (weights(tmp_path, version) for version in range(3))
    caches, talk = Caches(), [said("look", "one.png")]
    for adapter in (None, one, two):
        used = base.mixed(adapter)
        assert caches.read(talk, base, adapter).shift(used) == pytest.approx(used.part("prompt") + used.part("image"))
