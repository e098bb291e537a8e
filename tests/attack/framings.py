"""Framings that a client may send, and what an edge is to make of each.

A plain table: a name, the statuses of the answers, the bytes. ``~`` stands for what is before the
function's own paths at the edge that is attacked. What follows from the statuses:

- a refusal (400 and above) is the last answer, and the connection is closed behind it;
- after other answers the connection goes on, and a following request gets its own answer.

The shapes are those of request smuggling (RFC 9112, section 11.2), of the published suites for it,
and of other protocols' first bytes.
"""

from __future__ import annotations

__all__ = ["CLOSING", "ENDLESS", "FRAMINGS"]

_END = b"\r\n\r\n"
_GET = b"GET ~/ HTTP/1.1\r\nhost: x\r\n"
_HEAD = b"HEAD ~/ HTTP/1.1\r\nhost: x\r\n"
_POST = b"POST ~/ HTTP/1.1\r\nhost: x\r\n"
_LENGTH = _POST + b"content-length: "
_CODED = _POST + b"transfer-encoding: "
_CHUNKED = _CODED + b"chunked" + _END
_LAST = b"0" + _END
_H2C = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"

Row = tuple[tuple[int, ...], bytes]

_TWO_LENGTHS: dict[str, Row] = {
    "length and chunks": (
        (400,),
        _POST + b"content-length: 3\r\ntransfer-encoding: chunked" + _END + _LAST,
    ),
    "chunks and length": ((400,), _CODED + b"chunked\r\ncontent-length: 3" + _END + _LAST),
    "length zero and chunks": ((400,), _LENGTH + b"0\r\ntransfer-encoding: chunked" + _END + _LAST),
    "length and other coding": ((400,), _LENGTH + b"3\r\ntransfer-encoding: gzip" + _END + b"abc"),
    "two lengths": ((400,), _LENGTH + b"3\r\ncontent-length: 4" + _END + b"abcd"),
    "equal lengths": ((400,), _LENGTH + b"1\r\ncontent-length: 1" + _END + b"a"),
    "equal lengths of zero": ((400,), _LENGTH + b"0\r\ncontent-length: 0" + _END),
    "two lengths, in other cases": ((400,), _LENGTH + b"1\r\nContent-Length: 2" + _END + b"ab"),
    "list of lengths": ((400,), _LENGTH + b"1, 1" + _END + b"a"),
    "list of other lengths": ((400,), _LENGTH + b"1,2" + _END + b"a"),
}

_LENGTHS: dict[str, Row] = {
    "negative length": ((400,), _LENGTH + b"-1" + _END),
    "negative zero": ((400,), _LENGTH + b"-0" + _END),
    "signed length": ((400,), _LENGTH + b"+1" + _END + b"a"),
    "empty length": ((400,), _LENGTH + _END),
    "blank length": ((400,), _LENGTH + b"  \t" + _END),
    "spaced length": ((400,), _LENGTH + b"1 1" + _END + b"a"),
    "hexadecimal length": ((400,), _LENGTH + b"0x1" + _END + b"a"),
    "length in letters": ((400,), _LENGTH + b"a" + _END + b"aaaaaaaaaa"),
    "python's length": ((400,), _LENGTH + b"1_0" + _END + b"aaaaaaaaaa"),
    "length with a point": ((400,), _LENGTH + b"1.0" + _END + b"a"),
    "length with an exponent": ((400,), _LENGTH + b"1e1" + _END + b"aaaaaaaaaa"),
    "quoted length": ((400,), _LENGTH + b'"1"' + _END + b"a"),
    "length with a semicolon": ((400,), _LENGTH + b"1;a" + _END + b"a"),
    "form feed in length": ((400,), _LENGTH + b"\x0c1" + _END + b"a"),
    "vertical tab in length": ((400,), _LENGTH + b"1\x0b" + _END + b"a"),
    "zero byte in length": ((400,), _LENGTH + b"1\0" + _END + b"a"),
    "full-width digit in length": ((400,), _LENGTH + b"\xef\xbc\x91" + _END + b"a"),
    "length above 64 bits": ((400,), _LENGTH + b"18446744073709551617" + _END + b"a"),
    "length of 64 bits": ((413,), _LENGTH + b"18446744073709551615" + _END + b"a"),
    "length of 63 bits": ((413,), _LENGTH + b"9223372036854775807" + _END + b"a"),
    "length above the limit": ((413,), _LENGTH + b"70000000" + _END),
    "length above the limit, invited": (
        (413,),
        _POST + b"expect: 100-continue\r\ncontent-length: 70000000" + _END,
    ),
    "length with zeros": ((200,), _LENGTH + b"0001" + _END + b"a"),
    "length with blanks": ((200,), _LENGTH + b" 1 \t" + _END + b"a"),
    "length without a blank": ((200,), _POST + b"content-length:1" + _END + b"a"),
    "length with GET": ((200,), _GET + b"content-length: 1" + _END + b"a"),
    "length of zero": ((200,), _LENGTH + b"0" + _END),
    "no length": ((200,), _POST + b"\r\n"),
}

