"""Serve the built site as the simplest host would, to this machine alone."""

import contextlib
import functools
import gzip
import http.server
import mimetypes
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: What a host packs; pictures and fonts are packed already.
PACKED = {".html", ".js", ".css", ".svg", ".json", ".txt", ".xml"}


class Server(http.server.ThreadingHTTPServer):
    """A server of files below a path, which counts what it sends.

    Attributes:
        address: Where the site begins, without a slash at its end.
        sent: (path, bytes) of every answer.
        missing: The paths that were asked for and are not there.
    """

    daemon_threads = True

    def __init__(self, site: Path, below: str = ""):
        super().__init__(("127.0.0.1", 0), Answer)
        self.site, self.below = site, below
        self.sent: list[tuple[str, int]] = []
        self.missing: list[str] = []
        self.address = f"http://127.0.0.1:{self.server_port}{below}"

    @functools.lru_cache(maxsize=512)  # noqa: B019
    def packed(self, path):
        data = path.read_bytes()
        return gzip.compress(data, 6) if path.suffix in PACKED else data


class Answer(http.server.BaseHTTPRequestHandler):
    """One answer: a file, packed where a browser can unpack it."""

    server: Server

    def do_GET(self):
        asked = unquote(urlsplit(self.path).path)
        path = self.server.site / asked.removeprefix(
            self.server.below).lstrip("/")
        if path.is_dir():
            path = path / "index.html"
        if not asked.startswith(self.server.below) or not path.is_file():
            self.server.missing.append(asked)
            self.send_error(404)
            return
        data = self.server.packed(path)
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "max-age=600")
        if path.suffix in PACKED:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.server.sent.append((asked, len(data)))
        with contextlib.suppress(ConnectionError):  # the page was closed
            self.wfile.write(data)

    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def serve(site: Path, below: str = ""):
    """Serve a site at ``server.address`` until the block ends."""
    server = Server(site, below)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
