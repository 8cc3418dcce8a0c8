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
from urllib.parse import unquote

import pytest
from PIL import Image

from deskroll.errors import FailureClass, InputError
from deskroll.report import summarise
from deskroll.report.html import render, write_html
from deskroll.report.results import Results
from deskroll.report.screens import WIDTH, Pictures, Screens
from deskroll.store import RunInfo, RunStore
from tests.browser import ask_page, needs_chromium
from tests.report.episodes import episode


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


def page_of(root: Path, screens: Screens | None = None, beside: Path | None = None) -> tuple[str, Page]:
    results = Results.read(root)
    text = render(results, results.summary(), screens, beside)
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
    for fact in ("model qwen-vl", "max turns 37", "seed 0"):
        assert fact in text
    assert "found It says 41. expected It says 42." in text
    assert len([each for each in page.named("details") if (each.get("class") or "").startswith("episode ")]) == 56


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
    assert "connect-src" not in policy
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
    every = views(page_of(full_run, Screens.SMALL)[1])
    last = views(page_of(full_run, Screens.LAST)[1])
    none = views(page_of(full_run, Screens.NONE)[1])
    assert all(view["steps"] for view in none)
    assert sum(len(view["screens"]) for view in none) == 0
    assert all(len(view["screens"]) == 1 for view in last)
    assert all(view["steps"][-1]["screen"] == 0 for view in last)
    assert all(each["data"] and not each["file"] for view in every for each in view["screens"])
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
    assert step["results"] == ["note: CLICK: (4000, 5) is off the 1920x1080 screen; taken: (1919, 5)"]


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
    url = Pictures().url(png(1920, 1080))
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
    pictures = Pictures()
    assert pictures.url(image) is None
    assert pictures.left_out == 1


def test_a_bomb_is_not_opened() -> None:
    out = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(out, "PNG")
    assert Pictures().url(out.getvalue()) is None


def test_the_budget_is_kept() -> None:
    one = Pictures().url(png(100, 100))
    assert one is not None
    pictures = Pictures(budget=len(one) * 2)
    assert [pictures.url(png(100, 100)) is not None for _ in range(4)].count(True) <= 2
    assert pictures.left_out >= 2


def test_full_screens_are_those_that_are_stored(hostile_run: Path) -> None:
    stored = {path.read_bytes() for path in hostile_run.glob("episodes/**/screens/*.png")}
    held = [each["data"] for view in views(page_of(hostile_run, Screens.FULL)[1]) for each in view["screens"]]
    assert held
    assert all(base64.b64decode(str(each).removeprefix("data:image/png;base64,")) in stored for each in held)


def test_beside_its_run_the_page_links_every_file(full_run: Path) -> None:
    for view in views(page_of(full_run, Screens.NONE, full_run.parent)[1]):
        assert view["screens"]
        links = [str(each["file"]) for each in view["screens"]] + [str(each["address"]) for each in view["files"]]
        assert all((full_run.parent / unquote(link)).is_file() for link in links)
        assert {"conversation.json", "episode.json", "steps.jsonl"} <= {str(each["name"]) for each in view["files"]}
        assert (full_run.parent / str(view["folder"])).is_dir()


def test_a_name_that_leads_out_of_the_folder_is_no_link(full_run: Path, tmp_path: Path) -> None:
    root = tmp_path / "run"
    shutil.copytree(full_run, root)
    steps = next(root.glob("episodes/*/*/*/*/*/steps.jsonl"))
    steps.write_text(re.sub(r'"screens/[^"]*"', '"../../../../../../run.json"', steps.read_text()))
    held = [each for view in views(page_of(root, Screens.SMALL, tmp_path)[1]) for each in view["screens"]]
    assert not [each for each in held if "run.json" in str(each)]


def test_marks_are_where_the_actions_went(full_run: Path) -> None:
    view = views(page_of(full_run, Screens.SMALL)[1])[0]
    step = view["steps"][0]
    assert step["actions"] == ["CLICK x=200 y=140"]
    assert step["marks"] == [{"x": round(200 / 1920, 5), "y": round(140 / 1080, 5), "what": "CLICK x=200 y=140"}]
    # It is on what the agent saw when it decided: the screen before the step.
    assert [each["before"] for each in view["steps"][:3]] == [
        view["start"],
        *(each["screen"] for each in view["steps"][:2]),
    ]
    assert view["steps"][1]["marks"] == []


def test_a_domain_without_scores_has_one_dash_for_its_rate(full_run: Path) -> None:
    unscored = summarise(1, [episode("a", None, failure=FailureClass.DESKTOP)])
    page = render(Results.read(full_run), unscored, Screens.NONE)
    assert re.search(r'<td class="rate">–(?! <span)', page)
    assert not re.search(r'–\s*<span class="dim">–', page)


