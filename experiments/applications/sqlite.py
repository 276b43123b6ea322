"""Each request inserts a row with an index into an SQLite database, and commits."""

import logging
import os
import sqlite3
import sys
import threading

from flask import Flask, request
from werkzeug.serving import WSGIRequestHandler, make_server

logging.getLogger("werkzeug").setLevel(logging.ERROR)
path = os.path.join(sys.argv[1], "rows.db")
app = Flask(__name__)
local = threading.local()


def database():
    """The thread's own connection."""
    if not hasattr(local, "connection"):
        local.connection = sqlite3.connect(path)
        local.connection.execute("pragma journal_mode = wal")
        local.connection.execute("pragma synchronous = normal")
    return local.connection


with database() as first:
    first.execute("create table rows (id integer primary key, key text, body blob)")
    first.execute("create index keys on rows (key)")


@app.post("/")
def insert():
    body = request.get_data()
    with database() as connection:
        connection.execute("insert into rows (key, body) values (?, ?)", (body[:16].hex(), body))
    return "inserted\n"


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
