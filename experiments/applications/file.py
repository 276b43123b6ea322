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


server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=KeepAlive)
print(server.port, flush=True)
server.serve_forever()
