"""Which addresses may be visited: the rules for URLs, for hosts and for IP addresses.

Guarantees: what passes `Rules.check` is plain HTTP(S) to a public host name or address on a usual port, or a host that
the settings list. A name that passes is not yet safe: where it leads is checked again when it is resolved and once more
when the socket is opened (`deskroll.envs.web.outside`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from yarl import URL

from deskroll.envs.web.errors import PageError
from deskroll.errors import plain

LONGEST_URL = 2_000
PORTS = (80, 443, 8080, 8443)
"""Where pages are served; other ports only where the settings list them with their host."""
_IPV4_REFUSED = [
    ipaddress.IPv4Network(each)
    # The last one looks public, and is how a machine at Azure asks its host, which tells it secrets.
    for each in ("0.0.0.0/8", "192.0.0.0/24", "192.88.99.0/24", "224.0.0.0/3", "168.63.129.16/32")
]
_IPV6_UNICAST = ipaddress.IPv6Network("2000::/3")
_IPV6_REFUSED = [
    ipaddress.IPv6Network(each)
    # Teredo and other protocols' own; documentation, twice; 6to4, which wraps an IPv4 address.
    for each in ("2001::/23", "2001:db8::/32", "3fff::/20", "2002::/16")
]
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\.?", re.IGNORECASE)
_LISTED = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.IGNORECASE)
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})+\.?", re.IGNORECASE)


def is_public(address: str) -> bool:
    """Whether an IP address is one of the open internet's, and wraps no other address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return parsed.is_global and not any(parsed in each for each in _IPV4_REFUSED)
    return (
        parsed.scope_id is None
        and parsed in _IPV6_UNICAST
        and parsed.is_global
        and not any(parsed in each for each in _IPV6_REFUSED)
    )


def allowed_host(text: str) -> tuple[str, int | None]:
    """Read an entry of `allow_hosts`: a host and, if it names one, a port."""
    host, port = "", None
    if text.isprintable() and not text.endswith(":") and not any(each in text for each in " /?#@%\\"):
        try:
            url = URL(f"http://{text}")
            host, port = (url.raw_host or "").removesuffix("."), url.explicit_port
        except ValueError:
            host = ""
    # What URL takes for an address in brackets, and has a colon, is one.
    if port == 0 or not (":" in host if text.startswith("[") else _LISTED.fullmatch(host)):
        raise ValueError(f"{text!r} is not a host; write name, name:port, or [address]:port")
    return host, port


@dataclass(frozen=True)
class Rules:
    """What may be visited, and what the settings allow beyond that."""

    allowed: frozenset[tuple[str, int | None]] = frozenset()

    @classmethod
    def of(cls, hosts: Iterable[str]) -> Rules:
        """The rules with such a list of hosts."""
        return cls(frozenset(allowed_host(each) for each in hosts))

    def trusts(self, url: URL) -> bool:
        """Whether the settings list this host: it may lead anywhere."""
        host = (url.raw_host or "").removesuffix(".")
        return (host, url.port) in self.allowed or ((host, None) in self.allowed and url.port in PORTS)

    def check(self, text: str) -> URL:
        """The URL, where it may be visited as far as its text tells; else `PageError`."""
        url = read_url(text)
        if self.trusts(url):
            return url
        host = url.raw_host or ""
        check_host(host)
        if url.port not in PORTS:
            raise PageError(f"port {url.port} is not visited; allowed: {', '.join(map(str, PORTS))}")
        return url


def read_url(text: str) -> URL:
    """A URL of HTTP(S) without anything odd about it; else `PageError`."""
    if len(text) > LONGEST_URL:
        raise PageError(f"the address has {len(text)} characters; allowed: {LONGEST_URL}")
    text = text.strip()
    if not text.isprintable() or any(each in text for each in " \\"):
        raise PageError("the address holds characters that no address has")
    try:
        url = URL(text)
        scheme, host, _ = url.scheme, url.raw_host, url.port
    except (ValueError, UnicodeError):
        raise PageError("that is not an address; write it like https://rivers.example/page") from None
    if scheme not in ("http", "https"):
        said = f"{plain(scheme, 20)}: is not visited" if scheme else "the address has no scheme"
        raise PageError(f"{said}; allowed: http, https; write it like https://rivers.example/page")
    if url.user is not None or url.password is not None:
        raise PageError("the address holds a user name or a password; pages are visited without")
    if not host:
        raise PageError("the address names no host; write it like https://rivers.example/page")
    return url.with_fragment(None)


def check_host(host: str) -> None:
    """Refuse, with a `PageError`, a host that is none of the open internet's, as far as its text tells."""
    if "%" in host:
        raise PageError("the host has a zone or an escape in it; that is not visited")
    if ":" in host or (_NUMERIC.fullmatch(host) and host.count(".") == 3):
        # Zeros in front are octal to some and decimal to others, and ipaddress refuses them.
        if not is_public(host):
            raise PageError(f"{plain(host, 60)} is not a public address; it is not visited")
        return
    if _NUMERIC.fullmatch(host) or _NUMERIC.fullmatch(host.rstrip(".").rpartition(".")[2]):
        raise PageError(f"{plain(host, 60)} is not a usual way to write an address; it is not visited")
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        raise PageError("localhost is not visited")
    if not _NAME.fullmatch(host):
        raise PageError(f"{plain(host, 60)} is not a public host name; it is not visited")
