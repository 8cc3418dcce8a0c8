"""Commands, files and windows, on a real desktop."""

from __future__ import annotations

import logging
import shutil
from typing import Any

import msgspec
import pytest

from deskroll.desktops.guest.client import GuestDesktop
from deskroll.envs import Ending, EnvContext
from deskroll.envs.osworld.env import OSWorldEnv
from deskroll.envs.osworld.evaluate import evaluate
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.osworld.setup import SetupContext, perform
from deskroll.errors import CommandTimeout, EvaluatorError, SetupError
from deskroll.tasks import parse_task
from deskroll.types import StopReason
from tests.envs.osworld_evaluate.making import judged
from tests.waiting import eventually

SETTINGS = OSWorldSettings(screen_width=1024, screen_height=768, client_password="sesame")
needs_mousepad = pytest.mark.skipif(shutil.which("mousepad") is None, reason="mousepad is not installed")


def step(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"type": kind, "parameters": parameters}


def around(*, forgiving: bool = False) -> SetupContext:
    return SetupContext("t", SETTINGS, forgiving=forgiving)


async def test_commands_in_all_their_forms(local: GuestDesktop) -> None:
    here = around()
    steps = [
        step("command", command="echo $((1 + 1)) > ~/shell", shell="true"),
        step("execute", command="echo a > ~/string"),
        step("execute", command="touch '/home/user/two words'", shell=False),
        step("execute", command=["touch", "~/$list"]),
        step("execute", command=["echo $0 > ~/both", "zero"], shell=True),
        step(
            "execute",
            command="echo {SCREEN_WIDTH} {SCREEN_HEIGHT} {SCREEN_WIDTH_HALF} {SCREEN_HEIGHT_HALF} {CLIENT_PASSWORD}",
            stdout="sizes.out",
        ),
        step("command", command=["echo", "{SCREEN_WIDTH_HALF}"], stdout="list.out"),
        step("execute", command="echo no >&2", stderr="no.err", stdout="no.out"),
        step("execute", command="ls ~", stdout="ls.out"),
        step("execute", command="cat ~/shell ~/both", stdout="cat.out"),
    ]
    await perform(steps, local, here)
    assert here.outputs == {
        "sizes.out": b"1024 768 512 384 sesame\n",
        "list.out": b"512\n",
        "no.err": b"no\n",
        "no.out": b"",
        "ls.out": here.outputs["ls.out"],
        "cat.out": b"2\nzero\n",
    }
    assert {b"$list", b"both", b"shell", b"string", b"two words"} <= set(here.outputs["ls.out"].splitlines())


@pytest.mark.parametrize(
    "until", [{"returncode": 3}, {"stdout": "third"}, {"stderr": "enough"}, {"returncode": 77, "stdout": "third"}]
)
async def test_a_command_is_repeated_until_it_is_so(until: dict[str, Any], local: GuestDesktop) -> None:
    await local.run("printf x > ~/count; rm -f ~/tries")
    count = (
        "printf x >> ~/tries; n=$(wc -c < ~/tries); [ $n -lt 3 ] || { echo third; echo enough >&2; exit 3; }; exit 1"
    )
    await perform([step("execute", command=count, until=until)], local, around())
    assert await local.read_file("/home/user/tries") == b"xxx"


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (
            step("execute", command="echo {CLIENT_PASSWORD}; exit 3"),
            r"'echo {CLIENT_PASSWORD}; exit 3' ended with 3: \*\*\*",
        ),
        (step("execute", command=["/no/such/program"]), "no/such/program"),
        (step("execute", command=["/no/{CLIENT_PASSWORD}/program"]), r"no/\*\*\*/program"),
        (step("execute", command=["/no/such/program"], until={"returncode": 0}), "no/such/program"),
        (step("launch", command=["/no/such/program"]), "no/such/program"),
        (step("execute", command=[]), "the command is empty"),
        (step("execute", command="echo 'a", shell=False), "cannot be split into words"),
        (step("open", path="/home/user/nothing.txt"), "not found: /home/user/nothing.txt"),
    ],
)
async def test_what_fails_ends_the_set_up_at_once(bad: dict[str, Any], words: str, local: GuestDesktop) -> None:
    with pytest.raises(SetupError, match=rf"task 't', set-up step 1 \({bad['type']}\): .*{words}") as caught:
        await perform([step("sleep", seconds=0), bad, step("execute", command="touch ~/after")], local, around())
    assert "sesame" not in str(caught.value)
    assert (await local.run("test -e ~/after")).returncode == 1


FAILING = [
    step("execute", command="echo {CLIENT_PASSWORD} >&2; exit 3"),
    step("command", command=["/no/such/program"]),
    step("execute", command="echo on; exit 1", stdout="on.out"),
    step("execute", command="touch ~/after"),
]


