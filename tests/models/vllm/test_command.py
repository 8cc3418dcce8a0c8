"""The command line of a server: what people set, what is ours, and where the program is."""

from __future__ import annotations

from pathlib import Path

import pytest

from deskroll.config import check, load
from deskroll.errors import ConfigError, MissingDependency, ModelError
from deskroll.field_docs import table
from deskroll.models.vllm.command import MARK, Place, find_vllm, server_command
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.models.vllm.folder import complete_folder

PLACE = Place(id="cafe", socket=Path("/run/x/http"), scratch=Path("/run/x/rpc"), number=2)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / "vllm"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def config(**fields: object) -> ModelPoolConfig:
    return check(ModelPoolConfig, {"ckpt_path": "/models/tiny", **fields}, "pool.yaml")


def test_the_command_line(program: Path) -> None:
    params = {
        "max_model_len": 4096, "--enforce-eager": True, "enable_prefix_caching": False, "dtype": "float32",
        "limit_mm_per_prompt": {"image": 8}, "middleware": ["a", "b"], "seed": None, "rope-theta": -1.5,
    }  # fmt: skip
    made = server_command(config(vllm_params=params), PLACE, {"PATH": str(program.parent)})
    assert made.words == (
        str(program), "serve", "/models/tiny", "--uds=/run/x/http", "--served-model-name=policy",
        "--logprobs-mode=processed_logprobs", "--enable-auto-tool-choice", "--tool-call-parser=hermes",
        "--max-model-len=4096", "--enforce-eager", "--no-enable-prefix-caching",
        "--dtype=float32", '--limit-mm-per-prompt={"image": 8}', "--middleware", "a", "b", "--rope-theta=-1.5",
    )  # fmt: skip


def test_defaults_may_be_told_otherwise(program: Path) -> None:
    params = {"logprobs_mode": "raw_logprobs", "tool_call_parser": "llama3_json"}
    made = server_command(config(vllm_params=params), PLACE, {"PATH": str(program.parent)})
    assert [word for word in made.words if "logprobs" in word] == ["--logprobs-mode=raw_logprobs"]
    assert [word for word in made.words if "parser" in word] == ["--tool-call-parser=llama3_json"]


def test_the_environment(program: Path) -> None:
    here = {"PATH": str(program.parent), "HOME": "/root", "VLLM_API_KEY": "secret", "VLLM_NO_USAGE_STATS": "0"}
    fields = {"env": {"VLLM_CPU_KVCACHE_SPACE": "1"}, "base_port": 7000, "enable_lora": True}
    made = server_command(config(**fields), PLACE, here)
    assert "--enable-lora" in made.words
    assert made.env == {
        "PATH": str(program.parent), "HOME": "/root", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_RPC_BASE_PATH": "/run/x/rpc", "VLLM_PORT": "7200", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_SERVER_DEV_MODE": "1", "SPT_NOENV": "1", MARK: "cafe", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "60",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["uds", "host", "--port", "served_model_name", "Model", "api_key", "enable-lora", "no_enable_lora", "config"],
)
def test_a_flag_of_ours_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"pool.yaml.*{name} cannot be set in vllm_params: "):
        config(vllm_params={name: "x"})


@pytest.mark.parametrize("name", ["VLLM_SERVER_DEV_MODE", "DESKROLL_MODEL_SERVER", "VLLM_API_KEY"])
def test_a_variable_of_ours_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be set here"):
        config(env={name: "x"})


def test_where_the_program_is_found(program: Path, tmp_path: Path) -> None:
    path, none = {"PATH": str(program.parent)}, {"PATH": str(tmp_path)}
    built = tmp_path / ".venv-vllm" / "bin" / "vllm"
    assert find_vllm((), path, built) == (str(program),)
    with pytest.raises(MissingDependency, match=r"there is no vLLM: .*`make vllm`"):
        find_vllm((), none, built)
    built.parent.mkdir(parents=True)
    program.rename(built)
    assert find_vllm((), path, built) == (str(built),)
    assert find_vllm((str(built), "--x"), none) == (str(built), "--x")
    with pytest.raises(ConfigError, match="vllm_command names /no/such/vllm"):
        find_vllm(("/no/such/vllm",), none)


def test_a_model_must_be_named(program: Path) -> None:
    with pytest.raises(ConfigError, match="ckpt_path is empty"):
        server_command(ModelPoolConfig(), PLACE, {"PATH": str(program.parent)})


def test_gpus() -> None:
    assert [config(gpus="none").gpu(n, 2) for n in range(2)] == ["", ""]
    assert [config(replicas=3).gpu(n, 2) for n in range(3)] == ["0", "1", "0"]
    assert config().gpu(0, 0) is None
    assert [config(replicas=2, gpus=["0,1", 2]).gpu(n, 8) for n in range(2)] == ["0,1", "2"]
    with pytest.raises(ConfigError, match="gpus has 1 entries for 2 replicas"):
        config(replicas=2, gpus=[0])


def test_every_setting_has_a_default_and_is_explained(tmp_path: Path) -> None:
    ModelPoolConfig()
    rows = [line for line in table(ModelPoolConfig).splitlines() if line.startswith("| `")]
    assert len(rows) >= 17
    assert all(row.rstrip("| ").count("|") >= 2 for row in rows)
    file = tmp_path / "pool.toml"
    file.write_text('ckpt_path = "~/m"\nvllm_command = "python -m vllm"\n[restarts]\nmost = 2\n')
    read = load(ModelPoolConfig, file)
    assert (read.vllm_command, read.restarts.most, read.restarts.within) == (("python", "-m", "vllm"), 2, 600)
    assert "~" not in read.ckpt_path


def test_newer_weights_borrow_what_was_not_written_beside_them(tmp_path: Path) -> None:
    model, weights, place = tmp_path / "model", tmp_path / "step_12", tmp_path / "place"
    for folder, names in (
        (model, ("config.json", "tokenizer.json", "preprocessor_config.json", "model.safetensors", "READY")),
        (weights, ("model.safetensors", "config.json", "READY")),
    ):
        folder.mkdir()
        for name in names:
            (folder / name).write_text(str(folder))
    assert complete_folder(model, model, place) == model
    assert complete_folder(weights, model, place) == place
    assert {file.name: file.read_text() for file in place.iterdir()} == {
        "model.safetensors": str(weights), "config.json": str(weights), "READY": str(weights),
        "tokenizer.json": str(model), "preprocessor_config.json": str(model),
    }  # fmt: skip
    (weights / "tokenizer.json").touch()
    (weights / "preprocessor_config.json").touch()
    assert complete_folder(weights, model, place) == weights
    with pytest.raises(ModelError, match=r"no server can be started on .*: No such file or directory: .*/gone"):
        complete_folder(tmp_path / "gone", model, tmp_path / "other")


def test_flags_of_adapters(program: Path) -> None:
    env = {"PATH": str(program.parent)}
    words = server_command(config(enable_lora=True), PLACE, env).words
    assert {"--enable-lora", "--max-loras=3", "--max-cpu-loras=5"} <= set(words)
    words = server_command(config(enable_lora=True, vllm_params={"max_loras": 8}), PLACE, env).words
    assert [word for word in words if "loras" in word] == ["--max-loras=8"], "the other one may not be below it"
