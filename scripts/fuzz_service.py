"""Requests that a service should refuse politely, made from its own OpenAPI document.

    python scripts/fuzz_service.py PORT [--cases 10000] [--seed 0]

First every field of every route, one at a time, with values of every wrong type. Then random bodies by schemathesis:
half of them fit the schema, half do not. A body names a model that is served, or nothing would be tried but its name.
The last line is JSON: how many answers of each status, and the requests that got none or one of 500 and above. A 503 is
no fault: it is what the service says when it cannot take a request.
"""

import argparse
import contextlib
import http.client
import json
import random
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

TEXT, PAIR = "Alice was beginning", {"text": "Alice was", "text_pair": "beginning to"}
COMPARED = {"source_sentence": "Alice", "sentences": ["a rabbit", "Alice"]}
# The end of a route: a model that can answer it, and a body that it answers.
GOOD: dict[str, tuple[str, dict[str, Any]]] = {
    "/v1/completions": ("story", {"prompt": TEXT, "max_tokens": 4}),
    "/v1/chat/completions": ("reply", {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 4}),
    "/embeddings": ("mask", {"input": TEXT}),
    "/v1/embeddings": ("mask", {"input": TEXT}),
    "text-classification": ("classify", {"inputs": TEXT, "parameters": {"top_k": 1}}),
    "classify": ("classify", {"inputs": [TEXT], "parameters": {"top_k": 1}}),
    "tasks/pair": ("pair", {"inputs": PAIR, "parameters": {"top_k": 1}}),
    "tasks/similarity": ("similarity", {"inputs": COMPARED}),
    "sentence-similarity": ("mask", {"inputs": COMPARED}),
    "tag": ("tag", {"inputs": TEXT, "parameters": {"aggregation_strategy": "simple"}}),
    "token-classification": ("tag", {"inputs": [TEXT, TEXT]}),
    "answer": ("answer", {"inputs": {"question": "Who?", "context": TEXT}, "parameters": {"top_k": 2}}),
    "question-answering": ("answer", {"inputs": [{"question": "Who?", "context": TEXT}]}),
    "intent": ("intent", {"inputs": TEXT}),
    "fill": ("mask", {"inputs": "Alice [MASK] tired", "parameters": {"top_k": 2, "targets": ["was", "is"]}}),
    "fill-mask": ("mask", {"inputs": ["Alice [MASK] tired"]}),
    "translate": ("translate", {"inputs": TEXT, "parameters": {"max_new_tokens": 4}}),
    "translation": ("translate", {"inputs": [TEXT]}),
    "summarize": ("summarize", {"inputs": TEXT}),
    "summarization": ("summarize", {"inputs": TEXT}),
    "reply": ("reply", {"inputs": TEXT}),
    "generate": ("story", {"inputs": TEXT, "parameters": {"max_new_tokens": 4}}),
    "text-generation": ("story", {"inputs": TEXT, "parameters": {"max_new_tokens": 4, "do_sample": True}}),
    "tasks/embed": ("mask", {"inputs": TEXT}),
    "feature-extraction": ("mask", {"inputs": [TEXT]}),
    "/embed": ("mask", {"inputs": TEXT}),
    "/embed_all": ("mask", {"inputs": TEXT}),
    "/predict": ("classify", {"inputs": TEXT}),
    "/rerank": ("pair", {"query": "Alice", "texts": [TEXT, "a rabbit"]}),
    "/v1/rerank": ("pair", {"query": "Alice", "documents": [TEXT, "a rabbit"]}),
    "/similarity": ("mask", {"inputs": COMPARED}),
    "/tokenize": ("story", {"inputs": TEXT}),
    "/decode": ("story", {"ids": [1, 2, 3]}),
}
WRONG: list[Any] = [
    None, True, 0, 1, -1, 2**31, 2**63, -(2**64), 10**400, 0.5, -1e308, "", "x", "0", "é\x00\ud800", "a" * 5000,
    [], [None], [1], [-1], ["x"], [""], [[]], [[1], "x"], [[[1]]], [{}], [0.5], [True], [2**40], ["x"] * 600,
    {}, {"x": 1}, {"": None}, {"1": 1e9}, {"text": 1}, {"type": "object"}, {"type": []}, {"$ref": "#"}, {"inputs": {}},
]  # fmt: skip
SECONDS = 180  # after which a request counts as stuck


