from __future__ import annotations

import gc

import pytest

from daceml.garbage_collection import without_collection


def test_the_collector_rests_and_comes_back():
    assert gc.isenabled()
    with without_collection():
        assert not gc.isenabled()
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()  # the outer one still holds it
    assert gc.isenabled()


def test_it_comes_back_after_an_error():
    with pytest.raises(ValueError, match="work"), without_collection():
        raise ValueError("work")
    assert gc.isenabled()
