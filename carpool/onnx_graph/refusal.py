"""Advice for models that ONNX Runtime cannot load."""

from __future__ import annotations

_UNKNOWN_OPERATOR = ("is not a registered function/op", "No Op registered")


def fix_of_refusal(text: str) -> str:
    """Return a fix for ``text``, the message of an exception of ONNX Runtime."""
    if any(words in text for words in _UNKNOWN_OPERATOR):
        return (
            "the runtime does not know one of its operators; a handler of your own can still serve "
            "it, and a latency table can give its times"
        )
    if "Failed to construct locale" in text:
        return (
            "install the locale that it names (Debian: apt-get install locales-all), or set the "
            "attribute locale of its StringNormalizer nodes to C"
        )
    return "export it again"
