"""Runs what the documents show, so that it cannot be wrong.

    python docs/code_blocks.py                   every page, two at a time
    python docs/code_blocks.py README.md ...     some

Each page runs in a folder of its own, which holds the files of example_files.py, and in a process of its
own. Its python blocks share their names, as if typed one after another; one that begins with
``# NAME.py``, or has ``title="NAME.py"``, is also written to that file. Of shell blocks the lines that
start with ``assay`` or ``curl`` run, a comparison that names no number of seeds with one. A block after
the comment ``<!-- output -->`` must say what the blocks before it printed. The first thing that fails ends
the page, with its line.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: seconds that a page, and a command that would go on for ever, may take
PAGE_SECONDS = 300
_WHILE_SECONDS = 20
_ASSAY = [sys.executable, "-m", "assay"]

#: lines of shell blocks that do not run, and why
NOT_RUN = {
    "assay verify cp2": "a claim takes minutes; the claims' own tests run it small",
    "assay compare housing.csv --target price --backend ray --address auto": "no cluster runs here",
}
#: first words of lines that install or build, which .ci/run does in its other steps
_BUILDING = {"make", "pip", "python3", ".", "export"}


@dataclass(frozen=True)
class Block:
    """A fenced block: the line of its fence, its language, what stands after that, its text."""

    line: int
    language: str
    options: str
    text: str
    is_output: bool


class BlockFailed(Exception):
    """A block did not do what the page says; the message begins with page and line."""


_FENCE = re.compile(
    r"(?P<mark><!-- output -->\n+)?^```(?P<language>\w+)(?P<options>[^\n]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page that name a language, in order."""
    content = path.read_text(encoding="utf-8")
    return [
        Block(
            content.count("\n", 0, m.start("language")) + 1,
            m["language"],
            m["options"].strip(),
            m["text"],
            bool(m["mark"]),
        )
        for m in _FENCE.finditer(content)
    ]


def shell_lines(block: Block) -> Iterator[tuple[int, str]]:
    """(number of its first line, command) of a shell block; continued lines are joined."""
    number, command = block.line, ""
    for offset, line in enumerate(block.text.splitlines(), start=1):
        number = number if command else block.line + offset
        command += line
        if command.endswith("\\"):
            command = command[:-1]
            continue
        if shlex.split(command, comments=True):
            yield number, command
        command = ""


class Page:
    """One page being run, in the current folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = vars(sys.modules["__main__"])  # where classes are looked for that are pickled
        self.printed = ""
        self._services: list[subprocess.Popen[str]] = []
        self._port = 0

    def run(self) -> None:
        """Run all blocks.

        Raises
        ------
        BlockFailed
            With page, line, and what went wrong.
        """
        try:
            for block in blocks(self.path):
                if block.is_output:
                    self._compare(block)
                elif block.language == "python":
                    self._python(block)
                elif block.language == "sh":
                    for number, command in shell_lines(block):
                        self._command(number, command)
        finally:
            for service in self._services:
                service.send_signal(signal.SIGTERM)
        for service in self._services:
            if service.wait(_WHILE_SECONDS):
                raise self._failed(0, f"assay serve ended with status {service.returncode}")

    def _failed(self, line: int, what: str) -> BlockFailed:
        return BlockFailed(f"{_shown(self.path)}:{line}: {what}")

    def _python(self, block: Block) -> None:
        name = re.search(r'title="([\w.]+\.py)"', block.options) or re.match(r"# ([\w.]+\.py)\n", block.text)
        if name:
            Path(name[1]).write_text(block.text, encoding="utf-8")
        text = "\n" * block.line + block.text  # so that a traceback names the line of the page
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                exec(compile(text, str(self.path), "exec"), self.names)
        except Exception as error:
            frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(self.path)]
            line = frames[-1].lineno if frames else getattr(error, "lineno", None)
            raise self._failed(line or block.line, f"{type(error).__name__}: {error}") from error
        self.printed += said.getvalue()

    def _command(self, line: int, command: str) -> None:
        argv = shlex.split(command, comments=True)
        if argv[0] in _BUILDING or shlex.join(argv) in NOT_RUN:
            return
        if argv[:2] == ["assay", "serve"]:
            self._serve(line, argv[1:])
        elif "--follow" in argv or "|" in argv:
            self._for_a_while(line, command)
        elif argv[0] == "assay":
            if argv[1] == "compare" and "--seeds" not in argv:
                argv += ["--seeds", "1"]
            self._finish(line, [*_ASSAY, *("last" if word == "RUN" else word for word in argv[1:])])
        elif argv[0] == "curl":
            self._finish(line, ["curl", "-sS", "--fail-with-body", *self._here(argv[1:])])
        else:
            raise self._failed(line, f"nothing is known of the command {argv[0]!r}; add it to {__file__}")

    def _finish(self, line: int, argv: list[str]) -> None:
        """Run a command to its end; it must succeed."""
        done = subprocess.run(argv, text=True, capture_output=True, check=False, stdin=subprocess.DEVNULL)
        self.printed += done.stdout + done.stderr
        if done.returncode:
            shown = (done.stderr or done.stdout)[-2000:]
            raise self._failed(line, f"{shlex.join(argv)}: status {done.returncode}\n{shown}")

    def _for_a_while(self, line: int, command: str) -> None:
        """Run what goes on until Ctrl-C for some seconds, then press it."""
        plain = re.sub(r"\bassay\b", shlex.join(_ASSAY), command, count=1)
        with subprocess.Popen(
            ["bash", "-c", plain], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as going:  # fmt: skip
            time.sleep(_WHILE_SECONDS / 4)
            early = going.poll()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(going.pid, signal.SIGINT)
            try:
                said, _ = going.communicate(timeout=_WHILE_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(going.pid, signal.SIGKILL)
                raise self._failed(line, f"{command}: does not end on Ctrl-C") from None
        self.printed += said
        if early is not None or going.returncode not in (0, 130, -signal.SIGINT) or "error:" in said:
            raise self._failed(line, f"{command}: status {going.returncode}\n{said[-2000:]}")

    def _serve(self, line: int, argv: list[str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        service = subprocess.Popen([*_ASSAY, *argv, "--port", str(self._port)], text=True)
        self._services.append(service)
        for _ in range(10 * _WHILE_SECONDS):
            time.sleep(0.1)
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(f"http://127.0.0.1:{self._port}/ready")
                return
            if service.poll() is not None:
                break
        raise self._failed(line, f"assay {shlex.join(argv)}: it does not answer")

    def _here(self, words: list[str]) -> list[str]:
        """The words of a curl command, with the port on which the service listens."""
        return [word.replace("127.0.0.1:8000", f"127.0.0.1:{self._port}") for word in words]

    def _compare(self, block: Block) -> None:
        """What the block shows was printed: JSON by its values, lines of text up to white space."""
        if block.language == "json":
            expected = json.loads(block.text)
            if not any(_alike(found, expected) for found in _json_values(self.printed)):
                raise self._failed(block.line, f"no such answer came; it was\n{self.printed[-2000:]}")
            return
        printed = " ".join(self.printed.split())
        for offset, text in enumerate(block.text.splitlines(), start=1):
            if " ".join(text.split()) not in printed:
                raise self._failed(block.line + offset, f"was not printed; it was\n{self.printed[-2000:]}")


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name)


def _json_values(text: str) -> Iterator[Any]:
    """Every JSON object that begins somewhere in the text."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", text):
        with contextlib.suppress(json.JSONDecodeError):
            yield decoder.raw_decode(text, match.start())[0]


