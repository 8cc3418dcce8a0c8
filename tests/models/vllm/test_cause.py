"""Why a server died, as its log says it."""

from __future__ import annotations

import pytest

from deskroll.models.vllm.cause import Cause, find_cause

_BEFORE = "(Worker pid=7) ERROR 11-18 05:16:15 [executor.py:1063]"
_NO_HEADER = f"""\
{_BEFORE}     raise exc.CppCompileError(cmd, output) from e
{_BEFORE} torch._inductor.exc.InductorError: CppCompileError: C++ compile error
{_BEFORE} /root/.cache/vllm/main.cpp:80:10: fatal error: Python.h: No such file or directory
RuntimeError: Engine core initialization failed. See root cause above."""
_NO_COMPILER = f"""\
{_BEFORE}     raise exc.InvalidCxxCompiler
{_BEFORE} torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found in (None, 'g++')
RuntimeError: Engine core initialization failed. See root cause above."""

_NO_LIBRARY = f"""\
Failed to import from vllm._C: ImportError('libnuma.so.1: cannot open shared object file: No such file or directory')
{_BEFORE} AttributeError: '_OpNamespace' '_C' object has no attribute 'init_cpu_memory_env'"""


@pytest.mark.parametrize(
    ("log", "text", "to_do"),
    [
        (_NO_HEADER, "C++ compile error: fatal error: Python.h: No such file or directory", "python3-dev"),
        (_NO_COMPILER, "InvalidCxxCompiler: No working C++ compiler found in (None, 'g++')", "install -y g++"),
        (_NO_LIBRARY, "ImportError('libnuma.so.1: cannot open shared object file", "install -y libnuma1"),
        ("usage: vllm\nvllm: error: unrecognized arguments: --x=1\n", "unrecognized arguments: --x=1", "vllm_params"),
    ],
)
def test_what_another_start_cannot_mend_comes_with_what_to_do(log: str, text: str, to_do: str) -> None:
    cause = find_cause(log.splitlines(), was_ready=False)
    assert cause.text.endswith(text)
    assert "Engine core" not in cause.text
    assert to_do in cause.to_do


_WITHOUT = "AttributeError: '_OpNamespace' '_C' object has no attribute 'init_cpu_memory_env'"


@pytest.mark.parametrize(
    ("library", "error"),
    [
        ("libnuma.so.1", "ValueError: 7 of 12 GiB are free"),
        ("libnuma.so.1", "torch.OutOfMemoryError: it is full"),
        ("libcudart.so.12", _WITHOUT),
        ("libtorch_cuda.so", "ValueError: 7 of 12 GiB are free"),
    ],
)
def test_a_library_that_is_missing_is_no_reason_to_give_up_where_it_is_another_or_did_no_harm(
    library: str, error: str
) -> None:
    missing = f"ImportError('{library}: cannot open shared object file: No such file or directory')"
    log = [f"WARNING [x.py:1] Failed to import from vllm._C_x: {missing}", f"{_BEFORE} {error}", "RuntimeError: ended"]
    assert find_cause(log, was_ready=False) == Cause(error)


def test_before_a_server_is_ready_the_first_error_counts_and_later_the_last() -> None:
    log = [
        "(Worker pid=7) ERROR [worker.py:953] ValueError: 7 of 12 GiB are free",
        "x",
        "RuntimeError: it ended",
        "bye",
    ]
    assert find_cause(log, was_ready=False) == Cause("ValueError: 7 of 12 GiB are free")
    assert find_cause(log, was_ready=True) == Cause("RuntimeError: it ended")
    assert find_cause(_NO_COMPILER.splitlines(), was_ready=True).to_do == "", "it has compiled before"


def test_a_log_without_an_error_has_a_last_word() -> None:
    assert find_cause(["it begins", "  that is no folder ", ""], was_ready=False) == Cause("that is no folder")
    assert find_cause(["GET /health 200"], was_ready=True) == Cause()
    assert find_cause([], was_ready=False) == Cause()
