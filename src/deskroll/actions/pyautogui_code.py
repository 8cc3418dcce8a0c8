"""pyautogui source as a notation: what OSWorld's agents write, read without running it.

Plain source becomes Actions: pyautogui's own calls with literal arguments, `time.sleep`, the usual preamble
(imports, `pyautogui.FAILSAFE`, `pyautogui.PAUSE`) and the bare words WAIT, DONE and FAIL. All else
(variables, loops, other functions, moves relative to the pointer) makes the whole source one `Script`, which
means what Python says it means.

Where plain calls differ from pyautogui, on purpose: `duration`, `interval`, `tween` and PAUSE are ignored,
since they only slow things down; a name that is no key is an error, where pyautogui does nothing; a parameter
that a call does not have is left out; and text beyond ASCII is typed, where pyautogui drops it.
"""

from __future__ import annotations

import ast
import textwrap
import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

from deskroll import actions as act
from deskroll.actions import WORDS, Action, ComputerAction, check, fit
from deskroll.actions.noting import note, noting
from deskroll.actions.pyautogui_calls import NAMES, NotPlainError, perform
from deskroll.errors import ActionError

T = TypeVar("T")
_MODULES = frozenset({"pyautogui", "pyperclip", "time"})
"""Modules whose import does nothing by itself, so that it needs no Script."""
_SETTINGS = frozenset({"FAILSAFE", "PAUSE"})
_BUTTONS = frozenset({"LEFT", "MIDDLE", "RIGHT", "PRIMARY", "SECONDARY"})
_NAMED: dict[type[Action], str] = {
    act.RightClick: "rightClick", act.DoubleClick: "doubleClick", act.MouseDown: "mouseDown", act.MouseUp: "mouseUp",
    act.Press: "press", act.KeyDown: "keyDown", act.KeyUp: "keyUp",
}  # fmt: skip
"""The calls of actions that are written alike."""


def decode(source: str, width: int, height: int) -> list[Action]:
    """Read source into actions, each made to fit the screen; `ActionError` names the wrong line."""
    if source[:1].isspace():
        source = textwrap.dedent(source)
    body = parse(source)
    try:
        with noting() as notes:  # of plain calls: a script is run as it stands
            actions = _plain_actions(body, width, height)
        for each in notes:
            note(each)
    except NotPlainError:
        actions = _script_actions(source, body)
        check(actions[0], width, height)
    if not actions:
        raise ActionError("the source does nothing; write at least one call, or one of WAIT, DONE, FAIL")
    return actions


def encode(actions: Sequence[Action]) -> str:
    """Write actions as source, one call a line, without the preamble, which whoever runs it puts in front.

    Text and keys beyond ASCII are written too, but pyautogui itself drops them when it runs the line. A
    `Wait` without seconds, `Done` and `Fail` become the bare words, which agents know and Python does not.
    """
    return "\n".join(line for action in actions for line in _lines(action))


def parse(source: str) -> list[ast.stmt]:
    """The statements of a source; `ActionError` names the line that is not Python."""
    return _understood(lambda: ast.parse(source).body, "read as Python")


def _understood(work: Callable[[], T], what: str) -> T:
    try:
        # A model's '\d' is its own business: the warning must not reach the log, nor end a strict test run.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work()
    except SyntaxError as error:
        where = f"line {error.lineno}" if error.lineno else "the source"
        line = (error.text or "").strip()
        raise ActionError(f"{where} is not valid Python: {error.msg}" + (f": {line[:80]}" if line else "")) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ActionError(f"the source cannot be {what}: {type(error).__name__}: {error}") from None


def _plain_actions(body: list[ast.stmt], width: int, height: int) -> list[Action]:
    actions: list[Action] = []
    wrong: ActionError | None = None
    for statement in body:
        try:
            actions += _plain(statement, width, height)
        except ActionError as error:  # kept until it is known that no later statement makes all of it a script
            wrong = wrong or error
    if wrong:
        raise wrong
    return actions


def _script_actions(source: str, body: list[ast.stmt]) -> list[Action]:
    end = len(body)
    while end and _word(body[end - 1]):
        end -= 1
    # The words at the end are no Python, so they stay outside the script.
    code = source if end == len(body) else _unparse(body[:end])
    return [_script(body[:end], code), *(action for word in body[end:] for action in _word(word))]


def _script(body: list[ast.stmt], code: str) -> act.Script:
    for node in (node for statement in body for node in ast.walk(statement)):
        if isinstance(node, ast.stmt) and (word := _word(node)):
            name = word[0].__struct_config__.tag
            raise ActionError(
                f"line {node.lineno}: {name} stands amid a script; it may come last, or among plain calls"
            )
    # It finds what parsing alone lets through.
    _understood(lambda: compile(code, "<action>", "exec", dont_inherit=True), "compiled")
    return act.Script(code)


