"""`daceml db import`: rows of others, each file by what it has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daceml.operations.database.store import OpDatabase
from tests.support.command_line import told
from tests.support.neusight_tables import row, table


def test_a_table_is_known_by_its_columns_and_others_are_described(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    known = table(tmp_path, "B,M,N,K", row("bmm", 0.5, 2, 3, 4, 5))
    other = tmp_path / "other.csv"
    other.write_text("op,ms,gpu,m\naten::relu,2,T4,64\n")
    output = tmp_path / "rows.db"
    ended, _, err = told(capsys, "db", "import", str(known), "-o", str(output))
    assert ended == 0, err
    ended, _, err = told(capsys, "db", "import", str(other), "-o", str(output))
    assert ended == 2 and "op, ms, gpu, m" in err and "--column" in err
    words = ["operator=op", "time=ms", "device=gpu", "shapes=m"]
    columns = [word for one in words for word in ("--column", one)]
    ended, out, err = told(
        capsys, "db", "import", str(other), "-o", str(output), *columns, "--license", "MIT", "--json"
    )
    assert ended == 0, err
    (counts,) = json.loads(out)["files"].values()
    assert counts == {"added": 1, "replaced": 0, "kept": 0, "malformed": 0}
    with OpDatabase(output) as rows:
        assert sorted(one.operation.operator for one in rows.entries()) == ["aten::bmm", "aten::relu"]
