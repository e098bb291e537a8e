"""Whose turn it is between interactive and background requests."""

from __future__ import annotations

from sidecar.core.balance import Balance
from sidecar.core.request import Request


def riders(count: int, *, background: bool = False, seats: int = 1) -> list[Request]:
    """So many requests, told apart by their class alone."""
    return [Request(n, "k", 0.0, background=background, seats=seats) for n in range(count)]


def order(balance: Balance, front: list[Request], back: list[Request]) -> str:
    """Who boards after whom: i for an interactive request, b for one in the background."""
    merged = balance.merged(iter(front), iter(back))
    return "".join("b" if request.background else "i" for request in merged)


def test_interactive_requests_board_first_without_a_share() -> None:
    """The background takes what is left, and is owed nothing."""
    balance = Balance(0.0)
    assert "iiibb" == order(balance, riders(3), riders(2, background=True))
    assert 0.0 == balance.owed


def test_the_background_boards_when_its_share_has_grown_to_a_seat() -> None:
    """With a quarter, one after every three; asking who is next settles nothing."""
    balance = Balance(0.25)
    assert "iiibiiibii" == order(balance, riders(8), riders(2, background=True))
    assert 0.0 == balance.owed


def test_what_is_owed_follows_the_batches_that_left() -> None:
    """It grows by the share of the seats, falls by those used, and has a bound below."""
    balance = Balance(0.25)
    balance.settle(riders(4))
    assert 1.0 == balance.owed
    assert "bi" == order(balance, riders(1), riders(1, background=True))
    balance.settle(riders(2) + riders(2, background=True))
    assert 0.0 == balance.owed
    balance.settle(riders(4, background=True))
    balance.settle(riders(2, background=True))
    assert -2.0 == balance.owed


def test_a_large_background_request_waits_for_as_many_seats() -> None:
    """With half of the seats, who takes four boards when two are owed for him."""
    balance = Balance(0.5)
    assert "iiiibi" == order(balance, riders(5), riders(1, background=True, seats=4))
