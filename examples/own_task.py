"""Tasks of your own: a file of them (own_task.jsonl), and one more that is made in Python.

A task is a question and the answer to it. A scripted model answers (own_task.script.yaml), once wrongly.

    python own_task.py
"""

from pathlib import Path

import deskroll

HERE = Path(__file__).parent


def main() -> None:
    """Run them in the environment `math`, and print the score of each with its reason."""
    tasks = deskroll.load_tasks(HERE / "own_task.jsonl")
    tasks.append(deskroll.Task(id="sum", instruction="What is 2 + 2?", answer="4", domain="arithmetic"))
    episodes = deskroll.run(
        tasks,
        env="math",
        env_options={"evaluation_metric": "numeric_match"},  # answers are numbers, with or without a unit
        model=f"scripted:{HERE}/own_task.script.yaml",
    )
    for episode in episodes:
        print(episode.key.task, episode.score.value, episode.score.reason, sep="\t")
    print("kept in", episodes.folder)


if __name__ == "__main__":
    main()
