"""Each request inserts a row with an index into an SQLite database, and commits."""

import os
import sqlite3
import sys
import threading

from flask import Flask, request
from keep_alive import serve

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


serve(app)
