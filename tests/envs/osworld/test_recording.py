"""A recorded attempt: its rate reaches the guest, and the film is kept with the attempt."""

from __future__ import annotations

import io

import av
import pytest

from deskroll.actions import Done, Wait
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.envs import EnvContext
from deskroll.envs.osworld.env import OSWorldEnv
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.errors import GuestError
from deskroll.types import Task


async def test_the_rate_is_the_guests(local: GuestDesktop) -> None:
    with pytest.raises(GuestError, match="allowed: 1 to 30"):
        await local.start_recording(31)
    kept: dict[str, bytes] = {}
    settings = OSWorldSettings(enable_recording=True, recording_fps=20, observation_type="screenshot")
    context = EnvContext(desktop=local, keep=kept.__setitem__)
    env = OSWorldEnv(Task(id="t", instruction="wait"), settings, context)
    await env.reset()
    await env.step([Wait(seconds=0.5), Done()])
    await env.close()
    with av.open(io.BytesIO(kept["recording.mp4"])) as film:
        last = [packet.duration * packet.time_base for packet in film.demux(video=0) if packet.size][-1]
    assert float(last) == pytest.approx(1 / 20)


@pytest.mark.parametrize("fps", [0, 31, "fast"])
def test_a_rate_out_of_bounds_is_refused(fps: object) -> None:
    with pytest.raises(ValueError, match="recording_fps"):
        OSWorldSettings.model_validate({"recording_fps": fps})