_CODINGS: dict[str, Row] = {
    "chunked twice": ((400,), _CODED + b"chunked\r\ntransfer-encoding: chunked" + _END + _LAST),
    "list of chunked": ((400,), _CODED + b"chunked, chunked" + _END + _LAST),
    "chunked is not last": ((400,), _CODED + b"chunked, gzip" + _END + _LAST),
    "identity and chunked": (
        (501,),
        _CODED + b"identity\r\ntransfer-encoding: chunked" + _END + _LAST,
    ),
    "chunked in 1.0": (
        (400,),
        b"POST ~/ HTTP/1.0\r\ntransfer-encoding: chunked" + _END + _LAST,
    ),
    "chunked in 1.0, kept": (
        (400,),
        b"POST ~/ HTTP/1.0\r\nconnection: keep-alive\r\ntransfer-encoding: chunked" + _END + _LAST,
    ),
    "tab before coding": ((200,), _CODED + b"\tchunked" + _END + _LAST),
    "vertical tab in coding": ((400,), _CODED + b"\x0bchunked" + _END + _LAST),
    "zero byte in coding": ((400,), _CODED + b"chunked\0" + _END + _LAST),
    "folded coding": ((400,), _POST + b"transfer-encoding:\r\n chunked" + _END + _LAST),
    "folded coding with a tab": ((400,), _POST + b"transfer-encoding:\r\n\tchunked" + _END + _LAST),
    "coding behind a fold": ((400,), _POST + b"a: b\r\n transfer-encoding: chunked" + _END + _LAST),
    "blank before the colon": ((400,), _POST + b"transfer-encoding : chunked" + _END + _LAST),
    "other coding": ((501,), _CODED + b"gzip, chunked" + _END + _LAST),
    "unknown coding": ((501,), _CODED + b"xchunked" + _END + _LAST),
    "chunked with a parameter": ((501,), _CODED + b"chunked;q=1" + _END + _LAST),
    "quoted coding": ((501,), _CODED + b'"chunked"' + _END + _LAST),
    "identity": ((501,), _CODED + b"identity" + _END),
    "empty coding": ((400,), _CODED + _END),
    "coding in capitals": ((200,), _CODED + b"CHUNKED" + _END + b"1\r\na\r\n" + _LAST),
    "not a framing header": ((200,), _POST + b"transfer_encoding: chunked" + _END),
    "coding in another header": ((200,), _POST + b"x: transfer-encoding: chunked" + _END),
}

