"""The origin's application: each request rewrites a small file."""

import logging
import os
import sys

from flask import Flask
from werkzeug.serving import WSGIRequestHandler, make_server

logging.getLogger("werkzeug").setLevel(logging.ERROR)
path = os.path.join(sys.argv[1], "test.txt")
app = Flask(__name__)


@app.get("/")
def rewrite():
    with open(path, "w") as file:
        file.write("Hello, World!")
    return "written\n"


class KeepAlive(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are sent apart: the second would wait until the first is acknowledged.
    disable_nagle_algorithm = True

    def send_header(self, keyword, value):
        # Werkzeug closes every connection, for applications that leave a body unread.
        if keyword != "Connection":
            super().send_header(keyword, value)


server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=KeepAlive)
print(server.port, flush=True)
server.serve_forever()
