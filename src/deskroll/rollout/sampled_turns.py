"""The turns of a stored attempt as they are trained on: exact tokens, and a picture for each run of placeholders.

Guarantee: what is not so is a `SampleError` that names episode and step.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from deskroll.errors import DeskrollError, InputError
from deskroll.models.exact import inexact
from deskroll.models.messages import Message
from deskroll.store import AttemptReader
from deskroll.types import Completion, Sent, Step

ImageToken = int | Collection[int] | None
"""The id of which a model's prompt holds a run for each picture, or several where such a run is made of several; None:
the model is shown no pictures."""


class SampleError(DeskrollError):
    """What was kept of an attempt cannot be trained on exactly; the message names episode and step."""


@dataclass(frozen=True)
class SampledTurn:
    """A turn whose tokens are exact, and whose pictures are where its prompt has placeholders."""

    step: Step
    said: Completion
    images: tuple[str, ...]
    """Names, in the order of the request."""

    @property
    def prompt(self) -> tuple[int, ...]:
        """The ids of what it was sent."""
        return self.said.prompt_token_ids or ()

    @property
    def span(self) -> tuple[int, int]:
        """Where its completion begins and ends, behind its prompt."""
        return len(self.prompt), len(self.prompt) + len(self.said.token_ids or ())


class TurnReader:
    """Reads the turns of an attempt, and checks each of them; `name` is the attempt's, for messages."""

    def __init__(self, attempt: AttemptReader, name: str, image_token: ImageToken) -> None:
        self._attempt = attempt
        self._name = name
        self._placeholders = {image_token} if isinstance(image_token, int) else set(image_token or ())
        self._pictured: list[tuple[str, ...]] | None = None

    def turns(self) -> Iterator[SampledTurn]:
        """Every turn in which the model was asked, in order."""
        for step in self._attempt.steps():
            if (said := step.completion) is not None:
                if why := inexact(said):
                    raise self._error(step, f"its tokens are not exact: {why}. Ask for them with model.exact")
                turn = SampledTurn(step, said, self._images(step, step.sent))
                self._check_images(turn)
                yield turn

    def _images(self, step: Step, sent: Sent | None) -> tuple[str, ...]:
        """The names of the pictures that one request held, in order."""
        if sent is None:
            return ()
        if self._pictured is None:
            try:
                stored = self._attempt.messages()
                self._pictured = [Message.restore(each, self._attempt.image).names for each in stored]
            except InputError as error:
                raise self._error(step, str(error)) from error
        if sent.messages > len(self._pictured):
            number = len(self._pictured)
            raise self._error(step, f"{sent.messages} messages were sent, and {number} of them are in its conversation")
        held = (names for n, names in enumerate(self._pictured[: sent.messages]) if n not in sent.withheld)
        return tuple(itertools.chain.from_iterable(held))

    def _check_images(self, turn: SampledTurn) -> None:
        shown = len(turn.images)
        if not self._placeholders:
            if shown:
                raise self._error(turn.step, f"it was shown {shown} images; say by image_token where they are")
            return
        if (runs := self._runs(turn.prompt)) != shown:
            raise self._error(turn.step, f"it was shown {shown} images, and its prompt has {runs} runs of placeholders")
        if self._runs(turn.said.token_ids or ()):
            raise self._error(turn.step, "the model itself sampled a placeholder of images, to which there is none")

    def _runs(self, ids: Sequence[int]) -> int:
        """How many runs of placeholders there are."""
        return sum(is_one for is_one, _ in itertools.groupby(ids, self._placeholders.__contains__))

    def _error(self, step: Step, why: str) -> SampleError:
        return SampleError(f"{self._name}, step {step.index}: {why}")
