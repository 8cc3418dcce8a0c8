"""An environment of your own: it asks for a desktop, has one tool, and judges by the files that are there in the end.

Desktops are simulated (`sim`), so that it runs anywhere; with `provider="local"` they are real. A scripted model acts
(own_env.script.yaml, which stands beside own_env.jsonl). The contract suite runs with
`pytest --pyargs deskroll.testing --env own_env.py:FilesEnv --plugin-tasks own_env.jsonl`.

    python own_env.py
"""

from pathlib import Path

import deskroll
from deskroll.envs import Ending
from deskroll.envs.tooled import ToolEnv, ToolFunction, ToolSettings
from deskroll.errors import GuestError, ToolError
from deskroll.types import Record, Score


class WriteFile(Record, frozen=True):
    """The arguments of the tool: the model is told of them, and what does not fit is refused."""

    path: str
    text: str


class FilesEnv(ToolEnv):
    """A home folder on a desktop; a task's key `wanted` says which files are to be in it, with which text."""

    @staticmethod
    def desktop_spec(task: deskroll.Task, settings: ToolSettings) -> deskroll.DesktopSpec:
        """Ask for a desktop; without this there is none."""
        return deskroll.DesktopSpec(width=1280, height=800)

    def functions(self) -> dict[str, ToolFunction]:
        """The tools."""
        return {"write_file": ToolFunction("write_file", "Write a file in the home folder.", WriteFile, self.write)}

    async def write(self, given: WriteFile) -> str:
        """What it returns, the model reads; so is a `ToolError`. Any other exception is a bug, and not scored."""
        try:
            await self.context.desktop.write_file(f"~/{given.path}", given.text.encode())
        except GuestError as error:
            raise ToolError(str(error)) from None
        return f"{given.path} is written"

    async def score(self, ending: Ending) -> Score:
        """The share of the wanted files that are there and right."""
        wanted = self.task.metadata["wanted"]
        right = [path for path, text in wanted.items() if await self.read(path) == text]
        return Score(value=len(right) / len(wanted), reason=f"right: {', '.join(right) or 'none'}")

    async def read(self, path: str) -> str | None:
        """The text of a file; None where there is no such file."""
        try:
            return (await self.context.desktop.read_file(f"~/{path}")).decode()
        except GuestError:
            return None


if __name__ == "__main__":
    tasks = Path(__file__).with_suffix(".jsonl")
    for episode in deskroll.run(tasks, env=f"{__file__}:FilesEnv", model="scripted", provider="sim", num_vms=2):
        print(episode.key.task, episode.score.value, episode.score.reason, sep="\t")
