"""What one request, one client and one queue may take."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ServiceLimits:
    queue: int = 64  # requests that wait for each model
    body_bytes: int = 2 * 2**20
    all_body_bytes: int = 2**28  # of all requests being answered
    answers: int = 512  # prompts × n of a request; texts of a request to a model that reads
    tokens: int = 2**20  # of a request: prompts and the most new tokens of all its answers
    stops: int = 16  # stop strings
    connections: int = 2_000  # open connections
    requests: int = 1_200  # requests being answered
    seconds: float = 600.0  # from the first byte of a request to its answer
    header_seconds: float = 10.0  # to send the headers of a request
    body_seconds: float = 30.0  # to send its body
    keep_alive_seconds: int = 30  # between two requests of a connection
    shutdown_seconds: float = 60.0  # to finish what was admitted
    pending_bytes: int = 2**20  # of a stream that its client does not read
    ping_seconds: float = 15.0  # of silence in a stream
