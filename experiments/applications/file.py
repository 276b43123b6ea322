"""The origin's application: each request rewrites a small file."""

import os
import sys

from flask import Flask
from keep_alive import serve

path = os.path.join(sys.argv[1], "test.txt")
app = Flask(__name__)


@app.get("/")
def rewrite():
    with open(path, "w") as file:
        file.write("Hello, World!")
    return "written\n"


serve(app)
