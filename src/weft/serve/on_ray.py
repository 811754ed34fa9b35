"""The service under Ray Serve: the same routes from several machines, with Ray's proxies and autoscaling.

Every replica is a whole service: it loads the models from folders of its own machine and has a compute thread, queues
and limits of its own. Ray's proxies only choose the replica, so a full queue is answered with 429 as elsewhere. A
replica whose compute thread is dead fails Ray's health check and is replaced.

A key is needed in any case: a cluster has more than one machine.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, field_validator

from weft.errors import needs
from weft.serve.arguments import named_folders, parse_bytes
from weft.serve.limits import ServiceLimits

if TYPE_CHECKING:
    from weft.serve.app import ServiceApp

_PURPOSE = "to serve from several machines"
_EVERYWHERE = "0.0.0.0"  # noqa: S104 (nothing listens here: it stands for Ray's proxies, wherever they do)


def ray_application(
    models: Sequence[str],
    key_file: Path | str,
    *,
    memory: str = "2GB",
    int8: bool = False,
    precision: str | None = None,
    draft: Path | str | None = None,
    allowed_hosts: Sequence[str] = (),
    limits: ServiceLimits | None = None,
    **deployment: Any,
) -> Any:
    """An application for `ray.serve.run`. `models`: FOLDER or NAME=FOLDER, on every machine. `key_file`: a key per
    line; it is read here and need not be on the other machines. `draft`: a smaller model for speculative decoding.
    `allowed_hosts`: the names of the service; addresses are known. `deployment`: Ray's options, such as num_replicas,
    autoscaling_config, ray_actor_options.
    """
    for package in ("starlette", "uvicorn", "prometheus_client"):
        needs(package, "ray-serve", _PURPOSE)
    serve = needs("ray.serve", "ray-serve", _PURPOSE)
    from weft.serve.security import Security

    folders = {name: folder.absolute() for name, folder in named_folders(models).items()}
    security = Security.of(_EVERYWHERE, Path(key_file), allowed_hosts)
    size, chosen = parse_bytes(memory), limits or ServiceLimits()
    guesses = None if draft is None else Path(draft).absolute()

    def build() -> "ServiceApp":
        """On each replica."""
        from weft.serve.app import create_app
        from weft.serve.loading import load_models
        from weft.serve.served import Service

        found = load_models(folders, memory=size, int8=int8, precision=precision, draft=guesses, limits=chosen)
        return create_app(Service(found, chosen), security)

    options = {
        "name": "weft",
        "max_ongoing_requests": chosen.requests,  # Ray's 5 would leave the batches empty
        "graceful_shutdown_timeout_s": chosen.shutdown_seconds,
        **deployment,
    }
    return serve.deployment(serve.ingress(build)(RayReplica), **options).bind()


class RayReplica:
    app: "ServiceApp"  # which serve.ingress sets

    def check_health(self) -> None:
        """Ray calls it every few seconds and replaces the replica if it raises."""
        error = self.app.state.service.worker.error
        if error is not None:
            raise RuntimeError(f"The compute thread is dead: {type(error).__name__}.")


class RayArguments(BaseModel):
    """The arguments of `serve run weft.serve.on_ray:build_application`, or of `args` in its YAML file. Several models:
    a list, or one text with commas.
    """

    model_config = ConfigDict(extra="forbid")
    models: list[str]
    key_file: Path
    memory: str = "2GB"
    int8: bool = False
    precision: str | None = None
    draft: Path | None = None
    allowed_hosts: list[str] = []
    queue: int = ServiceLimits.queue

    @field_validator("models", "allowed_hosts", mode="before")
    @classmethod
    def _split(cls, given: Any) -> Any:
        return given.split(",") if isinstance(given, str) else given


def build_application(arguments: RayArguments) -> Any:
    given = arguments.model_dump(exclude={"queue"})
    return ray_application(**given, limits=ServiceLimits(queue=arguments.queue))
