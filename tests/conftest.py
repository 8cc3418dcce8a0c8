"""What all tests share."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.commands import Commands, clean_environment

# Whoever starts the tests in the background, or with nohup, has these ignored; commands would inherit and respect that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Property tests judge what is done, not how long it takes on a busy machine.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

LONGEST = (
    "suites", "rollout/test_nothing_lost", "service/test_nothing_lost", "seeds/test_documents", "desktops", "seeds",
    "rollout", "x11",
)  # fmt: skip
"""What paths of tests begin with that take minutes, in the order in which they are run."""


THOROUGH = (
    "agents/test_on_desktops", "contract", "desktops", "envs/interpreter", "envs/limited", "envs/osworld",
    "envs/test_math_examples", "envs/test_osworld", "envs/test_own_environments", "envs/test_python", "envs/test_shell",
    "envs/test_rag_dense", "osworld", "report/test_html", "rollout/events/test_telemetry", "rollout/test_demand",
    "rollout/test_failures", "rollout/test_faulty_server", "rollout/test_leftovers", "rollout/test_nothing_lost",
    "rollout/test_plug_in_files", "rollout/test_pool_gone", "rollout/test_process", "rollout/test_stops",
    "rollout/test_storage", "rollout/test_traces", "rollout/test_watchdog", "seeds", "service/test_nothing_lost",
    "store/test_objects", "suites", "test_bad_input", "test_cli", "test_completing", "test_examples", "test_guide",
    "test_plugins_page", "test_service_page", "train/test_bad_train_input", "x11",
)  # fmt: skip
"""What paths of tests begin with that `--fast` leaves out: real desktops, sandboxes, many processes, minutes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out what needs a desktop or takes long")
    parser.addoption("--vllm", action="store_true", help="also what needs .venv-vllm (make test-vllm)")
    parser.addoption("--trainers", action="store_true", help="also what needs .venv-trainers (make test-trainers)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Real model servers and the libraries of trainers take minutes, and gigabytes: only where they are asked for."""
    here = Path(__file__).parent
    flags = {here / "vllm": "--vllm", here / "train" / "vllm": "--vllm", here / "train" / "adapters": "--trainers"}
    flag = flags.get(collection_path)
    return True if flag is not None and not config.getoption(flag) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes longest comes first: where several run at a time, none waits for the last of them in the end."""
    here = Path(__file__).parent

    def place(item: pytest.Item) -> str:
        return item.path.relative_to(here).as_posix()

    def rank(item: pytest.Item) -> int:
        return next((n for n, start in enumerate(LONGEST) if place(item).startswith(start)), len(LONGEST))

    if config.getoption("--fast"):
        left = [item for item in items if place(item).startswith(THOROUGH)]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not place(item).startswith(THOROUGH)]
    items.sort(key=rank)


@pytest.fixture(autouse=True, scope="session")
def runtime_folder() -> Iterator[Path]:
    """A folder of our own, so that desktops of other people on this machine are neither seen nor touched.

    Not pytest's: that one is closed to other users, and where tests run as root each desktop is one.
    """
    with tempfile.TemporaryDirectory(prefix="deskroll-test-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        os.environ["DESKROLL_RUNTIME_DIR"] = name
        yield folder
        del os.environ["DESKROLL_RUNTIME_DIR"]


@pytest.fixture(scope="module")
def deskroll() -> Iterator[Commands]:
    """The command line, each command in a process that has imported everything."""
    with Commands() as commands:
        yield commands


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    """An environment without keys, with a place of its own for sockets, whose paths must be short."""
    with tempfile.TemporaryDirectory(prefix="deskroll-run-") as folder:
        Path(folder).chmod(0o711)  # as `runtime_folder`: each desktop is another user
        yield clean_environment(Path(folder))
