"""Every shell command and Python example of the users' documents, word for word.

`test_documents.py` compares this with the documents themselves where they are at hand.
"""

from __future__ import annotations

import re
from pathlib import Path

SHARED = Path(__file__).parents[3] / "shared" / "seeds"
"""Where the documents are, in the workshop; not part of the project."""

OSWORLD_BASIC = r"""
python src/run_parallel_rollout.py \
    --data_path data/osworld_examples.jsonl \
    --num_rollouts 10 \
    --num_vms 5 \
    --use_resource_pool
"""
OSWORLD_CHEAP = r"""
python src/run_parallel_rollout.py \
    --data_path data/large_dataset.jsonl \
    --num_rollouts 20 \
    --num_vms 2 \
    --use_resource_pool
"""
OSWORLD_FAST = r"""
python src/run_parallel_rollout.py \
    --data_path data/critical_tasks.jsonl \
    --num_rollouts 10 \
    --num_vms 10 \
    --use_resource_pool
"""
OSWORLD_BALANCED = r"""
python src/run_parallel_rollout.py \
    --data_path data/standard_tasks.jsonl \
    --num_rollouts 15 \
    --num_vms 5 \
    --use_resource_pool
"""
OSWORLD_POOL = r"""
python src/run_parallel_rollout.py \
    --mode osworld \
    --data path/to/benchmark.jsonl \
    --num-rollouts 5 \
    --num-vms 3 \
    --use-vm-pool \
    --path-to-vm /path/to/vm.vmx \
    --provider-name vmware \
    --action-space computer_13 \
    --screen-width 1920 \
    --screen-height 1080 \
    --model gpt-4.1-2025-04-14 \
    --output-dir results
"""
OSWORLD_OWN = r"""
python src/run_parallel_rollout.py \
    --mode osworld \
    --data path/to/benchmark.jsonl \
    --num-rollouts 5 \
    --path-to-vm /path/to/vm.vmx \
    --provider-name vmware \
    --model gpt-4.1-2025-04-14 \
    --output-dir results
"""
OTHERS = r"""
python src/run_parallel_rollout.py \
    --mode math \
    --data path/to/benchmark.jsonl \
    --num-rollouts 5 \
    --model gpt-4.1-2025-04-14 \
    --output-dir results
"""
OSWORLD_SMALL = r"""
# 3个Rollout进程共享2个VM
python src/run_parallel_rollout.py \
    --mode osworld \
    --data benchmarks/osworld_tasks.jsonl \
    --num-rollouts 3 \
    --num-vms 2 \
    --use-vm-pool \
    --path-to-vm /vms/ubuntu.vmx \
    --provider-name vmware \
    --action-space computer_13
"""
MATH_LARGE = r"""
# 10个Rollout进程并行处理数学任务
python src/run_parallel_rollout.py \
    --mode math \
    --data benchmarks/math_tasks.jsonl \
    --num-rollouts 10 \
    --model gpt-4.1-2025-04-14
"""
SHELL = {
    "000": [OSWORLD_BASIC, OSWORLD_CHEAP, OSWORLD_FAST, OSWORLD_BALANCED],
    "001": [OSWORLD_POOL, OSWORLD_OWN, OTHERS, OSWORLD_SMALL, MATH_LARGE],
}

OSWORLD_IN_CODE = """
from src.run_parallel_rollout import run_parallel_rollout, ParallelRolloutConfig
from benchmark import Benchmark

# 加载 Benchmark
benchmark = Benchmark(data_path="data/osworld_examples.jsonl")

# 创建配置
config = ParallelRolloutConfig(
    num_rollouts=10,
    num_vms=5,
    env_mode="osworld",
    output_dir="results/custom_run",
    use_resource_pool=True,
    env_kwargs={
        # VM 配置
        "provider_name": "vmware",
        "path_to_vm": "/path/to/vm.vmx",
        "snapshot_name": "clean_desktop",
        "action_space": "computer_13",
        "observation_type": "screenshot_a11y_tree",
        "screen_width": 1920,
        "screen_height": 1080,
        "headless": False,
        "require_a11y_tree": True,
        "os_type": "Ubuntu",
        "client_password": "your_password",
        
        # 运行时配置
        "sleep_after_execution": 2.0,
        "enable_recording": True,
    },
    agent_config_dict={
        "model_name": "gpt-4",
        "evaluation_metric": "exact_match",
        "max_turns": 50,
        "max_retries": 3,
    }
)

# 运行
results = run_parallel_rollout(config, benchmark)
"""  # noqa: W293  (as it is written)
TRAIN = r"""
python tinker_cookbook/recipes/cua_rl/core/train.py \
  --max-concurrent-rollouts 8 \
  --model-name "Qwen/Qwen3-VL-30B-A3B-Instruct" \
  --other-params...
"""
"""The last line stands for one's own."""
TRAIN_LARGE_EVALUATION = r"""
python tinker_cookbook/recipes/cua_rl/core/train.py \
  --max-concurrent-rollouts 5 \
  --eval-tasks '{"source_type": "demo_eval", "limit": 20}'
"""
TRAIN_SMALL = r"""
python tinker_cookbook/recipes/cua_rl/core/train.py \
  --max-concurrent-rollouts 2 \
  --group-size 4 \
  --groups-per-batch 2
"""
SHELL["004"] = [TRAIN, TRAIN_LARGE_EVALUATION, TRAIN_SMALL]
OTHER_PARAMS = " \\\n  --other-params..."
"""What a command is run without."""

TRAIN_FIELD = """
max_concurrent_rollouts: int = 8  # 默认值为 8
"""
TRAIN_IN_CODE = """
from tinker_cookbook.recipes.cua_rl.core.train import CLIConfig, cli_main
import asyncio

config = CLIConfig(
    model_name="Qwen/Qwen3-VL-30B-A3B-Instruct",
    max_concurrent_rollouts=8,  # 设置最大并发为 8
    group_size=4,
    groups_per_batch=2,
    # ... 其他配置
)

asyncio.run(cli_main(config))
"""
TRAIN_SEMAPHORE = """
# 在 cli_main 中创建全局 semaphore
_rollout_semaphore = asyncio.Semaphore(cli_config.max_concurrent_rollouts)

# 在每个 rollout 中使用
async with _rollout_semaphore:
    result = await do_actual_rollout(...)
"""
"""How the document's own code works; nothing to run."""
PYTHON = {"000": [OSWORLD_IN_CODE], "001": [], "004": [TRAIN_FIELD, TRAIN_IN_CODE, TRAIN_SEMAPHORE]}


def fenced(name: str, language: str) -> list[str]:
    """The blocks of one language in a document."""
    text = next(SHARED.glob(f"{name}_*")).read_text()
    return [block.strip() for block in re.findall(rf"```{language}\n(.*?)```", text, re.S)]
