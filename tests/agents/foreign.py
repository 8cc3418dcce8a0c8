"""Agent classes as OSWorld's repository has them: blocking, with `predict` and `reset`; named by path in tests."""

from __future__ import annotations

import threading
import time
from typing import Any
from xml.etree import ElementTree


class Listed:
    """Predicts from a list that it is given."""

    def __init__(self, predictions: list[Any] | None = None, platform: str = "ubuntu") -> None:
        self.predictions = list(predictions or [])
        self.platform = platform
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.resets = 0

    def predict(self, instruction: str, obs: dict[str, Any]) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        assert self.resets == 1
        self.seen.append((instruction, obs))
        assert obs["screenshot"].startswith(b"\x89PNG")
        return f"{instruction} {len(self.seen)}", [self.predictions.pop(0)]

    def reset(self, _logger: Any = None) -> None:
        self.resets += 1


class Strict(Listed):
    """Its reset wants a logger, as UI-TARS' does."""

    def reset(self, runtime_logger: Any) -> None:
        assert runtime_logger is not None
        runtime_logger.debug("reset")
        self.resets += 1


class Bare:
    """Has no reset and returns more than two values."""

    def predict(self, instruction: str, obs: dict[str, Any]) -> Any:
        return None, "DONE", {"more": 1}


class Odd:
    """Returns whatever it is told to."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def predict(self, instruction: str, obs: dict[str, Any]) -> Any:
        return tuple(self.value) if isinstance(self.value, list) else self.value


class Failing:
    """Its own code fails."""

    def __init__(self, how: str = "value") -> None:
        self.how = how

    def predict(self, instruction: str, obs: dict[str, Any]) -> Any:
        raise {"value": ValueError, "exit": SystemExit, "stop": StopIteration}[self.how]("as told")


class Slow:
    """Takes longer than anybody waits."""

    def predict(self, instruction: str, obs: dict[str, Any]) -> Any:
        time.sleep(30)
        return "", ["DONE"]


class Reader:
    """Reads the accessibility tree, as OSWorld's baseline does."""

    def predict(self, instruction: str, obs: dict[str, Any]) -> Any:
        return ElementTree.fromstring(obs["accessibility_tree"]).get("name"), ["WAIT"]
