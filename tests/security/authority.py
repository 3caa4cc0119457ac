"""A certificate authority of a test's own, made with the openssl command."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.waiting import DEADLINE_S


class Authority:
    """Signs certificates; `trust` is the file that others believe."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self.trust = str(folder / f"{name}.pem")
        key = str(folder / f"{name}.key")
        _openssl("req", "-x509", *_NEW_KEY, "-keyout", key, "-out", self.trust, "-days", "2", "-subj", f"/CN={name}")

    def keystore(self, name: str, address: str = "IP:127.0.0.1", *, days: int = 2) -> str:
        """Key and certificate of a peer at this address, in one file; for -1 days it expired yesterday."""
        key, asked, path = (self._folder / f"{name}.{kind}" for kind in ("key", "csr", "keystore.pem"))
        _openssl("req", *_NEW_KEY, "-keyout", str(key), "-out", str(asked), "-subj", f"/CN={name}")
        names = self._folder / f"{name}.ext"
        names.write_text(f"subjectAltName={address}\n")
        signed = _openssl(
            *("x509", "-req", "-in", str(asked), "-CA", self.trust, "-CAkey", str(self._folder / f"{self._name}.key")),
            *("-CAcreateserial", "-days", str(days), "-extfile", str(names)),
        )
        path.write_bytes(key.read_bytes() + signed)
        path.chmod(0o600)
        return str(path)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*words: str) -> bytes:
    return subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=DEADLINE_S).stdout
