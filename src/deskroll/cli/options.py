"""What several commands have in common: the option `--json` and how its answer is printed, an address to serve on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from deskroll.errors import InputError

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def print_json(data: object, *, pretty: bool = False) -> None:
    """Print records, or what holds them, on standard output: in one line, or to be read by people, too."""
    import msgspec  # noqa: PLC0415  (not for --help)

    encoded = msgspec.json.encode(data)
    click.echo(msgspec.json.format(encoded) if pretty else encoded)


@contextmanager
def errors_as_json(as_json: bool) -> Iterator[None]:
    """What cannot be answered is JSON on standard output, too, where JSON was asked for; the error goes on."""
    try:
        yield
    except InputError as error:
        if as_json:
            print_json({"error": str(error)})
        raise


def parse_address(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """HOST:PORT; None where it is not given."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    host = host.strip("[]")
    if not host or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is not an address; write HOST:PORT with a port up to 65535")
    return host, int(port)
