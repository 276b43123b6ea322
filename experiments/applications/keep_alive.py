"""Serves a WSGI application over connections that stay open, which Werkzeug's server closes."""

import io
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def serve(application):
    """Answers on a port of its own, which it prints, until it is killed."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body are sent apart: the second would wait until the first is acknowledged.
        disable_nagle_algorithm = True

        def answer(self):
            length = int(self.headers.get("Content-Length", 0))
            said = []
            environment = {
                "REQUEST_METHOD": self.command,
                "SCRIPT_NAME": "",
                "PATH_INFO": self.path,
                "QUERY_STRING": "",
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(length),
                "SERVER_NAME": "localhost",
                "SERVER_PORT": str(self.server.server_port),
                "SERVER_PROTOCOL": self.request_version,
                "wsgi.version": (1, 0),
                "wsgi.url_scheme": "http",
                "wsgi.input": io.BytesIO(self.rfile.read(length)),
                "wsgi.errors": sys.stderr,
                "wsgi.multithread": True,
                "wsgi.multiprocess": False,
                "wsgi.run_once": False,
            }
            body = b"".join(application(environment, lambda *words: said.extend(words[:2])))
            status, headers = said
            self.send_response(int(status.split()[0]))
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
