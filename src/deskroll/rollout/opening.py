"""Opening: a runtime that is not open yet. It is entered with `async with`, and says so to whoever uses it before."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")


class Opening(AbstractAsyncContextManager[T], Generic[T]):
    """What `Runtime.open` returns."""

    def __init__(self, opened: AbstractAsyncContextManager[T]) -> None:
        self._opened = opened

    async def __aenter__(self) -> T:
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._opened.__aexit__(kind, error, trace)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"a runtime that is not open has no {name!r} yet: use it with  async with Runtime.open(...) as runtime:"
        )
