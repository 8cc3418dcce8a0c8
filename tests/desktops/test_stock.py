"""A guest that has only OSWorld's endpoints: found out by the client itself, and used through them."""

from collections.abc import AsyncIterator

import aiohttp
import pytest_asyncio
from aiohttp import web

from deskroll.actions import Click, Press, Script, Typing
from deskroll.desktops.base import Address, DesktopSpec, Observe, SettleOutcome
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.guest.relay import relay_guest
from deskroll.desktops.providers.local.provider import LocalProvider
from tests.waiting import eventually

OURS = ("/deskroll", "/step", "/health", "/windows", "/clipboard", "/forward")


@pytest_asyncio.fixture
async def stock(provider: LocalProvider) -> AsyncIterator[GuestDesktop]:
    """A real desktop behind a server that knows nothing of deskroll's own endpoints."""
    address = await provider.boot(DesktopSpec(width=1024, height=768))

    async def pass_on(request: web.Request) -> web.Response:
        if request.path.startswith(OURS):
            raise web.HTTPNotFound
        headers = {"Content-Type": request.headers.get("Content-Type", "")}
        url = f"http://127.0.0.1:{guest_port}{request.path_qs}"
        async with session.request(request.method, url, data=await request.read(), headers=headers) as answer:
            return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)

    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", pass_on)
    runner = web.AppRunner(app)
    try:
        async with relay_guest(address, "127.0.0.1", 0) as guest_port, aiohttp.ClientSession() as session:
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]
            async with GuestDesktop(Address(id="stock", endpoint=f"http://127.0.0.1:{port}")) as desktop:
                yield desktop
            await runner.cleanup()
    finally:
        await provider.stop(address.id)


async def test_a_step_through_osworlds_endpoints(stock: GuestDesktop) -> None:
    await stock.launch(["xterm", "-geometry", "80x24+100+100"])

    async def there() -> bool:
        return (await stock.run("pgrep xterm")).returncode == 0

    await eventually(there, "the terminal runs")
    await eventually(lambda: _typed(stock), "what was typed has run")
    result = await stock.step([Press(key="enter")], observe=Observe(tree=True))
    assert result.settle in (SettleOutcome.SETTLED, SettleOutcome.NO_REACTION, SettleOutcome.CAPPED)
    assert result.screenshot is not None
    assert result.screenshot.startswith(b"\x89PNG")
    assert result.tree is not None
    assert (await stock.step([])).settle is not SettleOutcome.SKIPPED
    await stock.check()


async def _typed(stock: GuestDesktop) -> bool:
    await stock.step([Click(x=300, y=250), Typing(text="echo stock > typed.txt\n")], settle=None)
    return (await stock.run("cat typed.txt")).output == "stock\n"


async def test_what_such_a_guest_cannot_do_is_said(stock: GuestDesktop) -> None:
    result = await stock.step([Typing(text="中文"), Press(key="enter")], settle=None)
    assert "ASCII only" in result.results[0].error
    assert not result.results[1].ok


async def test_scripts(stock: GuestDesktop) -> None:
    result = await stock.step([Script(code="for n in range(2):\n    print(n)")], settle=None)
    assert result.results[0].output == "0\n1\n"


async def test_ports_are_on_the_machine_itself(stock: GuestDesktop) -> None:
    async with stock.forward(9222) as (host, port):
        assert (host, port) == ("127.0.0.1", 9222)
