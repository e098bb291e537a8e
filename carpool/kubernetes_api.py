"""Client of a Kubernetes API server, with plain JSON and blocking calls, alone or in threads.

lightkube's models are not used, as a list of a thousand nodes is read for five of their fields.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import orjson

from carpool.errors import CarpoolError, ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["KubernetesApi", "KubernetesApiError"]

_TIMEOUT_S = 4.0  # a Lease has to be renewed within seven
_PAGE = 500  # most objects in one response
_ERROR_STATUS = 400
_SHOWN = 500  # characters of a message that is no Status

Object = dict[str, Any]


class KubernetesApiError(CarpoolError):
    """The API server cannot be reached, or has refused a call.

    Attributes:
        code: Status of the refusal; 0 if the server was not reached.
    """

    status = 502

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class KubernetesApi:
    """API of the cluster this process runs in, else of the kubeconfig (``KUBECONFIG``).

    Nothing is sent before the first call.

    Attributes:
        namespace: Namespace of the account, or of the kubeconfig's context.

    Raises:
        ConfigError: there is neither, or the extra ``kubernetes`` is not installed.
    """

    def __init__(self) -> None:
        if find_spec("lightkube") is None:
            fix = "pip install 'carpool[kubernetes]'"
            expected = "one that is installed"
            raise ConfigError([Problem("Python package", "lightkube", expected, fix)])
        import httpx2  # noqa: PLC0415  needed only with a cluster

        from carpool.kubernetes_login import LOGIN_ERRORS, read_login  # noqa: PLC0415

        login = read_login("--kubernetes", _TIMEOUT_S)
        self._unreachable: type[Exception] = httpx2.HTTPError
        self._login_errors = LOGIN_ERRORS
        self._client = httpx2.Client(**login.client)
        self.namespace = login.namespace

    def call(
        self,
        method: str,
        path: str,
        document: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Object:
        """Send a request and return the decoded response.

        Raises:
            KubernetesApiError: the API server refuses, or cannot be reached.
        """
        body = None if document is None else orjson.dumps(document)
        headers = {"content-type": "application/json"} if body else {}
        try:
            answer = self._client.request(
                method, path, content=body, headers=headers, params=params
            )
        except self._unreachable as error:
            message = f"the API server cannot be reached: {str(error) or type(error).__name__}"
            raise KubernetesApiError(message) from error
        except self._login_errors as error:
            message = f"no credentials for the API server: {error!r}"
            raise KubernetesApiError(message) from error
        if answer.status_code >= _ERROR_STATUS:
            raise KubernetesApiError(_message(answer.content), answer.status_code)
        answered: Object = orjson.loads(answer.content)
        return answered

    def objects(self, path: str, params: Mapping[str, str] | None = None) -> Iterator[Object]:
        """Yield the objects of a collection, reading it page by page.

        Raises:
            KubernetesApiError: as `call`.
        """
        page = {"limit": str(_PAGE), **(params or {})}
        while True:
            listing = self.call("GET", path, params=page)
            yield from listing["items"]
            page["continue"] = listing["metadata"].get("continue", "")
            if not page["continue"]:
                return
            page.pop("resourceVersion", None)  # the token has one

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _message(body: bytes) -> str:
    """Return the message of an error response."""
    try:
        return str(orjson.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body[:_SHOWN].decode("utf-8", "replace").strip()
