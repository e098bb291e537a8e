"""HTTP/1.1 on asyncio and httptools: one server edge and one client, shared by all parts.

Small on purpose: whole requests in, whole or streamed responses out, no routing, no middleware.
The advantages over a framework are speed (no task, timer or header object per request) and the
limits that a socket facing untrusted clients needs.
"""