def test_what_was_said_is_on_a_page_of_few_episodes(hostile_run: Path, full_run: Path) -> None:
    said = views(page_of(hostile_run)[1])[0]["conversation"]
    assert said[0]["role"] == "user"
    assert "do it" in str(said[0]["text"])
    assert all(view["conversation"] == [] for view in views(page_of(full_run)[1]))


@needs_chromium
@pytest.mark.parametrize("run", ["full_run", "hostile_run"])
def test_a_person_goes_through_the_steps_with_the_arrow_keys(
    run: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    text, _ = page_of(request.getfixturevalue(run), Screens.SMALL)
    file = tmp_path / "page.html"
    file.write_text(text, encoding="utf-8")
    shown = "document.getElementById('place').textContent"
    press = "(key) => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}))"
    ready, _, first, second, back, pictures, marks = ask_page(
        file,
        [
            "document.documentElement.dataset.ready",
            "(async () => { const one = document.querySelector('.episode'); one.open = true;"
            " while (!one.play) await new Promise((next) => setTimeout(next, 10)); })()",
            f"({press})('ArrowRight'), {shown}",
            f"({press})('ArrowRight'), {shown}",
            f"({press})('ArrowLeft'), {shown}",
            "[...document.querySelectorAll('.trail img')].map((each) => each.src.slice(0, 22))",
            "document.querySelectorAll('#player .mark').length",
        ],
        tmp_path,
    )
    assert ready == "yes"
    assert [first.partition(" ·")[0], second.partition(" ·")[0], back] == ["step 0", "step 1", first]
    assert set(pictures) == {"data:image/jpeg;base64"}
    assert marks == 1


@needs_chromium
def test_beside_its_run_it_shows_the_stored_screens(full_run: Path, tmp_path: Path) -> None:
    root = tmp_path / "runs" / "a run"
    shutil.copytree(full_run, root)
    results = Results.read(root)
    write_html(results, results.summary(), tmp_path / "page.html", Screens.NONE)
    look = (
        "(async () => { const one = document.querySelector('.episode'); one.open = true;"
        " while (!one.play) await new Promise((next) => setTimeout(next, 10)); one.play();"
        " const image = document.querySelector('#player img'); await image.decode();"
        " return [image.naturalWidth, image.src]; })()"
    )
    ((width, source),) = ask_page(tmp_path / "page.html", [look], tmp_path)
    assert width == 480
    assert source.startswith(root.parent.as_uri())


@needs_chromium
@pytest.mark.parametrize("width", [1280, 420])
def test_nothing_is_cut_off_and_no_word_is_broken(full_run: Path, tmp_path: Path, width: int) -> None:
    text, _ = page_of(full_run, Screens.NONE)
    file = tmp_path / "page.html"
    file.write_text(text, encoding="utf-8")
    # A word in two lines has more than one rectangle.
    broken = (
        "[...document.querySelectorAll('h1, h2, th, td, dt, .card p, .card .big, figcaption')].flatMap((each) =>"
        " [...each.childNodes].filter((node) => node.nodeType === 3).flatMap((node) =>"
        " [...node.data.matchAll(/[\\w.%]{2,24}/g)].filter((word) => { const range = document.createRange();"
        " range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);"
        " return new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1; })"
        ".map((word) => word[0])))"
    )
    # Columns that are shown, and where the last of them ends, within the table's frame.
    rates = (
        "(() => { const frame = document.querySelector('.scroll').getBoundingClientRect();"
        " const heads = [...document.querySelectorAll('.scroll thead th')].filter((each) => each.offsetWidth);"
        " return [heads.map((each) => each.textContent),"
        " heads.at(-1).getBoundingClientRect().right <= frame.right]; })()"
    )
    asked = ["document.documentElement.scrollWidth", broken, rates]
    wide, words, (heads, fits) = ask_page(file, asked, tmp_path, width=width)
    assert wide <= width
    assert words == []
    assert {"Successes", "Over attempted", "Over scored"} <= set(heads)
    assert fits


def test_without_pillow_screens_are_taken_as_they_are() -> None:
    code = (
        "import base64, sys\nsys.modules['PIL'] = None\nfrom deskroll.report.screens import Pictures\n"
        "image = sys.stdin.buffer.read()\nassert Pictures().url(b'<svg/>') is None\n"
        "assert Pictures().url(image) == 'data:image/png;base64,' + base64.b64encode(image).decode()"
    )
    done = subprocess.run([sys.executable, "-c", code], input=png(8, 8), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