def _alike(found: Any, expected: Any) -> bool:
    """Equal, numbers up to what another machine rounds differently."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and found.keys() == expected.keys() and all(
            _alike(found[key], value) for key, value in expected.items()
        )  # fmt: skip
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(_alike, found, expected))
    if isinstance(expected, float) and isinstance(found, float):
        return abs(found - expected) <= 1e-6 * abs(expected)
    return bool(found == expected)


#: a script whose names are those of the page alone
_RUN_HERE = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from code_blocks import run_here
run_here(sys.argv[1])
"""


def run_here(path: str) -> None:
    """Run a page in this process and the current folder; what fails ends the process."""
    del sys.path[0]
    try:
        Page(Path(path)).run()
    except BlockFailed as error:
        sys.exit(str(error))


def run_in_process(path: Path, files: Path, store: Path) -> str:
    """Run a page in a process and a folder of its own; what failed, or ""."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(files, folder, dirs_exist_ok=True)
        environment = {**os.environ, "ASSAY_STORE": str(store), "PYTHONPATH": _search_path(folder)}
        argv = [sys.executable, "-c", _RUN_HERE, str(Path(__file__).parent), str(path)]
        try:
            done = subprocess.run(
                argv, cwd=folder, env=environment, text=True, capture_output=True, timeout=PAGE_SECONDS,
                check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"{_shown(path)}:0: not done after {PAGE_SECONDS} s"
        return "" if done.returncode == 0 else (done.stderr or f"{path}: status {done.returncode}")[-4000:]


def _search_path(folder: str) -> str:
    """The page's folder first, as for somebody who works in it."""
    return os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])


def pages() -> list[Path]:
    """All documents with something that runs, those that take long first."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    with_code = [path for path in found if any(b.language in ("python", "sh") for b in blocks(path))]
    return sorted(with_code, key=lambda path: -path.read_text(encoding="utf-8").count("assay compare"))


def main(argv: list[str]) -> int:
    """Run the pages that are named, or all; 1 if one fails."""
    sys.path.insert(0, str(ROOT / "docs"))
    import example_files

    chosen = [Path(name).resolve() for name in argv] or pages()
    failed = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        files = Path(folder) / "files"
        files.mkdir()
        example_files.write(files)
        began = time.monotonic()
        started = {
            path: pool.submit(run_in_process, path, files, Path(folder) / "runs.db") for path in chosen
        }
        for path, result in started.items():
            if found := result.result():
                failed.append(found)
            said = f"{time.monotonic() - began:4.0f} s  {_shown(path)}"
            print(said + ("  FAILED" if found else ""), flush=True)
    for found in failed:
        print(f"\n{found}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