_CHUNKS: dict[str, Row] = {
    "chunk size not hexadecimal": ((400,), _CHUNKED + b"zz\r\n" + _LAST),
    "chunk size negative": ((400,), _CHUNKED + b"-1\r\na\r\n" + _LAST),
    "chunk size with 0x": ((400,), _CHUNKED + b"0x1\r\na\r\n" + _LAST),
    "chunk size signed": ((400,), _CHUNKED + b"+1\r\na\r\n" + _LAST),
    "chunk size spaced": ((400,), _CHUNKED + b"1 \r\na\r\n" + _LAST),
    "chunk size behind a blank": ((400,), _CHUNKED + b" 1\r\na\r\n" + _LAST),
    "chunk size with a separator": ((400,), _CHUNKED + b"1_0\r\na\r\n" + _LAST),
    "chunk size missing": ((400,), _CHUNKED + b"\r\na\r\n" + _LAST),
    "chunk size of an extension alone": ((400,), _CHUNKED + b";a\r\na\r\n" + _LAST),
    "chunk size above 64 bits": ((400,), _CHUNKED + b"10000000000000001\r\na\r\n" + _LAST),
    "chunk size of many zeros": (
        (200,),
        _CHUNKED + b"0" * 20 + b"1\r\na\r\n" + _LAST,
    ),
    "chunk longer than told": ((400,), _CHUNKED + b"1\r\nab\r\n" + _LAST),
    "chunk shorter than told": ((400,), _CHUNKED + b"3\r\na\r\n" + _LAST),
    "line feed after size": ((400,), _CHUNKED + b"1\na\r\n" + _LAST),
    "line feed after chunk": ((400,), _CHUNKED + b"1\r\na\n" + _LAST),
    "return after size": ((400,), _CHUNKED + b"1\ra\r\n" + _LAST),
    "return after chunk": ((400,), _CHUNKED + b"1\r\na\r" + _LAST),
    "line feed in extension": ((400,), _CHUNKED + b"1;a\nb\r\na\r\n" + _LAST),
    "return in extension": ((400,), _CHUNKED + b"1;a\rb\r\na\r\n" + _LAST),
    "zero byte in extension": ((400,), _CHUNKED + b"1;a\0b\r\na\r\n" + _LAST),
    "last chunk with a line feed": ((400,), _CHUNKED + b"0\n\n"),
    "chunk size with zeros": ((200,), _CHUNKED + b"0001\r\na\r\n" + _LAST),
    "chunk size in capitals": ((200,), _CHUNKED + b"A\r\naaaaaaaaaa\r\n" + _LAST),
    "extensions": ((200,), _CHUNKED + b'1;b;c="d"\r\na\r\n0;e\r\n\r\n'),
    "no chunk but the last": ((200,), _CHUNKED + _LAST),
    "last chunk of many zeros": ((200,), _CHUNKED + b"0000" + _END),
}

_TRAILERS: dict[str, Row] = {
    "length in trailer": ((400,), _CHUNKED + b"0\r\ncontent-length: 40" + _END),
    "coding in trailer": ((400,), _CHUNKED + b"0\r\ntransfer-encoding: chunked" + _END),
    "host in trailer": ((200,), _CHUNKED + b"0\r\nhost: y" + _END),
    "credentials in trailer": ((200,), _CHUNKED + b"0\r\nauthorization: Basic YTpi" + _END),
    "trailer": ((200,), _CHUNKED + b"1\r\na\r\n0\r\nx-a: b" + _END),
    "folded trailer": ((400,), _CHUNKED + b"0\r\nx-a: b\r\n c" + _END),
    "trailer without a colon": ((400,), _CHUNKED + b"0\r\nabc" + _END),
    "trailer with a line feed": ((400,), _CHUNKED + b"0\r\nx-a: b\n\r\n"),
    "huge trailers": ((431,), _CHUNKED + b"0\r\n" + b"a: bcdefghijk\r\n" * 6000 + b"\r\n"),
}

