"""Links by name or bandwidth."""

from __future__ import annotations

import math

from daceml.errors import WhatIfError
from daceml.simulation.network.links import Link, link_of
from tests.support.golden import raises


def test_a_link_is_known_by_its_name_or_its_bandwidth():
    assert link_of("nvlink3").bytes_per_s == 300e9
    assert link_of("100Gbps").bytes_per_s == 12.5e9
    assert (link_of("NVLink3").latency_us, link_of("100Gbps").latency_us) == (3.4, 9.6)
    assert link_of("NVLink3", latency_us=1).latency_us == 1


def test_an_unknown_link_is_refused_with_those_that_are_known():
    with raises(WhatIfError, "'NVLink33'") as refusal:
        link_of("NVLink33")
    assert "NVLink3" in refusal.value.fix
    with raises(WhatIfError, "0 bytes/s"):
        Link(bytes_per_s=0, latency_us=1)
    with raises(WhatIfError, "nan us"):
        Link(bytes_per_s=1, latency_us=math.nan)
