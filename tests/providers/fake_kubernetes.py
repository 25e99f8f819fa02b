"""An API server that knows the ``scale`` subresource of StatefulSets and nothing else, as the real one speaks it.

Paths, verbs, media types, status codes, `Status` bodies, resourceVersions and their conflicts, bearer tokens, RBAC by
verb and name. Its controller lets one pod a read come or go.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

TOKEN = "a-token"
PATH = "/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}/scale"
MERGE_PATCHES = ("application/merge-patch+json", "application/strategic-merge-patch+json")


@dataclass
class StatefulSet:
    replicas: int = 0
    num_pods: int = 0
    resource_version: int = 1
    num_meddlers: int = 0
    """Times that somebody else changes it, each between a read and the patch that follows."""


@dataclass
class FakeKubernetes:
    """StatefulSets by namespace and name."""

    sets: dict[tuple[str, str], StatefulSet] = field(default_factory=dict)
    allowed: set[tuple[str, str]] = field(default_factory=set)
    """(Verb, name) that the token may do with ``statefulsets/scale``."""
    calls: list[tuple[str, str]] = field(default_factory=list)
    runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Listen on a free port; the URL."""
        app = web.Application()
        app.add_routes([web.get(PATH, self._get), web.patch(PATH, self._patch)])
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self.runner is not None:
            await self.runner.cleanup()
            self.runner = None

    async def _get(self, request: web.Request) -> web.Response:
        found = self._find(request, "get")
        if isinstance(found, web.Response):
            return found
        found.num_pods += (found.replicas > found.num_pods) - (found.replicas < found.num_pods)
        shown = self._show(request, found)
        if found.num_meddlers:
            found.num_meddlers -= 1
            found.resource_version += 1
        return shown

    async def _patch(self, request: web.Request) -> web.Response:
        found = self._find(request, "patch")
        if isinstance(found, web.Response):
            return found
        if request.content_type not in MERGE_PATCHES:
            return status(415, "UnsupportedMediaType", request.content_type)
        body = await request.json()
        version = body.get("metadata", {}).get("resourceVersion")
        if version is not None and version != str(found.resource_version):
            return status(409, "Conflict", "the object has been modified")
        replicas = body["spec"]["replicas"]
        if not isinstance(replicas, int) or replicas < 0:
            return status(422, "Invalid", "spec.replicas: must be greater than or equal to 0")
        found.replicas = replicas
        found.resource_version += 1
        return self._show(request, found)

    def _find(self, request: web.Request, verb: str) -> StatefulSet | web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        self.calls.append((verb, name))
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return status(401, "Unauthorized", "Unauthorized")
        if (verb, name) not in self.allowed:
            return status(403, "Forbidden", f'cannot {verb} resource "statefulsets/scale" in API group "apps"')
        if (namespace, name) not in self.sets:
            return status(404, "NotFound", f'statefulsets.apps "{name}" not found')
        return self.sets[namespace, name]

    def _show(self, request: web.Request, found: StatefulSet) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        return web.json_response(
            {
                "kind": "Scale",
                "apiVersion": "autoscaling/v1",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": "0a1b",
                    "resourceVersion": str(found.resource_version),
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                },
                # as the real one, which leaves out what is 0
                "spec": {"replicas": found.replicas} if found.replicas else {},
                "status": {"replicas": found.num_pods, "selector": f"app={name}"},
            }
        )


def status(code: int, reason: str, message: str) -> web.Response:
    """What the API server says when it refuses."""
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return web.Response(status=code, text=json.dumps(body), content_type="application/json", reason=reason)


def write_kubeconfig(path: Path, url: str, namespace: str | None, token: str = TOKEN) -> None:
    """As ``kubectl`` keeps it."""
    context: dict[str, str] = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": context}],
    }
    path.write_text(yaml.safe_dump(config))
