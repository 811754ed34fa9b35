"""The service as a Ray Serve application, on a local cluster of one machine."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
from running import events

import weft
from random_models import make_random
from task_models import tokenizer_of
from weft.errors import InputError
from weft.serve.app import create_app
from weft.serve.arguments import address_of, open_listener
from weft.serve.on_ray import RayArguments, RayReplica, build_application, ray_application
from weft.serve.served import Service

ray = pytest.importorskip("ray")
serve = pytest.importorskip("ray.serve", reason="needs ray[serve]")

KEY = "a-key-for-the-cluster"
PROMPT = "Alice was beginning to get very tired"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ray")
    (folder / "keys").write_text(KEY)
    make_random("gpt2", vocabulary=500, tokenizer=tokenizer_of("gpt2")).save(folder / "story")
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[httpx.Client]:
    """Asks a cluster that ends with the test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # or Ray would keep one in the home folder
        patch.delenv("RAY_ADDRESS", raising=False)
        with open_listener("127.0.0.1", 0) as listener:  # to find a port that is free
            address = address_of(listener)
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=2**27)
        try:
            serve.start(http_options={"host": "127.0.0.1", "port": int(address.rpartition(":")[2])})
            arguments = RayArguments(models=str(folder / "story"), key_file=folder / "keys", memory="16MB")
            serve.run(build_application(arguments))
            with httpx.Client(base_url=address, timeout=60, headers={"Authorization": f"Bearer {KEY}"}) as client:
                yield client
        finally:
            serve.shutdown()
            ray.shutdown()


def test_answers_are_those_of_the_library(client: httpx.Client, folder: Path):
    assert [one["id"] for one in client.get("/v1/models").json()["data"]] == ["story"]
    wanted = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0}
    found = client.post("/v1/completions", json=wanted).json()["choices"][0]["text"]
    assert found == weft.load(folder / "story", "cpu").generate(PROMPT, max_new_tokens=12)
    answer = client.post("/v1/completions", json={**wanted, "stream": True})
    assert "".join(one["choices"][0]["text"] for one in events(answer.text)) == found


def test_a_replica_refuses_as_the_service_does(client: httpx.Client):
    refused = [
        client.get("/v1/models", headers={"Authorization": "Bearer another"}),
        client.get("/v1/models", headers={"Host": "example.org"}),
        client.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": -1}),
    ]
    assert [answer.status_code for answer in refused] == [401, 403, 400]
    assert refused[-1].json()["error"]["param"] == "max_tokens"


def test_a_key_is_needed(folder: Path):
    with pytest.raises(InputError, match="does not exist"):
        ray_application([str(folder / "story")], folder / "no-keys")


def test_options_are_those_of_ray(folder: Path):
    application = ray_application([str(folder / "story")], folder / "keys", num_replicas=3)
    deployment = application._bound_deployment
    assert (deployment.num_replicas, deployment.max_ongoing_requests) == (3, 1200)


def test_a_replica_with_a_dead_compute_thread_is_unhealthy():
    replica, service = RayReplica(), Service([])
    replica.app = create_app(service)
    replica.check_health()
    service.worker.error = MemoryError()
    with pytest.raises(RuntimeError, match="MemoryError"):
        replica.check_health()
