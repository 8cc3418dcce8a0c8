"""Settings: files, overrides, what is said about mistakes, and what is written back."""

# ruff: noqa: E501 - a table reads best with one example a line

from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from pydantic import Field, SecretStr, ValidationError, field_validator

from deskroll.config import Settings, dump, load
from deskroll.errors import ConfigError


class Local(Settings):
    kind: Literal["local"] = "local"
    width: int = Field(default=1920, gt=0)


class Docker(Settings):
    kind: Literal["docker"] = "docker"
    image: str = "desk"


class Pool(Settings):
    num_vms: int = 4
    provider: Annotated[Local | Docker, Field(discriminator="kind")] = Local()


class Endpoint(Settings):
    url: str
    api_key: SecretStr | None = None


class Run(Settings):
    name: str = "run"
    mode: Literal["eval", "train"] = "eval"
    output: Path = Path("out")
    timeout: float | None = None
    pool: Pool = Pool()
    endpoints: list[Endpoint] = Field(default_factory=list)
    labels: dict[str, int] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _no_slash(cls, name: str) -> str:
        if "/" in name:
            raise ValueError("a name has no slash; use a dash")
        return name


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str, name: str = "run.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def _error(path: Path | None, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(Run, path, overrides)
    return str(caught.value).replace(f"{path.parent}/" if path else "", "")


def test_without_a_file_the_defaults_hold() -> None:
    assert load(Run) == Run()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.yaml", "name: 2026-01-31\npool:\n  num_vms: 8\nendpoints:\n- url: http://a\n  api_key: s\n"),
        ("run.YML", "{name: '2026-01-31', pool: {num_vms: 8}, endpoints: [{url: http://a, api_key: s}]}"),
        (
            "run.toml",
            'name = "2026-01-31"\n[pool]\nnum_vms = 8\n[[endpoints]]\nurl = "http://a"\napi_key = "s"\n',
        ),
    ],
)
def test_yaml_and_toml_say_the_same(write, name: str, text: str) -> None:
    expected = Run(
        name="2026-01-31", pool=Pool(num_vms=8), endpoints=[Endpoint(url="http://a", api_key=SecretStr("s"))]
    )
    assert load(Run, write(text, name)) == expected


def test_an_empty_file_is_nothing_but_defaults(write) -> None:
    assert load(Run, write("# nothing yet\n")) == Run()
    assert load(Run, write("", "run.toml")) == Run()


def test_overrides_lie_over_the_file_in_order(write) -> None:
    path = write("name: a\npool: {num_vms: 8}\n")
    run = load(
        Run,
        path,
        ["pool.num_vms=2", "name=b=c", "pool.num_vms=3", "labels={x: 1}", "labels.y=2", "timeout=1e-2"],
    )
    assert (run.pool.num_vms, run.name, run.labels, run.timeout) == (3, "b=c", {"x": 1, "y": 2}, 0.01)


def test_an_override_may_be_a_list_or_null() -> None:
    run = load(Run, overrides=["endpoints=[{url: http://a}, {url: http://b}]", "timeout="])
    assert [endpoint.url for endpoint in run.endpoints] == ["http://a", "http://b"]
    assert run.timeout is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mode: eval\nnane: 3\n", "run.yaml:2: nane: there is no such field; did you mean name? allowed: name, mode, output,"),
        ("name: a\nxyz: 3\n", "run.yaml:2: xyz: there is no such field; allowed: name, mode, output,"),
        ("pool:\n  num_vm: 3\n", "run.yaml:2: pool.num_vm: there is no such field; did you mean num_vms? allowed: num_vms, provider"),
        ("pool:\n  num_vms: many\n", "run.yaml:2: pool.num_vms: input should be a valid integer, unable to parse string as an integer (it is 'many')"),
        ("\nmode: eva\n", "run.yaml:2: mode: input should be 'eval' or 'train' (it is 'eva')"),
        ("name: a/b\n", "run.yaml:1: name: a name has no slash; use a dash (it is 'a/b')"),
        ("name: 010\n", "run.yaml:1: name: input should be a valid string (it is 8)"),
        ("pool:\n  provider:\n    kind: docker\n    imag: x\n", "run.yaml:4: pool.provider.imag: there is no such field; did you mean image? allowed: kind, image"),
        ("pool:\n  provider:\n    kind: dokcer\n", "run.yaml:2: pool.provider: input tag 'dokcer' found using 'kind' does not match any of the expected tags: 'local', 'docker'"),
        ("pool:\n  provider: {kind: local, width: -1}\n", "run.yaml:2: pool.provider.width: input should be greater than 0 (it is -1)"),
        ("endpoints:\n- url: a\n- api_key: b\n", "run.yaml:3: endpoints.1.url: it is required, and missing"),
        ("endpoints:\n- url: a\n- url: b\n  uri: c\n", "run.yaml:4: endpoints.1.uri: there is no such field; did you mean url? allowed: url, api_key"),
        ("endpoints:\n- url: a\n  api_key: 12345\n", "run.yaml:3: endpoints.0.api_key: input should be a valid string"),
        ("labels:\n  x: y\n", "run.yaml:2: labels.x: input should be a valid integer, unable to parse string as an integer (it is 'y')"),
        ("name: a\nmode: eval\nname: b\n", "run.yaml:3: name is there twice, first on line 1"),
        ("pool:\n  num_vms: [1\nname: a\n", "run.yaml:3: it is not valid YAML: expected ',' or ']'"),
        ("- a\n- b\n", "run.yaml: it holds a list; allowed: fields with their values"),
        ("name: !!python/object:os.system x\n", "run.yaml:1: it is not valid YAML: could not determine a constructor"),
        ("a: 1\n--- \nb: 2\n", "run.yaml:2: it is not valid YAML: but found another document"),
    ],
)  # fmt: skip
def test_mistakes_in_yaml_are_named_with_their_line(write, text: str, message: str) -> None:
    assert _error(write(text)).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pool]\n\nnum_vm = 3\n", "run.toml:3: pool.num_vm: there is no such field; did you mean num_vms?"),
        ("pool.num_vms = 'many'\n", "run.toml:1: pool.num_vms: input should be a valid integer"),
        ("[[endpoints]]\nurl = 'a'\n[[endpoints]]\nurl = 1\n", "run.toml:4: endpoints.1.url: input should be a valid string"),
        ("name = \n", "run.toml:1: it is not valid TOML: Invalid value"),
        ("name = 'a'\nname = 'b'\n", "run.toml:2: it is not valid TOML: Cannot overwrite a value"),
    ],
)  # fmt: skip
def test_mistakes_in_toml_are_named_with_their_line(write, text: str, message: str) -> None:
    assert _error(write(text, "run.toml")).startswith(message)


