"""Whether a task can run in a place, and why not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from deskroll.cli.tasks_check import survey
from deskroll.tasks import parse_task
from deskroll.tasks.needs import Download, Need, Needs
from deskroll.tasks.verdict import Place, judge

LOCAL = Place(provider="local", has={"chromium", "xterm"}.__contains__, embedded=True, reaches={"up"}.__contains__)
CLOUD = Place(provider="cloud", has=None, reaches={"up"}.__contains__, proxy=True, fixed_ip=True)


def fetched(host: str) -> Download:
    return Download(url=f"https://{host}/a", when=Need.SETUP_DOWNLOAD, name="a")


@pytest.mark.parametrize(
    "needs",
    [
        Needs(),
        Needs(apps=("chrome", "os", "pdf", "terminal")),
        Needs(downloads=(fetched("up"),)),
        Needs(kinds=(Need.SUDO,)),
        Needs(snapshot="chrome"),
    ],
)
def test_what_can_run(needs: Needs) -> None:
    verdict = judge(needs, needs.downloads, LOCAL)
    assert (verdict.can_run, verdict.why_not, verdict.notes) == (True, (), ())


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        (Needs(apps=("gimp",)), "gimp is not on this machine: apt-get install gimp"),
        (Needs(apps=("vs_code",)), "vs_code is not on this machine: install Microsoft's package `code`"),
        (Needs(apps=("my_own",)), "my_own is not on this machine: install my_own"),
        (Needs(kinds=(Need.WINDOWS,), apps=("excel",)), "it needs Windows, and desktops of provider local run Linux"),
        (Needs(session=("GNOME", "systemd")), "it needs GNOME and systemd, which embedded desktops do not run"),
        (Needs(installers=("apt",)), "it installs packages (apt), and programs of embedded desktops are"),
        (Needs(accounts=("googledrive",)), "it needs an account (googledrive)"),
        (Needs(downloads=(fetched("down"),)), "files from down are not in the cache, and it does not answer"),
        (Needs(pages=("https://down/x",)), "it needs pages of down, which does not answer"),
    ],
)
def test_what_cannot_says_why(needs: Needs, said: str) -> None:
    verdict = judge(needs, needs.downloads, LOCAL)
    assert not verdict.can_run
    assert len(verdict.why_not) == 1
    assert verdict.why_not[0].startswith(said)


@pytest.mark.parametrize(
    ("needs", "packages", "enough"),
    [
        (Needs(apps=("gimp", "Calc")), ("gimp", "libreoffice-calc", "libreoffice-gtk3"), True),
        (Needs(apps=("calc", "impress")), ("libreoffice-calc", "libreoffice-gtk3", "libreoffice-impress"), True),
        (Needs(apps=("browser", "thunderbird")), ("chromium", "thunderbird"), True),
        (Needs(apps=("vlc", "vs_code")), ("vlc",), False),
        (Needs(apps=("vlc",), session=("GNOME",)), ("vlc",), False),
        (Needs(apps=("vlc",), pages=("https://down/x",)), ("vlc",), False),
        (Needs(apps=("os",)), (), False),
        (Needs(apps=("my_own",)), (), False),
    ],
)
def test_it_is_known_what_debian_has_of_what_is_missing_and_whether_that_is_enough(
    needs: Needs, packages: tuple[str, ...], enough: bool
) -> None:
    verdict = judge(needs, needs.downloads, replace(LOCAL, has=lambda program: False))
    assert (verdict.packages, verdict.enough) == (packages, enough)


def test_a_file_that_is_here_needs_nobody() -> None:
    assert judge(Needs(downloads=(fetched("down"),)), (), LOCAL).can_run


def test_without_the_network_only_the_cache_counts() -> None:
    offline = replace(LOCAL, reaches=None)
    needs = Needs(downloads=(fetched("up"),), pages=("https://up/x",))
    assert judge(needs, needs.downloads, offline).why_not == (
        "files from up are not in the cache",
        "it needs pages of the live web",
    )
    assert judge(Needs(downloads=(fetched("up"),)), (), offline).can_run


def test_what_has_to_be_set_is_a_note() -> None:
    needs = Needs(pages=("https://up/x",), kinds=(Need.LIVE_WEB, Need.PROXY, Need.FIXED_IP))
    network = "give its desktops the network: --set env_options.network=true"
    verdict = judge(needs, (), LOCAL)
    assert verdict.can_run
    assert [note.split(",")[0] for note in verdict.notes] == [
        network, "it asks for a proxy", "it asks for a fixed address",
    ]  # fmt: skip
    assert judge(needs, (), CLOUD).notes == (network,)
    assert not judge(needs, (), replace(LOCAL, network=False)).can_run


@pytest.mark.parametrize(
    "needs", [Needs(kinds=(Need.LIVE_WEB,)), Needs(kinds=(Need.LIVE_WEB_EVALUATOR,)), Needs(installers=("pip",))]
)
def test_what_a_desktop_needs_the_network_for(needs: Needs) -> None:
    assert judge(needs, (), CLOUD).notes == ("give its desktops the network: --set env_options.network=true",)
    assert judge(needs, (), replace(CLOUD, network=False)).why_not == (
        "it needs the network, which desktops of provider cloud cannot have",
    )


def test_an_account_that_is_given_stands_against_nothing() -> None:
    given = replace(CLOUD, accounts=frozenset({"googledrive"}))
    assert judge(Needs(accounts=("googledrive",)), (), given).can_run
    assert judge(Needs(accounts=("googledrive", "other")), (), given).why_not == ("it needs an account (other)",)


def test_accounts_are_given_by_the_options_of_a_run(tmp_path: Path) -> None:
    steps = [{"type": "login", "parameters": {"platform": "googledrive"}}]
    task = parse_task(
        {"id": "t", "instruction": "Do it.", "config": steps, "evaluator": {"func": "infeasible"}}, "here"
    )
    for name, keys in (("account", ("email", "password")), ("drive", ("client_id", "client_secret", "refresh_token"))):
        tmp_path.joinpath(name).write_text(json.dumps(dict.fromkeys(keys, "x")))
    account, drive = {"google_account": str(tmp_path / "account")}, {"google_drive": str(tmp_path / "drive")}

    def needs_one(**options: str) -> bool:
        (found,) = survey([task], tmp_path, "sim", "osworld", tmp_path, offline=True, options=options)
        return "it needs an account (googledrive)" in found.why_not

    assert needs_one()
    assert needs_one(**account)
    assert needs_one(**account, google_drive=str(tmp_path / "absent"))
    assert not needs_one(**account, **drive)


def test_what_an_image_holds_is_not_guessed() -> None:
    assert judge(Needs(apps=("gimp",), session=("GNOME",), installers=("apt",)), (), CLOUD).can_run


def test_a_place_without_desktops_runs_nothing() -> None:
    assert judge(Needs(), (), replace(LOCAL, problem="no bubblewrap")).why_not == ("no bubblewrap",)
    assert not judge(Needs(), (), Place(provider="sim", has=None, real=False)).can_run
