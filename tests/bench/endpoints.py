"""Broker endpoints for measuring: a process of its own that reads whole bodies and acknowledges, decoding nothing.

`python -m tests.bench.endpoints PORT COUNT` serves COUNT brokers on PORT, PORT+1, ... and prints a line for each
request it has answered: monotonic time, broker, path, bytes.
"""

from __future__ import annotations

import asyncio
import sys
import time

from aiohttp import web

ACKNOWLEDGED = b'{"error_code":0,"partitions":[]}'


def app_for(index: int) -> web.Application:
    async def acknowledge(request: web.Request) -> web.Response:
        size = 0
        async for chunk in request.content.iter_chunked(1 << 20):
            size += len(chunk)
        sys.stdout.write(f"{time.monotonic()} {index} {request.path} {size}\n")
        sys.stdout.flush()
        return web.Response(body=ACKNOWLEDGED, content_type="application/json")

    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/{path:.*}", acknowledge)
    return app


async def serve(port: int, count: int) -> None:
    runners = []
    for index in range(count):
        runner = web.AppRunner(app_for(index), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port + index).start()
        runners.append(runner)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    try:
        await asyncio.Event().wait()
    finally:
        for runner in runners:
            await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
