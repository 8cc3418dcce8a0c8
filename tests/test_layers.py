"""The order of the layers, held over every module: imports go down only, rows do not import sideways.

Inside of the larger packages nothing imports in a circle, modules and packages alike.

All imports count: at the top, inside functions and under `if TYPE_CHECKING`. Names in the registry
("module:Class") do not: that is how the lower layers are given what plugs into them.
"""

import ast
import graphlib
import itertools
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "deskroll"

# From the bottom up. What shares a row does not import each other.
ROWS: Sequence[set[str]] = (
    # The vocabulary: one row to everybody above it, with an order of its own.
    {"errors", "clocks"},
    {"actions"},
    {"types"},
    {"events"},
    {"importing"},
    {"registry"},
    {"config", "field_docs"},
    {"plugins"},
    {"host"},
    {"models"},
    {"tasks", "desktops", "scoring", "store", "suites"},
    {"envs", "agents", "report", "export"},
    {"rollout"},
    {"conduct"},
    {"viewer", "service", "train"},
    {"testing"},
    {"cli"},
)
# Within desktops/, from the bottom up: the driver knows no guest, the guest no provider, and none of them
# the pool. The pool and its helpers are what is not named here; they stand on top, in any order.
DESKTOP_ROWS: Sequence[set[str]] = ({"notes"}, {"base"}, {"x11"}, {"guest"}, {"providers"})

# Within these, no module and no package imports what imports it.
WITHOUT_CIRCLES = {"desktops", "envs", "host", "rollout"}

# A vendor's SDK is imported in its own file and nowhere else, so that all else works without it.
SDK_HOMES = {
    "docker": "desktops.providers.docker",
    "boto3": "desktops.providers.aws", "botocore": "desktops.providers.aws",
    "google.cloud": "desktops.providers.gcp", "azure": "desktops.providers.azure",
    "alibabacloud_ecs20140526": "desktops.providers.aliyun", "aliyunsdkcore": "desktops.providers.aliyun",
    "volcenginesdkcore": "desktops.providers.volcengine", "volcenginesdkecs": "desktops.providers.volcengine",
    "kubernetes": "desktops.providers.kubernetes", "kubernetes_asyncio": "desktops.providers.kubernetes",
    "pyVmomi": "desktops.providers.vmware", "vboxapi": "desktops.providers.virtualbox",
    "opentelemetry": "rollout.events.telemetry",
    "matplotlib": "report.picture",
    "tensorboardX": "train.trackers.tensorboard", "wandb": "train.trackers.wandb",
    "anthropic": "models.anthropic", "vllm": "models.vllm", "ray": "rollout.backends.ray",
    "docx": "envs.osworld.evaluate.native.documents", "openpyxl": "envs.osworld.evaluate.native.sheets",
    "pptx": "envs.osworld.evaluate.native.slides", "pypdf": "envs.osworld.evaluate.native.pdfs",
    "chz": "train.tinker", "tinker": "train.tinker", "tinker_cookbook": "train.tinker", "verl": "train.verl",
    "torch": "train.grpo", "transformers": "train.grpo", "peft": "train.grpo", "safetensors": "train.grpo",
}  # fmt: skip

# What `deskroll --help` must not wait for.
HEAVY = (
    "aiohttp", "pydantic", "rich", "numpy", "Xlib", "PIL", "av", "dbus_fast", "mss", "openpyxl", "docx", "pptx",
    "pypdf", "torch", "matplotlib", "tinker", "verl",
)  # fmt: skip


@dataclass(frozen=True)
class Module:
    """A module by its dotted name below `deskroll` (empty for the package itself)."""

    name: str
    is_package: bool
    source: str

    @property
    def package(self) -> list[str]:
        """Where its relative imports start."""
        parts = ["deskroll", *filter(None, self.name.split("."))]
        return parts if self.is_package else parts[:-1]


@dataclass(frozen=True)
class Import:
    """One imported name, in full: `from a import b` is `a.b`, since `b` may be a module."""

    module: str
    line: int
    target: str

    def __str__(self) -> str:
        return f"deskroll.{self.module}, line {self.line}, imports {self.target}"


