#!/usr/bin/python3 -IS
"""`sudo` inside a desktop: asks for the password and runs the command as root of a user namespace.

Nothing in a desktop can become root of the host, so this is as far as it goes: the command sees uid 0 and may change
what the desktop's user owns (its home, /etc, /tmp), while /usr stays read-only. Options and messages are sudo's.
"""

import getpass
import os
import pwd
import sys

PASSWORD_FILE = "/run/deskroll/password"  # noqa: S105
STAMP_FILE = f"/run/user/{os.getuid()}/.sudo-stamp"
WITH_VALUE = {
    "-u": "user",
    "--user": "user",
    "-p": "prompt",
    "--prompt": "prompt",
    "-g": "group",
    "-C": "",
    "-D": "chdir",
}
FLAGS = {"S": "stdin", "n": "never", "k": "forget", "K": "forget", "E": "keep", "H": "home", "i": "login", "s": "shell",
         "b": "background", "v": "validate", "A": "askpass", "P": "groups"}  # fmt: skip
LONG = {"--stdin": "S", "--non-interactive": "n", "--reset-timestamp": "k", "--preserve-env": "E", "--set-home": "H",
        "--login": "i", "--shell": "s", "--background": "b", "--validate": "v", "--askpass": "A"}  # fmt: skip


def complain(message: str) -> None:
    """Print as sudo does, and end as sudo does."""
    sys.stderr.write(f"sudo: {message}\n")
    sys.exit(1)


def parse(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Split sudo's own options from the command."""
    options: dict[str, str] = {}
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name in WITH_VALUE:
            if not equals and not words:
                complain(f"option requires an argument -- '{name.lstrip('-')}'")
            options[WITH_VALUE[name]] = value if equals else words.pop(0)
        elif name in LONG:
            options[FLAGS[LONG[name]]] = "yes"
        elif word.startswith("--"):
            complain(f"unrecognized option '{word}'")
        else:
            read_cluster(word, words, options)
    return options, words


def read_cluster(word: str, words: list[str], options: dict[str, str]) -> None:
    """Read short options written together, such as -Sk or -uroot."""
    for place, letter in enumerate(word[1:], 1):
        if f"-{letter}" in WITH_VALUE:
            options[WITH_VALUE[f"-{letter}"]] = word[place + 1 :] or (words.pop(0) if words else "")
            return
        if letter not in FLAGS:
            complain(f"invalid option -- '{letter}'")
        options[FLAGS[letter]] = "yes"


def check_password(options: dict[str, str]) -> None:
    """Ask up to three times, unless the right password was given before."""
    if "forget" in options and os.path.exists(STAMP_FILE):  # noqa: PTH110  (pathlib costs 20 ms here)
        os.unlink(STAMP_FILE)  # noqa: PTH108
    if os.path.exists(STAMP_FILE):  # noqa: PTH110
        return
    with open(PASSWORD_FILE) as file:  # noqa: PTH123
        password = file.read()
    if "never" in options:
        complain("a password is required")
    prompt = options.get("prompt", f"[sudo] password for {pwd.getpwuid(os.getuid()).pw_name}: ")
    for _ in range(3):
        if ask(prompt, "stdin" in options) == password:
            with open(STAMP_FILE, "w"):  # noqa: PTH123
                return
        sys.stderr.write("Sorry, try again.\n")
    complain("3 incorrect password attempts")


def ask(prompt: str, from_stdin: bool) -> str:
    """Read one line, byte by byte from a pipe so that the command gets what follows."""
    if not from_stdin:
        try:
            return getpass.getpass(prompt)
        except (EOFError, OSError):
            complain(
                "a terminal is required to read the password; either use the -S option to read from standard input"
            )
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = b""
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    if not line and byte == b"":
        complain("no password was provided")
    return line.decode(errors="replace")


def run(options: dict[str, str], command: list[str]) -> None:
    """Replace this process by the command, as root of a user namespace unless another user was asked for."""
    env = dict(os.environ)
    while command and "=" in command[0] and not command[0].startswith("="):
        name, _, value = command.pop(0).partition("=")
        env[name] = value
    if {"login", "shell"} & options.keys():
        command = ["/bin/bash", *(["-c", " ".join(command)] if command else [])]
    if not command:
        complain("usage: sudo [-S] [-u user] command")
    me = pwd.getpwuid(os.getuid()).pw_name
    user = options.get("user", "root")
    env.update(SUDO_USER=me, SUDO_UID=str(os.getuid()), SUDO_COMMAND=" ".join(command))
    if user in ("root", "#0"):
        env.update(USER="root", LOGNAME="root")
        command = ["unshare", "--user", "--map-root-user", "--", *command]
    elif user != me:
        complain(f"unknown user: {user}")
    if "chdir" in options:
        os.chdir(options["chdir"])
    try:
        os.execvpe(command[0], command, env)  # noqa: S606
    except OSError:
        complain(f"{command[0]}: command not found")


def main() -> None:
    """Parse, ask, run."""
    options, command = parse(sys.argv[1:])
    if not command and "forget" in options:
        if os.path.exists(STAMP_FILE):  # noqa: PTH110
            os.unlink(STAMP_FILE)  # noqa: PTH108
        return
    check_password(options)
    if command or not {"validate"} & options.keys():
        run(options, command)


main()
