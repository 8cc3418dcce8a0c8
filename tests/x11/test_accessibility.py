"""The accessibility tree of real programs, whole, in time, and whatever the programs do."""

import asyncio
import os
import re
import shutil
import signal
import time
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus
from Xlib import XK, X
from Xlib.display import Display
from Xlib.ext import xtest

from deskroll.desktops.x11.accessibility import NAMESPACES, Accessibility, Cut, CutReason, Limits, Scope, Tree
from deskroll.desktops.x11.atspi_nodes import ROLES, Node
from deskroll.desktops.x11.atspi_places import align
from deskroll.errors import DesktopLost, DesktopTimeout
from tests.waiting import eventually
from tests.x11.conftest import XSession

PATIENT = Limits(silence_s=30, deadline_s=60)
needs_libreoffice = pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")


@pytest.fixture
async def reader(xsession: XSession) -> AsyncIterator[Accessibility]:
    async with Accessibility(xsession.env["DBUS_SESSION_BUS_ADDRESS"]) as reader:
        yield reader


def key(prefix: str, name: str) -> str:
    return f"{{{NAMESPACES[prefix]}}}{name}"


def is_on(element: ET.Element, state: str) -> bool:
    return element.get(key("st", state)) == "true"


def box(element: ET.Element) -> tuple[int, int, int, int]:
    """As OSWorld's agents read it."""
    place, size = element.attrib[key("cp", "screencoord")], element.attrib[key("cp", "size")]
    assert re.fullmatch(r"\(-?\d+, -?\d+\)", place) and re.fullmatch(r"\(-?\d+, -?\d+\)", size)
    x, y = (int(part) for part in place.strip("()").split(", "))
    width, height = (int(part) for part in size.strip("()").split(", "))
    return x, y, width, height


def middle(element: ET.Element) -> tuple[int, int]:
    x, y, width, height = box(element)
    return x + width // 2, y + height // 2


async def tree_with(
    reader: Accessibility, wanted: Callable[[ET.Element], bool], what: str, limits: Limits = PATIENT
) -> tuple[Tree, ET.Element]:
    """The first whole tree that satisfies `wanted` and is the same when it is read again."""
    last = ""

    async def probe() -> tuple[Tree, ET.Element] | None:
        nonlocal last
        tree = await reader.read(limits)
        root = ET.fromstring(tree.xml)
        before, last = last, tree.xml
        return (tree, root) if wanted(root) and tree.xml == before else None

    return await eventually(probe, what, timeout=90)


def has(path: str) -> Callable[[ET.Element], bool]:
    return lambda root: root.find(path) is not None


def a11y_daemon(session: XSession) -> psutil.Process:
    launcher = next(c for c in session.children if "at-spi-bus-launcher" in str(c.args))
    return next(p for p in psutil.Process(launcher.pid).children(recursive=True) if p.name() == "dbus-daemon")


def client_area(display: Display) -> tuple[int, int, int, int]:
    """Of the only window: where X itself has it."""
    root = display.screen().root
    (window,) = root.get_full_property(display.intern_atom("_NET_CLIENT_LIST"), X.AnyPropertyType).value
    client = display.create_resource_object("window", window)
    size = client.get_geometry()
    corner = root.translate_coords(client, 0, 0)
    return abs(corner.x), abs(corner.y), size.width, size.height


def click(display: Display, x: int, y: int) -> None:
    xtest.fake_input(display, X.MotionNotify, x=x, y=y)
    xtest.fake_input(display, X.ButtonPress, 1)
    xtest.fake_input(display, X.ButtonRelease, 1)
    display.sync()


def type_letters(display: Display, letters: str) -> None:
    for letter in letters:
        keycode = display.keysym_to_keycode(XK.string_to_keysym(letter))
        xtest.fake_input(display, X.KeyPress, keycode)
        xtest.fake_input(display, X.KeyRelease, keycode)
    display.sync()


