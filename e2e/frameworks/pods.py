"""Runs the containers of pods as processes of this machine, in a network of their own.

Standard input: {"hosts": [name], "files": {path in /etc: text}, "seconds": limit,
"pods": [{"name", "command": [word], "env": {name: value}}]}.
Standard output: [{"name", "code", "output"}]; the code is null for one that was still running at the limit.
To be started by `unshare --map-root-user --net --mount`: names of pods are those of the loopback there.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

SIOCSIFFLAGS, UP_AND_RUNNING = 0x8914, 0x49

task = json.load(sys.stdin)
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", UP_AND_RUNNING))
if task["files"]:
    # What is mounted into a pod lies in folders that are not here: a copy has them.
    with contextlib.suppress(shutil.Error):  # for what only root may read
        shutil.copytree("/etc", "etc", symlinks=True)
    for path, text in task["files"].items():
        copy = pathlib.Path(path.removeprefix("/"))
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)
    subprocess.run(["mount", "--bind", "etc", "/etc"], check=True)
with tempfile.NamedTemporaryFile("w") as hosts:
    for name in ["localhost", socket.gethostname(), *task["hosts"]]:
        hosts.write(f"127.0.0.1 {name}\n")
    hosts.flush()
    subprocess.run(["mount", "--bind", hosts.name, "/etc/hosts"], check=True)

    own = {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/")}
    until = time.monotonic() + task["seconds"]
    started = []
    for pod in task["pods"]:
        output = tempfile.TemporaryFile("w+")
        process = subprocess.Popen(
            pod["command"], env={**own, "OMP_NUM_THREADS": "1", **pod["env"]}, stdout=output, stderr=subprocess.STDOUT
        )
        started.append((pod["name"], process, output))
    ended = []
    for name, process, output in started:
        try:
            code = process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            code = None
        output.seek(0)
        ended.append({"name": name, "code": code, "output": output.read()[-4000:]})
json.dump(ended, sys.stdout)
