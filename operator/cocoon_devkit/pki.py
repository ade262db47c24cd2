"""Keys and certificates for servers of one day on 127.0.0.1, and for their clients."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cocoon_devkit.ports import LOOPBACK

_VALID = datetime.timedelta(days=30)
_SKEW = datetime.timedelta(minutes=5)


@dataclass(frozen=True)
class ServerIdentity:
    """Files of a server's certificate, its key and the authority that clients have to trust."""

    certificate: Path
    key: Path
    authority: Path


def write_signing_key(file: Path) -> None:
    """A fresh P-256 key as PEM, readable by the owner only; service account tokens are signed with it."""
    _write_key(file, ec.generate_private_key(ec.SECP256R1()))


def issue_server_identity(folder: Path) -> ServerIdentity:
    """A fresh authority and a certificate of it for ``127.0.0.1`` and ``localhost``."""
    identity = ServerIdentity(folder / "server.crt", folder / "server.key", folder / "ca.crt")
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = _name("cocoon-devkit authority")
    authority = _builder(authority_name, authority_name, authority_key.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    server_key = ec.generate_private_key(ec.SECP256R1())
    addresses = [x509.IPAddress(ipaddress.ip_address(LOOPBACK)), x509.DNSName("localhost")]
    server = (
        _builder(_name(LOOPBACK), authority_name, server_key.public_key())
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    _write_certificate(identity.authority, authority, authority_key)
    _write_certificate(identity.certificate, server, authority_key)
    _write_key(identity.key, server_key)
    return identity


@dataclass(frozen=True)
class ClientIdentity:
    """Files of a client's certificate, which is its own authority, and of its key."""

    certificate: Path
    key: Path


def issue_client_identity(folder: Path, name: str) -> ClientIdentity:
    """A fresh certificate by which a client is known as ``name``."""
    identity = ClientIdentity(folder / "client.crt", folder / "client.key")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _builder(_name(name), _name(name), key.public_key()).add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
    )
    _write_certificate(identity.certificate, certificate, key)
    _write_key(identity.key, key)
    return identity


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALID)
    )


def _write_certificate(file: Path, builder: x509.CertificateBuilder, signer: ec.EllipticCurvePrivateKey) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def _write_key(file: Path, key: ec.EllipticCurvePrivateKey) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    # The API server takes the public half from the private key's file, but only in this older form ("EC PRIVATE KEY").
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
