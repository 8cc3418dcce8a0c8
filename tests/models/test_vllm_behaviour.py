"""The scripted server behaves as vLLM was seen to; tests/vllm/test_behaviour.py runs the same cases on a real one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.models.vllm_cases import VllmCases
from tests.models.vllm_server import Vllm, scripted_vllm


class TestScripted(VllmCases):
    """On TCP and on a unix socket."""

    @pytest.fixture(params=["tcp", "unix"])
    async def vllm(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Vllm]:
        async with scripted_vllm(tmp_path, unix=request.param == "unix") as server:
            yield server
