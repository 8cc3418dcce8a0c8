"""docs/rl.md says what is so: its programs run."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from tests.models.servers import canned, http

PAGE = Path(__file__).parent.parent / "docs" / "rl.md"


def answer(text: str) -> bytes:
    """An answer with tokens, by which the next prompt begins with this one."""
    choice = {
        "message": {"role": "assistant", "content": text}, "finish_reason": "stop", "token_ids": [7, 2],
        "logprobs": {"content": [{"logprob": -0.5}, {"logprob": 0.0}]},
    }  # fmt: skip
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    return http({"choices": [choice], "usage": usage, "prompt_token_ids": [1, 2, 3]}, x_model_version="12")


async def test_the_pages_examples_run(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    told = ""
    no_list = http({}, 404)  # the runtime asks for the models that there are, once
    async with canned(no_list, *(answer(text) for text in ("42", "41", "41", "41", "41", "41", "41"))) as server:
        for block in blocks:
            code = block.replace("http://127.0.0.1:8000/v1", server.url)
            ran = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            out, err = await asyncio.wait_for(ran.communicate(), 120)
            assert ran.returncode == 0, err.decode()
            told += out.decode()
    batch = re.findall(r"^0 \d (1\.5|-0\.5) 2 of 5$", told, re.MULTILINE)
    assert sorted(batch) == ["-0.5", "-0.5", "-0.5", "1.5"]
    assert not re.search(r"^1 ", told, re.MULTILINE), "in the second round all fail: it says nothing"
    assert len(re.findall(r"^product \(0,\) 2 sampled \('12',\) 1\.0$", told, re.MULTILINE)) == 8
