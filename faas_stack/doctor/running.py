"""Asks the scaler of a running stack for problems, if `carpool up` runs in the folder.

It is queried at the address that `carpool up` has written there; if it does not answer, the stack
has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import requests

from carpool.direct_session import direct_session
from scaler.stack_folder import TOKEN_FILE, URL_FILE

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["complaints"]

_TIMEOUT_S = 3.0


def complaints(folder: Path) -> tuple[tuple[str, str], ...]:
    """Return pairs of a function and a problem; the function is empty if it concerns all."""
    try:
        url = (folder / URL_FILE).read_text().strip()
        token = (folder / TOKEN_FILE).read_text().strip()
        with direct_session() as session:
            headers = {"authorization": f"Bearer {token}"}
            answer = session.get(f"{url}/v1/functions", headers=headers, timeout=_TIMEOUT_S)
        document = answer.json() if answer.status_code == requests.codes.ok else {}
        said = [
            (str(line["name"]), str(note))
            for line in document.get("functions", ())
            for note in line["notes"]
        ]
        trouble = document.get("trouble")
    except (OSError, requests.RequestException, ValueError, KeyError, TypeError, AttributeError):
        return ()
    return (*said, *([("", str(trouble))] if trouble else []))
