"""The short form of the soak; `python -m tests.soak` is the long one."""

from __future__ import annotations

import pytest
import uvloop

from tests.soak.fire import Wanted
from tests.soak.run import soak


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("handlers", [4, 0], ids=["handlers-of-others", "its-own-handler"])
def test_each_request_gets_its_own_response_under_faults(handlers: int) -> None:
    """No request is lost, miscounted or answered with another's response, whatever happens."""
    wanted = Wanted(requests=10_000, handlers=handlers, kill_every_s=1.0, plan_every_s=0.3)
    report = uvloop.run(soak(wanted))
    assert [] == report.violated
    assert report.requests == wanted.requests
    assert min(report.kills, report.plans, report.left, report.cut_off) > 0
