"""Native metrics: what a getter found against the rules of a task.

`exact_match` and `match_in_list` are upstream's, but for this: in `exact_match` the white space around a text does not
count, which a command's output ends in, and a file is compared by its text, where upstream's would compare its name.
`check_play_and_exit` is ours alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deskroll.envs.osworld.evaluate.native.values import Config, File


def _exact_match(result: object, rules: Config) -> bool:
    wanted = rules.get("expected", "")
    found = result.text() if isinstance(result, File) else result
    return found.strip() == str(wanted).strip() if isinstance(found, str) else found == wanted


def _check_play_and_exit(result: object, rules: Config) -> bool:
    """Whether VLC ends after playing; not unless its settings say so. The last line that says anything counts."""
    text = result.text() if isinstance(result, File) else ""
    _, name, rest = text.rpartition("play-and-exit=")
    found = rest.partition("\n")[0].strip() if name else "0"
    return found == str(rules.get("expected_play_and_exit"))


METRICS: Mapping[str, Callable[[object, Config], bool]] = {
    "exact_match": _exact_match,
    "match_in_list": lambda result, rules: result in rules.get("expected", ()),
    "check_play_and_exit": _check_play_and_exit,
}
"""By OSWorld's names."""
