"""What an answer about a manifest says, and what it does not (S324, S325, W-09)."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from cocoon_operator.api import keys, setrules
from cocoon_operator.clients.registry.failures import AuthRefusedError, RegistryError
from cocoon_operator.clients.registry.patience import TRANSIENT_STATUSES, parse_retry_after
from cocoon_operator.clients.registry.reference import is_digest
from cocoon_operator.clients.registry.transport import Reply

# A registry answers 404 for a manifest of a type that the client does not accept (N201): all that are in use.
ACCEPT: Final = ", ".join(
    (
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v1+prettyjws",
        "application/vnd.docker.distribution.manifest.v1+json",
    )
)

_DIGEST_HEADER: Final = "Docker-Content-Digest"
_REGISTRY_HEADER: Final = "Docker-Distribution-Api-Version"
_CODE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,39}")
_MISSING_CODES: Final = frozenset({"MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_FOUND"})
_LONGEST_LENGTH: Final = 18

UNREADABLE_IMAGE: Final = "(unreadable)"
"""A base image that is told but can be the name of none. It differs from every image that a set can ask for."""

T = TypeVar("T")


class _Annotations(msgspec.Struct):
    base_image: object = msgspec.field(name=keys.MANIFEST_BASE_IMAGE, default=None)


class _Manifest(msgspec.Struct):
    annotations: _Annotations | None = None


class _Error(msgspec.Struct):
    code: object = None


class _Errors(msgspec.Struct):
    errors: list[_Error] | None = None


_MANIFEST: Final = msgspec.json.Decoder(_Manifest)
_ERRORS: Final = msgspec.json.Decoder(_Errors)


@dataclass(frozen=True, slots=True)
class Target:
    """One manifest: the repository with its path, and a tag or a digest."""

    repository: str
    reference: str

    @property
    def name(self) -> str:
        """As people write it: ``repository:tag`` or ``repository@digest``."""
        return f"{self.repository}{'@' if is_digest(self.reference) else ':'}{self.reference}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest as the registry sent it, its digest checked."""

    digest: str
    content_type: str
    body: bytes = field(repr=False)

    @property
    def base_image(self) -> str:
        """The image that the saved VM was made from, "" where the manifest does not tell.

        Whoever may push can write anything there, and it is repeated in events: see :data:`UNREADABLE_IMAGE`.
        """
        document = _read(_MANIFEST, self.body)
        image = document.annotations.base_image if document is not None and document.annotations is not None else None
        if not isinstance(image, str):
            return ""
        readable = len(image) <= setrules.MAX_IMAGE and image.isprintable() and " " not in image
        return image if readable else UNREADABLE_IMAGE


def read_digest(reply: Reply, target: Target) -> str:
    """Return the digest that a 200 names; :class:`RegistryError` when the answer is not one of a registry (S324)."""
    digest = reply.headers.get(_DIGEST_HEADER, "")
    if not is_digest(digest):
        raise RegistryError(f"the answer for {target.name} has no well-formed {_DIGEST_HEADER}")
    if not reply.headers.get("Content-Type"):
        raise RegistryError(f"the answer for {target.name} has no Content-Type")
    if is_digest(target.reference) and digest != target.reference:
        raise RegistryError(f"the registry answered with another manifest than {target.name}")
    return digest


def read_length(reply: Reply, target: Target) -> int:
    """Return the size that the answer to a HEAD names, in bytes; :class:`RegistryError` when it names none."""
    length = reply.headers.get("Content-Length", "")
    if not (length.isascii() and length.isdigit() and len(length) <= _LONGEST_LENGTH):
        raise RegistryError(f"the answer for {target.name} has no Content-Length")
    return int(length)


def read_manifest(reply: Reply, target: Target) -> Manifest:
    """Return the manifest of a 200, or raise :class:`RegistryError` when its bytes are not those of its digest."""
    digest = read_digest(reply, target)
    if hashlib.sha256(reply.body).hexdigest() != digest.removeprefix("sha256:"):
        raise RegistryError(f"the manifest of {target.name} does not have the digest that came with it")
    return Manifest(digest, reply.headers["Content-Type"], reply.body)


def is_registrys_own(reply: Reply) -> bool:
    """Tell whether a 404 surely comes from a registry and not from something in front of it, or in its place (W-09).

    Registries mark their answers with a header or name an error code of the distribution specification; an ingress without
    a backend, a wrong proxy or a web site does neither. A HEAD has no body, so it can only carry the header.
    """
    return reply.headers.get(_REGISTRY_HEADER, "").startswith("registry/") or not _MISSING_CODES.isdisjoint(
        error_codes(reply)
    )


def error_codes(reply: Reply) -> list[str]:
    """Return the distribution specification's error codes of an answer. Its messages are free text and are left alone."""
    document = _read(_ERRORS, reply.body)
    codes = [error.code for error in document.errors or ()] if document is not None else []
    return [code for code in codes if isinstance(code, str) and _CODE.fullmatch(code)]


def refusal(reply: Reply, target: Target, asked: str) -> RegistryError:
    """Return the error for an answer that says neither present nor absent; ``asked`` is the HTTP method."""
    told = ", ".join([str(reply.status), *error_codes(reply)[:3]])
    if reply.status in {401, 403}:
        return AuthRefusedError(f"the registry refuses the operator's credentials ({told}) to {asked} {target.name}")
    if 300 <= reply.status < 400:
        return RegistryError(
            f"the registry redirects ({told}) {asked} {target.name}: name the right host in OCI_REGISTRY"
        )
    return RegistryError(
        f"the registry answered {told} to {asked} {target.name}",
        transient=reply.status in TRANSIENT_STATUSES,
        retry_after=parse_retry_after(reply.headers.get("Retry-After")),
    )


def _read(decoder: msgspec.json.Decoder[T], body: bytes) -> T | None:
    """Return what a body holds of the fields that are looked at, None when it cannot be read; nothing else of it is kept."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