def modules(root: Path) -> Iterator[Module]:
    for path in sorted(root.rglob("*.py")):
        parts = list(path.relative_to(root).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        yield Module(name, is_package, path.read_text(encoding="utf-8"))


def imports(module: Module) -> Iterator[Import]:
    for node in ast.walk(ast.parse(module.source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module.name, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            above = module.package[: len(module.package) - node.level + 1] if node.level else []
            start = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                yield Import(module.name, node.lineno, f"{start}.{alias.name}")


def row(unit: str, rows: Sequence[set[str]]) -> int:
    """The row that names `unit`; whatever no row names stands on top."""
    return next((number for number, members in enumerate(rows) if unit in members), len(rows))


def breaks_order(name: str, target: str) -> bool:
    """Whether the module `name` must not import `target`, both without `deskroll.`."""
    unit, _, inner = name.partition(".")
    target_unit, _, target_inner = target.partition(".")
    # The public names of the package and its entry point stand on top of all.
    if unit in ("", "__main__") or target == "__version__":
        return False
    if unit != target_unit:
        return row(target_unit, ROWS) >= row(unit, ROWS)
    if unit != "desktops":
        return False
    inner, target_inner = inner.split(".")[0], target_inner.split(".")[0]
    here, there = row(inner, DESKTOP_ROWS), row(target_inner, DESKTOP_ROWS)
    return inner != target_inner and there >= here and here < len(DESKTOP_ROWS)


def is_under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def faults(root: Path) -> list[str]:
    """Every import below `root` that breaks a rule, as a sentence."""
    found = []
    for module in modules(root):
        unit = module.name.split(".")[0]
        if unit not in ("", "__main__") and row(unit, ROWS) == len(ROWS):
            found.append(f"deskroll.{unit} has no row: give it one in ROWS, and in the design")
        for each in imports(module):
            if is_under(each.target, "deskroll"):
                if breaks_order(module.name, each.target.removeprefix("deskroll").removeprefix(".")):
                    found.append(f"{each}, which does not stand below it")
                continue
            home = next((home for sdk, home in SDK_HOMES.items() if is_under(each.target, sdk)), None)
            if home and not is_under(module.name, home):
                found.append(f"{each}, which belongs into deskroll.{home} alone")
    return sorted(set(found))


def cycles(root: Path) -> list[str]:
    """Modules, or packages taken as one, inside of one unit that import each other in a circle; one for each unit."""
    known = {module.name: module for module in modules(root)}
    found = []
    for unit in WITHOUT_CIRCLES & {name.partition(".")[0] for name in known}:
        edges = [
            (module.name, _existing(each.target, known))
            for module in known.values()
            if is_under(module.name, unit)
            for each in imports(module)
            if is_under(each.target, f"deskroll.{unit}")
        ]
        deepest = max(name.count(".") for name in known if is_under(name, unit)) + 1
        circles = filter(None, (_circle(edges, depth) for depth in range(2, deepest + 1)))
        found += [" imports ".join(f"deskroll.{name}" for name in circle) for circle in itertools.islice(circles, 1)]
    return found


def _existing(target: str, known: Mapping[str, Module]) -> str:
    """The module that an imported name is, or is in."""
    name = target.removeprefix("deskroll.")
    while name not in known:
        name = name.rpartition(".")[0]
    return name


def _circle(edges: Sequence[tuple[str, str]], depth: int) -> Sequence[str]:
    """A circle of imports, where everything below `depth` parts of a name is taken as one."""
    graph: dict[str, set[str]] = {}
    for name, target in edges:
        here, there = (".".join(each.split(".")[:depth]) for each in (name, target))
        if here != there:
            graph.setdefault(here, set()).add(there)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        circle: Sequence[str] = error.args[1]
        return circle[::-1]
    return ()


def test_nothing_inside_of_a_package_imports_in_a_circle() -> None:
    assert cycles(ROOT) == []


@pytest.mark.parametrize(
    ("files", "circle"),
    [
        (
            {"rollout/a.py": "from deskroll.rollout.b import B", "rollout/b.py": "from . import a"},
            {"rollout.a", "rollout.b"},
        ),
        (
            {
                "desktops/pool/one.py": "from deskroll.desktops.service.one import X",
                "desktops/pool/two.py": "",
                "desktops/service/one.py": "",
                "desktops/service/two.py": "def f():\n    from ..pool import two",
            },
            {"desktops.pool", "desktops.service"},
        ),
        (
            {
                "envs/osworld/setup/a.py": "if TYPE_CHECKING:\n    from deskroll.envs.osworld.evaluate.b import B",
                "envs/osworld/evaluate/b.py": "import deskroll.envs.osworld.setup.c",
                "envs/osworld/setup/c.py": "",
            },
            {"envs.osworld.setup", "envs.osworld.evaluate"},
        ),
        (
            {
                "envs/a.py": "from deskroll.envs.b import f",
                "envs/b.py": "from deskroll.envs.c import f",
                "envs/c.py": "from deskroll.envs import a",
            },
            {"envs.a", "envs.b", "envs.c"},
        ),
        (
            {
                "rollout/backends/__init__.py": "from .base import Backend",
                "rollout/backends/base.py": "from . import X",
            },
            {"rollout.backends", "rollout.backends.base"},
        ),
    ],
    ids=["modules", "packages", "packages below packages", "three", "a package and its own module"],
)
def test_a_forged_circle_is_found(tmp_path: Path, files: dict[str, str], circle: set[str]) -> None:
    for path, source in files.items():
        forge(tmp_path, path, source)
    (found,) = cycles(tmp_path)
    assert {name.removeprefix("deskroll.") for name in found.split(" imports ")} == circle


def test_what_goes_down_is_no_circle(tmp_path: Path) -> None:
    forge(tmp_path, "rollout/a.py", "from deskroll.rollout.b import B\nfrom deskroll.rollout.c.d import D")
    forge(tmp_path, "rollout/b.py", "from .c.d import D\nfrom deskroll.envs.a import A")
    forge(tmp_path, "rollout/c/d.py", "import deskroll.rollout.c.e")
    forge(tmp_path, "rollout/c/e.py", "import deskroll.types")
    assert cycles(tmp_path) == []


def test_imports_go_down_only() -> None:
    assert (ROOT / "errors.py").is_file()
    assert faults(ROOT) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("errors.py", "from deskroll.types import Task"),
        ("types.py", "import deskroll.rollout.episode"),
        ("types.py", "from deskroll.host import seccomp"),
        ("host/seccomp.py", "from deskroll.models import client"),
        ("store/writer.py", "from deskroll.desktops.base import Desktop"),
        ("store/writer.py", "from deskroll import desktops"),
        ("store/writer.py", "from deskroll import Engine"),
        ("store/writer.py", "from .. import agents"),
        ("store/__init__.py", "from ..agents.chat import ChatAgent"),
        ("envs/osworld/env.py", "from ...agents import chat"),
        ("models/client.py", "def ask():\n    from deskroll.cli.main import main"),
        ("models/client.py", "if TYPE_CHECKING:\n    from deskroll.tasks import load"),
        ("desktops/x11/capture.py", "from deskroll.desktops.guest import server"),
        ("desktops/x11/capture.py", "from ..guest.server import serve"),
        ("desktops/guest/client.py", "from deskroll.desktops.providers.local import LocalProvider"),
        ("desktops/guest/client.py", "from deskroll.desktops import Pool"),
        ("desktops/providers/local/provider.py", "from deskroll.desktops.pool import Pool"),
        ("desktops/base.py", "from deskroll.desktops.x11.capture import Screen"),
        ("desktops/base.py", "from .lease import Lease"),
        ("desktops/pool.py", "import docker"),
        ("desktops/providers/sim.py", "def boot():\n    from boto3.session import Session"),
        ("rollout/engine.py", "import ray.util"),
        ("train/loop.py", "import torch"),
        ("train/driven.py", "from tinker_cookbook.rl.types import Env"),
        ("train/verl_tables.py", "import verl"),
        ("train/tinker/env.py", "import torch"),
        ("helpers.py", ""),
    ],
)
def test_a_forged_fault_is_found(tmp_path: Path, path: str, source: str) -> None:
    forge(tmp_path, path, source)
    assert len(faults(tmp_path)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("__init__.py", "from deskroll.rollout.engine import Engine"),
        ("__main__.py", "from deskroll.cli.main import main"),
        ("cli/run.py", "from deskroll import __version__\nfrom deskroll.rollout import engine"),
        ("actions/union.py", "from deskroll.errors import ActionError\nfrom . import keys"),
        ("envs/osworld/env.py", "from ...desktops.base import Desktop\nfrom ..math import MathEnv"),
        ("desktops/pool.py", "from deskroll.desktops.lease import Lease\nfrom .guest import client"),
        ("desktops/__init__.py", "from deskroll.desktops.pool import Pool"),
        ("desktops/providers/docker.py", "import docker\nfrom deskroll.desktops.guest import client"),
        ("desktops/guest/server.py", "from deskroll.desktops.x11 import capture\nimport deskroll.types"),
        ("rollout/backends/ray.py", "import ray\nimport deskroll.errors"),
        ("train/grpo/loss.py", "import torch\nfrom transformers import AutoModel"),
        ("train/tinker/env.py", "import chz, tinker\nfrom tinker_cookbook.rl.types import Env"),
        ("train/verl.py", "from verl.experimental.agent_loop import agent_loop"),
        ("models/raymond.py", "import raymond, dockerfile"),
    ],
)
def test_what_is_allowed_is_no_fault(tmp_path: Path, path: str, source: str) -> None:
    forge(tmp_path, path, source)
    assert faults(tmp_path) == []


def forge(root: Path, path: str, source: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")


def loaded_by(statement: str) -> set[str]:
    """The HEAVY modules that a new interpreter has loaded after `statement`."""
    script = f"import sys\n{statement}\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(HEAVY) & set(run.stdout.split())


def test_the_command_line_starts_light() -> None:
    assert loaded_by("import deskroll.cli.main") == set()


def test_heavy_modules_would_be_seen() -> None:
    assert loaded_by("import rich, numpy") >= {"rich", "numpy"}
