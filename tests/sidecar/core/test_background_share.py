"""The order of interactive and background requests that wait for one batch."""

from __future__ import annotations

from sidecar.core.background_share import BackgroundShare
from sidecar.core.request import Request


def requests(count: int, *, background: bool = False, item_count: int = 1) -> list[Request]:
    """So many requests of one class."""
    return [
        Request(n, "k", 0.0, background=background, item_count=item_count) for n in range(count)
    ]


def order(share: BackgroundShare, interactive: list[Request], background: list[Request]) -> str:
    """The order of leaving: i for an interactive request, b for one in the background."""
    leaving = share.interleave(iter(interactive), iter(background))
    return "".join("b" if request.background else "i" for request in leaving)


def test_interactive_requests_leave_first_without_a_share() -> None:
    """The background takes what is left, and has no deficit."""
    share = BackgroundShare(0.0)
    assert "iiibb" == order(share, requests(3), requests(2, background=True))
    assert 0.0 == share.deficit


def test_a_background_request_leaves_when_its_share_has_grown_to_an_item() -> None:
    """With a quarter, one after every three; asking for the order changes nothing."""
    share = BackgroundShare(0.25)
    assert "iiibiiibii" == order(share, requests(8), requests(2, background=True))
    assert 0.0 == share.deficit


def test_the_deficit_follows_the_batches_that_left() -> None:
    """It grows by the share of the items, falls by the background's, and has a bound below."""
    share = BackgroundShare(0.25)
    share.record(requests(4))
    assert 1.0 == share.deficit
    assert "bi" == order(share, requests(1), requests(1, background=True))
    share.record(requests(2) + requests(2, background=True))
    assert 0.0 == share.deficit
    share.record(requests(4, background=True))
    share.record(requests(2, background=True))
    assert -2.0 == share.deficit


def test_a_large_background_request_waits_for_its_share() -> None:
    """With a share of half, four items leave when half of four is reached."""
    share = BackgroundShare(0.5)
    assert "iiiibi" == order(share, requests(5), requests(1, background=True, item_count=4))