_HEADERS: dict[str, Row] = {
    "folded header": ((400,), _GET + b"a: b\r\n c" + _END),
    "folded header with a tab": ((400,), _GET + b"a: b\r\n\tc" + _END),
    "blank before first header": ((400,), b"GET ~/ HTTP/1.1\r\n a: b" + _END),
    "blank line of blanks": ((400,), _GET + b" \r\n\r\n"),
    "blank in name": ((400,), _GET + b"a b: c" + _END),
    "blank before colon": ((400,), _GET + b"a : b" + _END),
    "tab before colon": ((400,), _GET + b"a\t: b" + _END),
    "no name": ((400,), _GET + b": b" + _END),
    "no colon": ((400,), _GET + b"abc" + _END),
    "bracket in name": ((400,), _GET + b"a(b: c" + _END),
    "byte above 127 in name": ((400,), _GET + b"a\xe9: c" + _END),
    "bare line feeds": ((400,), b"GET ~/ HTTP/1.1\na: b\n\n"),
    "bare line feed": ((400,), _GET + b"a: b\ncontent-length: 9" + _END),
    "bare line feed at the end": ((400,), _GET + b"a: b\r\n\n"),
    "bare return": ((400,), _GET + b"a: b\rcontent-length: 9" + _END),
    "two returns": ((400,), _GET + b"a: b\r\r\n\r\n"),
    "return at the end": ((400,), _GET + b"\r\r\n"),
    "zero byte in value": ((400,), _GET + b"a: b\0c" + _END),
    "zero byte in name": ((400,), _GET + b"a\0: b" + _END),
    "control in value": ((400,), _GET + b"a: b\x01" + _END),
    "delete in value": ((400,), _GET + b"a: b\x7f" + _END),
    "two hosts": ((400,), b"GET ~/ HTTP/1.1\r\nhost: a\r\nhost: b" + _END),
    "two equal hosts": ((400,), _GET + b"Host: x" + _END),
    "many headers": ((431,), _GET + b"a:\r\n" * 150 + b"\r\n"),
    "huge header": ((431,), _GET + b"a: " + b"b" * 70_000 + _END),
    "byte above 127 in value": ((200,), _GET + b"a: \xe9" + _END),
    "tab in value": ((200,), _GET + b"a: b\tc" + _END),
    "empty value": ((200,), _GET + b"a:" + _END),
    "hundred headers": ((200,), _GET + b"a:\r\n" * 99 + b"\r\n"),
    "no host": ((400,), b"GET ~/ HTTP/1.1" + _END),
}