def _unparse(body: list[ast.stmt]) -> str:
    try:
        return ast.unparse(ast.Module(body=body, type_ignores=[]))
    except RecursionError:
        raise ActionError("the source is nested too deeply; write it in smaller steps") from None


def _word(statement: ast.stmt) -> list[Action]:
    match statement:
        case ast.Expr(value=ast.Name(id=name)) if name in WORDS:
            return [WORDS[name]()]
    return []


def _plain(statement: ast.stmt, width: int, height: int) -> list[Action]:
    match statement:
        case ast.Expr(value=ast.Name()):
            if word := _word(statement):
                return word
        case ast.Expr(value=ast.Call() as call):
            return _call(call, width, height)
        case ast.Expr(value=ast.Constant()) | ast.Pass():
            return []
        case ast.Import(names=names) if all(name.name in _MODULES and not name.asname for name in names):
            return []
        case ast.ImportFrom(module="time", level=0, names=[ast.alias(name="sleep", asname=None)]):
            return []
        case ast.Assign(
            targets=[ast.Attribute(value=ast.Name(id="pyautogui"), attr=setting)], value=ast.Constant()
        ) if setting in _SETTINGS:
            return []
    raise NotPlainError


def _call(call: ast.Call, width: int, height: int) -> list[Action]:
    match call.func:
        case ast.Attribute(value=ast.Name(id="pyautogui"), attr=name) if name in NAMES:
            pass
        case ast.Attribute(value=ast.Name(id="time"), attr="sleep" as name) | ast.Name(id="sleep" as name):
            pass
        case _:
            raise NotPlainError
    arguments = [_literal(node) for node in call.args]
    keywords = {_keyword(keyword): _literal(keyword.value) for keyword in call.keywords}
    try:
        return [fit(action, width, height) for action in perform(name, arguments, keywords)]
    except ActionError as error:
        raise ActionError(f"line {call.lineno}, {name}: {error}") from None


def _keyword(keyword: ast.keyword) -> str:
    if keyword.arg is None:
        raise NotPlainError
    return keyword.arg


def _literal(node: ast.expr) -> object:
    match node:
        case ast.Attribute(value=ast.Name(id="pyautogui"), attr=name) if name in _BUTTONS:
            return name.lower()
        case ast.Attribute(value=ast.Name(id="pyautogui"), attr=name) if name.startswith(("ease", "linear")):
            return name  # a tween, which shapes the way but not where it ends
    try:
        value: object = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise NotPlainError from None
    return value


def _lines(action: Action) -> list[str]:
    match action:
        case act.ToolCall() | act.Answer():
            raise ActionError(f"pyautogui has no call for {action.__struct_config__.tag}")
        case act.Wait(seconds=None) | act.Done() | act.Fail():
            return [str(action.__struct_config__.tag)]
        case act.Script(code=code):
            return [code]
        case act.Wait(seconds=seconds):
            return [f"time.sleep({seconds!r})"]
        case _:
            return [f"pyautogui.{call}" for call in _calls(action)]


def _calls(action: ComputerAction) -> list[str]:
    match action:
        case act.Scroll(dx=dx, dy=dy):
            return ([f"hscroll({dx})"] if dx else []) + ([f"vscroll({dy})"] if dy or not dx else [])
        case act.MoveTo(x=x, y=y):
            call = f"moveTo({x}, {y})"
        case act.Click(button=button, x=x, y=y, num_clicks=clicks):
            call = f"click({_arguments(x=x, y=y, clicks=clicks, button=button)})"
        case act.RightClick(x=x, y=y) | act.DoubleClick(x=x, y=y):
            call = f"{_NAMED[type(action)]}({_arguments(x=x, y=y)})"
        case act.MouseDown(button=button) | act.MouseUp(button=button):
            call = f"{_NAMED[type(action)]}(button={button!r})"
        case act.DragTo(x=x, y=y):
            # Programs take a jump for no drag, hence the duration (OSWorld's own).
            call = f"dragTo({x}, {y}, duration=1.0, button='left')"
        case act.Typing(text=text):
            call = f"typewrite({text!r})"
        case act.Press(key=key) | act.KeyDown(key=key) | act.KeyUp(key=key):
            call = f"{_NAMED[type(action)]}({_key(key)})"
        case act.Hotkey(keys=keys):
            call = f"hotkey({', '.join(map(_key, keys))})"
    return [call]


def _key(name: str) -> str:
    return repr("apps" if name == "menu" else name)  # the one canonical name that pyautogui spells otherwise


def _arguments(**values: int | str | None) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items() if value is not None)
