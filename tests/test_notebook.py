"""Every kind of object that a notebook shows has a function that makes its HTML."""

from __future__ import annotations

from importlib import import_module
from typing import get_args

import pytest

from daceml.notebook import MAKERS, Kind


@pytest.mark.parametrize("kind", get_args(Kind))
def test_each_maker_is_a_function_of_its_module(kind: Kind):
    module, _, function = MAKERS[kind].partition(":")
    assert callable(getattr(import_module(module), function))
