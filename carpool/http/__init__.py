"""HTTP/1.1 on asyncio and httptools: one server edge and one client, shared by every part.

Small on purpose: whole requests in, whole or streamed answers out, no routing, no middleware.
What they add over a framework is speed (no task, timer or header object per request) and the
limits a socket that faces untrusted clients needs.
"""
