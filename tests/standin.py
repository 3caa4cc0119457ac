"""A stand-in for a broker, run as a script: it serves `/readyz` and obeys SIGTERM. It needs nothing of ours."""

from __future__ import annotations

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _StandIn(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        status = "ready" if self.path == "/readyz" else os.environ.get("STANDIN_HEALTH", "green")
        self.wfile.write(json.dumps({"status": status, "reasons": ["said the stand-in"]}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def stand_in(properties: Path) -> None:
    pairs = dict(line.split("=", 1) for line in properties.read_text().splitlines() if line[0] != "#")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ThreadingHTTPServer(
        ("127.0.0.1", int(pairs["listeners"].split(",")[0].rpartition(":")[2])), _StandIn
    ) as server:
        print("stand-in listens", flush=True)  # noqa: T201 (for its log)
        server.serve_forever()


if __name__ == "__main__":
    stand_in(Path(sys.argv[sys.argv.index("--config") + 1]))
