"""Fixtures of the tests of admission: a user's view of the API server, and the chart's policies in force."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest
from asking import TESTERS, Asking, create, patch
from candidates import Obj
from inforce import EXEMPT_GROUP, VALUES, Standing, probes_of, refusing, until
from older_api import older_api

from cocoon_devkit.chart import Chart
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.rawapi import Api

KINDS = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}


@pytest.fixture(scope="session")
def ask(api: Api) -> Asking:
    """The API server as the administrator."""
    return Asking(api)


@pytest.fixture(scope="session")
def users(cluster: Cluster) -> Iterator[None]:
    """Two groups with all rights, which the API server does not know as administrators."""
    names = (TESTERS, EXEMPT_GROUP)
    for name in names:
        cluster.kubectl("create", "clusterrolebinding", name, "--clusterrole=cluster-admin", f"--group={name}")
    yield
    cluster.kubectl("delete", "clusterrolebinding", *names)


@pytest.fixture(scope="module")
def standing(cluster: Cluster, ask: Asking, users: None) -> Iterator[Standing]:
    there = Standing(f"test-{uuid.uuid4().hex[:8]}")
    cluster.kubectl("create", "namespace", there.namespace)
    account = ("get", "serviceaccount", "default", "--namespace", there.namespace)
    until(lambda: cluster.kubectl(*account, check=False).returncode == 0, "the namespace has its ServiceAccount")
    cluster.kubectl.apply(*there.everything())
    with older_api(cluster):
        for each in there.without_spec():
            ask.allows(create(each).stored())
    yield there
    for each in there.without_spec():
        ask.says(patch(each, {"metadata": {"finalizers": None}}).stored())
    cluster.kubectl("delete", "namespace", there.namespace, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="module")
def policies(cluster: Cluster, ask: Asking, standing: Standing) -> Iterator[list[Obj]]:
    """The chart's policies, every one of them in force; others of the run do not meet them."""
    objects = [each for each in Chart.on(cluster).render(VALUES) if each["kind"] in KINDS]
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kubectl("apply", "-f", "-", stdin=items)
    probes = probes_of(standing)
    try:
        until(lambda: refusing(ask, probes) == set(probes), "every policy is in force")
        yield objects
    finally:
        cluster.kubectl("delete", "--wait=false", "-f", "-", stdin=items)
        until(lambda: refusing(ask, probes) == set(), "no policy is in force any more")


@pytest.fixture
def alice(ask: Asking, policies: list[Obj]) -> Asking:
    """A user who may do everything but what the policies keep from her."""
    return ask.as_user("alice")
