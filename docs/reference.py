#!/usr/bin/env python3
"""Writes the pages of the book that list all names of the interface, or checks that they are current.

    python3 docs/reference.py write [PROGRAM]
    python3 docs/reference.py check [PROGRAM]

PROGRAM is the `lowroad` to ask. Flags come from its help, keys of configuration files from its errors about an unknown
key, JSON fields from `packaging/openapi`, and metrics from the pages about them; tests compare the last two with the code.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

DOCS = os.path.dirname(os.path.abspath(__file__))
PAGES = os.path.join(DOCS, "src")
OPENAPI = os.path.join(DOCS, "..", "packaging", "openapi")
# Every command with results has these.
GLOBAL = {"--help", "--json", "--verbose", "--version"}
# A flag with more values has the name of its value instead.
MAX_VALUES = 8
# The beginning of a flag in a help text: its short form, its name, and its value.
FLAG = re.compile(r"^ {2,6}(?:(-\w), )?(--[a-z0-9][a-z0-9-]*)(?:[ =]<([^\n]*?)>|\[=<([^\n]*?)>\])?(?=\s|\.)", re.MULTILINE)


class Job:
    """A page: its commands, the sections of its configuration file, and what explains the names."""

    def __init__(self, name, commands, check=None, sections=(), metrics=None, more=""):
        self.name, self.commands, self.check, self.sections = name, commands, check, sections
        self.metrics, self.more = metrics, more


JOBS = [
    Job(
        "relay",
        ["relay"],
        ["relay", "serve", "--check"],
        [
            ("[relay]", "[relay]"),
            ("[[stream]]", "[[stream]]"),
            ("[[stream.subscriber]]", "[[stream]]\n[[stream.subscriber]]"),
        ],
        "metrics.md",
        "[Relay configuration](relay-configuration.md) explains the keys, and [Metrics](metrics.md#relay) the metrics.",
    ),
    Job(
        "features",
        ["features"],
        metrics="metrics.md",
        more="`lowroad features schema NAME` prints the columns of a [schema](features-schemas.md). "
        "[Metrics](metrics.md#features) explains the metrics.",
    ),
    Job(
        "router",
        ["router"],
        ["router", "run", "--check"],
        [("[router]", "[router]"), ("[rules]", '[router]\ndatapath = "xdp"\n[rules]')],
        "metrics.md",
        "[Run a router](router-run.md#configuration) explains the keys, and [Metrics](metrics.md#router) the metrics.",
    ),
    Job(
        "replicate",
        ["replicate"],
        ["replicate", "run", "--check"],
        [(f"[{name}]", f"[{name}]") for name in ("replicate", "[capture]", "[serve]", "[publish]", "[receive]", "[apply]")],
        "metrics-replicate.md",
        "[Replicate configuration](replicate-configuration.md) explains the keys, and "
        "[Metrics of replicate](metrics-replicate.md) the metrics.",
    ),
    Job("netbench", ["netbench"], more="[Output](netbench-output.md#json) has the JSON fields."),
    Job(
        "comparison",
        ["compare", "report", "selftest", "demo", "clean", "doctor", "completions", "man"],
        more="[Experiment files](experiment-file.md) has the keys of experiments, and [Results format](results.md) the JSON "
        "fields of records and summaries.",
    ),
]


def main(arguments):
    match arguments:
        case ["write" | "check" as verb]:
            program = shutil.which("lowroad") or sys.exit("lowroad is not on PATH")
        case ["write" | "check" as verb, program]:
            pass
        case _:
            sys.exit(__doc__)
    stale = []
    commands = help_of(program, ())[1]
    for command in commands:
        if not any(command in job.commands for job in JOBS):
            stale.append(f"no page has the command {command}: add it to JOBS of docs/reference.py")
    for job in JOBS:
        path = os.path.join(PAGES, f"reference-{job.name}.md")
        text = page(job, program)
        if verb == "write":
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        elif (line := difference(path, text)) is not None:
            stale.append(f"{os.path.basename(path)}: run `python3 docs/reference.py write`; it does not have: {line}")
    print("\n".join(stale), end="\n" if stale else "")
    return 1 if stale else 0


def difference(path, text):
    """The first line of a page that the file does not have in its place."""
    present = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            present = file.read()
    if present == text:
        return None
    lines = present.splitlines()
    differing = (line for number, line in enumerate(text.splitlines()) if lines[number : number + 1] != [line])
    return next(differing, "the end")


def page(job, program):
    parts = [
        f"# Names of {job.name}\n\n`docs/reference.py` writes this page from what lowroad itself prints.\n\n{job.more}\n",
        "## Flags\n\n" + table(["flag", "value", "default", "commands"], flag_rows(job, program)),
    ]
    if job.sections:
        rows = [[f"`{name}`", code(keys(job, program, start))] for name, start in job.sections]
        parts.append("## Configuration keys\n\n" + table(["section", "keys"], rows))
    if os.path.exists(openapi := os.path.join(OPENAPI, f"{job.name}.yaml")):
        rows = [[name, code(fields)] for name, fields in json_fields(openapi) if fields]
        parts.append(
            "## JSON fields\n\nAnswers and parameters of the control socket and of HTTP "
            f"(`packaging/openapi/{job.name}.yaml`):\n\n" + table(["object", "fields"], rows)
        )
    if job.metrics:
        rows = metric_rows(os.path.join(PAGES, job.metrics), f"lowroad_{job.name}_")
        parts.append("## Metrics\n\n" + table(["metric", "type", "labels"], rows))
    return "\n".join(parts)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cells) + " |" for cells in rows]
    return "".join(re.sub(r" +", " ", line) + "\n" for line in lines)


def code(names):
    return " ".join(f"`{name}`" for name in names)


# Flags.


def flag_rows(job, program):
    """The rows of the flags, each with the commands that have it with this value and default."""
    found = {}
    for command in job.commands:
        collect(program, (command,), 1 if len(job.commands) == 1 else 0, found)
    everywhere = {command for commands in found.values() for command in commands}
    rows = []
    for row, commands in sorted(found.items(), key=lambda item: (name_of(item[0]), item)):
        rows.append([*row, "all" if set(commands) == everywhere and len(commands) > 2 else ", ".join(commands)])
    return rows


def name_of(flag):
    """`--out` of the cells of `--out` with its short form."""
    return flag[0].split("`")[1]


def collect(program, verbs, hidden, found):
    """Adds the flags of a command and of the commands below it. Names leave out the first `hidden` verbs."""
    flags, below = help_of(program, verbs)
    # A job's own flags are in the help of all of its verbs.
    for verb in below:
        collect(program, (*verbs, verb), hidden, found)
    if not below:
        name = " ".join(verbs[hidden:]) or verbs[-1]
        for flag in flags:
            found.setdefault(flag, []).append(f"`{name}`")


def help_of(program, verbs):
    """The flags of a command, each with its value and default, and the commands below it."""
    shown = subprocess.run([program, *verbs, "--help"], capture_output=True, text=True, check=True).stdout
    flags = []
    for name, value, text in entries(shown):
        flag = (name, value, default_of(text))
        if name_of(flag) not in GLOBAL:
            flags.append(flag)
    below = re.search(r"^Commands:\n(.*?)(?:\n\n|\Z)", shown, re.DOTALL | re.MULTILINE)
    verbs = re.findall(r"^  ([a-z][a-z0-9-]*)", below[1], re.MULTILINE) if below else []
    return flags, [verb for verb in verbs if verb != "help"]


def default_of(text):
    """The default in an explanation: a value, or words."""
    default = re.search(r"\[default: ([^\]]*)\]", text)
    if default is None:
        return ""
    return default[1] if " " in default[1] else code([default[1]])


def entries(shown):
    """The flags in a help text: name, value and explanation."""
    starts = [*FLAG.finditer(shown)]
    ends = [*(start.start() for start in starts[1:]), len(shown)]
    for start, end in zip(starts, ends, strict=True):
        text = re.sub(r"\s+", " ", shown[start.end() : end].split("\n\nExamples:")[0])
        name = f"`{start[2]}`" + (f" `{start[1]}`" if start[1] else "")
        value = start[3] or (f"[={start[4]}]" if start[4] else "")
        if choices := re.search(r"\[possible values: ([^\]]*)\]", text):
            values = choices[1].split(", ")
            if len(values) <= MAX_VALUES:
                yield name, code(values), text
                continue
        yield name, code([value]).replace("|", "\\|") if value else "", text


# Configuration keys.


def keys(job, program, start):
    """The keys of a section, and those of the tables among them."""
    found = []
    for key in known(job, program, f'{start}\n"?" = 0\n'):
        inner = known(job, program, f'{start}\n{key} = {{ "?" = 0 }}\n')
        found += [f"{key}.{name}" for name in inner] or [key]
    return found


def known(job, program, text):
    """The keys that a program knows where a file has the key `?`."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "c.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        checked = subprocess.run([program, *job.check, "--config", path], capture_output=True, text=True, check=False)
    message = re.search(r'unknown key "\?"; known here: (.*)', checked.stderr)
    return message[1].split(", ") if message else []


# JSON fields.


def json_fields(path):
    """The schemas of a description, each with the names of its properties and of the objects within it."""
    objects, above = [], []
    with open(path, encoding="utf-8") as file:
        _, schemas = file.read().split("\n  schemas:\n")
    for line in schemas.splitlines():
        indent, key = len(line) - len(line.lstrip()), line.strip().split(":")[0]
        above = [(outer, name) for outer, name in above if outer < indent]
        if above and above[-1][1] == "properties":
            path = [name for (_, outer), (_, name) in zip(above, above[1:]) if outer == "properties"]
            objects[-1][1].append(".".join([*path, key]))
        if not above:
            objects.append((key, []))
        above.append((indent, key))
    return objects


# Metrics.


def metric_rows(path, prefix):
    with open(path, encoding="utf-8") as file:
        rows = [line.split("|") for line in file if line.startswith(f"| `{prefix}")]
    return [[cell.strip() for cell in row[1:4]] for row in rows]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
