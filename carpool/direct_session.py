"""HTTP sessions of commands and of the scaler, whose requests carry credentials."""

from __future__ import annotations

import os

import requests

__all__ = ["direct_session"]

_AUTHORITIES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def direct_session() -> requests.Session:
    """Return a session that uses neither a proxy nor logins of the environment.

    A proxy for the outside would get the credentials, and a login in ``.netrc`` would replace them.
    Authorities for certificates are still taken from the variables that `requests` knows.
    """
    session = requests.Session()
    session.trust_env = False
    named = (os.environ.get(name) for name in _AUTHORITIES)
    session.verify = next(filter(None, named), True)
    return session
