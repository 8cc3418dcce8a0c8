"""Whether an answer's tokens are exact: fit to be trained on, as the server sampled them.

`inexact` is the one place that decides; whoever asks with `exact` makes an `InexactAnswer` of what it says.
"""

from __future__ import annotations

import math

from deskroll.errors import FailureKind, ModelError
from deskroll.types import Completion


class InexactAnswer(ModelError):
    """The server answered, and token ids or log-probabilities are missing or cannot be right."""

    kind = FailureKind.INEXACT_ANSWER


def inexact(completion: Completion) -> str:
    """What is wrong with the answer's tokens, in words; empty: they are exact."""
    prompt, ids, logprobs = completion.prompt_token_ids, completion.token_ids, completion.logprobs
    fields = {"prompt_token_ids": prompt, "token_ids": ids, "logprobs": logprobs}
    if missing := [name for name, value in fields.items() if value is None]:
        return f"it has no {' and no '.join(missing)}"
    assert prompt is not None and ids is not None and logprobs is not None  # noqa: S101  (just looked at)
    counts = (
        ("token ids", len(ids), "log-probabilities", len(logprobs)),
        ("token ids", len(ids), "completion tokens in its usage", completion.completion_tokens),
        ("prompt token ids", len(prompt), "prompt tokens in its usage", completion.prompt_tokens),
    )
    for what, number, other, expected in counts:
        if number != expected:
            return f"it has {number:,} {what} and {expected:,} {other}"
    if (low := min(min(prompt, default=0), min(ids, default=0))) < 0:
        return f"it holds the token id {low}"
    if odd := next((each for each in logprobs if not (math.isfinite(each) and each <= 0)), None):
        return f"it holds the log-probability {odd}"
    return ""
