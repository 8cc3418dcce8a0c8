"""The page of a run: whole, without any network, and safe whatever a model says."""

import base64
import hashlib
import html.parser
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from deskroll.errors import InputError
from deskroll.report.html import render, write_html
from deskroll.report.results import Results
from deskroll.report.screens import WIDTH, Screens, Thumbnails
from deskroll.store import RunInfo, RunStore


class Page(html.parser.HTMLParser):
    """What a browser makes of the page: elements with their attributes, scripts, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.styles: list[str] = []
        self.text: list[str] = []
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append((self.elements[-1][1], data))
        elif self._inside == "style":
            self.styles.append(data)
        else:
            self.text.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page_of(root: Path, screens: Screens | None = None) -> tuple[str, Page]:
    results = Results.read(root)
    text = render(results, results.summary(), screens)
    return text, Page(text)


def views(page: Page) -> list[dict[str, list[dict[str, object]]]]:
    blocks = [text for attributes, text in page.scripts if attributes.get("type") == "application/json"]
    return [json.loads(block) for block in blocks[:-1]]  # the last one is that of the charts


def test_it_says_what_the_summary_says(full_run: Path) -> None:
    _, page = page_of(full_run)
    text = " ".join(" ".join(page.text).split())
    overall = Results.read(full_run).summary().overall
    assert "stopped: 56 of 60 episodes" in text
    assert f"{overall.successes} of {overall.attempted}" in text
    assert f"{overall.successes} of {overall.scored}" in text
    assert "not independent" in text
    assert "model qwen-vl" in text
    assert len([each for each in page.named("details") if each.get("class") == "episode"]) == 56


def test_nothing_is_fetched_and_only_our_own_scripts_may_run(full_run: Path) -> None:
    _, page = page_of(full_run)
    assert not page.named("link")
    assert not page.named("iframe")
    assert not [each for _, each in page.elements if any(name.startswith("on") or name == "style" for name in each)]
    assert not [each for _, each in page.elements if "src" in each or "href" in each]
    policies = [each["content"] for each in page.named("meta") if each.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1
    policy = policies[0] or ""
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    running = [text for attributes, text in page.scripts if attributes.get("type") != "application/json"]
    assert len(running) == 2
    for text in running + page.styles:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_hostile_text_stays_text(hostile_run: Path, full_run: Path) -> None:
    text, page = page_of(hostile_run)
    _, harmless = page_of(full_run)
    assert "<img src=x" not in text
    assert not page.named("img")
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in harmless.elements}
    assert len(page.named("script")) == 4 + 3  # one block an episode, one of charts, two that run
    assert "\x1b" not in text
    shown = "".join(page.text)
    assert '</script><img src=x onerror="alert(1)"><!--' in shown
    assert "{{7*7}}" in shown
    first = views(page)[0]["steps"][0]
    assert "</script><img" in str(first["thought"])
    assert "{{7*7}}" in str(first["thought"])


def test_screens_all_last_and_none(full_run: Path) -> None:
    every = views(page_of(full_run, Screens.ALL)[1])
    last = views(page_of(full_run, Screens.LAST)[1])
    none = views(page_of(full_run, Screens.NONE)[1])
    assert all(view["steps"] for view in none)
    assert sum(len(view["screens"]) for view in none) == 0
    assert all(len(view["screens"]) == 1 for view in last)
    assert all(view["steps"][-1]["screen"] == 0 for view in last)
    # Of two steps that saw the same screen there is one picture; the first is what the model saw before it acted.
    assert all(len(view["screens"]) == 1 + (len(view["steps"]) + 1) // 2 for view in every)
    assert {(str(view["start"]), str(view["steps"][0]["screen"])) for view in every} == {("0", "1")}
    assert all(view["start"] is None for view in (*last, *none))
    assert every[0]["steps"][1]["screen"] == every[0]["steps"][0]["screen"]
    assert [view["screens"] for view in views(page_of(full_run)[1])] == [view["screens"] for view in last]


def test_few_episodes_show_every_screen(hostile_run: Path) -> None:
    assert all(len(view["screens"]) > 1 for view in views(page_of(hostile_run)[1]))


def test_actions_and_thoughts_of_a_step(full_run: Path) -> None:
    step = views(page_of(full_run, Screens.NONE)[1])[0]["steps"][1]
    assert step["actions"] == ['TYPING text="=SUM(B2:F2)\\n"', 'HOTKEY keys=["ctrl","s"]']
    assert step["thought"] == "I open the menu to find the bookmarks setting."
    assert step["took"] == "model 2.1 s, act 200 ms, settle 410 ms"


def test_an_attempt_whose_files_are_gone_is_still_listed(full_run: Path, tmp_path: Path) -> None:
    root = tmp_path / "pruned"
    shutil.copytree(full_run, root)
    shutil.rmtree(root / "episodes" / "eval" / "0" / "chrome-000")
    found = views(page_of(root)[1])
    assert len(found) == 56
    assert found[0]["steps"] == []
    assert found[0]["note"]


async def test_an_empty_run(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path / "empty", RunInfo(run_id="empty")):
        pass
    text, page = page_of(tmp_path / "empty")
    assert "0 of 0 episodes" in " ".join(page.text)
    assert "NaN" not in text.split("<script")[0]


def test_a_file_that_cannot_be_written(full_run: Path, tmp_path: Path) -> None:
    results = Results.read(full_run)
    with pytest.raises(InputError, match="cannot write the page"):
        write_html(results, results.summary(), tmp_path / "nowhere" / "page.html", Screens.NONE)


# --- pictures ---


def png(width: int, height: int) -> bytes:
    out = io.BytesIO()
    Image.effect_noise((width, height), 60).save(out, "PNG")
    return out.getvalue()


def test_a_picture_is_made_small() -> None:
    url = Thumbnails().url(png(1920, 1080))
    assert url is not None
    head, _, body = url.partition(",")
    assert head == "data:image/jpeg;base64"
    with Image.open(io.BytesIO(base64.b64decode(body))) as picture:
        assert picture.size == (WIDTH, 360)


@pytest.mark.parametrize(
    "image",
    [b"", b"<svg onload='alert(1)'/>", b"\x89PNG\r\n\x1a\n torn", png(64, 64)[:90], b"GIF89a" + b"\0" * 20],
    ids=["empty", "svg", "forged", "torn", "gif"],
)
def test_what_is_no_picture_is_left_out(image: bytes) -> None:
    thumbnails = Thumbnails()
    assert thumbnails.url(image) is None
    assert thumbnails.left_out == 1


def test_a_bomb_is_not_opened() -> None:
    out = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(out, "PNG")
    assert Thumbnails().url(out.getvalue()) is None


def test_the_budget_is_kept() -> None:
    one = Thumbnails().url(png(100, 100))
    assert one is not None
    thumbnails = Thumbnails(budget=len(one) * 2)
    assert [thumbnails.url(png(100, 100)) is not None for _ in range(4)].count(True) <= 2
    assert thumbnails.left_out >= 2


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
@pytest.mark.parametrize("run", ["full_run", "hostile_run"])
def test_a_real_browser_draws_it(run: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    text, _ = page_of(request.getfixturevalue(run), Screens.LAST)
    file = tmp_path / "page.html"
    file.write_text(text.replace('<details class="episode"', '<details open class="episode"', 1), encoding="utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               "--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom", str(file)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=80, check=False)
    assert re.search(r"<html[^>]* data-ready=\"yes\"", done.stdout), done.stderr
    assert "Content Security Policy" not in done.stderr
    assert "Uncaught" not in done.stderr
    dom = Page(done.stdout)
    assert [each for each in dom.named("ol") if each.get("class") == "trail"]
    pictures = dom.named("img")
    assert len(pictures) == 1
    assert all((each.get("src") or "").startswith("data:image/jpeg;base64,") for each in pictures)


def test_without_pillow_screens_are_taken_as_they_are() -> None:
    code = (
        "import base64, sys\nsys.modules['PIL'] = None\nfrom deskroll.report.screens import Thumbnails\n"
        "image = sys.stdin.buffer.read()\nassert Thumbnails().url(b'<svg/>') is None\n"
        "assert Thumbnails().url(image) == 'data:image/png;base64,' + base64.b64encode(image).decode()"
    )
    done = subprocess.run([sys.executable, "-c", code], input=png(8, 8), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
