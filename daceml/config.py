"""All options of daceml, read once from the environment into one frozen record."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

from daceml.errors import ConfigurationError

# The installed package: its sources are hashed, its lines of a stack are not the user's.
PACKAGE_FOLDER = Path(__file__).parent

_PREFIX = "DACEML_"
# read by tests and benchmarks, not by the package
_FOREIGN = {"DACEML_DATA", "DACEML_SUITES"}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options; each is set by the environment variable `DACEML_<NAME>`.

    Attributes:
        cache: folder of compiled kernels and programs; empty means the user's cache folder.
        cxx: the C++ compiler.
        cxxflags: flags added after daceml's own.
        nvcc: the CUDA compiler; empty means the first one that is found.
        cuda_arch: compute capability of devices that kernels are compiled for, times 10; 0 means that of the
            current device, or 90 where there is none.
        jobs: compilers that run at once; 0 means one for each core.
        fallback: `onnxruntime`, or `none` to refuse operators that run in ONNX Runtime, or in torch by name.
        parallel_threshold: loop iterations below which a kernel stays on one thread.
        prepared_bytes: of weights that a program keeps in another order, beside the module's own, unless the
            module is frozen; 0 keeps none.
        streaming_bytes: arrays of this size and more are written past the caches; 0 never does so.
        fullgraph: the default of the option `fullgraph`: raise an error where a module is not one program.
        public_exporter: use only public functions of torch's ONNX exporter (slower).
        variants: kinds of inputs for which a module keeps compiled variants, at least 1; the oldest is
            dropped.
        recompile_limit: states of a module, or values of numbers, for which it is compiled for the same
            inputs, at least 1; calls that meet another one run in parts or eagerly.
        search_budget_s: seconds that `auto_optimize="search"` may take for one kind of inputs.
        measure: seconds for which a program that was just compiled may be timed next to eager PyTorch, which
            runs the calls, or single operators, if it is faster; and for which torch's kernels may be timed
            to predict variants of a model; 0 never does.
        traces: folder into which recordings write their traces, as `daceml trace profile` sets it; empty
            means the folder that they name.
        log: level of the `daceml` loggers: debug, info, warning or error.
    """

    cache: str = ""
    cxx: str = "g++"
    cxxflags: str = ""
    nvcc: str = ""
    cuda_arch: int = 0
    jobs: int = 0
    fallback: str = "onnxruntime"
    parallel_threshold: int = 16384
    prepared_bytes: int = 2**30
    streaming_bytes: int = 2**25
    fullgraph: bool = False
    public_exporter: bool = False
    variants: int = 32
    recompile_limit: int = 8
    search_budget_s: int = 60
    measure: int = 1
    traces: str = ""
    log: str = "warning"

    @property
    def cache_folder(self) -> Path:
        """Where compiled things are kept."""
        if self.cache:
            return Path(self.cache).expanduser().absolute()
        from platformdirs import user_cache_path

        return user_cache_path("daceml")

    @property
    def compile_jobs(self) -> int:
        """Compilers that run at once."""
        return self.jobs or len(os.sched_getaffinity(0))

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> Config:
        """Read every `DACEML_*` variable.

        Raises:
            ConfigurationError: a variable that no option has, or a value that does not parse.
        """
        options = {f.name: f for f in fields(cls)}
        values: dict[str, str | int | bool] = {}
        for variable, text in environment.items():
            if not variable.startswith(_PREFIX) or variable in _FOREIGN:
                continue
            name = variable.removeprefix(_PREFIX).lower()
            if name not in options:
                close = difflib.get_close_matches(name, options, n=1)
                hint = f"; did you mean {_PREFIX}{close[0].upper()}?" if close else ""
                raise ConfigurationError(
                    f"unknown option {variable}",
                    where="environment",
                    why=f"options are {', '.join(_PREFIX + o.upper() for o in options)}",
                    fix=f"unset {variable}{hint}",
                )
            values[name] = _parse(variable, text, options[name].default)
        config = cls(**values)  # pyright: ignore[reportArgumentType]
        _check_choice("DACEML_FALLBACK", config.fallback, ("onnxruntime", "none"))
        if config.variants == 0:
            raise ConfigurationError(
                "DACEML_VARIANTS must be at least 1",
                where="environment",
                why="it is 0, and a call runs the variant that is kept for it",
                fix="set DACEML_VARIANTS=1 to keep as few as possible",
            )
        if config.recompile_limit == 0:
            raise ConfigurationError(
                "DACEML_RECOMPILE_LIMIT must be at least 1",
                where="environment",
                why="it is 0, and the first call compiles",
                fix="set DACEML_RECOMPILE_LIMIT=1, or call the module within daceml.stance('force_eager')",
            )
        _check_choice("DACEML_LOG", config.log, ("debug", "info", "warning", "error"))
        return config


@lru_cache(maxsize=1)
def config() -> Config:
    """The options of this process; the environment is read, and logging set up, at the first call."""
    options = Config.from_env(os.environ)
    logger = logging.getLogger("daceml")
    logger.setLevel(options.log.upper())
    if "DACEML_LOG" in os.environ and not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
    return options


def _parse(variable: str, text: str, default: object) -> str | int | bool:
    if isinstance(default, bool):
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off", ""):
            return False
    elif isinstance(default, int):
        if text.isdecimal():
            return int(text)
    else:
        return text
    kind = "0 or 1" if isinstance(default, bool) else "a whole number of at least 0"
    raise ConfigurationError(
        f"{variable} must be {kind}",
        where="environment",
        why=f"it is {text!r}",
        fix=f"set {variable} to {kind}",
    )


def _check_choice(variable: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigurationError(
            f"{variable} must be one of {', '.join(choices)}",
            where="environment",
            why=f"it is {value!r}",
            fix=f"set {variable}={choices[0]}",
        )
