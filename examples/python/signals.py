"""What cancellation does in a server on `mcp` 1.x, for whoever runs it: a log line for each cancelled request on
stderr, and a page for Prometheus on http://127.0.0.1:9464/ (set METRICS_PORT for another port)."""

import logging
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import countermand
from mcp.server.fastmcp import FastMCP

server = FastMCP("example", log_level="WARNING")


@server.tool()
async def send(seconds: float) -> str:
    """Sends something that cannot be taken back, and then takes its time."""
    countermand.current().commit()
    await anyio.sleep(seconds)
    return "sent"


class Page(BaseHTTPRequestHandler):
    """What Prometheus scrapes."""

    def do_GET(self) -> None:
        """Every page is the one page."""
        page = countermand.prometheus().encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Scrapes are not news."""


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("countermand").setLevel(logging.INFO)
    pages = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("METRICS_PORT", "9464"))), Page)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    countermand.run(server)
