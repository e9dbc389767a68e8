"""Export a file on a Dask cluster that loses a worker: `python dask_export.py FILE` prints JSON."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from concurrent.futures import Future  # noqa: TC003 - of a signature

import numba_ptxlink as pl


def main() -> None:
    """Export to memory twice, with and without the cluster, and compare."""
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=logging.ERROR
    )
    killed: list[int] = []
    with cluster, Client(cluster) as client:
        workers = list(client.run(os.getpid).values())

        executor = client.get_executor()
        submit = executor.submit

        def submitted(*args: object) -> Future[object]:
            future: Future[object] = submit(*args)
            future.add_done_callback(kill)
            return future

        def kill(_: object) -> None:
            if not killed:
                killed.append(workers[0])
                os.kill(workers[0], signal.SIGKILL)

        executor.submit = submitted
        by_cluster = pl.export(sys.argv[1], None, arch=["sm_80"], executor=executor)
    by_process = pl.export(sys.argv[1], None, arch=["sm_80"])
    sys.stdout.write(
        json.dumps({"equal": by_cluster.contents == by_process.contents, "killed": len(killed)}) + "\n"
    )


if __name__ == "__main__":
    main()
