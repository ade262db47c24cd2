"""TLS to the registry: whom we trust, and who we are to one that asks for a certificate (mTLS)."""

from __future__ import annotations

import ssl
from pathlib import Path

from cocoon_operator.clients.registry.credentials import fingerprint
from cocoon_operator.clients.registry.failures import CredentialsError


def default_tls() -> ssl.SSLContext:
    """Return TLS settings: verified certificates, TLS 1.2 or newer (S322)."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class ClientCertificate:
    """Our certificate and its key: PEM files by path, the key without a password."""

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate = Path(certificate)
        self._key = Path(key)
        self._seen: object = None
        self._tls: ssl.SSLContext | None = None

    def tls(self) -> ssl.SSLContext:
        """Return :func:`default_tls` with this certificate: new settings as soon as a file is another.

        Raises :class:`CredentialsError` for files that cannot be read or are no pair; the next call tries them again.
        """
        seen = (fingerprint(self._certificate), fingerprint(self._key))
        if self._tls is None or seen != self._seen:
            self._tls = self._load()
            self._seen = seen
        return self._tls

    def _load(self) -> ssl.SSLContext:
        context = default_tls()
        try:
            # Without a password here, an encrypted key makes OpenSSL ask for one at the terminal.
            context.load_cert_chain(self._certificate, self._key, password="")
        except ssl.SSLError:
            raise CredentialsError(
                f"{self._certificate} and {self._key} are not a certificate and its key in PEM, without a password"
            ) from None
        except OSError as error:
            raise CredentialsError(f"cannot read {self._certificate} or {self._key}: {error.strerror}") from None
        return context