_FIRST_LINES: dict[str, Row] = {
    "version 0.9": ((505,), b"GET ~/\r\n\r\n"),
    "version 1.2": ((400,), b"GET ~/ HTTP/1.2" + _END),
    "version 2.0": ((505,), b"GET ~/ HTTP/2.0\r\nconnection: keep-alive" + _END),
    "version 1.10": ((400,), b"GET ~/ HTTP/1.10" + _END),
    "version with a letter": ((400,), b"GET ~/ HTTP/1.x" + _END),
    "version in lower case": ((400,), b"GET ~/ http/1.1" + _END),
    "two blanks before version": ((200,), b"GET ~/  HTTP/1.1\r\nhost: x" + _END),
    "two blanks before target": ((200,), b"GET  ~/ HTTP/1.1\r\nhost: x" + _END),
    "blank first": ((400,), b" GET ~/ HTTP/1.1\r\nhost: x" + _END),
    "blank in target": ((400,), b"GET ~/a b HTTP/1.1\r\nhost: x" + _END),
    "tab in target": ((400,), b"GET ~/a\tb HTTP/1.1\r\nhost: x" + _END),
    "tab for a blank": ((400,), b"GET\t~/ HTTP/1.1\r\nhost: x" + _END),
    "zero byte in target": ((400,), b"GET ~/\0 HTTP/1.1\r\nhost: x" + _END),
    "byte above 127 in target": ((400,), b"GET ~/\xff HTTP/1.1\r\nhost: x" + _END),
    "method in lower case": ((400,), b"get ~/ HTTP/1.1\r\nhost: x" + _END),
    "unknown method": ((400,), b"SPAM ~/ HTTP/1.1\r\nhost: x" + _END),
    "no method": ((400,), b"~/ HTTP/1.1\r\nhost: x" + _END),
    "tunnel": ((501,), b"CONNECT x:80 HTTP/1.1\r\nhost: x:80" + _END),
    "tunnel to a path": ((501,), b"CONNECT ~/ HTTP/1.1\r\nhost: x" + _END),
    "authority with GET": ((400,), b"GET x:80 HTTP/1.1\r\nhost: x" + _END),
    "relative target": ((400,), b"GET a HTTP/1.1\r\nhost: x" + _END),
    "asterisk with GET": ((400,), b"GET * HTTP/1.1\r\nhost: x" + _END),
    "other scheme": ((400,), b"GET ftp://x~/a HTTP/1.1\r\nhost: x" + _END),
    "fragment": ((200,), b"GET ~/a#b HTTP/1.1\r\nhost: x" + _END),
    "huge target": ((431,), b"GET ~/" + b"b" * 70_000 + b" HTTP/1.1\r\nhost: x" + _END),
    "absolute form": ((200,), b"GET http://y:1~/a?b=/c HTTP/1.1\r\nhost: x" + _END),
    "absolute form with a user": ((200,), b"GET http://u:p@y~/ HTTP/1.1\r\nhost: x" + _END),
    "absolute form in capitals": ((200,), b"GET HTTPS://y~/ HTTP/1.1\r\nhost: x" + _END),
    "dots in the path": ((200,), b"GET ~/../../etc/passwd HTTP/1.1\r\nhost: x" + _END),
    "encoded zero byte": ((200,), b"GET ~/%00%0d%0a HTTP/1.1\r\nhost: x" + _END),
    "broken percent sign": ((200,), b"GET ~/%zz% HTTP/1.1\r\nhost: x" + _END),
    "blank lines first": ((200,), b"\r\n\r\n" + _GET + b"\r\n"),
}