async def test_menus_and_typed_text_have_their_place_on_the_screen(xsession: XSession, reader: Accessibility) -> None:
    xsession.start("mousepad")
    _, root = await tree_with(
        reader,
        lambda root: any(is_on(frame, "active") for frame in root.iterfind("application/frame")),
        "mousepad has the focus",
    )
    display = Display(xsession.name)
    try:
        left, top, width, height = client_area(display)
        for element in root.iterfind("application[@name='mousepad']/frame/filler//*"):
            if is_on(element, "showing") and is_on(element, "visible"):
                x, y, w, h = box(element)
                if w < 0:  # GTK says so of what it never laid out
                    continue
                assert left <= x and x + w <= left + width and top <= y and y + h <= top + height
        type_letters(display, "typed")
        _, root = await tree_with(
            reader,
            lambda root: "typed" in [t.text for t in root.iter("text")],
            "the typed text is in the tree",
        )
        menu = root.find(".//menu-bar/menu[@name='File']")
        assert menu is not None
        quit_item = menu.find("menu-item[@name='Quit      ']")
        assert quit_item is not None and not is_on(quit_item, "showing")
        assert key("cp", "screencoord") not in quit_item.attrib

        click(display, *middle(menu))
        _, root = await tree_with(
            reader,
            lambda root: any(is_on(i, "showing") for i in root.iterfind(".//menu-item[@name='Quit      ']")),
            "a click in the middle of the menu opened it",
        )
    finally:
        display.close()


async def test_a_button_is_where_the_tree_says(xsession: XSession, reader: Accessibility) -> None:
    xsession.start("galculator")
    _, root = await tree_with(
        reader,
        lambda root: any(is_on(b, "showing") for b in root.iterfind(".//toggle-button[@name='7']")),
        "galculator shows its buttons",
    )
    display = Display(xsession.name)
    try:
        click(display, *middle(next(root.iterfind(".//toggle-button[@name='7']"))))
        await tree_with(
            reader,
            lambda root: "7" in [(t.text or "").strip() for t in root.iter("text")],
            "the calculator shows 7",
        )
    finally:
        display.close()


async def test_it_is_in_the_form_of_osworld(xsession: XSession, reader: Accessibility) -> None:
    xsession.start("galculator")
    tree, root = await tree_with(reader, has("application[@name='galculator']/frame//*"), "galculator is there")

    assert root.tag == "desktop-frame" and not root.attrib
    assert tree.nodes == sum(1 for _ in root.iter()) - 1 and tree.cuts == ()
    plain = {"name", "image", "selection"}
    known = {f"{{{uri}}}" for uri in NAMESPACES.values()}
    for element in root.iterfind(".//*"):
        assert re.fullmatch(r"[a-z-]+", element.tag)
        assert "name" in element.attrib
        assert all(k in plain or k.rpartition("}")[0] + "}" in known for k in element.attrib)
    frame = root.find("application/frame")
    assert frame is not None and frame.get(key("attr", "toolkit")) == "gtk"
    button = next(b for b in root.iter("toggle-button") if is_on(b, "showing"))
    assert button.get(key("act", "click_desc")) is not None and key("act", "click_kb") in button.attrib
    assert is_on(button, "visible") and is_on(button, "enabled")
    bar = next(root.iter("scroll-bar"))
    low, value, high, step = (float(bar.attrib[key("val", k)]) for k in ("min", "value", "max", "step"))
    assert low <= value <= high and step >= 0
    selectable = root.find(".//menu-bar")
    assert selectable is not None and selectable.get("selection") == "true"


async def test_what_xml_cannot_hold_does_no_harm(xsession: XSession, reader: Accessibility, tmp_path: Path) -> None:
    file = tmp_path / 'a&b <c> "d".txt'
    text = '<text> & "quotes"\tü 漢字 🙂\nsecond line'
    file.write_text(text)
    xsession.start("mousepad", str(file))
    _, root = await tree_with(
        reader, lambda root: text in [t.text for t in root.iter("text")], "the file's text is in the tree"
    )
    frame = root.find("application/frame")
    assert frame is not None and file.name in frame.attrib["name"]


