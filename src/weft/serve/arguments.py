"""What the command line says, checked before anything heavy is loaded: names of models, sizes, the address."""

import re
import socket
from collections.abc import Sequence
from pathlib import Path

from weft.errors import InputError

BACKLOG = 2048  # connections that wait to be accepted
_NAME = re.compile(r"[^\s/\\?#%\x00-\x1f]{1,200}")
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def named_folders(given: Sequence[str]) -> dict[str, Path]:
    """Folders by the name of their model. `given`: FOLDER or NAME=FOLDER. A run folder's model has the run's name."""
    found: dict[str, Path] = {}
    for one in given:
        name, equals, rest = one.partition("=")
        has_name = bool(equals) and not Path(one).exists()
        folder = Path(rest if has_name else one)
        if not has_name:
            whole = folder.resolve()
            name = whole.parent.name if whole.name == "model" and whole.parent.name else whole.name
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r} cannot be a model's name: no spaces and none of / \\ ? # %. Use NAME=FOLDER.")
        if name in found:
            raise InputError(f"Two models are named {name}. Name one of them: {name}-2={folder}.")
        found[name] = folder
    return found


def parse_bytes(text: str) -> int:
    """`2GB`, `512MiB` or a number of bytes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2].upper() not in _UNITS:
        raise InputError(f"{text!r} is not a size of memory; write 2GB, 512MB or a number of bytes.")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def open_listener(host: str, port: int) -> socket.socket:
    """Raises InputError if the address cannot be used. Port 0 is any that is free."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG)
        # Connections inherit it. Without it, a small body waits 40 ms for the client to confirm the headers.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OverflowError:
        raise InputError(f"--port is from 0 to 65535, not {port}.") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"Cannot listen at {host} port {port}: {reason}. Another --port may be free.") from None


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
