"""Golden texts: compared, renewed by one command, and free of what differs between machines."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.support import golden
from tests.support.golden import Golden, Texts


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> Texts:
    monkeypatch.setattr(golden, "running", lambda: "tests/a.py::test_b[c d]")
    found = Texts({"tests/a.py::test_b[c d] 1": "first", "tests/a.py::test_b[c d] 2": "second"})
    monkeypatch.setattr(golden, "TEXTS", found)
    return found


def test_texts_of_a_test_are_compared_in_the_order_of_its_calls(texts: Texts):
    assert golden.golden() == "first"
    assert [golden.golden()] == ["second"]
    assert golden.golden() != "third"


def test_another_text_says_what_was_expected_and_how_to_renew_it(texts: Texts):
    expected = golden.golden()
    assert expected != "another"
    assert "'first'" in repr(expected) and "make messages" in repr(expected)


def test_an_error_has_its_kind_its_facts_and_its_text(texts: Texts):
    with golden.raises(ValueError, "fir") as caught:
        raise ValueError("first")
    assert str(caught.value) == "first"
    with pytest.raises(pytest.fail.Exception, match="does not name 17"), golden.raises(ValueError, 17):
        raise ValueError("second")
    with pytest.raises(pytest.fail.Exception, match="'second'"), golden.raises(ValueError):
        raise ValueError("another text")
    with pytest.raises(pytest.fail.Exception, match="no golden text yet"), golden.raises(ValueError):
        raise ValueError("third")
    with pytest.raises(TypeError), golden.raises(ValueError):
        raise TypeError("another kind")
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"), golden.raises(ValueError):
        pass


def test_folders_and_addresses_of_a_machine_are_no_part_of_a_text(texts: Texts, tmp_path: Path):
    texts.renew = True
    seen = f"{tmp_path}/x {tempfile.gettempdir()}/daceml-1a/y {golden.FILE} at 0x7f00aa11bb22, 0x80000000"
    assert Golden(texts) == seen
    assert texts.seen == {
        "tests/a.py::test_b[c d] 1": (
            f"<tmp>/{tmp_path.name.rstrip('0123456789')}/x <tmp>/y <repository>/tests/golden/messages.txt "
            "at <address>, 0x80000000"
        )
    }


def test_digests_and_versions_of_operators_are_no_part_of_a_text(texts: Texts):
    texts.renew = True
    told = f"programs/{'0d1a529a' * 4} of kernel k_{'0f' * 10}, ONNX Relu-14, daceml Sum-1, 128"
    assert Golden(texts) == told
    (seen,) = texts.seen.values()
    assert seen == "programs/<digest> of kernel k_<digest>, ONNX Relu-<version>, daceml Sum-1, 128"


def test_a_file_keeps_texts_of_any_form(tmp_path: Path):
    texts = {"b::x 10": "one", "b::x 2": "== two\n\n    three\n", "a::y[p 1] 1": ""}
    golden.save(texts, tmp_path / "messages.txt")
    assert golden.load(tmp_path / "messages.txt") == texts
    assert list(golden.load(tmp_path / "messages.txt")) == ["a::y[p 1] 1", "b::x 2", "b::x 10"]
    assert golden.load(tmp_path / "none.txt") == {}


def test_a_renewed_file_loses_what_tests_do_not_say_any_more():
    known = {
        "f::ran 1": "old",
        "f::ran 2": "gone",
        "f::other 1": "kept",
        "f::removed 1": "gone",
        "g::x 1": "kept",
    }
    found = golden.merged(known, {"f::ran 1": "new"}, {"f::ran"}, {"f::ran", "f::other"})
    assert found == {"f::ran 1": "new", "f::other 1": "kept", "g::x 1": "kept"}
