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
    packages: tuple[str, ...] = ()
    """Debian's packages that bring it; none: Debian has it in no package of its own."""
    advice: str = ""
    """What to do where none is there, if not to install these."""
    spellings: tuple[str, ...] = ()
    """What tasks call it, besides its name."""
    windows: bool = False
    """Whether it is there on Windows only."""

    @property
    def install(self) -> str:
        """What to do where none of its programs is there."""
        return self.advice or f"apt-get install {' '.join(self.packages)}"


def _office(part: str) -> tuple[str, ...]:
    return f"libreoffice-{part}", "libreoffice-gtk3"  # the latter gives it an accessibility tree


APPS = (
    App(name="chrome", programs=("google-chrome", "google-chrome-stable", "chromium"), packages=("chromium",),
        spellings=("browser", "google_chrome", "chromium")),
    App(name="libreoffice_calc", programs=("localc",), packages=_office("calc"), spellings=("calc",)),
    App(name="libreoffice_impress", programs=("loimpress",), packages=_office("impress"),
        spellings=("impress",)),
    App(name="libreoffice_writer", programs=("lowriter",), packages=_office("writer"), spellings=("writer",)),
    App(name="libreoffice", programs=("libreoffice", "soffice"), packages=("libreoffice",)),
    App(name="gimp", programs=("gimp",), packages=("gimp",)),
    App(name="vlc", programs=("vlc",), packages=("vlc",)),
    App(name="thunderbird", programs=("thunderbird",), packages=("thunderbird",)),
    App(name="vs_code", programs=("code",), advice="install Microsoft's package `code`; Debian has none",
        spellings=("vscode", "visual_studio_code")),
    App(name="picard", programs=("picard",), packages=("picard",)),
    App(name="terminal", programs=("x-terminal-emulator", "gnome-terminal", "xterm"), packages=("xterm",)),
    App(name="os", spellings=("ubuntu_media_player",)),
    App(name="pdf"),
    App(name="image"),
    App(name="excel", windows=True),
    App(name="word", windows=True),
    App(name="powerpoint", windows=True, spellings=("ppt",)),
)  # fmt: skip
"""What OSWorld's tasks name in `related_apps`."""
TOOLS = (
    App(name="socat", programs=("socat",), packages=("socat",)),
    App(name="nautilus", programs=("nautilus",), packages=("nautilus",)),
    App(name="gnome-terminal", programs=("gnome-terminal",), packages=("gnome-terminal",)),
    App(name="git", programs=("git",), packages=("git",)),
    App(name="jq", programs=("jq",), packages=("jq",)),
    App(name="unzip", programs=("unzip",), packages=("unzip",)),
    App(name="gio", programs=("gio",), packages=("libglib2.0-bin",)),
)
"""What their set-up steps and evaluators start besides: few of all Debian's programs, those that a machine may lack."""

_BY_NAME: Mapping[str, App] = {name: app for app in (*APPS, *TOOLS) for name in (app.name, *app.spellings)}
_BY_PROGRAM: Mapping[str, App] = {name: app for app in (*TOOLS, *APPS)[::-1] for name in app.programs}
OF_COMMANDS = tuple(_BY_PROGRAM)
"""Programs that are looked for in commands."""


def app_of(spelling: str) -> App:
    """The app that a task means."""
    name = "_".join(spelling.lower().split())
    return _BY_NAME.get(name) or App(name=name, programs=(name,), advice=f"install {name}")


def app_of_program(program: str) -> App:
    """The app that a program belongs to; `program` is one of `OF_COMMANDS`."""
    return _BY_PROGRAM[program]


def is_there(app: App, has: Callable[[str], bool]) -> bool:
    """Whether one of its programs is; `has` says so of one."""
    return not app.programs or any(has(each) for each in app.programs)