class Fuzz:
    def __init__(self, port: int, seed: int) -> None:
        self.port, self.chance = port, random.Random(seed)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        self.statuses: Counter[str] = Counter()
        self.faults: list[dict[str, Any]] = []

    def document(self) -> dict[str, Any]:
        self.connection.request("GET", "/openapi.json")
        found: dict[str, Any] = json.load(self.connection.getresponse())
        return found

    def send(self, method: str, path: str, body: bytes | None, headers: dict[str, str] | None = None) -> int:
        """The status; 0 if there was none."""
        sent = {**({} if body is None else {"Content-Type": "application/json"}), **(headers or {})}
        for is_last in (False, True):  # the service may have ended an idle connection
            try:
                self.connection.request(method, path, body, sent)
                answer = self.connection.getresponse()
                said = answer.read()
                break
            except (http.client.HTTPException, OSError) as error:
                self.connection.close()
                if is_last or isinstance(error, TimeoutError):
                    self._note(method, path, body, type(error).__name__, b"")
                    return 0
        if answer.status >= 500 and answer.status != 503:
            self._note(method, path, body, str(answer.status), said)
        self.statuses[str(answer.status)] += 1
        return answer.status

    def _note(self, method: str, path: str, body: bytes | None, what: str, said: bytes) -> None:
        self.statuses[what] += 1
        request = f"{method} {path} {(body or b'')[:400]!r}"
        self.faults.append({"request": request, "what": what, "said": said[:300].decode("utf-8", "replace")})

    def model_for(self, path: str) -> str:
        if self.chance.random() < 0.2:
            return self.chance.choice([model for model, _ in GOOD.values()])
        return good_for(path)[0]


def good_for(path: str) -> tuple[str, dict[str, Any]]:
    return next((GOOD[end] for end in sorted(GOOD, key=len, reverse=True) if path.endswith(end)), ("story", {}))


def fields_of(
    schema: dict[str, Any], document: dict[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """The path of every field in a body, also of those inside others."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for name, field in schema.get("properties", {}).items():
        yield (*above, name)
        for kind in [field, *field.get("anyOf", ())]:
            if "$ref" in kind and len(above) < 3:
                yield from fields_of(kind, document, (*above, name))


def with_field(body: dict[str, Any], field: tuple[str, ...], value: Any) -> dict[str, Any]:
    first, rest = field[0], field[1:]
    inside = body.get(first)
    return {**body, first: with_field(inside if isinstance(inside, dict) else {}, rest, value) if rest else value}


def try_every_field(fuzz: Fuzz, document: dict[str, Any], share: float) -> None:
    """`share`: of all these requests, so that a short run takes seconds."""
    for path, method, schema in bodies_of(document):
        model, body = good_for(path)
        status = fuzz.send(method, path, json.dumps({**body, "model": model}).encode())
        if status != 200:
            fuzz.faults.append({"request": f"{method} {path}", "what": "the good request is refused", "said": status})
        for field in fields_of(schema, document):
            for value in WRONG:
                if fuzz.chance.random() < share:
                    wrong = with_field({**body, "model": model}, field, value)
                    fuzz.send(method, path, json.dumps(wrong).encode())


def bodies_of(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if "requestBody" in operation:
                yield path, method.upper(), operation["requestBody"]["content"]["application/json"]["schema"]


def try_at_random(fuzz: Fuzz, document: dict[str, Any], cases: int, seed: int) -> None:
    schema = schemathesis.openapi.from_dict(document)
    operations = [found.ok() for found in schema.get_all_operations()]
    tries = [(operation, mode) for operation in operations for mode in GenerationMode]
    sent = 0
    while sent < cases:
        for operation, mode in tries:
            each = max(1, min(50, cases // len(tries)) if operation.body else 1)
            seed += 1
            try_operation(fuzz, operation, mode, each, seed)
            sent += each
            if sent >= cases:
                return


def try_operation(fuzz: Fuzz, operation: Any, mode: GenerationMode, count: int, seed: int) -> None:
    # Only generation: a fault is noted, not searched for a smaller one.
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @hypothesis.given(operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        path = quote(case.formatted_path, safe="/%") + (f"?{urlencode(case.query, doseq=True)}" if case.query else "")
        fuzz.send(case.method, path, _bytes(fuzz, case), _sendable(dict(case.headers or {})))

    with contextlib.suppress(Unsatisfiable):  # nothing of the schema can be violated
        run()


def _bytes(fuzz: Fuzz, case: Any) -> bytes | None:
    body = case.body
    if isinstance(body, bytes):
        return body
    if type(body).__name__ == "NotSet":
        return None
    if isinstance(body, dict):
        body = {**body, "model": fuzz.model_for(case.path)}
        for name, most in (("n", 8), ("max_tokens", 64), ("max_completion_tokens", 64), ("beams", 8)):
            if isinstance(body.get(name), int):  # hours of work are no fault, but take hours
                body[name] = min(body[name], most)
    return json.dumps(body).encode()


def _sendable(headers: dict[str, Any]) -> dict[str, str]:
    return {
        name: value
        for name, value in headers.items()
        if isinstance(value, str) and value.isascii() and value.isprintable() and name.lower() != "content-length"
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("port", type=int)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    fuzz = Fuzz(options.port, options.seed)
    document = fuzz.document()
    every = sum(len(list(fields_of(schema, document))) for *_, schema in bodies_of(document)) * len(WRONG)
    try_every_field(fuzz, document, min(1.0, options.cases / 2 / every))
    sent = sum(fuzz.statuses.values())
    try_at_random(fuzz, document, options.cases - sent, options.seed)
    print(json.dumps({"statuses": dict(sorted(fuzz.statuses.items())), "faults": fuzz.faults[:50]}), flush=True)


if __name__ == "__main__":
    main()
