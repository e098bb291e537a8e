"""Files that `carpool up` writes into a stack's folder, for the commands that query its scaler.

It is also imported where nothing else of the scaler is installed.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["STORE_FILE", "TOKEN_FILE", "URL_FILE"]

TOKEN_FILE = Path(".secrets/carpool-scaler-token")
URL_FILE = Path(".carpool/scaler.url")
STORE_FILE = Path(".carpool/scaler.db")
