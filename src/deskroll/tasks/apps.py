"""Programs that tasks are about: one name for each, however a task spells it, and what to install.

Owns the table. What it does not know is taken for the name of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deskroll.types import Record


class App(Record, frozen=True):
    """A program, or a family of them of which one is enough."""

    name: str
    programs: tuple[str, ...] = ()
    """Any of them serves; none: a desktop is enough."""
    install: str = ""
    """What to do where none is there."""
    spellings: tuple[str, ...] = ()
    """What tasks call it, besides its name."""
    windows: bool = False
    """Whether it is there on Windows only."""


def _apt(package: str) -> str:
    return f"apt-get install {package}"


def _office(part: str) -> str:
    return _apt(f"libreoffice-{part} libreoffice-gtk3")  # the latter gives it an accessibility tree


APPS = (
    App(name="chrome", programs=("google-chrome", "google-chrome-stable", "chromium"), install=_apt("chromium"),
        spellings=("browser", "google_chrome", "chromium")),
    App(name="libreoffice_calc", programs=("localc",), install=_office("calc"), spellings=("calc",)),
    App(name="libreoffice_impress", programs=("loimpress",), install=_office("impress"),
        spellings=("impress",)),
    App(name="libreoffice_writer", programs=("lowriter",), install=_office("writer"), spellings=("writer",)),
    App(name="libreoffice", programs=("libreoffice", "soffice"), install=_apt("libreoffice")),
    App(name="gimp", programs=("gimp",), install=_apt("gimp")),
    App(name="vlc", programs=("vlc",), install=_apt("vlc")),
    App(name="thunderbird", programs=("thunderbird",), install=_apt("thunderbird")),
    App(name="vs_code", programs=("code",), install="install Microsoft's package `code`; Debian has none",
        spellings=("vscode", "visual_studio_code")),
    App(name="picard", programs=("picard",), install=_apt("picard")),
    App(name="terminal", programs=("x-terminal-emulator", "gnome-terminal", "xterm"), install=_apt("xterm")),
    App(name="os", spellings=("ubuntu_media_player",)),
    App(name="pdf"),
    App(name="image"),
    App(name="excel", windows=True),
    App(name="word", windows=True),
    App(name="powerpoint", windows=True, spellings=("ppt",)),
)  # fmt: skip
"""What OSWorld's tasks name in `related_apps`."""
TOOLS = (
    App(name="socat", programs=("socat",), install=_apt("socat")),
    App(name="nautilus", programs=("nautilus",), install=_apt("nautilus")),
    App(name="gnome-terminal", programs=("gnome-terminal",), install=_apt("gnome-terminal")),
    App(name="git", programs=("git",), install=_apt("git")),
    App(name="jq", programs=("jq",), install=_apt("jq")),
    App(name="unzip", programs=("unzip",), install=_apt("unzip")),
    App(name="gio", programs=("gio",), install=_apt("libglib2.0-bin")),
)
"""What their set-up steps and evaluators start besides: few of all Debian's programs, those that a machine may lack."""

_BY_NAME: Mapping[str, App] = {name: app for app in (*APPS, *TOOLS) for name in (app.name, *app.spellings)}
_BY_PROGRAM: Mapping[str, App] = {name: app for app in (*TOOLS, *APPS)[::-1] for name in app.programs}
OF_COMMANDS = tuple(_BY_PROGRAM)
"""Programs that are looked for in commands."""


def app_of(spelling: str) -> App:
    """The app that a task means."""
    name = "_".join(spelling.lower().split())
    return _BY_NAME.get(name) or App(name=name, programs=(name,), install=f"install {name}")


def app_of_program(program: str) -> App:
    """The app that a program belongs to; `program` is one of `OF_COMMANDS`."""
    return _BY_PROGRAM[program]


def is_there(app: App, has: Callable[[str], bool]) -> bool:
    """Whether one of its programs is; `has` says so of one."""
    return not app.programs or any(has(each) for each in app.programs)