async def test_failing_commands_are_told_and_gone_on_from_where_the_settings_say_so(
    local: GuestDesktop, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(
        SetupError,
        match=r"ended with 3: \*\*\*; set env_options.failing_commands=warn to go on, as OSWorld's runner does",
    ):
        await perform(FAILING, local, around())
    here = SetupContext("t", SETTINGS.model_copy(update={"failing_commands": "warn"}))
    with caplog.at_level(logging.WARNING):
        await perform(FAILING, local, here)
    assert (await local.run("test -e ~/after")).returncode == 0
    assert here.outputs == {"on.out": b"on\n"}
    assert [(each.returncode, each.stderr) for each in (here.took[0], *here.took[2:])] == [
        (3, "***"), (1, ""), (None, ""),
    ]  # fmt: skip
    assert "no/such/program" in here.took[1].stderr
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [each.partition(":")[0] for each in said] == [
        "task 't', set-up step 0 (execute)", "task 't', set-up step 1 (command)", "task 't', set-up step 2 (execute)",
    ]  # fmt: skip
    assert "ended with 3: ***; going on" in said[0]
    for kind, given in (("launch", {"command": ["/no/such/program"]}), ("open", {"path": "/home/user/nothing.txt"})):
        with pytest.raises(SetupError, match=rf"set-up step 0 \({kind}\)") as caught:
            await perform([step(kind, **given)], local, here)
        assert "failing_commands" not in str(caught.value)


async def test_steps_are_kept_with_the_attempt_those_after_the_agent_too(local: GuestDesktop) -> None:
    kept: dict[str, bytes] = {}
    evaluator = {
        "postconfig": [step("execute", command="echo differs >&2; exit 1"), step("sleep", seconds=0)],
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": ["printf", "42"]},
        "expected": {"type": "rule", "rules": {"expected": "42"}},
    }
    config = [step("execute", command="exit 3"), step("execute", command="true")]
    task = parse_task({"id": "t", "instruction": "Do it.", "config": config, "evaluator": evaluator}, "here")
    settings = SETTINGS.model_copy(update={"failing_commands": "warn"})
    env = OSWorldEnv(task, settings, EnvContext(desktop=local, keep=kept.__setitem__))
    await env.reset()
    assert (await env.score(Ending(stop=StopReason.DONE))).value == 1.0
    files = {name: msgspec.json.decode(data) for name, data in kept.items()}
    assert [(each["type"], each.get("returncode")) for each in files["setup.json"]] == [
        ("execute", 3), ("execute", None),
    ]  # fmt: skip
    assert [(each["type"], each.get("stderr")) for each in files["postconfig.json"]] == [
        ("execute", "differs"), ("sleep", None),
    ]  # fmt: skip


async def test_after_the_agent_a_failing_command_is_part_of_what_is_judged(local: GuestDesktop) -> None:
    here = around(forgiving=True)
    steps = [
        step("execute", command="echo differs; exit 1", stdout="diff.out"),
        step("execute", command=["/no/such/program"]),
        step("launch", command=["/no/such/program"]),
        step("activate_window", window_name="closed by the agent"),
        step("close_window", window_name="closed by the agent", strict=True, by_class=True),
        step("execute", command="echo end", stdout="end.out"),
    ]
    await perform(steps, local, here)
    assert here.outputs == {"diff.out": b"differs\n", "end.out": b"end\n"}
    with pytest.raises(SetupError, match=r"set-up step 0 \(open\)"):
        await perform([step("open", path="/home/user/nothing.txt")], local, here)


async def test_a_command_that_was_cut_off_is_gone_on_from_nowhere(local: GuestDesktop) -> None:
    """By a signal or by its time limit: what is prepared, or judged, is not what the task says."""
    warn = SetupContext("t", SETTINGS.model_copy(update={"failing_commands": "warn"}))
    for here in (around(), warn, around(forgiving=True)):
        with pytest.raises(SetupError, match=r"step 0 \(execute\): .*kill -KILL .* was ended by SIGKILL"):
            await perform([step("execute", command="sh -c 'kill -KILL $$'; exit $?")], local, here)
        assert here.took[-1].returncode == 137
    task = judged(
        "exact_match",
        {"type": "vm_command_line", "command": ["printf", "42"]},
        {"type": "rule", "rules": {"expected": "42"}},
        postconfig=[step("execute", command=["sh", "-c", "kill -KILL $$"])],
    )
    with pytest.raises(EvaluatorError, match=r"evaluator\.postconfig: .* was ended by SIGKILL"):
        await evaluate(task, local, Ending(stop=StopReason.DONE))
    with pytest.raises(CommandTimeout, match=r"Command 'sleep 60' timed out after [\d.]+ seconds"):
        await local.run("sleep 60", timeout=1)
    own_hand = [step("execute", command="pkill -f nobody-has-this-name"), step("execute", command="true")]
    await perform(own_hand, local, around(forgiving=True))


@needs_mousepad
async def test_files_and_windows(local: GuestDesktop) -> None:
    await local.write_file("/home/user/Desktop/one.txt", b"the first\n")
    await local.write_file("/home/user/two.txt", b"the second\n")
    later = "sleep 0.3; exec mousepad --disable-server ~/two.txt"
    await perform([step("open", path="/home/user/Desktop/one.txt")], local, around())
    assert any("one.txt" in window.title for window in await local.windows())
    steps = [
        step("launch", command=later, shell=True),
        step("activate_window", window_name="two.txt"),  # it is on its way
        step("activate_window", window_name="one.txt", strict="false"),
    ]
    await perform(steps, local, around())
    assert ["one.txt" in window.title for window in await local.windows() if window.active] == [True]
    title = next(window.title for window in await local.windows() if "two.txt" in window.title)
    await perform([step("close_window", window_name=title, strict=True)], local, around())
    await perform([step("close_window", window_name="mousepad.Mousepad", strict=True, by_class=True)], local, around())

    async def none() -> bool:
        return not await local.windows()

    await eventually(none, "all windows are closed")


async def test_a_simulated_desktop_has_windows_and_files_too(sim: GuestDesktop) -> None:
    await sim.write_file("/home/user/a.txt", b"a")
    steps = [
        step("open", path="/home/user/a.txt"),
        step("launch", command=["gimp"]),
        step("activate_window", window_name="a.txt", strict=True),
        step("close_window", window_name="gimp"),
    ]
    await perform(steps, sim, around())
    assert [(window.title, window.active) for window in await sim.windows()] == [("a.txt", True)]
    with pytest.raises(SetupError, match=r"set-up step 0 \(open\)"):
        await perform([step("open", path="/home/user/b.txt")], sim, around())