def mousepad_is_active(root: ET.Element) -> bool:
    """Whether all of it is there, and the window manager has done with it."""
    frame = root.find("application[@name='mousepad']/frame")
    return frame is not None and frame.find(".//text") is not None and is_on(frame, "active")


async def test_it_is_the_same_however_it_is_read(xsession: XSession, reader: Accessibility) -> None:
    xsession.start("mousepad")
    pipelined, _ = await tree_with(reader, mousepad_is_active, "mousepad is there, and active")

    sequential = await reader.read(Limits(in_flight=1, silence_s=30, deadline_s=60))

    assert pipelined.nodes > 200
    assert sequential == pipelined


@pytest.mark.parametrize(
    ("limits", "reason", "nodes"),
    [
        (Limits(max_nodes=60, silence_s=30, deadline_s=60), CutReason.NODES, 60),
        (Limits(max_depth=4, silence_s=30, deadline_s=60), CutReason.DEPTH, None),
        (Limits(max_width=3, silence_s=30, deadline_s=60), CutReason.WIDTH, None),
        (Limits(max_text=4, silence_s=30, deadline_s=60), CutReason.TEXT, None),
    ],
)
async def test_a_cut_tree_says_so(
    xsession: XSession,
    reader: Accessibility,
    tmp_path: Path,
    limits: Limits,
    reason: CutReason,
    nodes: int | None,
) -> None:
    file = tmp_path / "long.txt"
    file.write_text("abcdefgh")
    xsession.start("mousepad", str(file))
    whole, _ = await tree_with(
        reader, lambda root: "abcdefgh" in [t.text for t in root.iter("text")], "mousepad shows the file"
    )

    tree = await reader.read(limits)

    root = ET.fromstring(tree.xml)
    assert tree.cuts == (Cut("mousepad", reason),)
    assert {e.get("cut") for e in root.iter() if e.get("cut")} == {reason.value}
    assert tree.nodes == sum(1 for _ in root.iter()) - 1
    if nodes is not None:
        assert tree.nodes == nodes
    if reason is CutReason.TEXT:
        assert "abcd" in [t.text for t in root.iter("text")]
    else:
        assert tree.nodes < whole.nodes


async def test_a_stopped_program_costs_itself_only(xsession: XSession, reader: Accessibility) -> None:
    xsession.start("mousepad")
    stopped = xsession.start("galculator")
    await tree_with(
        reader,
        lambda root: (
            has("application[@name='mousepad']/frame//text")(root)
            and has("application[@name='galculator']/frame//toggle-button")(root)
        ),
        "both programs are there",
    )
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        tree = await reader.read(Limits(silence_s=5, deadline_s=60))
        took = time.monotonic() - begun
    finally:
        os.kill(stopped.pid, signal.SIGCONT)

    root = ET.fromstring(tree.xml)
    assert root.find("application[@name='mousepad']/frame//text") is not None
    silent = root.find("application[@name='galculator']")
    assert silent is not None and silent.get("cut") == "silent" and len(silent) == 0
    assert tree.cuts == (Cut("galculator", CutReason.SILENT),)
    assert took < 30
    tree, root = await tree_with(reader, has("application[@name='galculator']/frame//toggle-button"), "it goes on")
    assert tree.cuts == ()


async def test_a_program_that_ends_is_gone_from_the_tree(xsession: XSession, reader: Accessibility) -> None:
    xsession.start("mousepad")
    child = xsession.start("galculator")
    await tree_with(reader, has("application[@name='galculator']/frame//*"), "galculator is there")
    child.kill()
    tree, root = await tree_with(
        reader,
        lambda root: root.find("application[@name='galculator']") is None and has("application/frame")(root),
        "the other one is gone",
    )
    assert [a.get("name") for a in root] == ["mousepad"] and tree.cuts == ()


ROOT = "/org/a11y/atspi/accessible/root"


