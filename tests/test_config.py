"""Options come from the environment; what is unknown or does not parse is refused."""

from __future__ import annotations

import os
import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from daceml.config import Config, config
from daceml.errors import ConfigurationError
from tests.support.golden import raises


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
    with raises(
        ConfigurationError, "DACEML_CASHE", "DACEML_CACHE", *(o.name.upper() for o in fields(Config))
    ):
        Config.from_env({"DACEML_CASHE": "/tmp"})


def test_an_option_like_no_other_gets_no_suggestion():
    with raises(ConfigurationError, "DACEML_QQQQ") as caught:
        Config.from_env({"DACEML_QQQQ": "1"})
    assert not re.search("DACEML_(?!QQQQ)", caught.value.fix)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("JOBS", "two", "0"),
        ("VARIANTS", "0", "1"),
        ("FALLBACK", "maybe", "onnxruntime"),
        ("LOG", "maybe", "debug"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused(name: str, value: str, allowed: str):
    with raises(ConfigurationError, f"DACEML_{name}", value, allowed):
        Config.from_env({f"DACEML_{name}": value})


def test_a_module_keeps_one_variant_at_least():
    assert Config.from_env({"DACEML_VARIANTS": "1"}).variants == 1


def test_variables_of_tests_and_benchmarks_are_no_options():
    assert Config.from_env({"DACEML_DATA": "/data", "DACEML_SUITES": "/suites"}) == Config()


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
