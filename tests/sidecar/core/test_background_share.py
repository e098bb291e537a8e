"""The order of interactive and background requests that wait for one batch."""

from __future__ import annotations

from sidecar.core.background_share import BackgroundShare
from sidecar.core.request import Request


def requests(count: int, *, background: bool = False, item_count: int = 1) -> list[Request]:
    """Return ``count`` requests of one class."""
    return [
        Request(n, "k", 0.0, background=background, item_count=item_count) for n in range(count)
    ]


def order(share: BackgroundShare, interactive: list[Request], background: list[Request]) -> str:
    """Return the order of departure: i for an interactive request, b for a background request."""
    leaving = share.interleave(iter(interactive), iter(background))
    return "".join("b" if request.background else "i" for request in leaving)


def test_interactive_requests_are_sent_first_without_background_share() -> None:
    """Without a share, background requests take the remaining places and build up no deficit."""
    share = BackgroundShare(0.0)
    assert "iiibb" == order(share, requests(3), requests(2, background=True))
    assert 0.0 == share.deficit


def test_background_request_is_sent_once_deficit_reaches_one_item() -> None:
    """With a share of a quarter, one background request follows three interactive ones.

    Asking for the order changes no state.
    """
    share = BackgroundShare(0.25)
    assert "iiibiiibii" == order(share, requests(8), requests(2, background=True))
    assert 0.0 == share.deficit


def test_the_deficit_follows_the_batches_that_left() -> None:
    """The deficit grows by the share of all items and falls by background items, to a bound."""
    share = BackgroundShare(0.25)
    share.record(requests(4))
    assert 1.0 == share.deficit
    assert "bi" == order(share, requests(1), requests(1, background=True))
    share.record(requests(2) + requests(2, background=True))
    assert 0.0 == share.deficit
    share.record(requests(4, background=True))
    share.record(requests(2, background=True))
    assert -2.0 == share.deficit


def test_large_background_request_waits_until_deficit_covers_its_items() -> None:
    """With a share of half, a request of four items leaves after four interactive items."""
    share = BackgroundShare(0.5)
    assert "iiiibi" == order(share, requests(5), requests(1, background=True, item_count=4))
