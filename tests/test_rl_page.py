"""docs/rl.md says what is so: its programs run; and the one of docs/models.md that has a pool of servers."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

from tests.models.servers import canned, http
from tests.models.weights.files import one_file

PAGE = Path(__file__).parent.parent / "docs" / "rl.md"


def answer(text: str) -> bytes:
    """An answer with tokens, by which the next prompt begins with this one."""
    choice = {
        "message": {"role": "assistant", "content": text}, "finish_reason": "stop", "token_ids": [7, 2],
        "logprobs": {"content": [{"logprob": -0.5}, {"logprob": 0.0}]},
    }  # fmt: skip
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    return http({"choices": [choice], "usage": usage, "prompt_token_ids": [1, 2, 3]}, x_model_version="12")


def blocks(page: Path = PAGE) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


async def run(code: str, folder: Path, path: str = "") -> str:
    env = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", "PYTHONPATH": str(PAGE.parent.parent)}
    ran = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=folder, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(ran.communicate(), 120)
    assert ran.returncode == 0, err.decode()
    return out.decode()


async def test_the_pages_examples_run(tmp_path: Path) -> None:
    plain = [block for block in blocks() if "ModelServicePool" not in block and "tinker" not in block]
    assert len(plain) == 3
    told = ""
    no_list = http({}, 404)  # the runtime asks for the models that there are, once
    async with canned(no_list, *(answer(text) for text in ("42", "41", "41", "41", "41", "41", "41"))) as server:
        for block in plain:
            told += await run(block.replace("http://127.0.0.1:8000/v1", server.url), tmp_path)
    batch = re.findall(r"^0 \d (1\.5|-0\.5) 2 of 5$", told, re.MULTILINE)
    assert sorted(batch) == ["-0.5", "-0.5", "-0.5", "1.5"]
    assert not re.search(r"^1 ", told, re.MULTILINE), "in the second round all fail: it says nothing"
    assert len(re.findall(r"^product \(0,\) 2 sampled \('12',\) 1\.0$", told, re.MULTILINE)) == 8


def put_vllm(folder: Path) -> str:
    """A `vllm` that stands in for the real one; what to add to PATH."""
    server = PAGE.parent.parent / "tests/models/vllm/scripted_vllm.py"
    program = folder / "bin/vllm"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {server} "$@"\n')
    program.chmod(0o755)
    return str(program.parent)


async def test_the_pool_on_the_page_of_models(tmp_path: Path) -> None:
    (block,) = (block for block in blocks(PAGE.with_name("models.md")) if "ModelServicePool(" in block)
    one_file(tmp_path / "checkpoints/step_0")
    told = await run(block, tmp_path, put_vllm(tmp_path))
    assert told.startswith("fine 0\n")
    assert "replicas=" in told


async def test_rounds_with_changing_weights(tmp_path: Path) -> None:
    (block,) = (block for block in blocks() if "ModelServicePool" in block)
    one_file(tmp_path / "models/policy")
    (tmp_path / "weights").mkdir()
    write = "from tests.models.weights.files import one_file; from pathlib import Path"
    code = re.sub(
        r'    """Yours: .*"""', f"    {write}; one_file(Path(folder), fill=int(folder[-1]), marker='READY')", block
    )
    told = await run(code, tmp_path, put_vllm(tmp_path))
    steps = re.findall(r"^step (\d) (\w+) \(0\.0, 0\.0, 0\.0, 0\.0\) weights ?(\d?)$", told, re.MULTILINE)
    assert steps == [("0", "complete", ""), ("1", "complete", "1"), ("2", "complete", "2")]
