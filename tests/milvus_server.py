"""Run a command beside a real Milvus server, whose address it finds in SECONDSIGHT_MILVUS.

    unshare --net --pid --fork --kill-child python milvus_server.py PACKAGES COMMAND…

The server listens on all interfaces, so it is given a network of its own, in which there is nobody else. PACKAGES is
the folder that holds the package ``milvus``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile


def main() -> int:
    packages, *command = sys.argv[1:]
    sys.path.append(packages)
    from milvus import MilvusServer  # pyright: ignore[reportMissingImports]

    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory(prefix="milvus-", ignore_cleanup_errors=True) as place:
        server = MilvusServer()
        server.set_base_dir(place)
        server.start()
        try:
            address = f"milvus://127.0.0.1:{server.listen_port}/contract"
            return subprocess.run(command, env=os.environ | {"SECONDSIGHT_MILVUS": address}, check=False).returncode
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it ends with the namespace at the latest
                server.stop()


if __name__ == "__main__":
    sys.exit(main())
