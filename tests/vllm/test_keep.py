"""A pool of one real vLLM that keeps open requests over a refresh: each answer says from which version to which it is.

The judge is a direct forward pass with each of the weights: every token must fit one of the versions between the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from deskroll.models.vllm.pool import ModelServicePool
from tests.vllm.asking import Askers
from tests.vllm.real import CLOSE, FAR, TELLING, Judged, Said, make_models, real_pool, write_pictures

pytestmark = pytest.mark.timeout(3600)
VERSIONS = (1, 2, 3, 4, 5, 6)


def fitting(said: Said, judged: Sequence[Sequence[float]]) -> Iterator[set[int]]:
    """For each token, the versions of which it may be."""
    for place, value in enumerate(said.completion.logprobs or ()):
        yield {version for version, each in zip(VERSIONS, judged, strict=True) if abs(each[place] - value) < CLOSE}


def spans(said: Said, judged: Sequence[Sequence[float]]) -> list[int]:
    """The versions that it went through, in their order; the first is its ticket's."""
    now = int(said.completion.version)
    through = [now]
    for place, fits in enumerate(fitting(said, judged)):
        if now not in fits:
            later = sorted(version for version in fits if version > now)
            assert later, (place, fits, through)
            now = later[0]
            through.append(now)
    return through


async def refresh_five_times(pool: ModelServicePool, made: Path, source: Path, askers: Askers) -> None:
    for version in VERSIONS[1:]:
        await askers.more(16)
        (source / f"step_{version}").symlink_to(made / f"step_{version}")
        assert (await pool.load_latest_model()).checkpoint.version == str(version)
    await askers.more(16)
    await askers.stop()


async def test_five_refreshes_over_32_open_requests(tmp_path: Path) -> None:
    made, source = make_models("vision", tmp_path / "made", *VERSIONS), tmp_path / "source"
    source.mkdir()
    (source / "step_1").symlink_to(made / "step_1")
    (picture,) = write_pictures(tmp_path, 1)
    told: list[str] = []
    weights = {"source": str(source), "poll": 3600}
    async with real_pool(source / "step_1", told, weights=weights, refresh="keep") as pool:
        await pool.ready()
        askers = Askers(pool, 32, picture, tokens=200)
        await refresh_five_times(pool, made, source, askers)
        assert told == []
    judged = Judged(tmp_path, [made / f"step_{version}" for version in VERSIONS], askers.said)
    changed = 0
    for n, said in enumerate(askers.said):
        own = [each[n] for each in judged.logprobs]
        through = spans(said, own)
        end = said.completion.version_end
        assert int(end or said.completion.version) == through[-1], (said.completion.version, end, through)
        changed += bool(end)
        if not end and len(said.ids) >= TELLING:
            others = [each for version, each in zip(VERSIONS, own, strict=True) if version != through[0]]
            assert min(said.distance(each) for each in others) > FAR
    print(f"\n{len(askers.said)} answers, the weights of {changed} changed on the way; all of them say so")
    assert changed >= len(VERSIONS) - 1
    ends = {int(said.completion.version_end) for said in askers.said if said.completion.version_end}
    assert ends == set(VERSIONS[1:])