async def _call(bus: MessageBus, *target: str, signature: str = "", body: list[Any] | None = None) -> Any:
    destination, path, interface, member = target
    reply = await bus.call(
        Message(
            destination=destination,
            path=path,
            interface=interface,
            member=member,
            signature=signature,
            body=body or [],
        )
    )
    assert reply.message_type is MessageType.METHOD_RETURN, reply.body
    return reply.body[0]


def _answers(own_name: str) -> dict[str, tuple[str, Any]]:
    """What no program should tell."""
    # No bus name, the program's own root again, an object that is not there, one with a billion children.
    children = [["not a name", "/x"], [own_name, ROOT], [own_name, "/none"], [own_name, "/wide"]]
    return {
        "Name": ("v", Variant("s", "liar & co")),
        "ChildCount": ("v", Variant("i", 3)),
        "GetRole": ("u", 75),
        "GetState": ("au", [0xFFFFFFFF, 0xFFFFFFFF]),
        "GetInterfaces": ("as", [["Component", "Text", "Value", "Action"][i] for i in range(4)]),
        "GetAttributes": ("a{ss}", {"1 bad\tkey": "a\nb", "": "no key", "bell": "\a"}),
        "GetChildren": ("a(so)", children),
        "GetExtents": ("s", "somewhere"),
        "CharacterCount": ("v", Variant("s", "many")),
        "CurrentValue": ("v", Variant("s", "much")),
        "GetAll": ("a{sv}", {"CurrentValue": Variant("s", "much"), "MaximumValue": Variant("d", 7.5)}),
        "GetActions": ("a(sss)", [["", "\x01", ""], ["", "twice", ""]]),
        "GetName": ("s", "click"),
        "GetItems": ("s", "none"),
    }  # fmt: skip


@asynccontextmanager
async def lying_program(session_bus_address: str, offers: str = "", toolkit: str = "") -> AsyncIterator[None]:
    """`offers`: where it says that it can be asked past the bus."""
    session = await MessageBus(bus_address=session_bus_address).connect()
    address = await _call(session, "org.a11y.Bus", "/org/a11y/bus", "org.a11y.Bus", "GetAddress")
    session.disconnect()
    await session.wait_for_disconnect()
    bus = await MessageBus(bus_address=address).connect()
    name = str(bus.unique_name)
    answers = {
        **_answers(name),
        "GetApplicationBusAddress": ("s", offers),
        "ToolkitName": ("v", Variant("s", toolkit)),
    }

    def answer(message: Message) -> Message | None:
        if message.message_type is not MessageType.METHOD_CALL:
            return None
        member = message.body[1] if message.member == "Get" else str(message.member)
        if message.path == "/wide" and member == "ChildCount":
            return Message.new_method_return(message, "v", [Variant("i", 2**31 - 1)])
        if message.path == "/none" or member not in answers:
            return Message.new_error(message, "org.freedesktop.DBus.Error.UnknownMethod", "no")
        signature, value = answers[member]
        return Message.new_method_return(message, signature, [value])

    bus.add_message_handler(answer)
    try:
        await _call(
            bus, "org.a11y.atspi.Registry", ROOT, "org.a11y.atspi.Socket", "Embed", signature="(so)",
            body=[[name, ROOT]],
        )  # fmt: skip
        yield
    finally:
        bus.disconnect()
        await bus.wait_for_disconnect()


async def test_a_lying_program_costs_itself_only(xsession: XSession, reader: Accessibility) -> None:
    xsession.start("mousepad")
    await tree_with(reader, has("application[@name='mousepad']/frame//text"), "mousepad is there")
    async with lying_program(xsession.env["DBUS_SESSION_BUS_ADDRESS"]):
        tree = await reader.read(Limits(max_depth=15, silence_s=30, deadline_s=60))
        root = ET.fromstring(tree.xml)

    assert root.find("application[@name='mousepad']/frame//text") is not None
    liar = next(a for a in root if a.get("name") == "liar & co")
    assert liar.get(key("attr", "_1-bad-key")) == "a\nb"
    assert Cut("liar & co", CutReason.DEPTH) in tree.cuts, "a child of itself ends at the greatest depth"
    assert Cut("liar & co", CutReason.WIDTH) in tree.cuts, "a billion children were not asked for"