_OTHER_PROTOCOLS: dict[str, Row] = {
    "HTTP/2 by prior knowledge": ((400,), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "TLS": ((400,), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "SSH": ((400,), b"SSH-2.0-OpenSSH_9.2\r\n"),
    "SMTP": ((400,), b"EHLO x\r\n"),
    "PROXY protocol": ((400,), b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n" + _GET + b"\r\n"),
    "PROXY protocol, binary": ((400,), b"\r\n\r\n\0\r\nQUIT\n"),
    "Redis": ((400,), b"*1\r\n$4\r\nPING\r\n"),
    "zero bytes": ((400,), bytes(100)),
    "bytes above 127": ((400,), bytes(range(128, 256))),
    "an answer": ((400,), b"HTTP/1.1 200 OK\r\ncontent-length: 0" + _END),
}

_SWITCHING: dict[str, Row] = {
    "h2c offered": ((200,), _GET + _H2C + b"\r\n"),
    "h2c offered with a length": ((200,), _POST + _H2C + b"content-length: 3" + _END + b"abc"),
    "h2c offered with chunks": (
        (200,),
        _POST + _H2C + b"transfer-encoding: chunked" + _END + b"3\r\nabc\r\n" + _LAST,
    ),
    "h2c offered with both": (
        (400,),
        _POST + _H2C + b"content-length: 3\r\ntransfer-encoding: chunked" + _END + _LAST,
    ),
    "h2c offered twice": ((200, 200), (_GET + _H2C + b"\r\n") * 2),
    "h2c preface behind an offer": (
        (200, 400),
        _GET + _H2C + b"\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ),
    "websocket offered": (
        (200,),
        _GET + b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13" + _END,
    ),
    "upgrade that Connection does not name": ((200,), _GET + b"upgrade: h2c" + _END),
    "invited": ((200,), _POST + b"expect: 100-continue\r\ncontent-length: 1" + _END + b"a"),
    "invited with chunks": (
        (200,),
        _POST
        + b"expect: 100-continue\r\ntransfer-encoding: chunked"
        + _END
        + b"1\r\na\r\n"
        + _LAST,
    ),
    "other expectation": ((200,), _POST + b"expect: coffee\r\ncontent-length: 1" + _END + b"a"),
    "invited without a body": ((200,), _POST + b"expect: 100-continue" + _END),
}

_PIPELINED: dict[str, Row] = {
    "two": ((200, 200), (_GET + b"\r\n") * 2),
    "a hundred": ((200,) * 100, (_GET + b"\r\n") * 100),
    "with bodies": ((200, 200), (_LENGTH + b"3" + _END + b"abc") * 2),
    "with and without": ((200, 200), _CHUNKED + b"1\r\na\r\n" + _LAST + _GET + b"\r\n"),
    "body like a request": ((200,), _LENGTH + b"27" + _END + b"GET /smuggled HTTP/1.1\r\n\r\n\0"),
    "chunk like a request": (
        (200,),
        _CHUNKED + b"1a\r\nGET /smuggled HTTP/1.1\r\n\r\n\r\n" + _LAST,
    ),
    "GET with a body like a request": (
        (200,),
        _GET + b"content-length: 26" + _END + b"GET /smuggled HTTP/1.1\r\n\r\n",
    ),
    "nonsense behind one": ((200, 400), _GET + b"\r\n\0\0\0"),
    "body without a length": ((200, 400), _POST + b"\r\nabc\r\n\r\n"),
    "two lengths behind one": (
        (200, 400),
        _GET + b"\r\n" + _LENGTH + b"1\r\ncontent-length: 2" + _END + b"ab",
    ),
    "HEAD before one": ((200, 200), _HEAD + b"\r\n" + _GET + b"\r\n"),
    "HEAD with a body": ((200,), _HEAD + b"content-length: 3" + _END + b"abc"),
}

FRAMINGS: dict[str, Row] = {
    f"{family}: {name}": row
    for family, rows in {
        "two lengths": _TWO_LENGTHS,
        "length": _LENGTHS,
        "coding": _CODINGS,
        "chunks": _CHUNKS,
        "trailers": _TRAILERS,
        "headers": _HEADERS,
        "first line": _FIRST_LINES,
        "other protocol": _OTHER_PROTOCOLS,
        "switching": _SWITCHING,
        "pipelined": _PIPELINED,
    }.items()
    for name, row in rows.items()
}

# Those that do not end: what follows is a part of them, and is not answered, or refused with them.
ENDLESS: dict[str, Row] = {
    "longer length": ((), _LENGTH + b"9999" + _END + b"a"),
    "extension that never ends": ((431,), _CHUNKED + b"1;" + b"a" * 70_000),
    "last chunk without an end": ((), _CHUNKED + b"0\r\n"),
    "huge chunk": ((), _CHUNKED + b"3ffffff\r\na"),
    "head that never ends": ((431,), _GET + b"a: " + b"b" * 70_000),
    "unfinished line": ((), b"GET ~/ HTTP/1.1"),
}

# Those whose connection ends with their answer, as they ask for it: nothing behind them is read.
CLOSING: dict[str, Row] = {
    "close": ((200,), _GET + b"connection: close" + _END),
    "close, in capitals": ((200,), _GET + b"Connection: CLOSE" + _END),
    "close among others": ((200,), _GET + b"connection: x, close" + _END),
    "close and keep-alive": ((200,), _GET + b"connection: close, keep-alive" + _END),
    "version 1.0": ((200,), b"GET ~/ HTTP/1.0" + _END),
    "version 1.0, kept": ((200,), b"GET ~/ HTTP/1.0\r\nconnection: keep-alive" + _END),
    "version 1.0 with a length": ((200,), b"POST ~/ HTTP/1.0\r\ncontent-length: 1" + _END + b"a"),
}
