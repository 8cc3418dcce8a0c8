"""A provider of your own: desktops that are rented from a vendor.

A provider says how a machine is started and ended; who owns it, boots that are cancelled, deaths and leftovers are the
base's concern. The vendor here is made up (it has simulated desktops); yours has an SDK, which is imported in this file
alone. The tasks, the environment and the scripted model are those of own_env.py. The contract suite runs with
`pytest --pyargs deskroll.testing --provider own_provider.py:RentedProvider`.

    python own_provider.py
"""

from pathlib import Path
from typing import Any, Self

import msgspec

import deskroll
from deskroll.config import Settings
from deskroll.desktops.base import Address, Capabilities
from deskroll.desktops.notes import Note
from deskroll.desktops.providers.base import Provider
from deskroll.desktops.providers.sim.provider import SimProvider, SimSettings


class RentedSettings(Settings):
    """What can be set with `provider_options`."""

    delivery: float = 0.1
    """How long the vendor takes to start a machine, in seconds."""


class RentedProvider(Provider):
    """Desktops of the vendor."""

    name = "rented"
    Settings = RentedSettings

    def __init__(self, settings: RentedSettings | None = None, **more: Any) -> None:
        super().__init__(settings, **more)
        self.capabilities = Capabilities(boot_s=self.settings.delivery, usd_per_hour=0.12, host_only=True)
        self.vendor = SimProvider(SimSettings(boot=self.settings.delivery))

    async def __aenter__(self) -> Self:
        await self.vendor.__aenter__()
        return self

    async def shut_down(self) -> None:
        """Called when all desktops are gone."""
        await self.vendor.close()

    async def start_machine(self, note: Note, spec: deskroll.DesktopSpec, token: str) -> Address:
        """Rent a machine under our own id, so that it can be ended whatever happens meanwhile; say where it answers."""
        machine = await self.vendor.boot(spec, desktop_id=note.id, token=token)
        return msgspec.structs.replace(machine, provider=self.name)

    async def end_machine(self, note: Note) -> None:
        """Give it back; it may never have been there."""
        await self.vendor.stop(note.id)


if __name__ == "__main__":
    beside = Path(__file__).with_name("own_env")
    desktops = {"provider": f"{__file__}:RentedProvider", "provider_options": {"delivery": 0.2}, "num_vms": 2}
    for episode in deskroll.run(f"{beside}.jsonl", env=f"{beside}.py:FilesEnv", model="scripted", **desktops):
        print(episode.key.task, episode.score.value, episode.desktop, sep="\t")
