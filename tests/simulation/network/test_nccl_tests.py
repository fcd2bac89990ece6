"""What nccl-tests print."""

from __future__ import annotations

from daceml.errors import WhatIfError
from daceml.simulation.network.collectives import Collective
from daceml.simulation.network.nccl_tests import read_log
from tests.support.golden import raises

LOG = """# nThread 1 nGpus 2 minBytes 8 maxBytes 4096 step: 2(factor)
#   Rank  0 Pid  63453 on node-000000 device  0 [0x00] A100-SXM4-40GB
#   Rank  1 Pid  63453 on node-000000 device  1 [0x00] A100-SXM4-40GB
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
        1024           256     float     sum    10.00    0.10    0.10  1e-07    11.00    0.09    0.09  1e-07
[1,0]<stdout>:    4096      1024     float     sum    20    0.20    0.20    N/A    22.0   0.19    0.19    N/A
# Out of bounds values : 0 OK
"""


def test_the_output_of_nccl_tests_is_read_as_it_is_and_through_mpirun():
    table = read_log(LOG, collective=Collective.ALL_REDUCE, source="log")
    assert table.devices == 2
    assert table.sizes_bytes.tolist() == [1024, 4096] and table.times_us.tolist() == [10, 20]


def test_another_output_is_refused():
    with raises(WhatIfError, "log", "# Using devices"):
        read_log("hello", collective=Collective.ALL_REDUCE, source="log")
