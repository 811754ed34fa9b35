"""Which addresses may be requested. Every request is checked here: for a page, a redirect, a robots.txt.

`parse` splits a URL and refuses what is not plainly a page on the web. `checked_ips` resolves the host once and returns
the IP addresses to connect to; all of them must be public. The caller must connect to these IP addresses and not to the
name: resolved again, a name may lead elsewhere (DNS rebinding).

The lists below are IANA's special-purpose registries (RFC 6890). They are written out because what Python's `ipaddress`
calls global depends on its version and includes multicast and NAT64.
"""

import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

REFUSED = "address refused"
_PORTS = {"http": 80, "https": 443}
# Ports above 1023 of other services than the web (https://fetch.spec.whatwg.org/#port-blocking).
_BAD_PORTS = {1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, *range(6665, 6670), 6679, 6697, 10080}
_LONGEST_URL = 8_000
SAFE = "/%:=&?~+!$,;'@()*[]"  # characters of a path or query that are not escaped
_HOST = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
_NUMBER_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")  # as the last label of a host: an IPv4 address in some notation

_CLOSED_V4 = [
    ipaddress.IPv4Network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # Azure's metadata service
    )
]
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
# Teredo and other protocol assignments, documentation, 6to4 (an IPv4 address is inside), documentation.
_CLOSED_V6 = [ipaddress.IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # the last 32 bits are the IPv4 address that is reached

Resolver = Callable[[str], Sequence[str]]  # from a host name to all its IP addresses; OSError if it has none
Policy = Callable[[str], bool]  # whether an IP address may be requested


class NotFetched(Exception):
    """A page cannot be fetched. The message is the reason; the subject is the address: "is cut off". Reports count
    failures by `kind`.
    """

    def __init__(self, reason: str, kind: str = "other") -> None:
        super().__init__(reason)
        self.kind = kind


class TryLater(NotFetched):
    """The server may answer later: after `after` seconds, if it says so."""

    def __init__(self, reason: str, kind: str, after: float = 0.0) -> None:
        super().__init__(reason, kind)
        self.after = after


@dataclass(frozen=True)
class Address:
    scheme: str
    host: str  # a name in ASCII and lower case, or an IP address without brackets
    port: int
    target: str  # path and query, in ASCII

    @property
    def netloc(self) -> str:
        """As in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.target}"

    def at(self, target: str) -> "Address":
        return Address(self.scheme, self.host, self.port, target)


def parse(url: str) -> Address:
    """Raises NotFetched if the URL may not be requested."""
    if len(url) > _LONGEST_URL:
        raise NotFetched(f"leads to an address of more than {_LONGEST_URL:,} characters", REFUSED)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if ":" not in host:
            host = host.encode("idna").decode().lower()
    except (ValueError, UnicodeError):
        raise NotFetched(f"leads to {url[:80]!r}, which is not a valid address", REFUSED) from None
    if parts.scheme not in _PORTS or not host:
        raise NotFetched(f"leads to {url[:80]!r}, which is not on the web", REFUSED)
    if "@" in parts.netloc:  # mostly a trick: the name looks like the host
        raise NotFetched(f"leads to {url[:80]!r}, which has a user name in it", REFUSED)
    target = quote(parts.path or "/", SAFE) + (f"?{quote(parts.query, SAFE)}" if parts.query else "")
    return Address(parts.scheme, _host(host), _PORTS[parts.scheme] if port is None else port, target)


def _host(host: str) -> str:
    """The host in one notation. `0x7f.1` and `2130706433`, which some programs read as IPv4 addresses, are refused."""
    if ":" in host or _NUMBER_LABEL.fullmatch(host.rstrip(".").rpartition(".")[2]):
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            raise NotFetched(f"leads to {host[:80]!r}, which is not an IP address", REFUSED) from None
    if not _HOST.fullmatch(host) or len(host) > 253:
        raise NotFetched(f"leads to {host[:80]!r}, which is not a host", REFUSED)
    return host.removesuffix(".")


def is_open(ip: str) -> bool:
    """Whether the IP address is public: not of this machine, its network or its provider."""
    try:
        found = ipaddress.ip_address(ip)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv4Address):
        return not any(found in network for network in _CLOSED_V4)
    if found.scope_id is not None:
        return False
    if found in _NAT64:
        return is_open(str(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)))
    return found in _GLOBAL_V6 and not any(found in network for network in _CLOSED_V6)


def is_named(address: Address, inside: Sequence[str]) -> bool:
    """Whether the setting `fetch.inside` names its host (for ports 80 and 443), or its host and port."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    named = {name.lower() for name in inside}
    return f"{host}:{address.port}" in named or (address.port in _PORTS.values() and host in named)


def checked_ips(address: Address, *, inside: bool, resolve: Resolver, policy: Policy) -> list[str]:
    """The IP addresses to connect to. Raises NotFetched if any of them may not be requested. With `inside` (the user
    named the host) any may. Names are resolved here and nowhere else.
    """
    try:
        found = [str(ipaddress.ip_address(address.host))]
    except ValueError:
        try:
            found = list(dict.fromkeys(resolve(address.host)))
        except (OSError, UnicodeError) as error:
            raise TryLater(f"cannot be reached ({address.host}: {error})", "no such host") from None
    if not found:
        raise TryLater(f"cannot be reached ({address.host} has no IP address)", "no such host")
    if inside:
        return found
    closed = [ip for ip in found if not policy(ip)]
    if closed:
        named = address.host if address.host == closed[0] else f"{address.host} ({closed[0]})"
        raise NotFetched(
            f"leads to {named}, which is not a public address (corpus.build.fetch.inside allows it)", REFUSED
        )
    if address.port not in _PORTS.values() and (address.port < 1024 or address.port in _BAD_PORTS):
        raise NotFetched(f"leads to port {address.port}, which is not a port of the web", REFUSED)
    return found


def system_resolver(seconds: float) -> Resolver:
    """The system's resolver. It has no timeout, so it runs in a thread that may be left behind."""

    def resolve(host: str) -> list[str]:
        found: list[str] = []
        failed: list[Exception] = []

        def look_up() -> None:
            try:
                found.extend(str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
            except (OSError, UnicodeError) as error:
                failed.append(error)

        thread = threading.Thread(target=look_up, daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            raise TimeoutError(f"no IP address within {seconds:g} seconds")
        if failed:
            raise failed[0]
        return found

    return resolve
