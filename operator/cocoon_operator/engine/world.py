"""The Kubernetes API as decisions see it (:class:`cocoon_operator.reconcile.ports.Cluster`).

Every answer goes into the cache before the caller gets it, so that the next view contains it (W-59). A write whose
outcome is not known, or that failed because the view was behind, leaves a doubt: the next view of the set reads the
object live.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import structlog

from cocoon_operator.api import keys
from cocoon_operator.api.errors import ConflictError, InvalidError, KubeError, NotFoundError, UnavailableError
from cocoon_operator.api.hibernation import Hibernation, hibernation_from_object
from cocoon_operator.api.pod import Pod, pod_from_object
from cocoon_operator.clients.kubernetes.client import KubeClient
from cocoon_operator.clients.kubernetes.resources import HIBERNATIONS, PODS, SETS
from cocoon_operator.engine.cache import Cache, OwnWrite, Ref
from cocoon_operator.engine.store import Key
from cocoon_operator.engine.triggers import (
    hibernation_fingerprint,
    pod_fingerprint,
    set_fingerprint,
    set_of_label,
    sets_of_pod,
)
from cocoon_operator.reconcile.objects import SetObject, set_from_object

log = structlog.get_logger(__name__)

Object = dict[str, Any]

_VIEW_WAS_BEHIND: Final = (404, 409)
# What the API server says (422, not 409) when a patch names the UID of an earlier object of this name.
_REPLACED: Final = "metadata.uid"


class World:
    """Live reads and writes through one client, overlaid on one cache."""

    def __init__(self, client: KubeClient, cache: Cache) -> None:
        self._client = client
        self._cache = cache

    # -- reads -----------------------------------------------------------------------------------------------------

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        """Read a pod live; the cache learns from it."""
        known = self._cache.pods.get(Key(namespace, name))
        try:
            pod = await self._client.get(PODS, namespace, name, Pod)
        except NotFoundError:
            if known is not None:
                self._cache.miss_pod(known)
            return None
        self._learn_pod(pod)
        return pod

    async def list_pods(self, namespace: str, set_name: str) -> Sequence[Pod]:
        """List the pods with a set's label live; the cache learns from it."""
        selector = f"{keys.LABEL_SET}={set_name}"
        known = self._cache.pods.grouped(Key(namespace, set_name))
        pods, version = await self._client.list_objects(PODS, Pod, namespace=namespace, selector=selector)
        for pod in pods:
            self._learn_pod(pod)
        listed = {pod.uid for pod in pods}
        for pod in known:
            if pod.uid not in listed:
                self._cache.miss_pod(pod, at=version)
        return sorted(pods, key=lambda pod: pod.name)

    async def settle(self, key: Key) -> None:
        """Read live what the next view of a set may not take from the cache. Raises :class:`KubeError`."""
        for ref in self._cache.doubtful(key):
            if ref.kind == "pod":
                await self.get_pod(ref.key.namespace, ref.key.name)
            elif ref.kind == "set":
                await self._get_set(ref.key)
            else:
                await self._get_hibernation(ref.key)
            self._cache.trust(key, ref)

    async def _get_set(self, key: Key) -> None:
        known = self._cache.sets.get(key)
        try:
            obj = await self._client.get(SETS, key.namespace, key.name, Object)
        except NotFoundError:
            if known is not None:
                self._cache.lose_set(known)
            return
        self._cache.see_set(set_from_object(obj))

    async def _get_hibernation(self, key: Key) -> None:
        known = self._cache.hibernations.get(key)
        try:
            obj = await self._client.get(HIBERNATIONS, key.namespace, key.name, Object)
        except NotFoundError:
            if known is not None:
                self._cache.lose_hibernation(known)
            return
        self._cache.see_hibernation(hibernation_from_object(obj))

    # -- pods ------------------------------------------------------------------------------------------------------

    async def create_pod(self, namespace: str, body: Mapping[str, Any]) -> Pod:
        """Create a pod. A name that is taken leaves a doubt, since the cache did not know of it."""
        wanted = pod_from_object(body)
        ref = Ref("pod", Key(namespace, wanted.name))
        with self._write(ref, _sets(namespace, wanted)) as write:
            pod = await self._client.create(PODS, namespace, body, Pod)
            self._learn_pod(pod)
            write.expected = pod_fingerprint(pod)
        log.info("pod created", pod=pod.name)
        return pod

    async def patch_pod(self, pod: Pod, annotations: Mapping[str, str | None], *, guarded: bool = False) -> Pod:
        """Merge-patch annotations of exactly this pod."""
        metadata: Object = {"uid": pod.uid, "annotations": dict(annotations)}
        if guarded:
            metadata["resourceVersion"] = pod.resource_version
        ref = Ref("pod", Key(pod.namespace, pod.name))
        with self._write(ref, sets_of_pod(pod)) as write:
            before = self._cache.pods.get(ref.key)
            answer = await self._client.merge_patch(PODS, pod.namespace, pod.name, {"metadata": metadata}, Pod)
            self._learn_pod(answer)
            write.expected = pod_fingerprint(_annotated(before or answer, annotations))
        log.info("pod patched", pod=pod.name, annotations=sorted(annotations))
        return answer

    async def delete_pod(self, pod: Pod) -> bool:
        """Delete exactly this pod as it was seen (W-34). False: it was gone already (W-32)."""
        ref = Ref("pod", Key(pod.namespace, pod.name))
        with self._write(ref, sets_of_pod(pod)) as write:
            before = self._cache.pods.get(ref.key)
            try:
                answer = await self._client.delete(
                    PODS, pod.namespace, pod.name, uid=pod.uid, resource_version=pod.resource_version
                )
            except NotFoundError:
                self._cache.miss_pod(pod)
                return False
            self._take_deletion(pod, answer, before, write)
        log.info("pod deleted", pod=pod.name)
        return True

    def _take_deletion(self, pod: Pod, answer: Object, before: Pod | None, write: OwnWrite) -> None:
        left = _pod_of_answer(answer)
        if left is None or not left.terminating:
            # Without a grace period the pod is gone with the answer; its end is news for the set.
            self._cache.miss_pod(pod)
            return
        self._learn_pod(left)
        write.expected = pod_fingerprint(_terminating(before or left, left.metadata.deletion_timestamp))

    def _learn_pod(self, pod: Pod) -> None:
        """Keep a pod that the informer follows; one without the label would never be heard of again."""
        if set_of_label(pod) is None:
            self._cache.lose_pod(pod)
        else:
            self._cache.see_pod(pod)

    # -- sets ------------------------------------------------------------------------------------------------------

    async def patch_set(
        self,
        target: SetObject,
        *,
        annotations: Mapping[str, str | None] | None = None,
        finalizers: Sequence[str] | None = None,
    ) -> SetObject:
        """Merge-patch annotations and finalizers; the spec is out of reach (I10, W-57)."""
        metadata = _preconditions(target)
        if annotations is not None:
            metadata["annotations"] = dict(annotations)
        if finalizers is not None:
            metadata["finalizers"] = list(finalizers)
        return await self._patch_set(target, {"metadata": metadata}, subresource="")

    async def patch_set_status(self, target: SetObject, status: Mapping[str, Any]) -> SetObject:
        """Merge-patch the status subresource."""
        return await self._patch_set(
            target, {"metadata": _preconditions(target), "status": dict(status)}, subresource="status"
        )

    async def _patch_set(self, target: SetObject, body: Object, *, subresource: str) -> SetObject:
        key = Key(target.namespace, target.name)
        with self._write(Ref("set", key), {key}) as write:
            answer = await self._client.merge_patch(
                SETS, target.namespace, target.name, body, Object, subresource=subresource
            )
            obj = set_from_object(answer)
            if obj.deleting and not obj.finalizers:
                # The last finalizer went: the object went with it, and the key has to see that.
                self._cache.lose_set(obj)
            else:
                self._cache.see_set(obj)
                # The version was a precondition, so nothing but our patch lies between the target and the answer.
                write.expected = set_fingerprint(obj)
        return obj

    # -- hibernations ----------------------------------------------------------------------------------------------

    async def patch_hibernation(self, target: Hibernation, *, finalizers: Sequence[str]) -> Hibernation:
        """Replace the finalizers; the spec is out of reach (I10, W-57)."""
        metadata = {**_preconditions(target), "finalizers": list(finalizers)}
        return await self._patch_hibernation(target, {"metadata": metadata}, subresource="")

    async def patch_hibernation_status(self, target: Hibernation, status: Mapping[str, Any]) -> Hibernation:
        """Merge-patch the status subresource."""
        body = {"metadata": _preconditions(target), "status": dict(status)}
        return await self._patch_hibernation(target, body, subresource="status")

    async def _patch_hibernation(self, target: Hibernation, body: Object, *, subresource: str) -> Hibernation:
        ref = Ref("hibernation", Key(target.namespace, target.name))
        with self._write(ref, set()) as write:
            answer = await self._client.merge_patch(
                HIBERNATIONS, target.namespace, target.name, body, Object, subresource=subresource
            )
            obj = hibernation_from_object(answer)
            if obj.deleting and not obj.finalizers:
                self._cache.lose_hibernation(obj)
            else:
                self._cache.see_hibernation(obj)
                write.expected = hibernation_fingerprint(obj)
        return obj

    # -- every write -----------------------------------------------------------------------------------------------

    @contextmanager
    def _write(self, ref: Ref, concerned: set[Key]) -> Iterator[OwnWrite]:
        with self._cache.writing(ref) as write:
            write.concerned |= concerned
            try:
                yield write
            except KubeError as error:
                replaced = isinstance(error, InvalidError) and _REPLACED in error.message
                if replaced or not error.outcome_known or error.status in _VIEW_WAS_BEHIND:
                    self._cache.doubt(ref, write.concerned)
                if replaced:
                    raise ConflictError(error.message, status=error.status, reason=error.reason) from error
                raise
            except BaseException:
                # Cancelled in the middle: nobody knows how it ended.
                self._cache.doubt(ref, write.concerned)
                raise


def _sets(namespace: str, pod: Pod) -> set[Key]:
    return {Key(namespace, key.name) for key in sets_of_pod(pod)}


def _preconditions(target: SetObject | Hibernation) -> Object:
    return {"uid": target.uid, "resourceVersion": target.resource_version}


def _pod_of_answer(answer: Object) -> Pod | None:
    """Read the answer of a delete: a pod, or a ``Status`` that says it is gone."""
    if answer.get("kind") != "Pod":
        return None
    try:
        return pod_from_object(answer)
    except msgspec.ValidationError as error:
        raise UnavailableError(f"the API server's answer cannot be read: {error}") from error


def _annotated(pod: Pod, changes: Mapping[str, str | None]) -> Pod:
    merged = {**pod.annotations, **changes}
    annotations = {key: value for key, value in merged.items() if value is not None}
    return _with_metadata(pod, annotations=annotations)


def _terminating(pod: Pod, since: str | None) -> Pod:
    return _with_metadata(pod, deletion_timestamp=since)


def _with_metadata(pod: Pod, **changes: Any) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, **changes)
    return msgspec.structs.replace(pod, metadata=metadata)
