"""The documents say what is true: code in them runs, files they point to exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_layers import ROWS

ROOT = Path(__file__).parent.parent
READMES = [ROOT / "README.md", ROOT / "README.zh.md"]
PAGES = [*READMES, *(ROOT / name for name in ("CONTRIBUTING.md", "AGENTS.md", "examples/README.md"))]
PAGES += sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} points to {target}, which is not there"


def test_both_readmes_show_the_same_commands_and_pictures() -> None:
    def shown(page: Path) -> list[str]:
        text = page.read_text()
        blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
        commands = [re.sub(r"\s+#.*", "", line) for block in blocks for line in block.splitlines()]
        return [*commands, *re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)]

    assert shown(READMES[0]) == shown(READMES[1])


def readme_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("code", readme_blocks(), ids=range(len(readme_blocks())))
def test_python_in_the_readme_runs(code: str, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr


def test_the_layers_are_drawn_as_they_are() -> None:
    drawn = re.findall(r"^ {6}([a-z_]+(?:  ?[a-z_]+)*)(?: {3}.*)?$", (ROOT / "AGENTS.md").read_text(), re.M)
    assert [set(row.split()) for row in drawn] == list(reversed(ROWS))


@pytest.mark.parametrize(("page", "made_by"), [("settings.md", "page"), ("train-settings.md", "train_page")])
def test_a_page_of_settings_is_made_from_them(page: str, made_by: str) -> None:
    made = subprocess.run(
        [sys.executable, "-c", f"import runpy; print(runpy.run_path('scripts/settings-page')['{made_by}'](), end='')"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert (ROOT / "docs" / page).read_text() == made.stdout, "run `make format`, which writes it"