async def test_a_lying_program_of_gtk_keeps_what_is_a_number(xsession: XSession, reader: Accessibility) -> None:
    async with lying_program(xsession.env["DBUS_SESSION_BUS_ADDRESS"], toolkit="gtk"):
        tree = await reader.read(Limits(max_depth=2, silence_s=30, deadline_s=60))
    liar = next(a for a in ET.fromstring(tree.xml) if a.get("name") == "liar & co")
    values = {name: liar.get(key("val", name)) for name in ("value", "min", "max", "step")}
    assert values == {"value": None, "min": None, "max": "7.5", "step": None}


@pytest.mark.parametrize("offer", ["nowhere", "hangs up", "talks nonsense", "says nothing", "another bus"])
async def test_a_way_past_the_bus_that_leads_nowhere_is_not_taken(
    xsession: XSession, reader: Accessibility, tmp_path: Path, offer: str
) -> None:
    address = xsession.env["DBUS_SESSION_BUS_ADDRESS"]

    async def talk(listening: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if offer == "talks nonsense":
            writer.write(b"OK 1234\r\n" + b"l\x02\0\x01" + bytes(range(200)))
        if offer != "hangs up":
            await listening.read()
        writer.close()

    async with await asyncio.start_unix_server(talk, tmp_path / "way"):
        way = {"nowhere": tmp_path / "none", "another bus": tmp_path / "run" / "bus"}.get(offer, tmp_path / "way")
        async with lying_program(address, f"unix:path={way}"):
            for scope in Scope:
                tree = await reader.read(Limits(scope=scope, max_depth=4, silence_s=2, deadline_s=60))
                assert "liar &amp; co" in tree.xml
                assert Cut("liar & co", CutReason.DEPTH) in tree.cuts
    assert (await reader.read(PATIENT)).cuts == ()


async def test_the_bus_is_woken_once_for_many_questions(xsession: XSession, reader: Accessibility) -> None:
    xsession.start("mousepad")
    whole, _ = await tree_with(reader, mousepad_is_active, "mousepad is there, and active")
    daemon = a11y_daemon(xsession)
    before = daemon.num_ctx_switches().voluntary
    assert await reader.read(PATIENT) == whole
    assert daemon.num_ctx_switches().voluntary - before < whole.nodes


async def test_what_shows_is_read_without_closed_menus(xsession: XSession, reader: Accessibility) -> None:
    xsession.start("mousepad")
    whole, root = await tree_with(reader, mousepad_is_active, "mousepad is there, and active")
    shown = await reader.read(Limits(scope=Scope.SHOWN, silence_s=30, deadline_s=60))
    part = ET.fromstring(shown.xml)
    assert shown.nodes < whole.nodes / 2
    names = [[each.get("name") for each in tree.iter() if is_on(each, "showing")] for tree in (root, part)]
    assert names[0] == names[1]
    assert part.find(".//menu-bar/menu[@name='File']") is not None
    assert part.find(".//menu-bar/menu[@name='File']/*") is None


async def test_a_killed_bus_is_named_in_the_error(xsession: XSession, reader: Accessibility) -> None:
    xsession.start("mousepad")
    await tree_with(reader, has("application[@name='mousepad']"), "mousepad is there")
    daemon = a11y_daemon(xsession)
    daemon.kill()
    with pytest.raises(DesktopLost, match="accessibility bus"):
        await reader.read(PATIENT)


async def test_a_stopped_bus_is_given_up_in_time(xsession: XSession, reader: Accessibility) -> None:
    await reader.read(PATIENT)
    daemon = a11y_daemon(xsession)
    daemon.suspend()
    try:
        with pytest.raises(DesktopTimeout, match="accessibility"):
            await reader.read(Limits(deadline_s=1))
    finally:
        daemon.resume()
    assert (await reader.read(PATIENT)).cuts == ()


async def test_a_bus_that_dies_under_a_read_is_named(xsession: XSession, reader: Accessibility) -> None:
    await reader.read(PATIENT)
    daemon = a11y_daemon(xsession)
    daemon.suspend()
    reading = asyncio.create_task(reader.read(PATIENT))
    await asyncio.sleep(0)  # the call is on its way, and the bus cannot answer it
    daemon.kill()
    with pytest.raises(DesktopLost, match="accessibility bus"):
        await reading


async def test_without_a_session_bus_the_error_says_so(tmp_path: Path) -> None:
    async with Accessibility(f"unix:path={tmp_path}/nothing") as reader:
        with pytest.raises(DesktopLost, match="nothing"):
            await reader.read(PATIENT)


async def test_reads_at_the_same_time_wait_for_one_another(xsession: XSession, reader: Accessibility) -> None:
    xsession.start("mousepad")
    tree, _ = await tree_with(reader, mousepad_is_active, "mousepad is there, and active")
    assert await asyncio.gather(*(reader.read(PATIENT) for _ in range(3))) == [tree] * 3


@needs_libreoffice
@pytest.mark.timeout(300)
async def test_calc_gives_the_visible_cells_only(xsession: XSession, reader: Accessibility, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.csv"
    sheet.write_text("name,count\nglyph,17\n")
    xsession.start(
        "soffice", "--calc", "--norestore", "--nologo", "--infilter=CSV:44,34,76,1", f"-env:UserInstallation=file://{tmp_path}/office",
        str(sheet),
    )  # fmt: skip
    _, root = await tree_with(
        reader, lambda root: "glyph" in [c.text for c in root.iter("table-cell")], "Calc shows the sheet"
    )
    cells = {cell.attrib["name"]: cell for cell in root.iter("table-cell")}
    assert cells["A2"].text == "glyph" and cells["B2"].text == "17"
    assert 100 < len(cells) < 5000
    table = next(t for t in root.iter("table") if t.find("table-cell") is not None)
    x, y, width, height = box(table)
    for cell in table.iterfind("table-cell"):
        left, top, _, _ = box(cell)
        assert is_on(cell, "showing") and x <= left < x + width and y <= top < y + height
    # No mouse has been over it yet: what Calc draws itself is where the GTK object is that holds it.
    (holder,) = [each for each in root.iter() if each.find("root-pane") is not None]
    pane = holder.find("root-pane")
    assert pane is not None
    assert box(pane) == box(holder)
    menu_bar = next(each for each in root.iter("menu-bar") if each.get(f"{{{NAMESPACES['attr']}}}toolkit") == "gtk")
    bottom = box(menu_bar)[1] + box(menu_bar)[3]
    assert all(box(each)[1] >= bottom for each in pane.iter("tool-bar") if is_on(each, "showing"))


def test_what_a_program_draws_inside_gtk_is_where_gtk_says() -> None:
    ref, shown = ("a", "/"), {"toolkit": "gtk"}
    holder = Node(ref, role=ROLES.index("panel"), attributes=shown, extents=(0, 44, 100, 200))
    pane = Node(ref, holder, role=ROLES.index("root pane"), extents=(0, 19, 100, 200))
    drawn = Node(ref, pane, role=ROLES.index("push button"), extents=(5, 29, 10, 10))
    native = Node(ref, pane, role=ROLES.index("entry"), attributes=shown, extents=(20, 54, 10, 10))
    hidden = Node(ref, pane, role=ROLES.index("label"))
    holder.children, pane.children = [pane], [drawn, native, hidden]
    for _ in range(2):  # what is right stays
        align(holder)
        assert [each.extents for each in (pane, drawn, native, hidden)] == [
            (0, 44, 100, 200), (5, 54, 10, 10), (20, 54, 10, 10), None,
        ]  # fmt: skip
    holder.extents = (0, 40, 100, 100)  # another size: it does not fill it
    align(holder)
    assert drawn.extents == (5, 54, 10, 10)