def test_every_mistake_is_named_at_once(write) -> None:
    lines = _error(write("nam: a\nmode: x\n"), "pool.num_vm=1").splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        ["run.yaml:2", "mode"], ["--set pool.num_vm", "there is no such field; did you mean num_vms? allowed"], ["run.yaml:1", "nam"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("pool.num_vm=3", "--set pool.num_vm: there is no such field; did you mean num_vms? allowed: num_vms, provider"),
        ("pool={num_vm: 3}", "--set pool: pool.num_vm: there is no such field; did you mean num_vms?"),
        ("endpoints=[{}]", "--set endpoints: endpoints.0.url: it is required, and missing"),
        ("name", "--set name: it gives no value; write it as field.subfield=value"),
        ("=3", "--set =: it names no setting"),
        ("pool..x=3", "--set pool..x=: it names no setting"),
        ("name=[1, 2", "--set name: the value is not valid YAML (expected ',' or ']'"),
        ("name=*.json", "--set name: the value is not valid YAML (expected alphabetic or numeric character"),
        ("mode.x=1", "--set mode.x: mode: input should be 'eval' or 'train'"),
    ],
)  # fmt: skip
def test_mistakes_in_overrides_are_named(override: str, message: str) -> None:
    assert _error(None, override).startswith(message)


def test_a_scalar_has_no_fields_to_override(write) -> None:
    message = _error(write("name: a\n"), "name.x=1")
    assert message == "--set name.x: name is not a mapping, so it has no field x; set name as a whole"


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9\n")
    (tmp_path / "folder.yaml").mkdir()
    assert _error(tmp_path / "none.yaml") == "none.yaml: there is no such file"
    assert _error(tmp_path / "run.ini") == "run.ini: the suffix is '.ini'; allowed: .yaml, .yml, .toml"
    assert _error(tmp_path / "latin.yaml") == "latin.yaml: byte 6 is not UTF-8; save the file as UTF-8"
    assert _error(tmp_path / "folder.yaml") == "folder.yaml: it cannot be read: Is a directory"


def test_no_secret_is_written(write) -> None:
    run = load(Run, write("endpoints:\n- url: http://a\n  api_key: hunter2\n"))
    assert "hunter2" not in dump(run)
    assert yaml.safe_load(dump(run))["endpoints"] == [{"url": "http://a", "api_key": "**********"}]
    assert "12345" not in _error(write("endpoints:\n- {url: a, api_key: 12345}\n"))
    assert "12345" not in _error(None, "endpoints=[{url: a, api_key: 12345}]")


def test_what_is_dumped_can_be_loaded_again(write) -> None:
    run = Run(name="né: #1", output=Path("a b"), timeout=1e-9, labels={"x": 1}, endpoints=[Endpoint(url="yes")])
    assert load(Run, write(dump(run))) == run


def test_an_alias_that_holds_itself_is_no_endless_loop(write) -> None:
    assert "labels" in _error(write("labels: &a\n  x: *a\n"))


def test_merged_keys_keep_the_line_of_their_parent(write) -> None:
    text = "endpoints:\n- &base {url: a}\n-\n  <<: *base\n  api_key: [1]\n"
    assert _error(write(text)).startswith("run.yaml:5: endpoints.1.api_key: input should be a valid string")


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Run().name = "b"  # type: ignore[misc]
