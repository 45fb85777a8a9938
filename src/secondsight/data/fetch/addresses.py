"""Addresses that may be asked over the network: http and https, wherever a server redirects to."""

from __future__ import annotations

import http.client
import re
import urllib.parse
import urllib.request

from secondsight.errors import DataError
from secondsight.version import __version__

AGENT = f"secondsight/{__version__}"


def address(url: str) -> str:
    """``url`` as it can be asked for: letters that are not ASCII, and spaces, are written as %…; else a DataError."""
    try:
        parts = urllib.parse.urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
        if parts.username or parts.password:
            raise ValueError("a name or a password in an address is not sent")
        if host is not None:
            host = host if ":" in host else host.encode("idna").decode()
    except ValueError as error:  # UnicodeError is one
        raise DataError(f"{url}: not an address ({error}); check it") from error
    if scheme not in ("http", "https"):
        raise DataError(f"{url}: only http and https can be downloaded; fetch it by hand and pass the file with --from")
    if not host or re.search(r"[\x00-\x20\x7f]", host):
        raise DataError(f"{url}: not an address (it names no host); check it")
    place = (f"[{host}]" if ":" in host else host) + (f":{port}" if port is not None else "")
    path, query = (_quoted(text) for text in (parts.path, parts.query))
    return urllib.parse.urlunsplit((scheme, place, path, query, ""))


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="/%:=&?~#+!$,;'@()*[]", errors="surrogateescape")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to http and https only: a server must not send us to files of this machine, or to other protocols."""

    def http_error_302(self, req, fp, code, msg, headers):
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError as error:  # urllib takes the address apart before it asks redirect_request
            if isinstance(error, DataError):
                raise
            place = headers.get("location") or headers.get("uri")
            raise DataError(
                f"{req.full_url}: the server points to {place}, which is not an address: refused"
            ) from error

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        if urllib.parse.urlsplit(newurl).scheme not in ("http", "https"):
            raise DataError(f"{req.full_url}: the server points to {newurl}, which is neither http nor https: refused")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def opener() -> urllib.request.OpenerDirector:
    """What asks: urllib's own, with our rule for redirects."""
    return urllib.request.build_opener(_Redirects)


def answers(url: str, *, timeout: float = 10.0) -> bool:
    """Whether a server offers the file now."""
    request = urllib.request.Request(address(url), method="HEAD", headers={"User-Agent": AGENT})
    try:
        with opener().open(request, timeout=timeout) as response:
            return response.headers.get_content_type() != "text/html"
    except (OSError, http.client.HTTPException):  # HTTPError, URLError and timeouts are all OSErrors
        return False
