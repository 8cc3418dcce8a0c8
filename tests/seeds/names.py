"""Every name in the users' five documents, by document: flags, files, classes, options, values, workflows, log lines.

`test_names.py` holds `docs/documents.md` to this list and, where the documents are at hand, this list to the documents.
"""

from __future__ import annotations

NAMES: dict[str, list[str]] = {
    "000": [
        # The command line.
        "run_parallel_rollout.py", "src/run_parallel_rollout.py", "argparse",
        "--data_path", "--num_rollouts", "--num_vms", "--env_mode", "--output_dir", "--use_resource_pool",
        "osworld", "math", "web", "rag",
        # From Python.
        "run_parallel_rollout", "src.run_parallel_rollout", "ParallelRolloutConfig",
        "benchmark", "Benchmark", "data_path",
        "num_rollouts", "num_vms", "env_mode", "env_kwargs", "agent_config_dict", "output_dir", "use_resource_pool",
        # env_kwargs.
        "provider_name", "vmware", "virtualbox", "aws", "gcp", "azure", "aliyun", "volcengine", "docker",
        "path_to_vm", "snapshot_name", "init_state", "clean_desktop",
        "action_space", "computer_13", "pyautogui", "claude_computer_use",
        "screen_width", "screen_height", "headless", "require_a11y_tree", "require_terminal",
        "os_type", "Ubuntu", "Windows", "client_password", "region",
        "observation_type", "screenshot", "a11y_tree", "screenshot_a11y_tree", "som",
        "sleep_after_execution", "enable_recording",
        # agent_config_dict.
        "model_name", "gpt-4", "gpt-3.5-turbo", "max_turns", "max_retries", "save_results", "evaluate_results",
        "evaluation_metric", "exact_match", "f1_score", "similarity", "contains_answer", "numeric_match",
        "llm_judgement",
        # Files, sizes, tasks, further reading.
        "data/osworld_examples.jsonl", "data/large_dataset.jsonl", "data/critical_tasks.jsonl",
        "data/standard_tasks.jsonl", "results/custom_run", "results/parallel_rollout_20240101",
        "num_rollouts = 5-10 × num_vms", "num_rollouts = 2-3 × num_vms", "num_rollouts = num_vms",
        "timeout = task_duration × (num_rollouts / num_vms)",
        "成本优先", "均衡配置", "性能优先", "资源分配超时", "资源释放", "启动时参数",
        "NoResourceManager", "snapshot", "proxy", "fixed_ip", "env_config",
        "FINAL_ARCHITECTURE_DOC.md", "task_config_fields_flow.md",
    ],
    "001": [
        "N-rollout -> VM-Manager -> M-VM", "VMPoolManager", "src/utils/resource_manager.py",
        "RolloutWorker", "src/utils/rollout_worker.py", "Parallel Rollout Framework", "src/run_parallel_rollout.py",
        "--mode", "--data", "--num-rollouts", "--num-vms", "--use-vm-pool", "--output-dir",
        "--model", "--max-turns", "--max-retries",
        "--path-to-vm", "--provider-name", "--action-space", "--screen-width", "--screen-height", "--headless",
        "--snapshot-name", "--client-password",
        "osworld", "math", "py", "rag", "web", "vmware", "virtualbox", "aws", "computer_13", "pyautogui",
        "gpt-4.1-2025-04-14",
        # Workflows and failures.
        "初始化阶段", "Rollout进程启动", "任务执行", "VM回收", "清理阶段",
        "VM池模式", "非VM池模式", "run_osworld.py", "完全兼容", "独立运行", "无VM依赖",
        "num_vms < num_rollouts", "VM池大小", "Rollout数量", "快照管理",
        "VM分配失败", "VM错误", "进程崩溃",
        "VM池模式仅适用于OSWorld", "快照要求", "资源限制", "网络配置",
        "path/to/benchmark.jsonl", "benchmarks/osworld_tasks.jsonl", "benchmarks/math_tasks.jsonl",
    ],
    "002": [
        "run_parallel_rollout.py", "--data_path", "env_mode", "evaluation_metric",
        # What it imports.
        "os", "sys", "json", "logging", "signal", "datetime", "typing", "dataclasses",
        "multiprocessing", "Manager", "Process", "current_process", "openai", "dotenv.load_dotenv", ".env",
        "benchmark.Benchmark", "utils.resource_manager", "ResourceManager", "NoResourceManager",
        "VMPoolResourceManager", "HeavyResourceManager", "VMPoolManager", "BaseManager",
        "envs.parallel_osworld_rollout_environment.ParallelOSWorldRolloutEnvironment",
        "ParallelOSWorldRolloutEnvironment", "envs.enviroment.Environment",
        # What it is made of.
        "配置结构体", "ParallelRolloutConfig", "AgentConfig", "_build_agent_config",
        "信号管理", "_register_main_signal_handlers", "stop_all",
        "环境构建", "_initialize_environment", "资源池", "_create_resource_manager",
        "主控流程", "run_parallel_rollout", "Benchmark", "Benchmark.get_items()", "Manager().Queue()", "Manager.Queue",
        "Process(target=run_rollout_worker, ...)", "shared_results", "benchmark.evaluate",
        "Worker 流程", "run_rollout_worker", "initialize_with_task_config", "allocate_resource", "release_resource",
        "cleanup", "env_close",
        "Agent 对话链", "_run_agent_task", "env_task_init", "evaluate", "env_task_end", "_run_conversation",
        "_get_openai_client().chat.completions.create()", "environment.execute_tool",
        "_format_tool_response_content", "_extract_final_answer", "_save_conversation_log",
        "CLI 入口",
    ],
    "003": [
        "scripts/setup_env.sh",
        # The diagrams.
        "TaskLoader", "ModelServicePool", "StorageActor", "AgentCoordinator", "TrajectoryRunner", "RemoteDesktopEnv",
        "vLLM Service", "vLLM serve", "Ray Actors", "Storage",
        "service_running", "poll_for_tasks", "tasks_batch", "model_service.load_latest_model", "start_rollout",
        "sample_episode", "task_cfg", "episode_summary", "sleep", "backoff_ms",
        "t_max", "PromptBuilder.build", "generate", "POST /generate", "Interpreter.parse", "env.step",
        # The files.
        "agent_coordinator.py", "env_k8s.py", "model_service_pool.py", "prompts.py", "storage_actor.py",
        "task_loader.py", "trajectory_runner.py", "run_agent_loop", "ui_tars_utils.py", "run_model.py", "run.py",
        "verl", "scripts", "compare_exp_result.py", "experiment_result_stats.py", "show_result.py", "test_4999.ipynb",
        "tests", "cleanup_gpu_mem.py", "gpt_demo.py", "test_local_model.py",
    ],
    "004": [
        "max_concurrent_rollouts", "--max-concurrent-rollouts", "CLIConfig", "cli_main", "cli_config",
        "tinker_cookbook/recipes/cua_rl/core/train.py", "tinker_cookbook.recipes.cua_rl.core.train",
        "model_name", "--model-name", "group_size", "--group-size", "groups_per_batch", "--groups-per-batch",
        "--eval-tasks", "source_type", "demo_eval", "limit", "eval_every",
        "Baseline 评估", "训练 Rollout", "定期评估", "rollout 级别", "较高并发", "中等并发", "较低并发",
        "asyncio.Semaphore", "_rollout_semaphore", "do_actual_rollout",
        "GBox", "max_concurrent_rollouts × group_size", "[Concurrency] Set max concurrent rollouts to 8",
    ],
}  # fmt: skip

NO_NAMES = {
    # Headings and labels of lists and tables.
    "参数", "模块类别", "Python 标准库", "第三方", "项目内",
    "类型", "必需", "默认值", "说明", "示例", "推荐值", "注意", "推荐", "计算公式", "特点:", "Task 级别的配置",
    "环境类型决定重资产",
    # Values that stand for one's own.
    "password", "your_password", "results", "--other-params",
    # Words of Python and of diagrams.
    "asyncio.run", "TrajectoryRunners", "… Service", "… Runner",
}  # fmt: skip
"""What looks like a name in the documents and is none."""
