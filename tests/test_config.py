"""Options come from the environment; what is unknown or does not parse is refused."""

from __future__ import annotations

import os
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from daceml.config import Config, config
from daceml.errors import ConfigurationError


def refusal(**environment: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Config.from_env(environment)
    return str(caught.value)


def test_without_variables_everything_has_its_default():
    assert Config.from_env({"HOME": "/root", "PATH": "/bin"}) == Config()


def test_every_kind_of_option_is_parsed():
    seen = Config.from_env(
        {
            "DACEML_CXX": "clang++",
            "DACEML_JOBS": "3",
            "DACEML_PUBLIC_EXPORTER": "yes",
            "DACEML_FALLBACK": "none",
        }
    )
    assert seen == Config(cxx="clang++", jobs=3, public_exporter=True, fallback="none")


@pytest.mark.parametrize("text", ["1", "true", "YES", "on"])
def test_ways_to_say_yes(text: str):
    assert Config.from_env({"DACEML_PUBLIC_EXPORTER": text}).public_exporter is True


@pytest.mark.parametrize("text", ["0", "false", "No", "off", ""])
def test_ways_to_say_no(text: str):
    assert Config.from_env({"DACEML_PUBLIC_EXPORTER": text}).public_exporter is False


def test_a_misspelt_option_is_refused_with_the_nearest_one():
    assert refusal(DACEML_CASHE="/tmp") == (
        "[DML001] unknown option DACEML_CASHE\n"
        "  where: environment\n"
        "  why:   options are DACEML_CACHE, DACEML_CXX, DACEML_CXXFLAGS, DACEML_NVCC, DACEML_CUDA_ARCH, "
        "DACEML_JOBS, DACEML_FALLBACK, DACEML_PARALLEL_THRESHOLD, DACEML_PREPARED_BYTES, "
        "DACEML_STREAMING_BYTES, DACEML_PUBLIC_EXPORTER, DACEML_VARIANTS, DACEML_SEARCH_BUDGET_S, "
        "DACEML_TRACES, DACEML_LOG\n"
        "  fix:   unset DACEML_CASHE; did you mean DACEML_CACHE?"
    )


def test_an_option_like_no_other_gets_no_suggestion():
    assert refusal(DACEML_QQQQ="1").endswith("fix:   unset DACEML_QQQQ")


def test_a_number_that_is_none_is_refused():
    assert refusal(DACEML_JOBS="two") == (
        "[DML001] DACEML_JOBS must be a whole number of at least 0\n"
        "  where: environment\n"
        "  why:   it is 'two'\n"
        "  fix:   set DACEML_JOBS to a whole number of at least 0"
    )


def test_a_module_keeps_one_variant_at_least():
    assert Config.from_env({"DACEML_VARIANTS": "1"}).variants == 1
    assert refusal(DACEML_VARIANTS="0") == (
        "[DML001] DACEML_VARIANTS must be at least 1\n"
        "  where: environment\n"
        "  why:   it is 0, and a call runs the variant that is kept for it\n"
        "  fix:   set DACEML_VARIANTS=1 to keep as few as possible"
    )


@pytest.mark.parametrize(("name", "first"), [("FALLBACK", "onnxruntime"), ("LOG", "debug")])
def test_a_choice_that_is_none_is_refused(name: str, first: str):
    text = refusal(**{f"DACEML_{name}": "maybe"})
    assert text.startswith(f"[DML001] DACEML_{name} must be one of {first}, ")
    assert text.endswith(f"fix:   set DACEML_{name}={first}")


def test_variables_of_tests_and_benchmarks_are_no_options():
    assert Config.from_env({"DACEML_DATA": "/data"}) == Config()


def test_the_cache_is_the_users_unless_named(monkeypatch: pytest.MonkeyPatch):
    assert Config(cache="~/x").cache_folder == Path.home() / "x"
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert Config().cache_folder == Path("/somewhere/daceml")


def test_jobs_of_zero_mean_one_for_each_core():
    assert Config(jobs=5).compile_jobs == 5
    assert Config().compile_jobs == len(os.sched_getaffinity(0))


def test_the_process_has_one_configuration_that_cannot_be_changed():
    assert config() is config()
    with pytest.raises(FrozenInstanceError):
        config().jobs = 2  # pyright: ignore[reportAttributeAccessIssue]


def test_every_option_is_documented():
    assert Config.__doc__ is not None
    assert all(f"        {field.name}: " in Config.__doc__ for field in fields(Config))
