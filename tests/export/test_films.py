"""Films of stored screens, decoded again and played by a browser."""

from __future__ import annotations

import io
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from deskroll.actions import Click, Done
from deskroll.errors import StoreError
from deskroll.export import Chosen, Exported, Output, export_folders
from deskroll.export.episodes import beginning
from deskroll.export.films import FilmLayout, Pace, scenes
from deskroll.export.output import Mark
from deskroll.export.pictures import open_image
from deskroll.store import AttemptWriter, Run, RunInfo, RunStore
from deskroll.store.journal import Planned, Sealed, Started
from deskroll.types import Episode, EpisodeKey, Score, Step, StopReason
from tests.browser import needs_chromium, played_by_chromium

RED, GREEN, BLUE = (224, 32, 32), (32, 192, 64), (32, 64, 224)
KEY = EpisodeKey(phase="eval", round=0, task="paint", sample=0)


def png(colour: tuple[int, int, int], size: tuple[int, int] = (321, 241)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, "PNG")
    return out.getvalue()


async def painted(root: Path, images: list[bytes], seconds: list[float]) -> None:
    """A run of one episode: the first image is the beginning, then a step for each."""
    async with RunStore.create(root, RunInfo(run_id=root.name)) as store:
        store.write(Planned(phase="eval", round=0, task="paint", samples=1), Started(key=KEY, attempt=1, epoch=1))
        async with AttemptWriter(store.storage, KEY, 1) as writer:
            for image in images[:1]:
                writer.screen(image)
            for index, took in enumerate(seconds):
                last = index == len(seconds) - 1
                screen = "" if last else writer.screen(images[index + 1])
                times = {"model": took, **({"setup": 60.0, "desktop": 9.0} if index == 0 else {})}
                action = Done() if last else Click(x=1, y=1)
                writer.step(Step(index=index, actions=(action,), screen=screen, seconds=times))
            episode = Episode(key=KEY, attempt=1, stop=StopReason.DONE, score=Score(value=1.0, reason=""))
            await writer.seal(episode)
        store.write(Sealed(episode=episode, epoch=store.epoch))


def exported(root: Path, output: Path, pace: Pace | None = None) -> Exported:
    run = Run.open(root)
    with Output.open(output, Mark(run_id=run.info.run_id, to="video")) as place:
        return export_folders(Chosen.of(run), FilmLayout(pace or Pace()), place, "video", lambda done, total: None)


FILM = Path("eval", "0", "paint", "0", "recording.mp4")


async def test_each_screen_is_shown_for_as_long_as_it_stood(tmp_path: Path) -> None:
    await painted(tmp_path / "run", [png(RED), png(GREEN), png(BLUE)], [2.0, 0.1, 60.0])
    assert exported(tmp_path / "run", tmp_path / "out").written == 1
    with av.open(str(tmp_path / "out" / FILM)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert (stream.width, stream.height) == (322, 242)
        frames = list(container.decode(stream))
        assert container.duration is not None
        assert container.duration / 1e6 == pytest.approx(2.0 + 0.5 + 5.0, abs=0.1)
    colours = [(round(frame.time, 1), frame.to_ndarray(format="rgb24")[100, 100].astype(int)) for frame in frames]
    for at, wanted in ((0.0, RED), (2.0, GREEN), (2.5, BLUE)):
        shown = next(colour for time, colour in colours if time == at)
        assert np.abs(shown - wanted).max() < 12


@pytest.mark.parametrize("fps", [20, 10, 7.3, 5, 4])
async def test_at_any_rate_the_last_screen_is_shown_as_long_as_the_others(tmp_path: Path, fps: float) -> None:
    await painted(tmp_path / "run", [png(RED), png(GREEN), png(BLUE)], [1.0, 1.0, 1.0])
    exported(tmp_path / "run", tmp_path / "out", Pace(1 / fps, 1 / fps))
    with av.open(str(tmp_path / "out" / FILM)) as container:
        times = [frame.time for frame in container.decode(video=0)]
        assert container.duration is not None
        assert container.duration / 1e6 == pytest.approx(3 / fps, abs=0.004)
    assert times[:3] == pytest.approx([0, 1 / fps, 2 / fps], abs=0.002)


async def test_screens_of_another_size_fit_in(tmp_path: Path) -> None:
    await painted(tmp_path / "run", [png(RED), png(GREEN, (64, 64)), png(BLUE, (999, 500))], [1.0, 1.0, 1.0])
    exported(tmp_path / "run", tmp_path / "out", Pace(0.25, 0.25))
    with av.open(str(tmp_path / "out" / FILM)) as container:
        frames = list(container.decode(video=0))
    assert {(frame.width, frame.height) for frame in frames} == {(322, 242)}
    assert frames[-1].time <= 0.75


async def test_episodes_without_screens_have_no_film(tmp_path: Path) -> None:
    await painted(tmp_path / "run", [], [1.0])
    done = exported(tmp_path / "run", tmp_path / "out")
    assert (done.written, done.empty, done.problems) == (0, 1, ())
    assert not (tmp_path / "out" / "eval").exists()


async def test_a_screen_that_is_no_picture_is_told(tmp_path: Path) -> None:
    await painted(tmp_path / "run", [png(RED), b"\x89PNG\r\n\x1a\nnonsense"], [1.0, 1.0])
    done = exported(tmp_path / "run", tmp_path / "out")
    assert "screens/1.png is not a picture that can be read" in done.problems[0]
    with pytest.raises(StoreError, match="too many to open"):
        open_image(png(RED, (10_000, 6_000)), "huge.png")


def test_a_step_that_saw_nothing_keeps_the_screen() -> None:
    steps = [Step(index=0, screen="b", seconds={"act": 1.0}), Step(index=1, seconds={"act": 2.0})]
    assert scenes(steps, "a", Pace()) == [("a", 1.0), ("b", 2.0)]
    assert scenes(steps[:1], "a", Pace()) == [("a", 1.0), ("b", 2.75)]
    assert scenes([], "a", Pace(1, 1)) == [("a", 1.0)]
    assert scenes(steps[1:], "", Pace()) == []


@pytest.mark.parametrize(
    ("screens", "kept", "first"),
    [
        (["screens/1.png", "screens/2.png"], 3, "screens/0.png"),
        (["screens/0.png", "screens/1.png"], 2, ""),  # nobody kept the beginning, or nothing changed
        (["", "screens/0.png", "screens/1.png"], 2, ""),
        (["", "screens/1.png", "screens/0.png"], 2, "screens/0.png"),
        (["", ""], 1, "screens/0.png"),
        (["", ""], 0, ""),
        ([], 1, "screens/0.png"),
    ],
)
def test_the_beginning_is_no_later_screen(screens: list[str], kept: int, first: str) -> None:
    steps = [Step(index=n, screen=screen) for n, screen in enumerate(screens)]
    assert beginning(steps, ["steps.jsonl", *(f"screens/{n}.png" for n in range(kept))]) == first


@needs_chromium
async def test_a_browser_plays_it(tmp_path: Path) -> None:
    await painted(tmp_path / "run", [png(RED), png(GREEN), png(BLUE)], [1.0, 1.0, 1.0])
    exported(tmp_path / "run", tmp_path / "out")
    said = played_by_chromium(tmp_path / "out" / FILM, tmp_path)
    assert said.get("played"), said
    assert (said["width"], said["height"], said["duration"]) == (322, 242, pytest.approx(3.0, abs=0.1))
    assert np.abs(np.array(said["last"]) - BLUE).max() < 16
