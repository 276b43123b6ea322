#!/usr/bin/env python3
"""Checks the book.

    python3 docs/check.py links                      every link has a target, and SUMMARY.md every page
    python3 docs/check.py flags [PROGRAM]            every flag that the book gives to a command exists
    sudo python3 docs/check.py run PAGE [PROGRAM]    a page's blocks print what the page shows

PROGRAM is the `lowroad` to ask or to run. SHOW=1 prints every block with its output. `run` works in an empty
folder, with /run, the network and the mounts of its own.

    ```sh       run in one bash for the whole page, in order
    ```text     what the `sh` block before it prints. Numbers are compared, unless the comment
                `<!-- figures vary -->` precedes it. A line `...` stands for any lines, and `...` at the end of
                a line for the rest of it.
    ```NAME     any other named block is a file, if the paragraph before it ends with "`FILE`:"

A block that begins with `sleep` is repeated until it prints what the page shows. Blocks without a name are not run.
A command may fail only where the page shows its error.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

DOCS = os.path.dirname(os.path.abspath(__file__))
PAGES = os.path.join(DOCS, "src")
# A page waits this long for what it shows: a debug build on a busy machine takes seconds to load programs.
TIMEOUT_S = 60


def main(arguments):
    match arguments:
        case ["links"]:
            return report(links())
        case ["flags", *program]:
            return report(flags(chosen(program)))
        case ["run", page, *program]:
            return isolate(page, chosen(program))
        case ["inside", page, program]:
            return report(run(page, program))
    sys.exit(__doc__)


def chosen(program):
    match program:
        case []:
            return shutil.which("lowroad") or sys.exit("lowroad is not on PATH")
        case [path]:
            return path
    sys.exit(__doc__)


def report(findings):
    for finding in findings:
        print(finding)
    return 1 if findings else 0


# Links.


def links():
    root = os.path.dirname(DOCS)
    pages = [os.path.join(PAGES, name) for name in sorted(os.listdir(PAGES)) if name.endswith(".md")]
    others = [os.path.join(root, name) for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    findings = []
    for page in pages + others:
        name = os.path.relpath(page, root)
        for number, line in enumerate(prose(page), 1):
            for target in re.findall(r"\]\(([^)\s]+)\)", line):
                findings += [f"{name}:{number}: {why}" for why in broken(page, target)]
    with open(os.path.join(PAGES, "SUMMARY.md"), encoding="utf-8") as summary:
        listed = set(re.findall(r"\]\(([^)]+)\)", summary.read()))
    for page in pages:
        name = os.path.basename(page)
        if name != "SUMMARY.md" and name not in listed:
            findings.append(f"docs/src/{name}: SUMMARY.md does not list it")
    return findings


def prose(page):
    """The lines of a page, with those of its blocks left empty."""
    inside = False
    with open(page, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("```"):
                inside = not inside
            yield "" if inside else line


def broken(page, target):
    if re.match(r"[a-z]+:", target):
        return
    path, _, anchor = target.partition("#")
    file = os.path.join(os.path.dirname(page), path) if path else page
    if not os.path.exists(file):
        yield f"{target}: there is no such file"
    elif anchor and anchor not in anchors(file):
        yield f"{target}: the page has no such heading"


def anchors(page):
    seen = {}
    for line in prose(page):
        if heading := re.match(r"#+ (.*)", line):
            text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1])
            text = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
            seen[text] = seen.get(text, 0) + 1
    return {name if n == 0 else f"{name}-{n}" for name, count in seen.items() for n in range(count)}


# Flags.


def flags(program):
    known = {}
    walk(program, (), known)
    findings = []
    for page in [os.path.join(PAGES, name) for name in os.listdir(PAGES)] + [os.path.join(DOCS, "..", "README.md")]:
        with open(page, encoding="utf-8") as text:
            commands = re.sub(r"\\\n\s*", " ", text.read())
        for line in commands.splitlines():
            for words in re.findall(r"(?:^|[\s`/])lowroad ([^|;&`<>#]*)", line):
                findings += [f"{os.path.basename(page)}: {why}" for why in unknown(words.split(), known)]
    return sorted(set(findings))


def walk(program, verbs, known):
    """Collects the flags of a command and of the commands below it."""
    shown = subprocess.run([program, *verbs, "--help"], capture_output=True, text=True, check=False)
    if shown.returncode != 0:
        return
    known[verbs] = set(re.findall(r"--[a-z0-9][a-z0-9-]*", shown.stdout))
    if below := re.search(r"^Commands:\n(.*?)(?:\n\n|\Z)", shown.stdout, re.DOTALL | re.MULTILINE):
        for verb in re.findall(r"^  ([a-z][a-z0-9-]*)", below[1], re.MULTILINE):
            if verb != "help":
                walk(program, (*verbs, verb), known)


def unknown(words, known):
    """The flags among the words of a command that it does not have."""
    verbs = max((verbs for verbs in known if tuple(words[: len(verbs)]) == verbs), key=len)
    # Words of prose, and commands of another program that is not here.
    if not verbs:
        return
    for word in words[len(verbs) :]:
        flag = word.split("=")[0].strip("'\".,:()[]")
        if re.fullmatch(r"--[a-z][a-z0-9-]*", flag) and flag not in known[verbs]:
            yield f"lowroad {' '.join(verbs)} has no {flag}"


# Blocks.


def isolate(page, program):
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    own = [sys.executable, os.path.abspath(__file__), "inside", os.path.abspath(page)]
    space = ["unshare", "--net", "--mount", "--pid", "--kill-child", "--mount-proc", "--propagation", "private"]
    return subprocess.run([*space, *own, os.path.abspath(program)], check=False).returncode


def run(page, program):
    # Sockets and namespaces of the page are not those of the machine.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        # Whatever lies below, the work folder's file system is one that a capture supports.
        disk, work = os.path.join(folder, "disk"), os.path.join(folder, "work")
        os.mkdir(work)
        with open(disk, "wb") as image:
            image.truncate(512 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=1,root_owner=0:0", disk], check=True)
        subprocess.run(["mount", "-o", "loop", disk, work], check=True)
        try:
            return [f"{os.path.basename(page)}:{why}" for why in play(page, program, folder)]
        finally:
            subprocess.run(["umount", "--lazy", work], check=True)


def play(page, program, folder):
    programs, work = os.path.join(folder, "bin"), os.path.join(folder, "work", "empty")
    os.mkdir(programs)
    os.mkdir(work)
    os.symlink(program, os.path.join(programs, "lowroad"))
    sudo = os.path.join(programs, "sudo")
    with open(sudo, "w", encoding="utf-8") as script:
        script.write('#!/bin/sh\nexec "$@"\n')
    os.chmod(sudo, 0o755)
    path = f"{programs}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": work, "LC_ALL": "C.UTF-8"}
    with open(os.path.join(folder, "terminal"), "wb+", buffering=0) as terminal:
        shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE, stdout=terminal, stderr=terminal, cwd=work, env=environment, text=True,
        )
        session = Session(shell, terminal.name, folder)
        try:
            for block in blocks(page):
                if why := session.do(block):
                    return [why]
        finally:
            shell.kill()
    return []


class Session:
    """A shell, and what it has printed."""

    def __init__(self, shell, terminal, folder):
        self.shell, self.terminal, self.folder = shell, terminal, folder
        self.start = 0
        self.count = 0
        self.failed = os.path.join(folder, "failed")
        self.tell(f"set -E; trap 'case $BASH_COMMAND in wait*) ;; *) echo \"$BASH_COMMAND\" >>{self.failed}; esac' ERR")

    def tell(self, line):
        self.shell.stdin.write(line + "\n")
        self.shell.stdin.flush()

    def printed(self):
        with open(self.terminal, encoding="utf-8", errors="replace") as terminal:
            terminal.seek(self.start)
            return terminal.read()

    def do(self, block):
        if block.file:
            # The shell may have gone to another folder.
            with open(f"/proc/{self.shell.pid}/cwd/{block.file}", "w", encoding="utf-8") as file:
                file.write(block.text)
            return None
        deadline = time.monotonic() + TIMEOUT_S
        while not self.runs(block, deadline):
            if not block.text.startswith("sleep") or time.monotonic() > deadline:
                return f"{block.line}: expected\n{block.shown}it printed\n{self.printed()}"
        shows_failure = block.shown and re.search(r"^error:|^cannot run here", block.shown, re.MULTILINE)
        if os.path.exists(self.failed) and not shows_failure:
            with open(self.failed, encoding="utf-8") as failed:
                return f"{block.line}: failed: {failed.read()}{self.printed()}"
        if os.path.exists(self.failed):
            os.remove(self.failed)
        if os.environ.get("SHOW"):
            print(f"== {block.line}\n{block.text}-- printed\n{self.printed()}", flush=True)
        return None


    def runs(self, block, deadline):
        """Whether the block ends, and prints what the page shows."""
        self.start = os.path.getsize(self.terminal)
        self.count += 1
        script = os.path.join(self.folder, f"{self.count}.sh")
        done = os.path.join(self.folder, f"{self.count}.done")
        with open(script, "w", encoding="utf-8") as file:
            file.write(block.text)
        self.tell(f". {script}; : >{done}")
        while time.monotonic() < deadline and self.shell.poll() is None:
            if os.path.exists(done):
                if block.matches(self.printed()):
                    return True
                if block.text.startswith("sleep"):
                    return False
            time.sleep(0.02)
        return False


class Block:
    def __init__(self, line, text, file=None):
        self.line, self.text, self.file = line, text, file
        self.shown, self.varies = None, False

    def matches(self, printed):
        return self.shown is None or re.fullmatch(pattern(self.shown, self.varies), printed) is not None


def pattern(shown, varies):
    """What an output has to match: any amount of space, and any figures where they vary."""
    lines = []
    for line in shown.splitlines():
        if line.strip() == "...":
            lines.append(r"(?:[^\n]*\n)*?")
            continue
        is_cut = line.endswith("...")
        words = [re.escape(word) for word in line.removesuffix("...").split()]
        if varies:
            words = [re.sub(r"\d(?:[\d,:]|\\\.)*", r"[\\d.,:]+", word) for word in words]
        lines.append(r"\s*" + r"\s+".join(words) + (r"[^\n]*\n" if is_cut else r"[ \t]*\n"))
    return "".join(lines) + r"\s*"


def blocks(page):
    found, before, varies, block = [], "", False, None
    with open(page, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if block is not None:
                if line.startswith("```"):
                    finish(found, block, before, varies)
                    block, before, varies = None, "", False
                else:
                    block[2].append(line)
            elif line.startswith("```"):
                block = (number, line[3:].strip(), [])
            elif line.strip() == "<!-- figures vary -->":
                varies = True
            elif line.strip():
                before = line.rstrip()
    return found


def finish(found, block, before, varies):
    number, language, lines = block
    text = "".join(lines)
    if language == "sh":
        found.append(Block(number, text))
    elif language == "text":
        found[-1].shown, found[-1].varies = text, varies
    elif language and (name := re.search(r"`([^`]+)`:$", before)):
        found.append(Block(number, text, name[1]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
